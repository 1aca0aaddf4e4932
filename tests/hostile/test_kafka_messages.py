"""Invalid or malicious records between good ones, on a real broker.

Each is handled or goes to the dead letters, once, with the reason; the ones around it are handled; offsets move on;
a view on the table shows all of it. Bad bytes of values are in `test_avro_bytes`.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.hostile.raw_records import RawProducer, RawRecord
from tests.system.bench import Bench, Found, until

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable import (
    Avro,
    BatchContext,
    Context,
    Count,
    Group,
    Input,
    Join,
    Kafka,
    Long,
    OnError,
    Output,
    Persist,
    Stream,
    String,
    Table,
)
from streamtable.base.types import TopicPartition
from streamtable.errors import InputLost, UnreadableRow

CLICK: Any = {"type": "record", "name": "Click", "fields": [{"name": "note", "type": "string"}]}
CODEC: Avro[Any] = Avro(CLICK)
GOOD = CODEC.encode({"note": "x"})
AHEAD_MS = 32_503_680_000_000  # the year 3000
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
LARGE = {"max.message.bytes": "2000000"}


@pytest.fixture
def bench(broker: Broker, topics: Topics, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(broker.bootstrap_servers, topics, tmp_path)
    yield made
    made.close()


def count(ctx: Context[str, int], event: Any) -> None:
    assert event["note"] is not None
    assert ctx.headers is not None
    assert ctx.timestamp_ms is not None
    ctx.set((ctx.value or 0) + 1)


def count_batch(records: BatchContext[str, Any, int]) -> None:
    assert [records.headers(index) is not None for index in range(len(records))]
    rows = records.get_many(records.keys)
    for key in records.keys:
        rows[key] = (rows[key] or 0) + 1
    records.put_many(rows)


KINDS: dict[str, dict[str, Any]] = {
    "each": {"handler": count},
    "batch": {"batch": count_batch},
    "count": {"aggregate": Count()},
}


def stream(bench: Bench, name: str = "in") -> Stream[str, Any]:
    return Stream(bench.name(name), String(), CODEC)


def groups(bench: Bench, **changes: Any) -> list[Group[str, int]]:
    """One for each kind of handler, all with the same input. A record that its handler refuses stops the group."""
    made = []
    for kind, how in KINDS.items():
        group: Group[str, int] = Group(bench.name(kind), Input(stream(bench), **how), Persist(Long()))
        bench.create(group, **changes)
        made.append(group)
    return made


def send(bench: Bench, topic: str, *records: RawRecord) -> None:
    with RawProducer(bench.kafka.bootstrap_servers, topic) as producer:
        for record in records:
            producer.send(record)


def work_off(bench: Bench, made: Sequence[Group[str, int]]) -> None:
    """Let all of them handle all input, side by side."""
    running = [(group, bench.run(group)) for group in made]
    for group, each in running:
        bench.wait_handled(group, each)
    for _, each in running:
        each.stop()


def shown(bench: Bench, group: Group[str, int], keys: Sequence[str]) -> dict[str, int]:
    """Return the view's rows for these keys, and all of its rows."""
    with bench.view(group) as view:
        view.wait_ready(30)
        whole = dict(view.range())
        assert {key: view.get(key) for key in keys if view.get(key) is not None} == whole
        return whole


def reasons(letters: Sequence[Found]) -> dict[int, str]:
    """The reason by offset at the origin; each record may be there once."""
    reported = [
        (
            int(letter.headers["streamtable-origin-offset"] or b""),
            letter.headers["streamtable-message"] or b"",
        )
        for letter in letters
    ]
    assert len(dict(reported)) == len(reported), "a record went to the dead letters twice"
    return {offset: reason.decode() for offset, reason in reported}


class Case(NamedTuple):
    """A record, and what must become of it.

    Attributes:
        poison: a part of the reason in the dead letter; "": it is handled.
    """

    name: str
    record: RawRecord
    poison: str = ""


def headers(*names: bytes, value: bytes | None = b"x") -> list[tuple[bytes, bytes | None]]:
    return [(name, value) for name in names]


