"""The table of a `Capture` is the table of the database, whatever order and repeats its changes come in."""

import itertools
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libs.streamtable_capture.tests.recorded_topics import SCHEMAS, Recorded, recorded
from libs.streamtable_capture.tests.shop_database import BIO
from libs.streamtable_capture.tests.shop_rows import Customer, Line
from msgspec import UNSET, Struct, UnsetType
from prometheus_client import CollectorRegistry

from streamtable import Changes, Context, Group, Input, Join, Json, Persist, RowChange, Stream, String, Table
from streamtable.errors import GraphError, SerializationError
from streamtable.flow import Flow
from streamtable.observe import Metrics
from streamtable_capture import Capture, ConnectKey, DatabaseChange, DatabaseSource, Debezium, Truncated
from streamtable_capture.captured import Captured, CapturedRows
from streamtable_capture.rows import RowType
from streamtable_codecs import Confluent, FileRegistry
from streamtable_testing import Tester

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "schemas": {"schemas": True},
    "flat": {"flattened": True},
    "flat-schemas": {"flattened": True, "schemas": True},
    "avro": {"schemas": Confluent(FileRegistry(SCHEMAS))},
    "avro-flat": {"flattened": True, "schemas": Confluent(FileRegistry(SCHEMAS))},
}
ANNA = {7: Customer(7, "anna", True, BIO)}


def avro_key(form: str) -> str:
    schemas = json.loads(SCHEMAS.read_text())["schemas"].values()
    return json.dumps(
        next(each for each in schemas if each.get("connect.name") == f"{form}.public.customers.Key")
    )


def customers(
    form: str = "plain", **given: Any
) -> tuple[Stream[int, DatabaseChange[Customer]], Capture[int, Customer]]:
    schema = '{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false,"name":"NAME"}'
    name = f"{form}.public.customers.Key"
    key = ConnectKey(schema=schema.replace("NAME", name) if "schemas" in form else None, id=int)
    if form.startswith("avro"):
        key = ConnectKey(
            schema=avro_key(form),
            framing=Confluent(FileRegistry(SCHEMAS), f"{form}.public.customers-key"),
            id=int,
        )
    raw = Stream("public.customers", key, Debezium(Customer, **FORMS.get(form, {"flattened": True})))
    return raw, Capture("customers", raw, **given)


def play(tester: Tester, records: Iterable[Recorded], topic: str = "public.customers") -> None:
    for each in records:
        tester.emit_raw(topic, each.key, each.value, headers=each.headers, timestamp_ms=each.timestamp_ms)


@pytest.fixture
def tester() -> Iterable[Tester]:
    with Tester(partitions=3) as made:
        yield made


@pytest.mark.parametrize("form", FORMS)
def test_the_recorded_changes_make_the_rows_of_the_database(tester: Tester, form: str) -> None:
    _, group = customers(form)
    tester.run(group)
    play(tester, recorded(form, "customers"))
    assert tester.table(group.table) == ANNA
    assert not tester.dead_letters(group)


@pytest.mark.parametrize("in_header", [True, False])
def test_a_guid_that_names_the_schema_is_read_in_a_header_and_in_front(
    tester: Tester, tmp_path: Path, *, in_header: bool
) -> None:
    guid = UUID(int=7)
    schemas = {str(guid): {"schemaType": "JSON", "schema": "{}"}}
    (tmp_path / "schemas.json").write_text(json.dumps({"schemas": schemas}))
    codec = Debezium(Customer, schemas=Confluent(FileRegistry(tmp_path / "schemas.json")))
    group = Capture("customers", Stream("raw", ConnectKey(id=int), codec))
    tester.run(group)
    change = b'{"op":"c","after":{"id":1,"name":"ann","active":true,"bio":null},"source":{"lsn":5}}'
    prefix = b"\1" + guid.bytes
    headers = [("__value_schema_id", prefix)] if in_header else []
    tester.emit_raw("raw", b'{"id":1}', change if in_header else prefix + change, headers=headers)
    tester.emit_raw("raw", b'{"id":2}', b"\1 five")
    assert tester.table(group.table) == {1: Customer(1, "ann", True, None)}
    assert ["not Confluent's format" in each.reason for each in tester.dead_letters(group)] == [True]


