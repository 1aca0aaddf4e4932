"""Views move from one source transaction to the next, whatever order the topics are read in."""

import json
import multiprocessing as mp
import random
import re
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given, settings
from hypothesis import strategies as st
from libs.streamtable_capture.tests.shop_rows import Customer
from libs.streamtable_codecs.tests.stand_in import StandIn
from msgspec import Struct

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.topics import create_topics
from localkafka.waiting import wait_until
from streamtable import App, Json, Stream
from streamtable.errors import ConfigurationError, RetryLater, StreamtableError
from streamtable_capture import (
    Capture,
    ConnectKey,
    DatabaseChange,
    DatabaseSource,
    Debezium,
    SourceTransaction,
    TransactionViews,
)
from streamtable_capture.rows import RowType
from streamtable_capture.transactions import (
    ReadChange,
    TableAtOnce,
    TableCount,
    TransactionMark,
    TransactionOrder,
    ValueMissing,
    name_of,
)
from streamtable_codecs import Confluent, FileRegistry


class Account(Struct):
    id: int
    amount: int


Event = tuple[str, Any]
Logged = list[MutableMapping[str, Any]]


def changed(table: str, number: int, order: int, key: int, amount: int, lsn: int) -> Event:
    source = DatabaseSource(lsn=lsn, schema="public", table=table.removeprefix("public."))
    place = SourceTransaction(f"{number}:{lsn}", order, 1)
    return table, ReadChange(
        key, DatabaseChange(op="u", after=Account(key, amount), source=source, transaction=place)
    )


def history(seed: int, number: int) -> tuple[list[list[Event]], list[dict[str, dict[int, int]]]]:
    """Return transactions that move amounts from one table to another, as partitions of events, and the tables after each."""
    chance = random.Random(seed)
    tables: dict[str, dict[int, int]] = {"public.a": {}, "public.b": {}}
    places: dict[Any, list[Event]] = {"marks": []}
    states, lsn = [], 100
    for transaction in range(number):
        amount, key = chance.randint(1, 9), chance.randint(0, 3)
        for order, (table, sign) in enumerate((("public.a", 1), ("public.b", -1)), 1):
            lsn += 10
            tables[table][key] = tables[table].get(key, 0) + sign * amount
            event = changed(table, transaction, order, key, tables[table][key], lsn)
            places.setdefault((table, key % 2), []).append(event)
        lsn += 10
        counts = [TableCount("public.a", 1), TableCount("public.b", 1), TableCount("public.other", 3)]
        places["marks"] += [
            ("BEGIN", TransactionMark("BEGIN", f"{transaction}:{lsn - 30}")),
            ("END", TransactionMark("END", f"{transaction}:{lsn}", data_collections=counts)),
        ]
        states.append({name: dict(rows) for name, rows in tables.items()})
    return list(places.values()), states


def take(order: TransactionOrder, event: Event) -> None:
    if isinstance(event[1], TransactionMark):
        order.ended(event[1])
    else:
        order.read(*event)


def empty() -> tuple[TransactionOrder, dict[str, TableAtOnce]]:
    tables = {name: TableAtOnce(RowType(Account)) for name in ("public.a", "public.b")}
    return TransactionOrder(tables), tables


def amounts(tables: dict[str, TableAtOnce]) -> dict[str, dict[int, int]]:
    return {name: {key: row.amount for key, row in table.rows.items()} for name, table in tables.items()}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.randoms(use_true_random=False))
def test_every_step_is_one_transaction_whatever_order_the_partitions_are_read_in(
    seed: int, chance: Any
) -> None:
    partitions, states = history(seed, 12)
    order, tables = empty()
    order.catch_up()
    seen = []
    while left := [each for each in partitions if each]:
        source = chance.choice(left)
        for _ in range(chance.randint(1, 4)):
            if source:
                take(order, source[0])
                if chance.random() < 0.2:
                    take(order, source[0])  # the connector repeats it
                source.pop(0)
        while order.step():
            seen.append(amounts(tables))
    assert seen == states


def test_without_waiting_for_whole_transactions_a_reader_sees_parts_of_them() -> None:
    partitions, states = history(1, 12)
    _, tables = empty()
    seen = []
    for events in partitions[1:]:
        for table, read in events:
            tables[table].apply(read)
            seen.append(amounts(tables))
    assert seen[-1] == states[-1]
    assert any(sum(sum(rows.values()) for rows in state.values()) for state in seen)


