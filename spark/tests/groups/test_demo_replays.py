"""The groups of the demo that Spark has no native form of: their handlers compute their live tables from history."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path
from random import Random
from time import sleep
from typing import Any, Final

import pytest
from pyspark.sql import Row
from spark.tests.groups.test_golden import reach_events

from click_count.topics import USER_CLICKS
from contracts.records import USER_CLICK, Block, PriceAdjustment, StockMovement, Translation
from inventory.flow import ADJUSTMENTS, FLOW, MOVEMENTS, PRODUCTS, REORDERS
from inventory.load import events
from messaging.groups import BLOCKS, DETECTOR, GROUPS, MESSAGES, TRANSLATIONS
from messaging.load import messages
from microbatch import Batch, MicroBatch, Send
from microbatch import Rows as Kind
from servicekit.process.load import LoadOptions
from streamtable import (
    Avro,
    Codec,
    Context,
    Count,
    EventTime,
    Group,
    Input,
    Json,
    Long,
    Persist,
    Stream,
    String,
    Typed,
)
from streamtable.flow import Flow, Tumbling
from streamtable_calls import Call
from streamtable_codecs import Confluent, FileRegistry
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.job_args import arguments, source_of
from streamtable_spark.jobs.positions import TABLE
from streamtable_spark.jobs.reconcile import _differs
from streamtable_spark.jobs.source import Source
from streamtable_spark.replay import SUMMARY, GroupReplay, Summary, counted, program_of
from streamtable_spark.transforms.differences import MISSING
from streamtable_testing import Tester
from streamtable_testing.replay import Replay
from streamtable_testing.topic import InMemoryMessage
from tweet_reach.stages import STATES
from tweet_reach.topics import FOLLOWS, TWEETS

PARTITIONS = 2
MESSAGING = "messaging.groups:GROUPS"
COUNTED: Final = ("url", "reach", "tweets", "authors", "bringing")
INVENTORY = "inventory.flow:FLOW"
REACH = "spark.tests.groups.reach_stages:STAGES"
Rows = dict[tuple[str, int, bytes], bytes]


VIEWS: Final = Flow("views", event_time=EventTime(idle_after=None))
_seen = VIEWS.stream(USER_CLICKS, time=lambda click: int(click["at"])).group_by_key()
_seen.window(Tumbling(timedelta(minutes=1), grace=timedelta(minutes=1))).count("per-minute")


def each_counts(name: str) -> Group[str, int]:
    return Group(name, Input(USER_CLICKS, aggregate=Count()), Persist(Avro("long")))


SENT: Final[list[Any]] = []


async def score(order: Any) -> int:
    SENT.append(order)
    return 1


SCORE: Final[Call[str, Any, Any, Any]] = Call("score", score, request=Json(), response=Json())
ORDERS: Final[Stream[str, Any]] = Stream("orders", String(), Json())


def received(ctx: Context[str, Any], order: Any) -> None:
    ctx.call(SCORE, order)


SCORES: Final = Group("scores", Input(ORDERS, received), SCORE, Persist(Json()))


@dataclass
class Account:
    number: int
    name: str = field(compare=False)


def put(ctx: Context[str, Any], row: Any) -> None:
    ctx.set(row)


def rows_of(codec: Codec[Any]) -> Group[str, Any]:
    return Group("rows", Input(ORDERS, put), Persist(codec))


JSON_ROWS: Final = rows_of(Json())
TYPED_ROWS: Final = rows_of(Typed(Account))


def late_counts(name: str) -> Group[str, int]:
    return Group(name, Input(USER_CLICKS, aggregate=Count(), start="latest"), Persist(Avro("long")))


def each_counts_by_number(name: str) -> Group[int, int]:
    numbers: Stream[int, Any] = Stream("numbers", Long(), Avro(USER_CLICK))
    return Group(name, Input(numbers, aggregate=Count()), Persist(Avro("long")))


def each_counts_for_others(name: str) -> Group[str, int]:
    framing = Confluent(FileRegistry(Path("registry.json")), "counts-value")
    return Group(name, Input(USER_CLICKS, aggregate=Count()), Persist(Avro("long", framing)))


def each_counts_from_others(name: str) -> Group[str, int]:
    framing = Confluent(FileRegistry(Path("registry.json")), "counts-value")
    written: Stream[str, int] = Stream("written", String(), Avro("long", framing))
    return Group(name, Input(written, aggregate=Count()), Persist(Avro("long")))


def history(tester: Tester, group: Group[Any, Any], last: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The records that a job would replay, in its order, without dead letters."""
    letters = {letter.origin for letter in tester.dead_letters(group)}
    dead = {(origin.topic, origin.partition, origin.offset) for origin in letters}
    return sorted(
        (
            {
                "task": place.partition, "topic": place.topic, "partition": place.partition,
                "offset": record.offset(), "ms": record.timestamp()[1], "key": record.key(),
                "value": record.value(), "headers": [
                    (name, value)
                    for name, value in record.headers() or ()
                ],
            }
            for topic in group.input_topics
            for place, record in tester.kafka.records(topic)
            if (topic, place.partition, record.offset()) not in dead
        ),
        key=lambda row: (row["task"], row["topic"] in last, row["ms"], row["topic"], row["offset"]),
    )  # fmt: skip