def test_a_key_or_a_value_that_is_not_utf_8_is_a_dead_letter_and_others_are_applied(tester: Tester) -> None:
    _, group = customers()
    tester.run(group)
    change = b'{"op":"c","after":{"id":1,"name":"NAME","active":true,"bio":null},"source":{"lsn":5}}'
    for key, name in ((b"1", b"\xff"), (b'"\xff"', b"ann"), (b"1", b"ann")):
        tester.emit_raw("public.customers", b'{"id":' + key + b"}", change.replace(b"NAME", name))
    assert tester.table(group.table) == {1: Customer(1, "ann", True, None)}
    assert len(tester.dead_letters(group)) == 2


def test_flattened_records_with_bare_tombstones_are_applied_as_they_come(tester: Tester) -> None:
    _, group = customers("flat-tombstones", repeats="apply")
    tester.run(group)
    play(
        tester, [each for each in recorded("flat-tombstones", "customers") if b'"id":2' in (each.key or b"")]
    )
    assert tester.table(group.table) == {}


def test_without_positions_changes_are_refused_unless_they_are_to_be_applied_as_they_come(
    tester: Tester,
) -> None:
    _, group = customers("flat-tombstones")
    tester.run(group)
    play(tester, recorded("flat-tombstones", "customers"))
    assert "add.fields=op,lsn" in tester.dead_letters(group)[0].reason


@pytest.mark.parametrize(
    ("repeats", "applied"),
    [("drop", {}), ("apply", {1: Customer(1, "anna", True), 2: Customer(2, "bob", True)})],
)
def test_flattened_records_with_a_position_and_without_op_are_refused_as_they_may_be_of_a_snapshot(
    tester: Tester, repeats: Any, applied: Any
) -> None:
    _, group = customers("flat-tombstones", repeats=repeats)
    tester.run(group)
    marks = {"__deleted": "false", "__lsn": 500}
    for key, name in ((1, "ann"), (1, "anna"), (2, "bob")):
        row = {"id": key, "name": name, "active": True, **marks}
        tester.emit_raw("public.customers", b'{"id":%d}' % key, msgspec.json.encode(row))
    assert tester.table(group.table) == applied
    assert group.repeated.count == 0
    reasons = [letter.reason for letter in tester.dead_letters(group)]
    assert len(reasons) == 3 * (repeats == "drop")
    assert all("has no __op" in each and "add.fields=op,lsn" in each for each in reasons)


@pytest.mark.parametrize("form", ["plain", "schemas"])
def test_a_restarted_connector_that_repeats_everything_changes_nothing(tester: Tester, form: str) -> None:
    _, group = customers(form)
    tester.run(group)
    records = recorded(form, "customers")
    play(tester, records)
    for start in range(len(records)):
        play(tester, records[start:])
        assert tester.table(group.table) == ANNA
    assert group.repeated.count > 0


def test_the_metrics_of_a_process_count_the_changes_that_were_dropped(tester: Tester) -> None:
    _, group = customers("plain")
    tester.run(group)
    records = recorded("plain", "customers")
    play(tester, [*records, *records])
    registry = CollectorRegistry()
    metrics = Metrics.register(registry)
    for _ in range(2):  # as the engine does every few seconds
        group.repeated.measure(metrics)
    counted = registry.get_sample_value("streamtable_capture_repeated_total", {"group": "customers"})
    assert counted == group.repeated.count > 0


def of_key(record: Recorded) -> bytes:
    return record.key or b""


@settings(max_examples=20)
@given(st.randoms(use_true_random=False))
def test_the_partitions_of_a_topic_may_be_read_in_any_order(random: Any) -> None:
    by_key = {
        key: list(found)
        for key, found in itertools.groupby(sorted(recorded("plain", "customers"), key=of_key), of_key)
    }
    _, group = customers()
    with Tester(partitions=3) as tester:
        tester.run(group)
        while left := [key for key, records in by_key.items() if records]:
            play(tester, [by_key[random.choice(left)].pop(0)])
        assert tester.table(group.table) == ANNA
        assert not tester.dead_letters(group)