def test_a_transaction_that_lacks_a_change_says_which_table_it_waits_for() -> None:
    order, tables = empty()
    order.catch_up()
    take(order, changed("public.a", 1, 1, 1, 5, 10))
    order.ended(
        TransactionMark(
            "END", "1:30", data_collections=[TableCount("public.a", 1), TableCount("public.b", 2)]
        )
    )
    assert not order.step()
    assert order.missing() == {"public.b": 2}
    assert amounts(tables) == {"public.a": {}, "public.b": {}}


def test_a_transaction_of_other_tables_is_a_step_too() -> None:
    order, _ = empty()
    order.catch_up()
    order.ended(TransactionMark("END", "1:30", data_collections=[TableCount("public.other", 2)]))
    assert order.step()
    assert order.applied == "1:30"


def test_a_changed_key_takes_an_unavailable_value_along_and_an_unavailable_value_without_a_row_is_an_error() -> (
    None
):
    table = TableAtOnce(RowType(Customer))
    source = DatabaseSource(lsn=5, schema="public", table="customers")
    table.apply(ReadChange(1, DatabaseChange(op="c", after=Customer(1, "ann", True, "long"), source=source)))
    moved = DatabaseSource(lsn=9, schema="public", table="customers")
    table.apply(ReadChange(1, DatabaseChange(op="d", source=moved), 7))
    known = {"id": 7, "name": "anna", "active": True}
    incomplete: Any = DatabaseChange(op="c", known=known, unavailable=("bio",), source=moved)
    table.apply(ReadChange(7, incomplete))
    assert table.rows == {7: Customer(7, "anna", True, "long")}
    with pytest.raises(ValueMissing, match=r"'bio' in table 'public\.customers'.*REPLICA IDENTITY FULL"):
        table.apply(ReadChange(8, incomplete))


class Brief(Struct, omit_defaults=True):
    id: int
    bio: str = ""


@pytest.mark.parametrize(("kind", "first"), [(Brief, Brief(1)), (dict, {"id": 1, "bio": ""})])
def test_an_unavailable_value_is_the_one_that_the_row_has_and_a_row_without_the_column_has_none(
    kind: Any, first: Any
) -> None:
    source = DatabaseSource(schema="public", table="customers")
    incomplete: Any = DatabaseChange(op="u", known={"id": 1}, unavailable=("bio",), source=source)
    table = TableAtOnce(RowType(kind))
    table.apply(ReadChange(1, DatabaseChange(op="c", after=first, source=source)))
    table.apply(ReadChange(1, incomplete))
    assert table.rows == {1: first}
    before = TableAtOnce(RowType(dict))
    before.apply(ReadChange(1, DatabaseChange(op="c", after={"id": 1}, source=source)))
    with pytest.raises(ValueMissing, match=r"'bio' in table 'public\.customers' is unavailable"):
        before.apply(ReadChange(1, incomplete))


def test_without_positions_two_changes_of_a_row_in_one_transaction_are_two_and_a_repeated_one_is_one() -> (
    None
):
    order, tables = empty()
    order.catch_up()
    for number, amount in ((1, 5), (2, 6), (2, 6)):
        read = ReadChange(1, DatabaseChange(op="u", after=Account(1, amount)))
        read.change.transaction = SourceTransaction("one", number, number)
        order.read("public.a", read)
    counts = [TableCount("public.a", 3)]
    order.ended(TransactionMark("END", "one", data_collections=counts))
    assert order.missing() == {"public.a": 1}
    read = ReadChange(1, DatabaseChange(op="u", after=Account(1, 7)))
    read.change.transaction = SourceTransaction("one", 3, 3)
    order.read("public.a", read)
    assert order.step()
    assert amounts(tables)["public.a"] == {1: 7}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("743:26497512", "743"),
        ("f0e1-22:17", "f0e1-22:17"),
        ("0-1-17", "0-1-17"),
        ("file=b.1,pos=4", "file=b.1,pos=4"),
    ],
)
def test_transactions_of_postgresql_are_named_by_their_number_and_others_by_their_whole_id(
    written: str, name: str
) -> None:
    assert name_of(written) == name