def replayed(tester: Tester, graph: str, name: str) -> Rows:
    program = program_of(graph, name)
    group = program.load()
    names = {topic: topic for topic in group.input_topics}
    replay = GroupReplay(program, PARTITIONS, tester.clock.now(), names)
    made = list(replay(history(tester, group, program.answers)))
    summaries = [Summary.decode(value) for table, _, _, value in made if table == SUMMARY]
    assert sum(each.events for each in summaries) > 0
    return {(table, number, key): value for table, number, key, value in made if table in program.compared}


def live(tester: Tester, group: Group[Any, Any], tables: Iterable[str]) -> Rows:
    rows = {
        (table, place.partition, record.key() or b""): record.value()
        for table in tables
        for place, record in tester.kafka.records(f"{group.name}-{table}")
    }
    return {key: value for key, value in rows.items() if value is not None}


def assert_replays(tester: Tester, graph: str, groups: Sequence[Group[Any, Any]]) -> None:
    for group in groups:
        program = program_of(graph, group.name)
        found, there = replayed(tester, graph, group.name), live(tester, group, ["table"])
        assert found.keys() == there.keys(), group
        for (table, number, key), value in found.items():
            other = there[table, number, key]
            if key.startswith(b"urls/"):  # a sketch and a list among its fields are as the batches were cut
                one, two = STATES.value.decode(value), STATES.value.decode(other)
                assert [one[name] for name in COUNTED] == [two[name] for name in COUNTED], key
            else:
                assert program.same(table, key, value, other), (group, key)
        assert found, group


def assert_replays_states(tester: Tester, graph: str, group: Group[Any, Any]) -> None:
    program = program_of(graph, group.name)
    found, there = replayed(tester, graph, group.name), live(tester, group, program.compared)
    assert found, group
    assert found.keys() == there.keys(), group
    for row, value in found.items():
        assert value == there[row], row


def test_the_tables_of_messaging_are_what_their_handlers_make_of_history() -> None:
    load = LoadOptions(count=120, rate=0, keys=6, skew=0.5, seed=3)
    with Tester(partitions=PARTITIONS) as tester:
        tester.run(*GROUPS.values())
        for number, word in enumerate(("rain", "hello", "rain")):
            tester.emit(TRANSLATIONS, word, Translation(replacement=f"{number}"))
        for sender, message in islice(messages(load, 1, lambda: int(tester.clock.now() * 1000)), 120):
            tester.advance(0.01)
            tester.emit(MESSAGES, sender, message)
        for sender in ("a", "b", "a"):
            tester.emit(BLOCKS, sender, Block(by=sender, blocked=True))
        kept = [group for group in GROUPS.values() if group.persist is not None]
        assert [group.name for group in kept] == ["collector", "blocker", "translator"]
        assert_replays(tester, MESSAGING, kept)
        for group in DETECTOR.groups:
            if group.states:
                assert_replays_states(tester, MESSAGING, group)