def change(op: str, lsn: int, row: Customer | None = None) -> DatabaseChange[Customer]:
    return DatabaseChange(
        op=op, after=row, source=DatabaseSource(lsn=lsn, schema="public", table="customers", ts_ms=1)
    )


class Shop:
    """Emits changes as a connector does, unavailable values included."""

    def __init__(self, tester: Tester, *, timestamp_ms: int = 0, started: bool = True, **given: Any) -> None:
        self.raw, self.group = customers(**given)
        self.tester, self.timestamp_ms = tester, timestamp_ms
        if started:
            tester.run(self.group)

    def emit(
        self,
        key: int,
        op: str,
        lsn: int,
        *,
        bio: str | None = None,
        unavailable: bool = False,
        **headers: int,
    ) -> None:
        row = None if op == "d" else Customer(key, f"at {lsn}", True, bio)
        if unavailable and row is not None:
            row.bio = "__debezium_unavailable_value"
        named = [(f"__debezium.{name}", b'{"id":%d}' % other) for name, other in headers.items()]
        self.tester.emit(self.raw, key, change(op, lsn, row), headers=named, timestamp_ms=self.timestamp_ms)

    def tombstone(self, key: int) -> None:
        self.tester.emit(self.raw, key, None)

    @property
    def rows(self) -> dict[int, Customer]:
        return dict(self.tester.table(self.group.table))

    @property
    def reasons(self) -> list[str]:
        return [letter.reason for letter in self.tester.dead_letters(self.group)]


@pytest.fixture
def shop(tester: Tester) -> Shop:
    return Shop(tester)


def test_an_unavailable_column_keeps_the_value_of_the_row(shop: Shop) -> None:
    shop.emit(1, "r", 10, bio="long")
    shop.emit(1, "u", 20, unavailable=True)
    assert shop.rows == {1: Customer(1, "at 20", True, "long")}


class Document(Struct):
    id: int
    attrs: str
    files: list[bytes]
    refs: list[UUID]


def test_an_unavailable_hstore_and_unavailable_arrays_keep_the_values_of_the_row(tester: Tester) -> None:
    group = Capture("documents", Stream("documents", ConnectKey(id=int), Debezium(Document)))
    tester.run(group)
    placeholder = "__debezium_unavailable_value"
    unsent = {
        "attrs": f'{{"{placeholder}":"{placeholder}"}}',
        "files": ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="],
        "refs": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    }
    first = Document(1, '{"color":"red"}', [b"long"], [UUID(int=5)])
    for lsn, after in enumerate((first, {"id": 1, **unsent}), 100):
        envelope = {"op": "u", "after": after, "source": {"lsn": lsn}}
        tester.emit_raw("documents", b'{"id":1}', msgspec.json.encode(envelope))
    assert tester.table(group.table) == {1: first}


def test_an_unavailable_column_without_a_row_is_a_dead_letter_that_names_column_table_and_remedy(
    shop: Shop,
) -> None:
    shop.emit(1, "u", 20, unavailable=True)
    assert shop.rows == {}
    (reason,) = shop.reasons
    assert "'bio' in table 'public.customers'" in reason
    assert "public.customers REPLICA IDENTITY FULL" in reason


def test_a_deletion_that_is_repeated_after_the_row_was_made_again_takes_nothing_away(shop: Shop) -> None:
    shop.emit(1, "c", 10)
    shop.emit(1, "d", 20)
    shop.tombstone(1)
    shop.emit(1, "c", 30)
    shop.emit(1, "d", 20)
    shop.tombstone(1)
    assert shop.rows == {1: Customer(1, "at 30", True, None)}
    assert shop.group.repeated.count == 2


def test_a_change_that_is_repeated_after_its_row_was_deleted_brings_nothing_back(shop: Shop) -> None:
    shop.emit(1, "c", 10)
    shop.emit(1, "d", 20)
    shop.tombstone(1)
    shop.emit(1, "c", 10)
    assert shop.rows == {}
    shop.emit(1, "c", 30)
    assert shop.rows == {1: Customer(1, "at 30", True, None)}


