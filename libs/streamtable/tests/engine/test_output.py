from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamtable.base.partitioner import partition_for
from streamtable.base.topics import Stream
from streamtable.base.types import RecordBatch
from streamtable.codec.plain import Long, String
from streamtable.engine.output.buffer import OutputBuffer
from streamtable.errors import DeserializationError, GraphError, SerializationError
from streamtable.flow import Windowed, WindowedKey
from streamtable.graph.group import Group, Input, Loop, Output

OUT, GOKA = Stream("out", String(), Long()), Stream("goka", String(), Long(), partitioner="fnv1a")
MINUTES = Stream("minutes", WindowedKey(String(), 60_000), Long())
LOOP = Stream("g-loop", String(), Long())
Make = Callable[..., RecordBatch]


@pytest.fixture
def outgoing(topic_infos: Callable[..., Any], clock: Any) -> OutputBuffer:
    def handle(ctx: Any, event: Any) -> None:
        """Never called."""

    group: Group[str, Any] = Group(
        "g",
        Input(Stream("events", String(), String()), handle),
        Output(OUT),
        Output(GOKA),
        Output(MINUTES),
        Loop(LOOP, handle),
    )
    return OutputBuffer(group, topic_infos(group, partitions=7, max_message_bytes=500), clock)


def test_what_is_emitted_is_encoded_at_once_with_headers_and_time(outgoing: OutputBuffer) -> None:
    outgoing.emit(OUT, "k", 1, [("h", b"x")], 77)
    outgoing.emit(OUT, None, None, (), 0)
    first, second = outgoing.records
    assert first == ("out", b"k", Long().encode(1), [("h", b"x")], 77, -1)
    assert second == ("out", None, None, (), 0, -1)
    assert outgoing.bytes == sum(record.size for record in outgoing.records)


@pytest.mark.parametrize(
    "more",
    [
        {"keys": ["a"]},
        {"keys": (), "raw_keys": [b"a", b"b", b"c"]},
        {"timestamps_ms": [5]},
        {"headers": [()]},
        {"partitions": [1]},
    ],
)
@pytest.mark.parametrize("stream", [OUT, GOKA])
def test_columns_of_other_lengths_are_refused_and_no_record_is_left_out(
    stream: Stream[str, int], more: dict[str, Any], outgoing: OutputBuffer
) -> None:
    given: dict[str, Any] = {"keys": ["a", "b"], "raw_keys": None, "timestamps_ms": None, **more}
    with pytest.raises(ValueError, match=r"2 values.*3 keys|2 values.*1 "):
        outgoing.emit_many(stream, values=[1, 2], **given)
    assert outgoing.records == []


def test_the_loop_needs_no_declaration_of_its_own(outgoing: OutputBuffer) -> None:
    outgoing.emit(LOOP, "k", 1, (), 0)
    assert [record.topic for record in outgoing.records] == ["g-loop"]


def test_what_is_not_declared_is_refused_by_name(outgoing: OutputBuffer) -> None:
    with pytest.raises(GraphError, match=r"'g' emits to 'other', which is not declared: add Output"):
        outgoing.emit(Stream("other", String(), Long()), "k", 1, (), 0)


@pytest.mark.parametrize(
    ("key", "value", "headers"), [("k" * 400, 1, ()), ("k", 1, [("h", b"x" * 400)]), ("k", "text", ())]
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    key: Any, value: Any, headers: Any, outgoing: OutputBuffer
) -> None:
    with pytest.raises(SerializationError):
        outgoing.emit(OUT, key, value, headers, 0)
    assert (outgoing.records, outgoing.bytes) == ([], 0)


def test_a_partition_is_named_where_the_client_would_choose_another(outgoing: OutputBuffer) -> None:
    outgoing.emit(GOKA, "key", 1, (), 0)
    outgoing.emit(GOKA, None, 1, (), 0)
    assert [record.partition for record in outgoing.records] == [partition_for(b"key", 7, "fnv1a"), -1]


def test_windows_are_written_to_the_partition_of_their_key(outgoing: OutputBuffer) -> None:
    keys = [Windowed(key, at, at + 60_000) for key in ("alice", "bob") for at in (0, 60_000, 120_000)]
    for key in keys:
        outgoing.emit(MINUTES, key, 1, (), 0)
    outgoing.emit_many(MINUTES, keys, [1] * len(keys), None, None)
    homes = [partition_for(key.key.encode(), 7) for key in keys]
    assert [record.partition for record in outgoing.records] == homes * 2