KEYS = [
    "",
    "k" * 65_536,
    "with\x00nul",
    "with\nnewline",
    "__offset",
    "\x00",
    "\uffff",
    "a/b:c|d",
    "..",
    "é",
    "e\u0301",
]
CASES = [
    Case("no key", RawRecord(None, GOOD), "no key"),
    Case("key that is no text", RawRecord(b"\xff\xfe", GOOD), "not UTF-8"),
    Case("key with a surrogate", RawRecord(b"\xed\xa0\x80", GOOD), "not UTF-8"),
    Case("no value", RawRecord(b"a", None), "tombstone"),
    Case("neither", RawRecord(None, None), "no "),
    Case("empty value", RawRecord(b"a", b""), "begins with nothing"),
    Case("a zero byte", RawRecord(b"a", b"\x00"), "begins with 00"),
    Case("a value of another codec", RawRecord(b"a", b"\x00\x00\x00\x00\x07\x02x"), "begins with 00000000"),
    Case("JSON", RawRecord(b"a", b'{"note": "x"}'), "begins with 7b22"),
    Case("cut short", RawRecord(b"a", GOOD[:-1]), "over the end"),
    *(Case(f"key {key[:9]!r}", RawRecord(key.encode(), GOOD)) for key in KEYS),
    Case("the same record", RawRecord(b"twice", GOOD)),
    Case("the same record", RawRecord(b"twice", GOOD)),
    Case("the same header twice", RawRecord(b"a", GOOD, headers(b"h", b"h"))),
    Case("header without value", RawRecord(b"a", GOOD, headers(b"h", value=None))),
    Case("header without name", RawRecord(b"a", GOOD, headers(b""))),
    Case("header with a zero byte", RawRecord(b"a", GOOD, headers(b"h\x00i"))),
    Case("header whose name is no text", RawRecord(b"a", GOOD, headers(b"\xff\xfe", b"h"))),
    Case("header whose name is a surrogate", RawRecord(b"a", GOOD, headers(b"\xed\xa0\x80"))),
    Case("the same on poison", RawRecord(b"a", b"", headers(b"\xff\xfe", b"h")), "begins with nothing"),
    Case("10,000 headers", RawRecord(b"a", GOOD, headers(*(b"%d" % n for n in range(10_000))))),
    Case(
        "our own headers", RawRecord(b"a", b"", headers(b"streamtable-origin-offset", value=b"x")), "nothing"
    ),
    Case("no time", RawRecord(b"a", GOOD, timestamp_ms=-1)),
    Case("a time before 1970", RawRecord(b"a", GOOD, timestamp_ms=-86_400_000)),
    Case("the earliest time", RawRecord(b"a", GOOD, timestamp_ms=-(2**63))),
    Case("1970", RawRecord(b"a", GOOD, timestamp_ms=0)),
    Case("the year 3000", RawRecord(b"a", GOOD, timestamp_ms=AHEAD_MS)),
    Case("the last time", RawRecord(b"a", GOOD, timestamp_ms=2**63 - 1)),
    Case("no time on poison", RawRecord(b"a", b"", timestamp_ms=-1), "begins with nothing"),
    Case("the year 3000 on poison", RawRecord(b"a", b"", timestamp_ms=AHEAD_MS), "begins with nothing"),
    Case("the last time on poison", RawRecord(b"a", b"", timestamp_ms=2**63 - 1), "begins with nothing"),
]


def expected() -> tuple[dict[str, int], dict[int, str]]:
    """Rows, and reasons by offset: a good record of the key "good" stands before and after each case."""
    rows = {"good": len(CASES) + 1}
    poison = {}
    for number, case in enumerate(CASES):
        if case.poison:
            poison[2 * number + 1] = case.poison
        else:
            key = (case.record.key or b"").decode()
            rows[key] = rows.get(key, 0) + 1
    return rows, poison


def test_odd_records_are_handled_and_bad_ones_set_aside_with_the_reason(bench: Bench) -> None:
    made = groups(bench, config={"in": ANY_TIME})
    topic = bench.name("in")
    good = RawRecord(b"good", GOOD)
    send(bench, topic, good, *(record for case in CASES for record in (case.record, good)))
    rows, poison = expected()
    work_off(bench, made)
    for group in made:
        assert bench.committed(group)[TopicPartition(topic, 0)] == 2 * len(CASES) + 1
        assert bench.rows(group) == bench.table(group) == rows
        assert shown(bench, group, list(rows)) == rows
        letters = bench.letters(group)
        reported = reasons(letters)
        assert reported.keys() == poison.keys()
        assert {offset: reason for offset, reason in poison.items() if reason not in reported[offset]} == {}
        for letter, record in zip(letters, (case.record for case in CASES if case.poison), strict=True):
            assert (letter.key, letter.value) == (record.key, record.value)
            assert letter.headers["streamtable-origin-timestamp-ms"] == b"%d" % record.timestamp_ms
        assert [letter.headers.get("streamtable-headers-unreadable") for letter in letters].count(None) == (
            len(letters) - 1
        )