def test_a_tombstone_whose_deletion_was_compacted_away_deletes(shop: Shop) -> None:
    shop.emit(1, "c", 10)
    shop.tombstone(1)
    shop.tombstone(1)
    assert shop.rows == {}


def test_the_first_change_after_a_snapshot_is_applied_though_it_has_the_position_of_the_snapshot(
    shop: Shop,
) -> None:
    shop.emit(1, "r", 16, bio="long")
    shop.emit(1, "u", 16, unavailable=True)
    shop.emit(1, "r", 16, bio="long")
    assert shop.rows == {1: Customer(1, "at 16", True, "long")}


def test_a_snapshot_beside_the_stream_does_not_overtake_it(shop: Shop) -> None:
    shop.emit(1, "u", 20)
    shop.emit(1, "r", 15)
    assert shop.rows == {1: Customer(1, "at 20", True, None)}


@pytest.mark.parametrize("deletion_first", [True, False])
def test_a_row_whose_key_has_changed_takes_unavailable_columns_from_the_old_key(
    shop: Shop, *, deletion_first: bool
) -> None:
    shop.emit(1, "c", 10, bio="long")
    if deletion_first:
        shop.emit(1, "d", 20, newkey=7)
    shop.emit(7, "c", 20, unavailable=True, oldkey=1)
    shop.emit(1, "d", 20, newkey=7)
    assert shop.rows == {7: Customer(7, "at 20", True, "long")}
    assert not shop.reasons


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_row_whose_key_changes_twice_takes_them_along(shop: Shop, order: tuple[int, ...]) -> None:
    shop.emit(1, "c", 10, bio="long")
    steps = [
        lambda: shop.emit(1, "d", 20, newkey=7),
        lambda: shop.emit(7, "c", 20, unavailable=True, oldkey=1),
        lambda: shop.emit(7, "d", 30, newkey=8),
        lambda: shop.emit(8, "c", 30, unavailable=True, oldkey=7),
    ]
    if order.index(1) > order.index(2):
        return  # two changes of one key keep their order
    for each in order:
        steps[each]()
    assert shop.rows == {8: Customer(8, "at 30", True, "long")}
    assert not shop.reasons


def test_a_row_that_waits_for_its_old_key_takes_later_changes(shop: Shop) -> None:
    shop.emit(1, "c", 10, bio="long")
    shop.emit(7, "c", 20, unavailable=True, oldkey=1)
    shop.emit(7, "u", 30, unavailable=True)
    assert shop.rows == {1: Customer(1, "at 10", True, "long")}
    shop.emit(1, "d", 20, newkey=7)
    assert shop.rows == {7: Customer(7, "at 30", True, "long")}


def test_a_row_that_waits_and_gets_all_its_columns_waits_no_longer(shop: Shop) -> None:
    shop.emit(1, "c", 10, bio="long")
    shop.emit(7, "c", 20, unavailable=True, oldkey=1)
    shop.emit(7, "u", 30, bio="own")
    shop.emit(1, "d", 20, newkey=7)
    assert shop.rows == {7: Customer(7, "at 30", True, "own")}


def test_a_row_that_waits_for_a_key_that_the_group_never_had_is_a_dead_letter(shop: Shop) -> None:
    shop.emit(7, "c", 20, unavailable=True, oldkey=1)
    shop.emit(1, "d", 20, newkey=7)
    assert shop.rows == {}
    assert "REPLICA IDENTITY FULL" in shop.reasons[0]


def test_a_row_that_waits_for_a_key_that_waited_in_vain_is_a_dead_letter(shop: Shop) -> None:
    shop.emit(7, "c", 20, unavailable=True, oldkey=1)
    shop.emit(7, "d", 30, newkey=8)
    shop.emit(8, "c", 30, unavailable=True, oldkey=7)
    shop.emit(1, "d", 20, newkey=7)
    assert shop.rows == {}
    assert len(shop.reasons) == 1
    assert "'bio' in table 'public.customers'" in shop.reasons[0]