def test_the_rows_of_both_stages_of_tweet_reach_are_what_their_batches_make_of_history() -> None:
    stages = [program_of(REACH, name).load() for name in ("tweet-reach-authors", "tweet-reach-urls")]
    random = Random(29)
    with Tester(partitions=PARTITIONS) as tester:
        tester.create(TWEETS, FOLLOWS)
        tester.run(*stages)
        for topic, key, value in reach_events(random)[:250]:
            tester.emit_raw(topic, key, value)
            tester.advance(0.01)
        tester.advance(30)
        assert_replays(tester, REACH, stages)


def test_the_tables_of_each_group_of_the_inventory_are_what_its_steps_make_of_history() -> None:
    """Joins by a foreign key, a table grouped with retraction, and windows: each group's inputs go through it once more."""
    with Tester(partitions=PARTITIONS) as tester:
        tester.create(REORDERS)
        tester.run(FLOW)
        load = LoadOptions(count=60, rate=0, keys=4, skew=0.5, seed=3)
        for key, event in islice(events(load, lambda: int(tester.clock.now() * 1000)), 60):
            tester.advance(0.01)
            stream: Stream[str, Any] = PRODUCTS if "category" in event else MOVEMENTS
            tester.emit(stream, key, event)
        for number, percent in enumerate((10, -5, None, 3)):
            tester.advance(0.01)
            item = f"product-{number % 3 + 1}@oslo"
            at = int(tester.clock.now() * 1000)
            product = item.partition("@")[0]
            adjusted = PriceAdjustment(
                id=str(number), product=product, warehouse="oslo", percent=percent, at=at
            )
            tester.emit(ADJUSTMENTS, item, adjusted)
        unknown = StockMovement(
            id="0",
            product="nothing",
            warehouse="oslo",
            kind="sold",
            quantity=1,
            at=int(tester.clock.now() * 1000),
        )
        tester.emit(MOVEMENTS, "nothing@oslo", unknown)
        tester.advance(1)
        assert len(tester.dead_letters(FLOW.group())) == 1
        for group in FLOW.groups:
            assert_replays_states(tester, INVENTORY, group)


def test_spark_itself_counts_for_an_audit_and_for_a_rebuild_where_no_ids_have_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(graph: str, *, goes_on: bool) -> Source:
        found = arguments("job", "").parse_args(
            ["--bootstrap-servers", "a:1", "--group", "n", "--graph", graph]
        )
        return source_of(found, goes_on=goes_on)

    once, by_handler = "click_count.topics:by_count", "click_count.topics:by_record"
    assert of(once, goes_on=False).program is None
    assert of(once, goes_on=True).computes.tables == ("table", "ids")
    assert of(by_handler, goes_on=False).program is not None
    each = f"{__name__}:each_counts"
    assert of(each, goes_on=True).program is None
    # Spark's query skips keys that are no text.
    assert of(f"{each}_by_number", goes_on=True).program is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "registry.json").write_text('{"schemas": {"7": "long"}, "subjects": {"counts-value": 7}}')
    # Spark writes the single-object encoding, which readers of this table could not decode.
    assert of(f"{each}_for_others", goes_on=True).program is not None
    # It cannot decode these inputs, which the group's own handlers can.
    assert of(f"{each}_from_others", goes_on=True).program is not None