def test_a_retry_with_unreadable_or_forged_headers_is_set_aside_again(bench: Bench) -> None:
    group = groups(bench)[0]
    origin: list[tuple[bytes, bytes | None]] = [
        (b"streamtable-origin-topic", bench.name("in").encode()),
        (b"streamtable-origin-partition", b"0"),
        (b"streamtable-origin-offset", b"5"),
    ]
    forged: list[list[tuple[bytes, bytes | None]]] = [
        [*origin, (b"\xff", b"x")],
        [origin[0], origin[1], (b"streamtable-origin-offset", b"9" * 5_000)],
        [origin[0], (b"streamtable-origin-partition", b"-1"), origin[2]],
        [(b"streamtable-origin-topic", b"\xff"), *origin[1:]],
        [(b"streamtable-origin-topic", None), *origin[1:]],
        [(b"streamtable-origin-topic", bench.name("elsewhere").encode()), *origin[1:]],
        [*origin, (b"streamtable-attempt", b"many")],
    ]
    send(bench, group.retry, *(RawRecord(b"a", GOOD, each) for each in [*forged, origin]))
    bench.work_off(group)
    assert bench.rows(group) == {"a": 1}
    letters = bench.letters(group)
    assert len(letters) == len(forged)
    assert all(b"retry topic cannot be handled" in (m.headers["streamtable-message"] or b"") for m in letters)