def test_a_row_that_waits_in_vain_becomes_a_dead_letter(tester: Tester) -> None:
    shop = Shop(tester, deleted_for=timedelta(seconds=20))
    shop.emit(7, "c", 20, unavailable=True, oldkey=1)
    assert not shop.reasons
    shop.tester.advance(60)
    assert "has waited for 'bio' of its old key" in shop.reasons[0]


MONTH_AGO_MS = -30 * 86_400_000


@pytest.mark.parametrize("twice", [False, True])
def test_a_row_of_an_old_topic_waits_for_its_old_key_as_long_as_one_of_today(
    tester: Tester, *, twice: bool
) -> None:
    """The records of a month ago are read from partitions of their own, one before the other."""
    shop = Shop(tester, timestamp_ms=int(tester.clock.now() * 1000) + MONTH_AGO_MS)
    shop.emit(1, "c", 10, bio="long")
    shop.emit(7, "c", 20, unavailable=True, oldkey=1)
    tester.advance(5)
    if twice:
        shop.emit(7, "u", 30, unavailable=True)
        tester.advance(5)
    shop.emit(1, "d", 20, newkey=7)
    assert shop.rows == {7: Customer(7, "at 30" if twice else "at 20", True, "long")}
    assert not shop.reasons


def test_a_row_of_an_old_topic_that_waits_in_vain_becomes_a_dead_letter_too(tester: Tester) -> None:
    old_ms = int(tester.clock.now() * 1000) + MONTH_AGO_MS
    shop = Shop(tester, deleted_for=timedelta(seconds=20), timestamp_ms=old_ms)
    shop.emit(7, "c", 20, unavailable=True, oldkey=1)
    tester.advance(5)
    assert not shop.reasons
    tester.advance(60)
    assert "has waited for 'bio' of its old key" in shop.reasons[0]


def test_a_deletion_in_an_old_topic_is_remembered(tester: Tester) -> None:
    shop = Shop(tester, timestamp_ms=int(tester.clock.now() * 1000) + MONTH_AGO_MS)
    shop.emit(1, "c", 10)
    shop.emit(1, "d", 20)
    tester.advance(5)
    shop.emit(1, "c", 10)
    assert shop.rows == {}


def test_a_truncation_stops_the_group(tester: Tester) -> None:
    raw = Stream("public.lines", ConnectKey(order_id=int, line=int), Debezium(Line))
    tester.run(Capture("lines", raw))
    with pytest.raises(Truncated, match=r"public\.lines"):
        play(tester, recorded("truncates", "lines"), "public.lines")


class Guest(Struct):
    id: int
    name: str
    bio: str | None
    active: int


def in_one_second(value: bytes) -> bytes:
    """Return a record whose change was made in the second of the snapshot: a binlog has no finer times."""
    return re.sub(rb'"ts_ms":\d{13}', b'"ts_ms":1795891701000', value)


def read_late(value: bytes) -> bytes:
    """Return a record of a snapshot whose table was read after all changes; its position is taken before any table is read."""
    return re.sub(rb'"ts_ms":\d{13}', b'"ts_ms":1795891999000', value) if b'"op":"r"' in value else value


@pytest.mark.parametrize("timed", [bytes, in_one_second, read_late])
def test_changes_of_a_binlog_make_the_rows_of_the_database_and_repeats_change_nothing(
    tester: Tester, timed: Callable[[bytes], bytes]
) -> None:
    raw = Stream("shop.customers", ConnectKey(id=int), Debezium(Guest, table="shop.customers"))
    group = Capture("guests", raw)
    tester.run(group)
    records = recorded("mariadb", "customers", schema="shop")
    records = [replace(each, value=each.value and timed(each.value)) for each in records]
    for start in range(len(records)):
        play(tester, records[start:], "shop.customers")
        assert tester.table(group.table) == {7: Guest(7, "anna", "likes tea", 0)}
    assert not tester.dead_letters(group)