def test_handlers_compute_a_flow_of_one_input_that_keeps_windows_and_no_table() -> None:
    program = program_of(f"{__name__}:VIEWS", VIEWS.group().name)
    assert "per-minute" in program.compared
    assert TABLE not in program.tables
    assert counted(program) is None


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("streamtable.flow:Flow", "reads nothing"),
        ("streamtable:Group", "reads nothing"),
        ("spark.tests.groups.test_demo_replays:INVENTORY", "no Group and no Flow, but a str"),
        ("re:match", "TypeError"),
    ],
)
def test_what_is_or_makes_no_group_is_refused_with_the_reason(graph: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        program_of(graph, "orders")


def test_a_group_is_found_in_a_graph_by_its_name_with_or_without_a_version() -> None:
    assert program_of(MESSAGING, "collector-v2").name == "collector"
    assert program_of(MESSAGING, "detector-by-user").compared == ("sessions",)
    assert "ids" in program_of(INVENTORY, "inventory").tables
    assert "ids" not in program_of(INVENTORY, "inventory").compared
    with pytest.raises(Exception, match="has no group 'nobody'"):
        program_of(MESSAGING, "nobody")
    with pytest.raises(Exception, match="keeps no table"):
        program_of(MESSAGING, "filter")


def test_a_group_that_calls_other_services_is_refused_since_no_topic_has_their_answers() -> None:
    with pytest.raises(ConfigurationError, match=r"'scores' calls other services \(score\)"):
        program_of(f"{__name__}:SCORES", "scores")


def test_a_replay_makes_no_call_of_history_again() -> None:
    replay = Replay(SCORES, partition=0, partitions=1, now=1_700_000_000.0)
    at_ms = 1_700_000_000_000
    replay.feed("orders", [InMemoryMessage(n, b"k", b'{"id":1}', [], at_ms, None) for n in range(3)])
    replay.finish()
    sleep(0.2)  # a call would run in a thread of its own
    replay.close()
    assert SENT == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'{"paid":true}', b'{"paid":1}', False),
        (b'{"n":1}', b'{"n":1.0}', False),
        (b'{"z":0.0}', b'{"z":-0.0}', False),
        (b'{"a":1,"b":{"c":2,"d":3}}', b'{"b":{"d":3,"c":2},"a":1}', True),
    ],
)
def test_rows_of_json_are_the_same_in_another_order_of_fields_and_not_with_another_kind_of_value(
    one: bytes, other: bytes, *, same: bool
) -> None:
    assert program_of(f"{__name__}:JSON_ROWS", "rows").same(TABLE, b"k", one, other) is same


def total_of(kind: Any) -> MicroBatch:
    totals = Kind("totals", value=Typed(kind))

    def keep(batch: Batch, send: Send) -> None:
        for record in batch.records:
            batch.rows(totals).put(record.key, kind(record.value))

    return MicroBatch("totals", inputs=[AMOUNTS], process=keep, rows=[totals], max_wait=0.1)


@dataclass
class Total:
    cents: int


@dataclass
class LaterTotal:
    cents: int
    note: str = ""


AMOUNTS: Final = Stream("amounts", String(), Long())
TOTALS: Final = total_of(LaterTotal)


def test_the_schemas_of_earlier_versions_of_a_micro_batch_are_no_difference(tester: Tester) -> None:
    first = total_of(Total)
    tester.run(first)
    tester.emit(AMOUNTS, "a", 1)
    tester.stop(first)
    tester.start(TOTALS)
    tester.emit(AMOUNTS, "a", 2)
    live = {record.key() or b"": record.value() or b"" for _, record in tester.kafka.records("totals-table")}
    replay = Replay(TOTALS, partition=0, partitions=1, now=tester.clock.now())
    replay.feed("amounts", [record for _, record in tester.kafka.records("amounts")])
    replay.finish()
    program, expected = program_of(f"{__name__}:TOTALS", "totals"), replay.rows[TABLE]
    assert live.keys() == expected.keys() == {b"totals/a", b"\0kinds/0"}
    assert live[b"\0kinds/0"] != expected[b"\0kinds/0"]
    assert all(program.same(TABLE, key, expected[key], live[key]) for key in live)
    replay.close()
    missing = Row(table=TABLE, key=b"\0kinds/0", difference=MISSING, expected=None, live_value=b"{}")
    assert not _differs(program, missing)
    assert _differs(program, Row(**{**missing.asDict(), "key": b"totals/a"}))
    other = program_of(f"{__name__}:JSON_ROWS", "rows")
    assert _differs(other, missing)  # such a key is a program's own there


def test_rows_of_a_class_differ_in_fields_that_it_does_not_compare() -> None:
    program, codec = program_of(f"{__name__}:TYPED_ROWS", "rows"), Typed(Account)
    one, other = codec.encode(Account(1, "ann")), codec.encode(Account(1, "bob"))
    assert not program.same(TABLE, b"k", one, other)


def test_a_group_that_began_at_the_end_of_an_input_is_refused_unless_all_records_are_asked_for() -> None:
    graph = ["--bootstrap-servers", "h:1", "--graph", f"{__name__}:late_counts", "--group", "late"]
    with pytest.raises(ConfigurationError, match="began at the end of user-clicks"):
        source_of(arguments("reconcile", "").parse_args(graph))
    found = source_of(arguments("reconcile", "").parse_args([*graph, "--allow-missing"]))
    assert found.computes.name == "late"
