"""The checks of flows: an argument that cannot be used is refused when it is given, with what to write instead."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from streamtable import (
    Avro,
    Bytes,
    Count,
    Json,
    Long,
    NoKey,
    OnError,
    Output,
    Stream,
    String,
    Table,
    Typed,
)
from streamtable.base.decoding import ItemCodec
from streamtable.errors import GraphError, SerializationError
from streamtable.flow import Flow, Session, SessionKey, Tumbling, Windowed, WindowedKey
from streamtable_testing.tester import Tester

MINUTE = timedelta(minutes=1)
NOW = timedelta(0)
NUMBERS: Any = Stream("numbers", String(), Long())
OUT: Any = Stream("out", String(), Long())
ROWS: Any = Table("rows", String(), Long())
TUMBLING = Tumbling(MINUTE, grace=NOW)


def pair(*both: Any) -> Any:
    return both


# ---- codecs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.key_by("x", str, key=String), r"key=String, which is a class: write String\(\)"),
        (lambda s: s.group_by("x", str, key=lambda v: v), r"key=.*no encode\(\) and decode\(\)"),
        (lambda s: s.repartition("x", value=Long), "value=Long, which is a class"),
        (lambda s: s.map_values(str, value=String), "map_values has value=String, which is a class"),
        (lambda s: s.to_table("x").map_values(str, value=String), "map_values has value=String"),
        (lambda s: s.group_by_key().count("x", value=Long), "value=Long, which is a class"),
        (lambda s: s.to_table("x").group_by("y", str, key=String(), value=Long), "value=Long, which is a"),
        (lambda s: s.process(print, value=Json), "process has value=Json, which is a class"),
    ],
)
def test_a_class_or_a_function_in_place_of_a_codec_is_refused(
    build: Callable[[Any], Any], reason: str
) -> None:
    with pytest.raises(GraphError, match=reason):
        build(Flow("f").stream(NUMBERS))


class Sale(msgspec.Struct, frozen=True):
    sale: int


class Refund(msgspec.Struct, frozen=True):
    refund: int


@pytest.mark.parametrize(
    "step",
    [
        lambda s, s2: s.merge(s2),
        lambda s, s2: s.join("j", s2, pair, within=MINUTE, grace=NOW),
        lambda s, s2: s.join_table(s2.to_table("t"), pair),
        lambda s, s2: s.join_as_of("j", s2.to_table("t"), pair, history=MINUTE, grace=NOW),
        lambda s, s2: s.to_table("t").outer_join("j", s2.to_table("t2"), pair),
        lambda s, s2: s.group_by_key().cogroup(max).cogroup(s2.group_by_key(), max),
        lambda s, s2: (
            s.group_by_key()
            .window(TUMBLING)
            .count("c")
            .join("j", s2.group_by_key().window(TUMBLING).count("c2"), pair)
        ),
    ],
)
def test_sides_whose_equal_keys_have_other_bytes_are_refused_as_none_would_match(
    step: Callable[[Any, Any], Any],
) -> None:
    flow = Flow("f")
    sales, refunds = (
        flow.stream(Stream(name, Typed(kind), Long())) for name, kind in (("s", Sale), ("r", Refund))
    )
    with pytest.raises(GraphError, match=r"of keys by .* with keys by .*: equal keys.*key_by"):
        step(sales, refunds)


# ---- large flows ------------------------------------------------------------------------------------------------------------


def test_a_flow_of_many_branches_that_meet_again_is_built_and_described() -> None:
    flow = Flow("f")
    stream = flow.stream(NUMBERS)
    for _ in range(60):  # the number of paths doubles with each
        stream = stream.merge(*stream.split(bool))
    stream.process(lambda ctx, value: [value]).to(Stream("out", String(), Long()))
    assert [group.name for group in flow.groups] == ["f"]
    assert str(flow.describe()).count("split") < 1_000
    assert len(repr(stream._node)) < 1_000


def test_a_flow_may_have_more_steps_in_a_row_than_calls_can_be_nested(tester: Tester) -> None:
    flow = Flow("f")
    stream = flow.stream(NUMBERS)
    for _ in range(2_000):
        stream = stream.map_values(lambda value: value + 1, value=Long())
    stream.process(lambda ctx, value: [value], value=Long()).to(OUT)
    tester.run(flow)
    tester.emit(NUMBERS, "a", 1)
    assert [record.value for record in tester.records(OUT)] == [2_001]
    assert str(flow.describe()).count("map_values") == 2_000


# ---- streams and tables of another flow -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (lambda s, t, s2, t2: s.merge(s2), r"merge\(\) with 'stream numbers'"),
        (lambda s, t, s2, t2: s.join("j", s2, pair, within=MINUTE, grace=NOW), r"join\('j'\)"),
        (lambda s, t, s2, t2: s.left_join("j", s2, pair, within=MINUTE, grace=NOW), r"left_join\('j'\)"),
        (lambda s, t, s2, t2: s.outer_join("j", s2, pair, within=MINUTE, grace=NOW), r"outer_join\('j'\)"),
        (lambda s, t, s2, t2: s.join_table(t2, pair), r"join_table\(\) with 'table rows'"),
        (lambda s, t, s2, t2: s.left_join_table(t2, pair), r"left_join_table\(\)"),
        (lambda s, t, s2, t2: s.join_as_of("j", t2, pair, history=MINUTE, grace=NOW), "join_as_of"),
        (lambda s, t, s2, t2: t.join("j", t2, pair), r"join\('j'\) with 'table rows'"),
        (lambda s, t, s2, t2: t.left_join("j", t2, pair, on=str), r"left_join\('j'\)"),
        (lambda s, t, s2, t2: t.outer_join("j", t2, pair), r"outer_join\('j'\)"),
        (lambda s, t, s2, t2: s.group_by_key().cogroup(max).cogroup(s2.group_by_key(), max), "cogroup"),
        (lambda s, t, s2, t2: s.repartition("r", beside=s2), r"beside= of repartition\('r'\)"),
        (lambda s, t, s2, t2: s.key_by("r", str, key=String(), beside=t2), r"beside= of key_by\('r'\)"),
    ],
)
@pytest.mark.parametrize("other", ["g", "f"])
def test_a_stream_or_table_of_another_flow_is_refused_whatever_its_name(
    step: Callable[..., Any], what: str, other: str
) -> None:
    one, two = Flow("f"), Flow(other)
    parts = [part for flow in (one, two) for part in (flow.stream(NUMBERS), flow.table(ROWS))]
    with pytest.raises(GraphError, match=f"{what}.*of another Flow: build both with the same Flow object"):
        step(*parts)


# ---- arguments of another kind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda f, s, t: f.stream(ROWS), r"stream\(\) takes a Stream, not .* Table: read it by table\(\)"),
        (lambda f, s, t: f.table(NUMBERS), r"table\(\) takes a Table, not .* Stream: read it by stream\(\)"),
        (lambda f, s, t: f.stream("numbers"), "takes a Stream, not a value of type str$"),
        (lambda f, s, t: f.table(Table), r"takes a Table, not the class Table: write Table\(\)"),
        (
            lambda f, s, t: s.join_table(s, pair),
            r"takes a KeyedTable, not .* KeyedStream: .* to_table\(name\)",
        ),
        (lambda f, s, t: s.join_table(ROWS, pair), r"takes a KeyedTable, not .* Table: read it by table\(\)"),
        (lambda f, s, t: s.join_as_of("j", s, pair, history=MINUTE, grace=NOW), "takes a KeyedTable"),
        (
            lambda f, s, t: s.join("j", NUMBERS, pair, within=MINUTE, grace=NOW),
            r"read it by stream\(\) of the",
        ),
        (
            lambda f, s, t: s.join("j", t, pair, within=MINUTE, grace=NOW),
            r"takes a KeyedStream, .* join_table\(",
        ),
        (lambda f, s, t: t.join("j", s, pair), r"join\('j'\) takes a KeyedTable, not .* KeyedStream"),
        (lambda f, s, t: t.join("j", ROWS, pair, on=str), r"takes a KeyedTable, not .*read it by table\(\)"),
        (lambda f, s, t: s.merge(t), r"merge\(\) takes a KeyedStream, not .* KeyedTable: .*to_stream\(\)"),
        (lambda f, s, t: s.group_by_key().cogroup(max).cogroup(s, max), r"GroupedStream, .*group_by_key\(\)"),
        (
            lambda f, s, t: s.repartition("r", beside="f"),
            "takes a KeyedStream or a KeyedTable, not a value of",
        ),
        (lambda f, s, t: s.group_by_key().window(MINUTE), r"takes a Window, .*: write Tumbling\(size"),
        (lambda f, s, t: s.group_by_key().window(Tumbling), r"not the class Tumbling: write Tumbling\(\)"),
        (lambda f, s, t: s.group_by_key().cogroup(max).window(Session), r"write Session\(\)"),
        (lambda f, s, t: s.group_by_key().window(TUMBLING, late="late"), "late= of .* takes a Stream"),
        (lambda f, s, t: t.left_join("j", t, pair, on="k"), "has on='k': give a function that takes the key"),
        (lambda f, s, t: s.group_by_key().count(""), r"count\(''\) in flow 'f' has no name"),
        (lambda f, s, t: s.group_by_key().count(None), r"count\(None\) in flow 'f' has no name"),
        (lambda f, s, t: s.repartition(5), r"repartition\(5\) in flow 'f' has no name"),
    ],
)
def test_an_argument_of_another_kind_is_refused_with_what_to_write(
    step: Callable[..., Any], reason: str
) -> None:
    flow = Flow("f")
    with pytest.raises(GraphError, match=reason):
        step(flow, flow.stream(NUMBERS), flow.table(ROWS))


# ---- durations --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda s, t: s.join_as_of("j", t, pair, history=5, grace=NOW), "has history=5: give a timedelta"),
        (lambda s, t: s.join_as_of("j", t, pair, history=NOW, grace=5), "has grace=5: give a timedelta"),
        (lambda s, t: s.group_by_key().window(TUMBLING, retention=60), "retention=60: give a timedelta"),
        (lambda s, t: s.group_by_key().window(TUMBLING).count("n").every("e", 5), r"every\('e'\) has .*=5"),
        (
            lambda s, t: s.join("j", s, pair, within=(NOW, NOW, NOW), grace=NOW),
            "give one timedelta, or a pair: before and after",
        ),
        (lambda s, t: s.join("j", s, pair, within=(NOW,), grace=NOW), "give one timedelta, or a pair"),
        (lambda s, t: s.join("j", s, pair, within=(timedelta.max,) * 2, grace=NOW), "at most 1,000,000 days"),
        (lambda s, t: s.join("j", s, pair, within=NOW, grace=timedelta.max), "at most 1,000,000 days"),
        (lambda s, t: s.group_by_key().window(Tumbling(MINUTE, grace=timedelta.max)), "1,000,000 days"),
    ],
)
def test_a_duration_that_cannot_be_is_refused(step: Callable[..., Any], reason: str) -> None:
    flow = Flow("f")
    with pytest.raises(GraphError, match=reason):
        step(flow.stream(NUMBERS), flow.table(ROWS))


def test_the_longest_durations_are_those_of_a_flow_that_runs(tester: Tester) -> None:
    longest = timedelta(days=1_000_000)
    flow = Flow("f")
    numbers = flow.stream(NUMBERS)
    joined = numbers.left_join("j", numbers, max, within=longest, grace=longest, value=Long())
    joined.group_by_key().window(Session(longest, grace=longest), retention=longest).count("n")
    numbers.join_as_of("a", flow.table(ROWS), max, history=longest, grace=longest).to(OUT)
    tester.run(flow)
    tester.emit(NUMBERS, "a", 1)


# ---- windows ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [TUMBLING, Session(MINUTE, grace=NOW)])
def test_a_range_before_or_after_all_time_has_no_windows(tester: Tester, window: Any) -> None:
    flow = Flow("f")
    counts = flow.stream(NUMBERS).group_by_key().window(window).count("n")
    tester.run(flow)
    tester.emit(NUMBERS, "k", 1)
    view = tester.view(counts.table)
    assert len(view.windows("k", -100)) == 1
    assert view.windows("k", -100, -5) == []
    assert view.windows("k", 1 << 63, 1 << 64) == []


@pytest.mark.parametrize("window", [TUMBLING, Session(MINUTE, grace=NOW)])
def test_a_key_without_its_window_is_refused_where_rows_are_asked_for(tester: Tester, window: Any) -> None:
    flow = Flow("f")
    counts: Any = flow.stream(NUMBERS).group_by_key().window(window).count("n")
    tester.run(flow)
    processor = tester.processor(flow.group())
    view: Any = tester.view(counts.table)
    refused = r"'k' is no key of a windowed table: give Windowed\("
    with pytest.raises(SerializationError, match=refused):
        processor.get(counts.table, "k")
    with pytest.raises(SerializationError, match=refused):
        view.get("k")
    assert view.get(Windowed("k", 0, 60_000)) is None


@pytest.mark.parametrize(
    ("window", "written"),
    [
        (Tumbling(timedelta(minutes=5), grace=timedelta(0)), WindowedKey(String(), 60_000)),
        (Session(timedelta(minutes=5), grace=timedelta(0)), WindowedKey(String(), 60_000)),
        (Tumbling(timedelta(minutes=1), grace=timedelta(0)), SessionKey(String())),
    ],
)
def test_the_keys_of_windows_are_written_with_their_own_size(window: Any, written: Any) -> None:
    """Their ends are not in the bytes, so readers would get other windows."""
    flow = Flow("f")
    counts = flow.stream(NUMBERS).group_by_key().window(window).count("n")
    with pytest.raises(GraphError, match=r"to.*readers would get other windows.*give the topic the key"):
        counts.final().to(Stream("out", written, Long()))
    with pytest.raises(GraphError, match=r"repartition.*readers would get other windows"):
        counts.final().repartition("r", key=written)


def test_the_windows_of_keys_in_windows_are_written_with_their_own_size() -> None:
    minutes, hours = (Tumbling(timedelta(minutes=each), grace=timedelta(0)) for each in (1, 60))
    counts = Flow("f").stream(NUMBERS).group_by_key().window(minutes).count("n")
    per_hour = counts.final().group_by_key().window(hours).count("of-counts").final()
    with pytest.raises(
        GraphError, match=r"to.*readers would get other windows.*WindowedKey.*60000\).*3600000"
    ):
        per_hour.to(Stream("out", hours.key(WindowedKey(String(), 30_000)), Long()))
    per_hour.to(Stream("out", hours.key(WindowedKey(String(), 60_000)), Long()))


@pytest.mark.parametrize(
    "key",
    [
        String(),
        Long(),
        Json(),
        Bytes(),
        Avro("string"),
        Avro("long"),
        Typed(str),
        Typed(int | str),
        WindowedKey(Long(), 60_000),
        WindowedKey(Avro("long"), 60_000),
        WindowedKey(Typed(int), 60_000),
    ],
)
def test_keys_with_windows_are_not_written_by_a_codec_of_other_keys(key: Any) -> None:
    """They could be written by none of these codecs, and the group would stop when the first window closes."""
    minutes = Tumbling(timedelta(minutes=1), grace=timedelta(0))
    counts = Flow("f").stream(NUMBERS).group_by_key().window(minutes).count("n")
    out = Stream[Any, Any]("out", key, Long())
    reason = r"cannot write keys with windows.*give the topic the key WindowedKey.*map\(lambda key, value: \(key.key"
    with pytest.raises(GraphError, match=reason):
        counts.final().to(out)
    with pytest.raises(GraphError, match="cannot write keys with windows"):
        counts.final().repartition("again", key=key)
    counts.final().map(lambda window, n: (window.key, n)).to(out)


@pytest.mark.parametrize("key", [Long(), Bytes(), NoKey()])
def test_keys_are_not_written_by_a_codec_of_another_type(key: Any) -> None:
    """The group would stop at the first record, or of late records after weeks."""
    stream, other = Flow("f").stream(NUMBERS), Stream[Any, Any]("other", key, Long())
    for write in (
        lambda: stream.group_by_key().window(TUMBLING, late=other),
        lambda: stream.to(other),
        lambda: stream.to(lambda key, value: other, streams=[OUT, other]),
    ):
        with pytest.raises(
            GraphError, match=r"cannot write the keys by String\(\): give the topic the key Str"
        ):
            write()


def test_keys_are_written_by_another_codec_that_can(tester: Tester) -> None:
    flow, late = Flow("f"), Stream[Any, Any]("late", Json(), Long())
    flow.stream(NUMBERS).group_by_key().window(TUMBLING, late=late).count("n")
    tester.create(late)
    tester.run(flow)
    for at in (1, 600_000, 2):
        tester.emit(NUMBERS, "a", at, timestamp_ms=at)
    assert [(each.key, each.value) for each in tester.records(late)] == [("a", 2)]


@pytest.mark.parametrize(
    "key", [Typed(Windowed[str]), WindowedKey(Json(), 60_000), WindowedKey(Avro("string"), 60_000)]
)
def test_keys_with_windows_are_written_by_each_codec_that_can(tester: Tester, key: Any) -> None:
    flow, out = Flow("f"), Stream[Any, Any]("out", key, Long())
    minutes = Tumbling(timedelta(minutes=1), grace=timedelta(0))
    flow.stream(NUMBERS).group_by_key().window(minutes).count("n").final().to(out)
    tester.run(flow)
    tester.emit(NUMBERS, "a", 1, timestamp_ms=1)
    tester.emit(NUMBERS, "a", 1, timestamp_ms=60_000)
    assert [(each.key, each.value) for each in tester.records(out)] == [(Windowed("a", 0, 60_000), 1)]


@pytest.mark.parametrize(
    "build",
    [
        lambda numbers: numbers.filter(bool).to(NUMBERS),
        lambda numbers: numbers.key_by("digit", str, key=String()).to(NUMBERS),
        lambda numbers: (
            numbers.group_by_key().window(Tumbling(MINUTE, grace=timedelta(0)), late=NUMBERS).count("n")
        ),
    ],
)
def test_a_flow_that_writes_records_back_to_their_stream_is_refused_unless_a_handler_does(build: Any) -> None:
    flow = Flow("f")
    build(flow.stream(NUMBERS))
    with pytest.raises(GraphError, match=r"read from 'numbers' to it again.*round for ever.*another stream"):
        _ = flow.groups
    again = Flow("f")
    again.stream(NUMBERS).process(lambda ctx, number: None, Output(NUMBERS))
    assert again.groups


# ---- arguments of another type ---------------------------------------------------------------------------------------------


GIVEN: Any = MINUTE


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda s: Flow("f", event_time=GIVEN),
            r"event_time= of Flow takes an EventTime.*EventTime\(idle_af",
        ),
        (lambda s: s.group_by_key().fold("n", Count, value=Long()), r"takes an Aggregate.*write Count\(\)"),
        (lambda s: s.to("out"), r"to\(\) has stream='out': give a function that chooses one, or the Stream"),
        (lambda s: s.to(ROWS), r"to\(\) has stream=Table\(.*: give a function that chooses one, or the Str"),
        (lambda s: Flow("g").table(s.to_table("t")), r"table\(\) takes a Table.*give its \.table"),
        (lambda s: s.group_by("g", "user", key=String()), r"function='user': give a function"),
        (lambda s: s.to_table("t").group_by("g", "user", key=String()), r"function='user': give a function"),
        (lambda s: s.group_by_key().sum("n", "cents"), r"of= of Sum is 'cents': give a function"),
        (lambda s: s.filter("paid"), r"the predicate of filter\(\) is 'paid': give a function"),
    ],
)
def test_an_argument_of_another_type_is_refused_when_the_flow_is_built(
    build: Callable[[Any], Any], reason: str
) -> None:
    with pytest.raises(GraphError, match=reason):
        build(Flow("f").stream(NUMBERS))


# ---- functions that are not run --------------------------------------------------------------------------------------------


async def waits(*_: Any) -> bool:
    return False


def yields(*_: Any) -> Any:
    yield False


@pytest.mark.parametrize("function", [waits, yields])
@pytest.mark.parametrize(
    "build",
    [
        lambda s, function: s.filter(function),
        lambda s, function: s.filter(function, with_key=True),
        lambda s, function: s.split(function),
        lambda s, function: s.peek(function),
        lambda s, function: s.to_table("x").filter(function),
    ],
)
def test_a_function_whose_result_is_always_true_or_never_run_is_refused(build: Any, function: Any) -> None:
    with pytest.raises(GraphError, match=r"is async or has a yield.*: give a plain function"):
        build(Flow("f").stream(NUMBERS), function)


def hidden(function: Any) -> Any:
    def made(*given: Any) -> Any:
        return function(*given)

    return made


@pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize(
    "build",
    [
        lambda s, function: s.filter(function),
        lambda s, function: s.split(function)[0],
        lambda s, function: s.peek(function),
        lambda s, function: s.to_table("x").filter(function),
    ],
)
def test_a_flow_stops_where_an_async_function_is_behind_another(build: Any, tester: Tester) -> None:
    flow = Flow("f", on_error=OnError.SKIP)
    build(flow.stream(NUMBERS), hidden(waits))
    tester.run(flow)
    with pytest.raises(GraphError, match=r"returned a coroutine or a generator.*nothing would run it"):
        tester.emit(NUMBERS, "a", 1)


NUMBERS_SCHEMA = '{"type": "array", "items": "int"}'


class Scale:
    __slots__ = ("scale",)

    def __init__(self, scale: int) -> None:
        self.scale = scale


class Scaled(Scale, ItemCodec[int]):
    """A codec of a program."""

    def encode(self, value: int) -> bytes:
        return str(value * self.scale).encode()

    def decode(self, data: bytes) -> int:
        return int(data) // self.scale


@pytest.mark.parametrize("codec", [Json, lambda: Typed(list[int]), lambda: Avro(NUMBERS_SCHEMA)])
def test_streams_are_merged_with_the_codec_of_their_values_if_it_is_the_same_for_all(
    tester: Tester, codec: Callable[[], Any]
) -> None:
    flow, first, other = (
        Flow("f"),
        Stream[str, Any]("a", String(), codec()),
        Stream[str, Any]("b", String(), codec()),
    )
    table = flow.stream(first).merge(flow.stream(other)).to_table("t")
    tester.run(flow)
    tester.emit(first, "a", [1])
    tester.emit(other, "b", [2])
    assert tester.table(table.table) == {"a": [1], "b": [2]}


def test_codecs_that_differ_in_what_they_keep_in_slots_are_several() -> None:
    flow = Flow("f")
    streams = [flow.stream(Stream(f"s-{scale}", String(), Scaled(scale))) for scale in (10, 100)]
    with pytest.raises(GraphError, match="or that have several codecs"):
        streams[0].merge(streams[1]).to_table("t")


def test_streams_of_several_codecs_are_merged_with_the_one_that_is_given(tester: Tester) -> None:
    flow, longs, other = (
        Flow("f"),
        Stream[str, Any]("a", String(), Long()),
        Stream[str, Any]("b", String(), Json()),
    )
    streams = flow.stream(longs), flow.stream(other)
    with pytest.raises(GraphError, match="or that have several codecs: give their codec by value="):
        streams[0].merge(streams[1]).to_table("refused")
    table = streams[0].merge(streams[1], value=Json()).to_table("t")
    tester.run(flow)
    tester.emit(longs, "a", 1)
    tester.emit(other, "b", [2])
    assert tester.table(table.table) == {"a": 1, "b": [2]}


def test_the_rows_of_windows_are_joined_with_a_table_as_the_refusal_says(tester: Tester) -> None:
    flow = Flow("f")
    names = flow.stream(NUMBERS).to_table("last")
    closed = flow.stream(NUMBERS).group_by_key().window(TUMBLING).count("n").final()
    said = r"by map\(lambda key, value: \(key.key, value\), value=codec\).repartition\(name, key=codec, beside=other\)"
    with pytest.raises(GraphError, match=said):
        closed.join_table(names, pair)
    counts = closed.map(lambda key, value: (key.key, value), value=Long())
    by_key = counts.repartition("by-key", key=String(), beside=names)
    kept = by_key.join_table(names, lambda count, last: 100 * count + last, value=Long()).to_table("kept")
    tester.run(flow)
    for at, number in ((1, 5), (2, 7), (60_000, 8)):
        tester.emit(NUMBERS, "a", number, timestamp_ms=at)
    assert tester.table(kept.table) == {"a": 208}


def test_the_limits_of_the_tables_of_a_group_say_what_to_do() -> None:
    flow = Flow("f")
    grouped = flow.stream(NUMBERS).group_by_key()
    for number in range(12):
        grouped.count(f"count-{number}")
    with pytest.raises(
        GraphError, match=r"13 named tables: at most 12. Keep some in another group.*group=\)"
    ):
        _ = flow.groups
    longer = Flow("f")
    longer.stream(NUMBERS).group_by_key().count("n" * 33)
    with pytest.raises(GraphError, match=r"at most 32 characters. Give its step a shorter name"):
        _ = longer.groups


def test_a_table_that_the_same_group_keeps_is_joined_in_another_one() -> None:
    flow = Flow("f")
    kept = flow.stream(NUMBERS).to_table("kept")
    flow.stream(NUMBERS).join_global(kept.table, pair, on=str).to(OUT)
    with pytest.raises(
        GraphError, match=r"that topic is its own.*keep it in another group: stream\(\.\.\., group=\)"
    ):
        _ = flow.groups