def test_ten_thousand_ends_of_transactions_are_read_within_a_second() -> None:
    order, _ = empty()
    began = time.process_time()
    for number in range(10_000):
        order.ended(TransactionMark("END", f"{number}:{number}"))
    assert time.process_time() - began < 1


# ---- names of tables -----------------------------------------------------------------------------------------------------


def routed() -> TransactionOrder:
    """Return the order of tables whose topics are called otherwise, at the start."""
    order = TransactionOrder({name: TableAtOnce(RowType(Account)) for name in ("a", "b")})
    order.catch_up()
    return order


def ended(number: int, lsn: int, *tables: str) -> TransactionMark:
    """Return the end of a transaction with a change of each table."""
    counts = [TableCount(table, 1) for table in tables]
    return TransactionMark("END", f"{number}:{lsn}", data_collections=counts)


def read_of(table: str, op: str, lsn: int, *, snapshot: str = "false", number: int = 0, **row: Any) -> Event:
    """Return a change of the row with key 1, in a transaction with this number; 0: in none."""
    source = DatabaseSource(lsn=lsn, schema="public", table=table.removeprefix("public."), snapshot=snapshot)
    place = SourceTransaction(f"{number}:{lsn}", 1, 1) if number else None
    change: Any = DatabaseChange(op=op, source=source, transaction=place, **row)
    return table, ReadChange(None if op == "t" else 1, change)


@pytest.mark.parametrize("end", ["public.{}", "bank.public.{}"])
def test_a_transaction_waits_for_tables_whose_topics_have_other_names(end: str) -> None:
    order = routed()
    for number, lsn in ((1, 10), (2, 30)):
        reads = [changed(f"public.{table}", number, 1, 1, lsn, lsn)[1] for table in ("a", "b")]
        for read in reads:
            read.change.source = DatabaseSource(
                db="bank", schema="public", table=read.change.source.table, lsn=lsn
            )
        order.read("a", reads[0])
        if number == 1:
            order.read("b", reads[1])
        order.ended(ended(number, lsn + 10, end.format("a"), end.format("b")))
        assert order.step() == (number == 1)
    assert order.missing() == {"b": 1}
    order.read("b", reads[1])
    assert order.step()


def test_a_first_change_that_its_transaction_has_not_waited_for_is_an_error_that_says_what_to_declare() -> (
    None
):
    order = routed()
    order.read("a", changed("public.a", 1, 1, 1, 5, 10)[1])
    order.ended(ended(1, 30, "public.a", "public.b"))
    assert order.step()  # nothing has said yet that the topic `b` is of the table `public.b`
    with pytest.raises(ConfigurationError, match=r"changes of 'public\.b' for 'b'.*table="):
        order.read("b", changed("public.b", 1, 2, 1, -5, 20)[1])


def test_a_change_whose_table_is_counted_under_no_name_of_it_is_an_error() -> None:
    order = routed()
    order.read("a", changed("public.a", 1, 1, 1, 5, 10)[1])
    order.ended(ended(1, 30, "elsewhere.a"))
    with pytest.raises(ConfigurationError, match=r"changes of 'public\.a' for 'a'"):
        order.step()