GROUP = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
OF_TWO_PRIMARIES = [(1, 500, 1_000), (2, 1_000_010, 2_000), (1, 501, 3_000)]
"""Server, number and time of changes of one row. The members of MySQL's Group Replication count in blocks of their own."""


@pytest.mark.parametrize(("repeats", "applied"), [("drop", 2_000), ("apply", 3_000)])
def test_changes_of_a_mysql_group_whose_numbers_have_no_order_are_refused_or_applied_as_they_come(
    tester: Tester, repeats: Any, applied: int
) -> None:
    raw = Stream("shop.customers", ConnectKey(id=int), Debezium(Guest, table="shop.customers"))
    group = Capture("guests", raw, repeats=repeats)
    tester.run(group)
    for server, number, ts_ms in OF_TWO_PRIMARIES:
        place: dict[str, Any] = {
            "gtid": f"{GROUP}:{number}",
            "server_id": server,
            "file": f"b.{server}",
            "pos": number,
        }
        source = DatabaseSource(db="shop", table="customers", ts_ms=ts_ms, row=0, **place)
        tester.emit(raw, 1, DatabaseChange(op="u", after=Guest(1, "ann", None, ts_ms), source=source))
    assert tester.table(group.table) == {1: Guest(1, "ann", None, applied)}
    reasons = [letter.reason for letter in tester.dead_letters(group)]
    assert len(reasons) == (repeats == "drop")
    assert all("Group Replication" in each and "repeats='apply'" in each for each in reasons)
    assert group.repeated.count == 0


def clearing(tester: Tester) -> Shop:
    return Shop(tester, truncate="clear")


def truncate(shop: Shop, lsn: int, partition: int) -> None:
    data = Debezium(Customer).encode(change("t", lsn))
    shop.tester.kafka.append(shop.raw.name, None, data, partition=partition)
    shop.tester.work()


@pytest.mark.parametrize("partition", range(3))
def test_a_truncation_deletes_the_rows_of_all_partitions(tester: Tester, partition: int) -> None:
    shop = clearing(tester)
    for key in range(40):
        shop.emit(key, "c", 10 + key)
    truncate(shop, 1_000, partition)
    assert shop.rows == {}
    shop.emit(3, "c", 1_010)
    truncate(shop, 1_000, partition)
    assert shop.rows == {3: Customer(3, "at 1010", True, None)}
    assert not shop.reasons


def test_changes_after_a_truncation_that_arrive_before_it_stay_and_those_of_before_that_arrive_after_it_do_not(
    tester: Tester,
) -> None:
    shop = clearing(tester)
    shop.emit(1, "c", 10)
    shop.emit(2, "c", 1_010)
    truncate(shop, 1_000, 0)
    shop.emit(3, "c", 20)
    shop.emit(2, "d", 30)
    shop.tombstone(2)
    assert shop.rows == {2: Customer(2, "at 1010", True, None)}
    shop.emit(1, "c", 1_020)
    assert shop.rows[1] == Customer(1, "at 1020", True, None)


def test_a_row_that_waits_for_its_old_key_is_forgotten_by_a_truncation(tester: Tester) -> None:
    shop = Shop(tester, truncate="clear", deleted_for=timedelta(seconds=20))
    shop.emit(1, "c", 10, bio="long")
    shop.emit(7, "c", 20, unavailable=True, oldkey=1)
    truncate(shop, 1_000, 2)
    shop.emit(1, "d", 20, newkey=7)
    shop.tester.advance(60)
    assert shop.rows == {}
    assert not shop.reasons


@pytest.mark.parametrize("crash_at", ["outputs-produced", "offsets-sent", "committed"])
def test_a_truncation_clears_the_table_though_the_processor_is_killed(tester: Tester, crash_at: str) -> None:
    shop = clearing(tester)
    for key in range(20):
        shop.emit(key, "c", 10 + key)
    tester.crash(shop.group, at=crash_at)
    data = Debezium(Customer).encode(change("t", 1_000))
    tester.kafka.append(shop.raw.name, None, data, partition=1)
    tester.work()
    tester.start(shop.group)
    tester.work()
    assert shop.rows == {}