def test_a_record_larger_than_a_megabyte_is_handled_and_a_bad_one_leaves_a_dead_letter_without_it(
    bench: Bench,
) -> None:
    topic = bench.name("in")
    made = groups(bench, config={"in": LARGE})
    note = "x" * (1_048_577 - len(GOOD) - 1)
    large = CODEC.encode({"note": note})
    assert len(large) == 1_048_577
    producer = Producer(
        {
            "enable.idempotence": True,
            "bootstrap.servers": bench.kafka.bootstrap_servers,
            "message.max.bytes": 3_000_000,
        }
    )
    failed: list[KafkaError] = []
    for value in (GOOD, large, GOOD, b"\x00" * 1_048_577, GOOD):
        producer.produce(topic, value, "a", 0, lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failed == []
    work_off(bench, made)
    for group in made:
        assert shown(bench, group, ["a"]) == bench.rows(group) == {"a": 4}
        (letter,) = bench.letters(group)
        assert (letter.key, letter.value) == (b"a", None)
        assert letter.headers["streamtable-value-omitted-bytes"] == b"1048577"


def wait_for_end(bench: Bench, place: TopicPartition, end: int) -> None:
    until(lambda: bench.cluster.watermarks([place])[place].high == end, f"{place} ends at {end}")


def test_aborted_records_markers_and_gaps_change_nothing(bench: Bench) -> None:
    topic = bench.name("in")
    made = groups(bench)
    for name, end in (("lost", 4), ("kept", 9)):
        producer = bench.transaction(name)
        for key in ("a", b"\xff", None):
            producer.produce(topic, GOOD, key, 0)
        producer.flush(30)
        if name == "kept":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        wait_for_end(bench, TopicPartition(topic, 0), end)  # the marker comes a moment after the answer
        bench.send(topic, ("good", GOOD))
    work_off(bench, made)
    for group in made:
        assert shown(bench, group, ["a", "good"]) == bench.rows(group) == {"a": 1, "good": 2}
        assert reasons(bench.letters(group)).keys() == {
            6,
            7,
        }  # 0 to 2 aborted, 3 the marker, 4 good, 5 to 7 kept
        assert bench.committed(group)[TopicPartition(topic, 0)] == 10


def test_a_key_in_the_wrong_partition_is_handled_where_it_stands(bench: Bench) -> None:
    """A writer with another partitioner splits its keys' rows; nothing stops, and the table says what it is."""
    topic = bench.name("in")
    made = groups(bench, partitions=3)
    for partition in range(3):
        bench.send(topic, ("alice", GOOD), ("alice", b""), partition=partition)
    work_off(bench, made)
    for group in made:
        assert [bench.rows(group, partition=partition) for partition in range(3)] == [{"alice": 1}] * 3
        assert [letter.offset for letter in bench.letters(group)] == [0, 0, 0]
        with bench.view(group) as view:
            view.wait_ready(30)
            assert view.get("alice") == 1
            assert view.range() == [("alice", 1)] * 3


def test_foreign_records_in_a_table_are_left_out_or_reported_to_the_callers_that_ask_for_them(
    bench: Bench,
) -> None:
    group = groups(bench)[0]
    bench.send(bench.name("in"), ("good", GOOD), ("gone", GOOD))
    bench.work_off(group)
    send(
        bench,
        group.table.name,
        RawRecord(b"bad", b"\x00"),
        RawRecord(b"\xff\xfe", Long().encode(7), [(b"\xff", b"x")]),
        RawRecord(b"gone", None),
        RawRecord(b"never there", None),
        RawRecord(b"empty", b""),
        RawRecord(b"late", Long().encode(3), timestamp_ms=-5),
    )
    with bench.view(group) as view:
        view.wait_ready(30)
        assert view.get_many(["good", "gone", "never there", "late"]) == {"good": 1, "late": 3}
        for key in ("bad", "empty"):
            with pytest.raises(UnreadableRow, match=r"Long: . bytes, must be 8"):
                view.get(key)
        rows = view.range()
        assert (rows, rows.unreadable) == ([("good", 1), ("late", 3)], 3)
        assert view.range("good", "late") == [("good", 1)]
    # The group itself follows the offsets' metadata and never sees them: what it commits next is on top.
    bench.send(bench.name("in"), ("good", GOOD))
    bench.work_off(group)
    assert bench.rows(group)["good"] == 2


def origins(bench: Bench, group: Group[Any, Any]) -> list[int]:
    """Offsets of the records that are in the dead letters."""
    return [int(letter.headers["streamtable-origin-offset"] or b"") for letter in bench.letters(group)]


def lower_the_limit(bench: Bench, topic: str) -> None:
    """Let a topic accept no record of more than 10,000 bytes from now on."""
    entry = ConfigEntry("max.message.bytes", "10000", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": bench.kafka.bootstrap_servers, "log_level": 0})
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(60)
    producer = Producer({"bootstrap.servers": bench.kafka.bootstrap_servers, "log_level": 0})

    def refused() -> bool:
        answers: list[KafkaError | None] = []
        producer.produce(topic, bytes(20_000), on_delivery=lambda error, _: answers.append(error))
        producer.flush(60)
        return answers[0] is not None

    until(refused, "the broker has taken over the limit, after the controller has answered")


def test_an_output_that_its_topic_refuses_is_a_dead_letter_of_the_record_that_made_it(bench: Bench) -> None:
    out = stream(bench, "out")

    def forward(ctx: Context[str, int], event: Any) -> None:
        ctx.set((ctx.value or 0) + 1)
        odd: Any = {
            "no key": {"key": None},
            "ahead": {"timestamp_ms": AHEAD_MS},
            "float": {"timestamp_ms": 1.5},
            "70 bits": {"timestamp_ms": 1 << 70},
            "header": {"headers": [("h", 7)]},
            "large": {"headers": [("h", bytes(2_000_000))]},
            "value": {"value": 7},
        }.get(event["note"], {})
        ctx.emit(out, **{"key": ctx.key, "value": event, **odd})

    group: Group[str, int] = Group(
        bench.name("g"),
        Input(stream(bench), forward, on_error=OnError.DEAD_LETTER),
        Output(out),
        Persist(Long()),
    )
    bench.create(group, config={"out": {"cleanup.policy": "compact"}})
    notes = ["no key", "ahead", "float", "70 bits", "header", "large", "value"]
    for note in notes:
        bench.send(bench.name("in"), ("a", CODEC.encode({"note": note})), ("a", GOOD))
    bench.work_off(group)
    assert bench.rows(group) == {"a": len(notes)}
    assert origins(bench, group) == [2 * n for n in range(len(notes))]


def test_an_output_that_only_the_broker_refuses_is_traced_to_the_record_that_made_it(bench: Bench) -> None:
    """The limit is lowered after the group has asked for it."""
    out = stream(bench, "out")

    def forward(ctx: Context[str, int], event: Any) -> None:
        ctx.set((ctx.value or 0) + 1)
        large = [("h", os.urandom(50_000))] if event["note"] == "large" else []
        ctx.emit(out, ctx.key, event, headers=large)

    group: Group[str, int] = Group(
        bench.name("g"),
        Input(stream(bench), forward, on_error=OnError.DEAD_LETTER),
        Output(out),
        Persist(Long()),
    )
    bench.create(group)
    running = bench.run(group)
    bench.send(bench.name("in"), ("a", GOOD))
    place = TopicPartition(bench.name("in"), 0)
    until(lambda: bench.committed(group).get(place) == 1, "the first is committed")
    lower_the_limit(bench, out.name)
    large = CODEC.encode({"note": "large"})
    bench.send(bench.name("in"), ("a", GOOD), ("b", large), ("a", GOOD), ("c", large), ("a", GOOD))
    until(lambda: bench.committed(group).get(place) == 6, "the others are committed")
    running.stop()
    assert bench.rows(group) == {"a": 4}
    assert origins(bench, group) == [2, 4]


def test_unreadable_rows_of_tables_are_the_fault_of_the_records_that_ask_for_them(bench: Bench) -> None:
    joined = Table(bench.name("joined"), String(), Long())

    def ask(ctx: Context[str, int], event: Any) -> None:
        ctx.set((ctx.value or 0) + (ctx.join(joined) or 0))

    group: Group[str, int] = Group(
        bench.name("g"),
        Input(stream(bench), ask, on_error=OnError.DEAD_LETTER),
        Join(joined),
        Persist(Long()),
    )
    bench.create(group)
    send(bench, joined.name, RawRecord(b"bad", b"\x00"), RawRecord(b"good", Long().encode(7)))
    bench.send(bench.name("in"), ("good", GOOD), ("bad", GOOD), ("good", GOOD))
    bench.work_off(group)
    assert bench.rows(group) == {"good": 14}
    assert origins(bench, group) == [1]


def high_water_kb() -> int:
    """The most memory that this process has held since it was last forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def bomb(bench: Bench, codec: str, size: int) -> None:
    """Send a record of zeros, which is small as long as it is packed."""
    options = {
        "bootstrap.servers": bench.kafka.bootstrap_servers,
        "compression.type": codec,
        "message.max.bytes": 500_000_000,
        "queue.buffering.max.kbytes": 1_000_000,
    }
    failed: list[KafkaError] = []
    producer = Producer(options)
    producer.produce(
        bench.name("in"), bytes(size), "bomb", 0, lambda error, _: failed.append(error) if error else None
    )
    assert producer.flush(30) == 0
    assert failed == []


def test_a_bomb_of_zeros_is_poison_like_any_other_record(bench: Bench) -> None:
    group = groups(bench)[0]
    bench.send(bench.name("in"), ("good", GOOD))
    for codec, size in (("gzip", 100_000_000), ("lz4", 100_000_000), ("zstd", 40_000_000)):
        bomb(bench, codec, size)
        bench.send(bench.name("in"), ("good", GOOD))
    Path("/proc/self/clear_refs").write_text("5")
    before = high_water_kb()
    bench.work_off(group)
    assert bench.rows(group) == {"good": 4}
    assert all(
        "begins with 0000" in reason or "at most" in reason
        for reason in reasons(bench.letters(group)).values()
    )
    assert reasons(bench.letters(group)).keys() == {1, 3, 5}
    assert high_water_kb() - before < 600_000


def test_a_bomb_that_the_client_refuses_to_unpack_stops_the_group_until_it_may(bench: Bench) -> None:
    group = groups(bench)[0]
    bench.send(bench.name("in"), ("good", GOOD))
    bomb(bench, "zstd", 150_000_000)
    bench.send(bench.name("in"), ("good", GOOD))
    error = bench.run(group).failure()
    assert isinstance(error, InputLost)
    assert (error.topic, error.partition, error.offset) == (bench.name("in"), 0, 1)
    assert "receive.message.max.bytes" in str(error)
    larger = Kafka(bench.kafka.bootstrap_servers, {"receive.message.max.bytes": "400000000"})
    bench.work_off(group, log=larger)
    assert bench.rows(group) == {"good": 2}
    assert reasons(bench.letters(group)).keys() == {1}