def test_a_partition_that_is_given_takes_the_place_of_that_of_the_key(outgoing: OutputBuffer) -> None:
    keys, values, given = ["a", "b", "c"], [1, 2, 3], [6, -1, 0]
    outgoing.emit_many(OUT, keys, values, None, None, None, given)
    outgoing.emit_many(GOKA, keys, values, None, None, None, given)
    outgoing.emit_many(GOKA, ["a", None], [1, 2], None, None, None, [6, 5])
    homes = [6, partition_for(b"b", 7, "fnv1a"), 0]
    assert [record.partition for record in outgoing.records] == [*given, *homes, 6, 5]
    for some in (["a"], [None]):
        with pytest.raises(SerializationError, match="'out' is for partition 7, and the topic has 7"):
            outgoing.emit_many(OUT, some, [1], None, None, None, [7])
    assert len(outgoing.records) == 8


def test_dead_letters_are_counted_and_all_is_forgotten_together(outgoing: OutputBuffer, batch: Make) -> None:
    outgoing.emit(OUT, "k", 1, (), 0)
    outgoing.set_aside(batch("events", [(b"a", b"x")], partition=3), 0, DeserializationError("bad"))
    assert (outgoing.dead_letters, outgoing.records[1].topic, outgoing.records[1].partition) == (
        ["events"],
        "g-dead-letters",
        3,
    )
    outgoing.forget()
    assert (outgoing.records, outgoing.bytes, outgoing.dead_letters) == ([], 0, [])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"timestamp_ms": 1.5}, "the timestamp 1.5: give an int"),
        ({"timestamp_ms": 1 << 70}, "give an int of milliseconds"),
        ({"timestamp_ms": True}, "give an int"),
        ({"timestamp_ms": -1}, "give an int"),
        ({"timestamp_ms": 1_000_000_000 + 3_700_000}, "ahead of the clock: the topic accepts 3600000"),
        ({"timestamp_ms": 1_000_000_000 - 90_000_000}, "behind the clock: the topic accepts 86400000"),
        ({"headers": [("h", 7)]}, "a header of str and int"),
        ({"headers": [("h",)]}, "give \\(name, bytes or None\\)"),
        ({"headers": [("\ud800", b"")]}, "no UTF-8"),
        ({"key": None}, "has no key, and the topic is compacted"),
    ],
)
def test_what_the_topic_would_refuse_is_refused_when_it_is_emitted(
    more: dict[str, Any], why: str, topic_infos: Callable[..., Any], clock: Any
) -> None:
    group: Group[str, Any] = Group(
        "g", Input(Stream("events", String(), String()), lambda _ctx, _event: None), Output(OUT)
    )
    infos = topic_infos(group)
    infos["out"] = replace(
        infos["out"], compacted=True, timestamp_after_max_ms=3_600_000, timestamp_before_max_ms=86_400_000
    )
    outgoing = OutputBuffer(group, infos, clock)
    given: dict[str, Any] = {"key": "k", "value": 1, "headers": (), "timestamp_ms": 0, **more}
    with pytest.raises(SerializationError, match=why):
        outgoing.emit(OUT, given["key"], given["value"], given["headers"], given["timestamp_ms"])
    assert outgoing.records == []
    outgoing.emit(OUT, "k", 1, [("h", b"x"), ("n", None)], 1_000_000_000)


def test_records_with_headers_of_their_own_are_counted_and_checked_as_single_ones(
    outgoing: OutputBuffer,
) -> None:
    headers: list[Any] = [[("h", b"x" * 30)], ()]
    outgoing.emit_many(OUT, ["a", "b"], [1, 2], None, None, headers, own_headers=True)
    assert [record.headers for record in outgoing.records] == headers
    assert outgoing.bytes == sum(record.size for record in outgoing.records)
    wrongs: list[Any] = [[("h", bytes(500))], [("h", "text")]]
    for wrong in wrongs:
        with pytest.raises(SerializationError, match=r"the record for 'out'"):
            outgoing.emit_many(OUT, ["a", "b"], [1, 2], None, None, [(), wrong], own_headers=True)


def test_a_timestamp_that_retention_deletes_at_once_is_said_once_for_each_topic(
    topic_infos: Callable[..., Any], clock: Any, logged: Any
) -> None:
    group: Group[str, Any] = Group(
        "g", Input(Stream("events", String(), String()), lambda _ctx, _event: None), Output(OUT)
    )
    infos = topic_infos(group) | {"out": replace(topic_infos(group)["out"], retention_ms=1_000)}
    outgoing = OutputBuffer(group, infos, clock)
    now = int(clock.now() * 1000)
    outgoing.emit_many(OUT, ["a", "b"], [1, 2], None, [now - 900, now])
    assert not logged
    for time_ms in (now - 1_100, now - 2_000):
        outgoing.emit(OUT, "k", 1, (), time_ms)
    (line,) = logged
    assert (line["event"], line["topic"], line["setting"]) == (
        "record deleted by retention",
        "out",
        "retention.ms",
    )