@pytest.mark.parametrize(("form", "table"), [("plain", "public.customers"), ("mariadb", "shop.customers")])
def test_real_connectors_count_a_table_by_the_name_that_its_changes_have(form: str, table: str) -> None:
    lines = (Path(__file__).with_name("recorded") / f"{form}.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    codec: Debezium[Any] = Debezium(dict).keeping(truncations=True)
    rows = TableAtOnce(RowType(dict))
    order = TransactionOrder({"topic": rows})
    order.catch_up()
    *reads, last = [
        ReadChange(
            KEY.decode(written.encode()),
            codec.decode(value.encode()),
            KEY.decode(moved.encode()) if (moved := headers.get("__debezium.newkey")) else None,
        )
        for topic, _, written, value, _, headers in records
        if topic == table and value is not None
    ]
    marks = [
        msgspec.json.decode(each[3], type=TransactionMark) for each in records if each[0] == "transaction"
    ]
    for read in reads:
        order.read("topic", read)
    for mark in marks:
        order.ended(mark)
    while order.step():
        pass
    assert order.missing() == {"topic": 1}
    order.read("topic", last)
    while order.step():
        pass
    assert order.steps == sum(mark.status == "END" for mark in marks)
    assert rows.rows.keys() == {7}


# ---- rows of snapshots ---------------------------------------------------------------------------------------------------


def test_rows_of_a_first_snapshot_that_goes_on_after_the_start_are_there_at_once() -> None:
    order, tables = empty()
    order.catch_up()
    take(order, read_of("public.a", "r", 10, snapshot="true", after=Account(1, 5)))
    assert amounts(tables)["public.a"] == {1: 5}


def test_rows_of_a_snapshot_that_are_read_behind_a_later_transaction_are_there_at_once() -> None:
    order, tables = empty()
    order.catch_up()
    take(order, changed("public.b", 1, 1, 1, 7, 20))
    order.ended(ended(1, 30, "public.b"))
    assert order.step()
    take(order, read_of("public.a", "r", 10, snapshot="true", after=Account(1, 5)))
    assert amounts(tables) == {"public.a": {1: 5}, "public.b": {1: 7}}


@pytest.mark.parametrize("transactions", [0, 1])
def test_a_row_of_a_snapshot_that_may_be_ahead_of_its_transactions_waits_for_them(
    transactions: int,
) -> None:
    order, tables = empty()
    order.catch_up()
    for number in range(transactions):
        order.ended(ended(number, 30))
        assert order.step()
    take(order, read_of("public.a", "r", 50, snapshot="incremental", after=Account(1, 5)))
    assert amounts(tables)["public.a"] == {}
    order.ended(ended(2, 40))
    assert order.step()
    assert amounts(tables)["public.a"] == {}
    order.ended(ended(3, 60))
    assert order.step()
    assert amounts(tables)["public.a"] == {1: 5}


def test_a_transaction_takes_unavailable_values_from_a_row_of_a_snapshot_that_was_read_behind_its_end() -> (
    None
):
    order, tables = empty()
    order.catch_up()
    order.ended(ended(1, 40, "public.a"))
    take(order, read_of("public.a", "r", 10, snapshot="true", after=Account(1, 5)))
    take(order, read_of("public.a", "u", 30, number=1, known={"id": 1}, unavailable=("amount",)))
    assert order.step()
    assert amounts(tables)["public.a"] == {1: 5}


def test_a_row_of_a_snapshot_that_is_read_behind_a_later_truncation_stays_away() -> None:
    order, tables = empty()
    order.catch_up()
    take(order, read_of("public.a", "t", 20, number=1))
    order.ended(ended(1, 30, "public.a"))
    assert order.step()
    take(order, read_of("public.a", "r", 10, snapshot="true", after=Account(1, 5)))
    order.ended(ended(2, 50))
    assert order.step()
    assert amounts(tables)["public.a"] == {}


def test_a_change_without_a_transaction_is_an_error_that_says_what_the_connector_needs() -> None:
    order, tables = empty()
    take(order, read_of("public.a", "u", 10, after=Account(1, 5)))  # of before the connector wrote any
    order.catch_up()
    assert amounts(tables)["public.a"] == {1: 5}
    with pytest.raises(ConfigurationError, match=r"public\.a.*set provide\.transaction\.metadata=true"):
        take(order, read_of("public.a", "u", 20, after=Account(1, 6)))


# ---- over topics ---------------------------------------------------------------------------------------------------------

KEY = ConnectKey(id=int)
PAGE = (Path(__file__).parents[3] / "docs/reference/capture.md").read_text(encoding="utf-8")


def test_the_program_of_the_reference_adds_up_both_tables_at_one_transaction(
    broker: Broker, topics: Topics
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    program: dict[str, Any] = {"__name__": "bank"}
    exec(code.replace("bank.", f"{topics.prefix}."), program)
    create(broker, [*(NewTopic(f"{topics.prefix}.public.{name}", 2) for name in ("accounts", "loans"))])
    create(broker, [NewTopic(f"{topics.prefix}.transaction", 1)])
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    partitions, states = history(1, 12)
    for table, content in (event for events in partitions for event in events):
        if isinstance(content, TransactionMark):
            mark = (
                msgspec.json.encode(content)
                .replace(b"public.a", b"public.accounts")
                .replace(b"public.b", b"public.loans")
            )
            producer.produce(f"{topics.prefix}.transaction", mark, b"{}")
            continue
        name = {"public.a": "accounts", "public.b": "loans"}[table]
        data = Debezium(Account).encode(content.change)
        producer.produce(f"{topics.prefix}.public.{name}", data, ConnectKey(id=int).encode(content.key))
    producer.flush()
    with App(broker.bootstrap_servers, state_dir="unused") as app:
        assert program["total"](app) == 0
        groups = [program["ACCOUNTS"], program["LOANS"]]
        with TransactionViews(app, groups, transactions=f"{topics.prefix}.transaction") as views:
            views.wait_ready()
            assert views.wait_steps(12) == 12
            with views.at_once() as tables:
                found = [{key: row.amount for key, row in tables[each].items()} for each in groups]
            assert found == list(states[-1].values())
            assert (dict(views.incomplete), views.age_seconds) == ({}, 0.0)
            assert in_a_fork(views.wait_ready) == "UsedAfterFork"
            assert in_a_fork(lambda: views.at_once().__enter__()) == "UsedAfterFork"
            assert in_a_fork(views.close) == ""


def test_a_topic_of_transactions_with_several_partitions_is_refused_as_they_have_no_order(
    broker: Broker, topics: Topics
) -> None:
    create(broker, [NewTopic(f"{topics.prefix}.public.a", 1), NewTopic(f"{topics.prefix}.transaction", 3)])
    group = Capture("a", Stream(f"{topics.prefix}.public.a", ConnectKey(id=int), Debezium(Account)))
    with (
        App(broker.bootstrap_servers, state_dir="unused") as app,
        TransactionViews(app, [group], transactions=f"{topics.prefix}.transaction") as views,
        pytest.raises(ConfigurationError, match="has 3 partitions"),
    ):
        views.wait_ready()


class Bank:
    """The topics of a table and of transactions, which a connector would write.

    Args:
        key: The codec of the keys.
        value: The codec that the program declares.
        schema_id: The id of the schema in a header of each record; None: it stands in front of the values.
    """

    def __init__(
        self,
        broker: Broker,
        prefix: str,
        *,
        key: Any = KEY,
        value: Any = None,
        schema_id: bytes | None = None,
    ) -> None:
        self.marks, self.topic, self._key = f"{prefix}.transaction", f"{prefix}.public.a", key
        self.group = Capture("a", Stream(self.topic, key, value or Debezium(Account)))
        self._prefix = b"" if value is None or schema_id else b"\0\0\0\0\1"  # the id of a schema
        self._headers: Any = [("__value_schema_id", schema_id)] if schema_id else None
        create(broker, [NewTopic(self.topic, 1), NewTopic(self.marks, 1)])
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def change(self, number: int, lsn: int, amount: int, key: Any = 1) -> None:
        change = changed("public.a", number, 1, 1, amount, lsn)[1].change
        data = self._prefix + Debezium(Account).encode(change)
        self._producer.produce(self.topic, data, self._key.encode(key), headers=self._headers)
        self._producer.flush()

    def end(self, number: int, lsn: int) -> None:
        mark = msgspec.json.encode(ended(number, lsn, "public.a"))
        self._producer.produce(self.marks, self._prefix + mark, b"{}", headers=self._headers)
        self._producer.flush()

    def views(self, app: App, **given: Any) -> TransactionViews:
        return TransactionViews(app, [self.group], transactions=self.marks, **given)


def test_the_views_wait_for_a_registry_that_does_not_answer(
    broker: Broker, topics: Topics, registry: StandIn, framing: Confluent, logged: Logged
) -> None:
    registry.schemas.append({"schemaType": "JSON", "schema": "{}"})
    registry.away = True
    bank = Bank(broker, topics.prefix, value=Debezium(Account, schemas=framing))
    bank.change(1, 10, 5)
    bank.end(1, 20)
    with App(broker.bootstrap_servers, state_dir="unused") as app, bank.views(app) as views:
        wait_until(lambda: any(each["event"] == "transaction views wait" for each in logged), 30, "a request")
        registry.away = False
        views.wait_ready()
        with views.at_once() as tables:
            assert tables[bank.group] == {1: Account(1, 5)}


def test_the_views_read_records_whose_schema_ids_are_in_headers(
    broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    guid = UUID(int=7)
    schemas = {str(guid): {"schemaType": "JSON", "schema": "{}"}}
    (tmp_path / "schemas.json").write_text(json.dumps({"schemas": schemas}))
    value = Debezium(Account, schemas=Confluent(FileRegistry(tmp_path / "schemas.json")))
    bank = Bank(broker, topics.prefix, value=value, schema_id=b"\1" + guid.bytes)
    bank.change(1, 10, 5)
    bank.end(1, 20)
    with App(broker.bootstrap_servers, state_dir="unused") as app, bank.views(app) as views:
        views.wait_ready()
        with views.at_once() as tables:
            assert tables[bank.group] == {1: Account(1, 5)}


def test_views_that_wait_for_a_registry_can_be_closed(
    broker: Broker, topics: Topics, registry: StandIn, framing: Confluent, logged: Logged
) -> None:
    registry.away = True
    bank = Bank(broker, topics.prefix, value=Debezium(Account, schemas=framing))
    bank.change(1, 10, 5)
    with App(broker.bootstrap_servers, state_dir="unused") as app:
        with bank.views(app) as views:
            wait_until(lambda: any(each["event"] == "transaction views wait" for each in logged), 30, "it")
        with pytest.raises(RetryLater):
            views.wait_ready()


def test_after_an_error_of_any_kind_the_views_raise_instead_of_showing_old_rows(
    broker: Broker, topics: Topics
) -> None:
    bank = Bank(broker, topics.prefix, key=Json())
    with App(broker.bootstrap_servers, state_dir="unused") as app, bank.views(app) as views:
        views.wait_ready()
        bank.change(1, 10, 5, key={"id": 1})  # rows are found by their keys, and a dict is none
        with pytest.raises(StreamtableError, match="unhashable type"):
            views.wait_steps(1)
        assert not views.ready
        with pytest.raises(StreamtableError, match="unhashable type"):
            views.at_once().__enter__()


def test_an_error_at_the_start_reaches_who_waits_for_the_views() -> None:
    group = Capture("a", Stream("bank.public.a", KEY, Debezium(Account)))
    with (
        TransactionViews(NoKafka(), [group], transactions="bank.transaction") as views,
        pytest.raises(StreamtableError, match="no memory"),
    ):
        views.wait_ready()


class NoKafka:
    """An App whose Kafka gives no reader."""

    @property
    def kafka(self) -> Any:
        return self

    def table_reader(self, name: str) -> NoReturn:
        raise ValueError("no memory")


def test_the_age_of_the_views_counts_from_the_end_of_the_transaction_that_is_incomplete(
    broker: Broker, topics: Topics, logged: Logged
) -> None:
    now, bank = [0.0], Bank(broker, topics.prefix)
    with (
        App(broker.bootstrap_servers, state_dir="unused") as app,
        bank.views(app, clock=lambda: now[0]) as views,
    ):
        views.wait_ready()
        now[0] = 3_600.0
        bank.end(1, 20)
        wait_until(lambda: views.incomplete, 30, "the end of the transaction")
        assert views.age_seconds == 0.0
        now[0] = 3_661.0
        assert views.age_seconds == 61.0
        wait_until(lambda: any(each["event"] == "transaction incomplete" for each in logged), 30, "a warning")
        bank.end(2, 40)
        bank.change(1, 10, 5)
        views.wait_steps(1)
        wait_until(lambda: views.incomplete, 30, "the next one")
        assert views.age_seconds == 0.0
        bank.change(2, 30, 6)
        views.wait_steps(2)
        assert views.age_seconds == 0.0


def test_two_topics_of_one_table_are_refused() -> None:
    streams = [
        Stream(name, KEY, Debezium(Account, table="public.a")) for name in ("bank.public.a", "bank.public.b")
    ]
    groups = [Capture(f"group-{number}", stream) for number, stream in enumerate(streams)]
    with pytest.raises(ConfigurationError, match="each of another table"):
        TransactionViews(NoKafka(), groups, transactions="bank.transaction")


def in_a_fork(ask: Callable[[], object]) -> str:
    """Return the name of the error with which a call ends in a forked process; empty if it returns."""
    asked, ended = mp.get_context("fork").Pipe()

    def work() -> None:
        try:
            ask()
            ended.send("")
        except StreamtableError as error:
            ended.send(type(error).__name__)

    child = mp.get_context("fork").Process(target=work)
    child.start()
    assert asked.poll(30), "the call does not end"
    child.join()
    name: str = asked.recv()
    return name


def create(broker: Broker, made: list[NewTopic]) -> None:
    create_topics(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), made)