def test_the_recorded_truncation_clears_the_table(tester: Tester) -> None:
    raw = Stream("public.lines", ConnectKey(order_id=int, line=int), Debezium(Line))
    group = Capture("lines", raw, truncate="clear")
    tester.run(group)
    play(tester, recorded("truncates", "lines")[:1], "public.lines")
    assert len(tester.table(group.table)) == 1
    play(tester, recorded("truncates", "lines")[1:], "public.lines")
    assert tester.table(group.table) == {}


def test_a_record_without_a_key_that_is_no_truncation_is_a_dead_letter_that_asks_for_a_primary_key(
    tester: Tester,
) -> None:
    shop = clearing(tester)
    tester.emit_raw(shop.raw.name, None, Debezium(Customer).encode(change("c", 10, Customer(1, "x", True))))
    assert "'public.customers' has no primary key" in shop.reasons[0]


def test_positions_of_two_databases_in_one_topic_are_dead_letters(tester: Tester) -> None:
    shop = Shop(tester)
    shop.emit(1, "c", 10)
    mysql = DatabaseChange(
        op="u",
        after=Customer(1, "x", True),
        source=DatabaseSource(file="b.1", pos=4, table="customers", schema="public"),
    )
    tester.emit(shop.raw, 1, mysql)
    assert "cannot be compared" in shop.reasons[0]


def test_a_captured_table_is_joined_followed_viewed_and_read_by_flows(tester: Tester) -> None:
    shop = Shop(tester)
    orders = Stream("orders", ConnectKey(id=int), String())
    seen: list[tuple[str | None, ...]] = []
    names: Table[int, Any] = shop.group.table

    def joined(ctx: Context[int, Any], order: str) -> None:
        row = ctx.join(names)
        ctx.set(f"{order} of {row.name if row else 'nobody'}")

    def changed(_ctx: Context[int, None], found: RowChange[Customer]) -> None:
        seen.append(tuple(row.name if row else None for row in (found.old, found.new)))

    flow = Flow("active")
    active = flow.table(names, group="active-flow").filter(lambda row: row.active)
    lengths = active.group_by("by-name", lambda _row: "all", key=String()).count("number")
    tester.run(
        Group("joins", Input(orders, joined), Join(names), Persist(String())),
        Group("follows", Changes(names, changed, start="earliest")),
        flow,
    )
    view = tester.view(names)
    shop.emit(1, "c", 10, bio="long")
    shop.emit(1, "u", 20, unavailable=True)
    tester.emit(orders, 1, "a book")
    assert tester.table(Table("joins-table", ConnectKey(id=int), String())) == {1: "a book of at 20"}
    assert seen == [(None, "at 10"), ("at 10", "at 20")]
    assert view.get(1) == Customer(1, "at 20", True, "long")
    assert tester.table(lengths.table) == {"all": 1}
    shop.emit(1, "d", 30)
    assert view.get(1) is None
    assert tester.table(lengths.table) == {"all": 0}


def test_the_topic_of_the_table_is_json_that_other_programs_read(tester: Tester) -> None:
    shop = Shop(tester)
    shop.emit(1, "c", 10)
    raw: Table[int, Any] = Table("customers-table", ConnectKey(id=int), Json())
    assert tester.table(raw) == {1: {"id": 1, "name": "at 10", "active": True, "bio": None, "__position": 10}}


class Slim(Struct):
    """`Customer` as the program had it before."""

    id: int
    name: str
    active: bool


Slim.__qualname__ = Customer.__qualname__


@pytest.mark.parametrize("moved", [False, True])
def test_a_column_that_the_class_has_got_since_is_not_its_default_where_the_change_does_not_say_it(
    tester: Tester, *, moved: bool
) -> None:
    raw = Stream("public.customers", ConnectKey(id=int), Debezium(Slim))
    slim: Capture[int, Any] = Capture("customers", raw)
    tester.run(slim)
    tester.emit(raw, 1, DatabaseChange(op="c", after=Slim(1, "ann", True), source=change("c", 10).source))
    tester.stop(slim)
    shop = Shop(
        tester, started=False
    )  # as the program is now, with the bio that the database has had all the time
    tester.start(shop.group)
    assert shop.rows == {1: Customer(1, "ann", True, None)}
    if moved:
        shop.emit(1, "d", 20, newkey=7)
        shop.emit(7, "c", 20, unavailable=True, oldkey=1)
    else:
        shop.emit(1, "u", 20, unavailable=True)
    assert shop.rows == ({} if moved else {1: Customer(1, "ann", True, None)})
    assert "the value of 'bio' in table 'public.customers' is unavailable" in shop.reasons[0]


class Measured(Struct):
    id: int
    note: str | None
    degrees: float | None
    all: list[float] | None = None


@pytest.mark.parametrize("row", [Measured(1, None, float("nan")), Measured(1, None, 1.5, [float("-inf")])])
def test_a_number_that_json_does_not_have_is_a_dead_letter_and_not_null(row: Measured) -> None:
    codec = CapturedRows(RowType(Measured))
    with pytest.raises(SerializationError, match="Measured has a number that is NaN or infinite"):
        codec.encode(Captured(RowType(Measured), row, 10))
    assert (
        codec.decode(codec.encode(Captured(RowType(Measured), Measured(1, None, 1.5), 10))).row.degrees == 1.5
    )


class Brief(Struct, omit_defaults=True, rename={"bio": "about"}):
    id: int
    bio: str = ""
    number: int = 0


def test_a_row_of_a_class_that_omits_defaults_keeps_a_value_that_is_its_default(tester: Tester) -> None:
    group = Capture("briefs", Stream("raw", ConnectKey(id=int), Debezium(Brief)))
    tester.run(group)
    for op, lsn, about in (("c", 10, ""), ("u", 20, "__debezium_unavailable_value")):
        change = {"op": op, "after": {"id": 1, "about": about, "number": lsn}, "source": {"lsn": lsn}}
        tester.emit_raw("raw", b'{"id":1}', msgspec.json.encode(change))
    assert tester.table(group.table) == {1: Brief(1, "", 20)}
    assert not tester.dead_letters(group)
    assert group.table.value.encode(Brief(1)) == b'{"id":1,"about":"","number":0}'


class Unset(Struct, omit_defaults=True):
    id: int
    bio: str | UnsetType = UNSET


def test_a_field_that_is_unset_is_not_in_the_row(tester: Tester) -> None:
    group = Capture("unset", Stream("raw", ConnectKey(id=int), Debezium(Unset)))
    tester.run(group)
    tester.emit_raw("raw", b'{"id":1}', b'{"op":"c","after":{"id":1},"source":{"lsn":1}}')
    assert (tester.table(group.table), tester.dead_letters(group)) == ({1: Unset(1)}, [])


class Wider(Struct):
    id: int
    name: str
    joined: int = 0


def test_rows_that_were_written_before_a_column_was_added_have_its_default(tester: Tester) -> None:
    shop = Shop(tester)
    shop.emit(1, "c", 10)
    wider = Capture("customers", Stream("public.customers", ConnectKey(id=int), Debezium(Wider)))
    assert tester.table(wider.table) == {1: Wider(1, "at 10", 0)}


@pytest.mark.parametrize("crash_at", ["outputs-produced", "offsets-sent", "committed"])
def test_a_killed_processor_leaves_every_change_applied_once(tester: Tester, crash_at: str) -> None:
    _, group = customers()
    tester.run(group)
    records = recorded("plain", "customers")
    play(tester, records[:2])
    tester.crash(group, at=crash_at)
    play(tester, records[2:])
    tester.start(group)
    assert tester.table(group.table) == ANNA
    assert group.repeated.count == 0


@pytest.mark.parametrize("given", [{"repeats": "all"}, {"deleted_for": timedelta(0)}, {"truncate": "all"}])
def test_arguments_out_of_their_range_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match=next(iter(given))):
        customers(**given)


def test_a_capture_reads_changes_only() -> None:
    values: Any = Json()
    with pytest.raises(GraphError, match="value=Debezium"):
        Capture("customers", Stream("raw", ConnectKey(id=int), values))
