"""The steps of streams: known answers through the engine, without a broker."""

from collections.abc import Callable
from typing import Any

import pytest

from streamtable import Group, Input, Long, OnError, Output, Stream, String
from streamtable.base.types import TopicPartition
from streamtable.errors import GraphError, HandlerFailed
from streamtable.flow import Flow, KeyedStream
from streamtable.handlers.context import Context
from streamtable_testing.tester import Tester

NUMBERS = Stream("numbers", String(), Long())
OTHERS = Stream("others", String(), Long())
OUT = Stream("out", String(), Long())
BIG = Stream("big", String(), Long())
BY_NUMBER = Stream("by-number", Long(), String())
EVENTS = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)]


def outcome(
    tester: Tester, stream: Stream[Any, Any], events: list[tuple[str, int]] = EVENTS
) -> list[tuple[Any, Any]]:
    """Return the output records of a running flow, in their order."""
    tester.emit_many(NUMBERS, events)
    return [(record.key, record.value) for record in tester.records(stream)]


def a_flow(steps: Callable[[KeyedStream[str, int]], Any]) -> Flow:
    flow = Flow("f")
    steps(flow.stream(NUMBERS))
    return flow


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (lambda s: s.filter(lambda value: value % 2), [("a", 1), ("a", 3), ("b", 5)]),
        (lambda s: s.filter(lambda key, value: key == "b", with_key=True), [("b", 2), ("b", 5)]),
        (lambda s: s.map_values(lambda value: value * 10), [(k, v * 10) for k, v in EVENTS]),
        (
            lambda s: s.map_values(lambda key, value: ord(key) + value, with_key=True),
            [(k, ord(k) + v) for k, v in EVENTS],
        ),
        (lambda s: s.flat_map_values(range).filter(lambda v: v > 2), [("c", 3), ("b", 3), ("b", 4)]),
        (
            lambda s: s.flat_map_values(lambda key, value: [value] * (key == "a"), with_key=True),
            [("a", 1), ("a", 3)],
        ),
        (lambda s: s.map(lambda key, value: (key * 2, -value)), [(k * 2, -v) for k, v in EVENTS]),
        (
            lambda s: s.flat_map(lambda key, value: [(key, value), (key.upper(), value)] if value > 3 else []),
            [("c", 4), ("C", 4), ("b", 5), ("B", 5)],
        ),
        (lambda s: s.filter(lambda value: False).map_values(lambda value: 1 // 0), []),
        (lambda s: s.process(lambda ctx, value: [ctx.offset, value]), [x for n, (k, v) in enumerate(EVENTS) for x in ((k, n), (k, v))]),
        (lambda s: s.process(lambda ctx, value: None), []),
        (lambda s: s.repartition("again"), EVENTS),
        (lambda s: s.key_by("key", str, key=String()), [(str(v), v) for _, v in EVENTS]),
        (
            lambda s: s.map(lambda k, v: (k + k, v)).repartition("again", key=String(), value=Long()),
            [(k * 2, v) for k, v in EVENTS],
        ),
    ],
)  # fmt: skip
def test_a_step_makes_of_the_records_what_its_name_says(
    tester: Tester,
    steps: Callable[[KeyedStream[str, int]], KeyedStream[str, int]],
    expected: list[tuple[str, int]],
) -> None:
    tester.run(a_flow(lambda stream: steps(stream).to(OUT)))
    assert outcome(tester, OUT) == expected


def test_peek_sees_each_record_and_lets_it_pass(tester: Tester) -> None:
    seen: list[tuple[str, int]] = []
    tester.run(a_flow(lambda s: s.peek(lambda key, value: seen.append((key, value))).to(OUT)))
    assert outcome(tester, OUT) == EVENTS
    assert seen == EVENTS


def test_split_gives_each_record_to_the_first_branch_that_takes_it_and_the_rest_to_the_last(
    tester: Tester,
) -> None:
    def steps(stream: KeyedStream[str, int]) -> None:
        ones, twos, rest = stream.split(lambda v: v == 1, lambda v: v < 3)
        ones.map_values(lambda _: 100).to(OUT)
        twos.map_values(lambda _: 200).to(OUT)
        rest.to(BIG)

    tester.run(a_flow(steps))
    assert outcome(tester, OUT) == [("a", 100), ("b", 200)]
    assert [(r.key, r.value) for r in tester.records(BIG)] == [("a", 3), ("c", 4), ("b", 5)]


def test_predicates_behind_the_one_that_takes_a_record_are_not_asked(tester: Tester) -> None:
    tester.run(a_flow(lambda s: s.split(lambda v: v < 5, lambda v: 10 // (v - 5 + (v == 5)))[1].to(OUT)))
    assert outcome(tester, OUT) == [("b", 5)]


def test_merged_branches_are_in_the_order_of_their_input(tester: Tester) -> None:
    def steps(stream: KeyedStream[str, int]) -> None:
        odd, even = stream.split(lambda v: v % 2)
        even.flat_map_values(lambda v: [v, -v]).merge(odd).to(OUT)

    tester.run(a_flow(steps))
    assert outcome(tester, OUT) == [
        ("a", 1), ("b", 2), ("b", -2), ("a", 3), ("c", 4), ("c", -4), ("b", 5)
    ]  # fmt: skip


def test_what_several_branches_make_of_one_record_is_in_the_order_in_which_they_were_declared(
    tester: Tester,
) -> None:
    def steps(stream: KeyedStream[str, int]) -> None:
        tenfold = stream.map_values(lambda v: 10 * v)
        both = tenfold.merge(stream.flat_map_values(lambda v: [v, -v]))
        both.merge(stream.map_values(lambda v: 100 * v), stream).to(OUT)

    tester.run(a_flow(steps))
    assert outcome(tester, OUT, [("a", 1), ("b", 2)]) == [
        ("a", 10), ("a", 1), ("a", -1), ("a", 100), ("a", 1), ("b", 20), ("b", 2), ("b", -2), ("b", 200), ("b", 2)
    ]  # fmt: skip


def test_streams_of_several_topics_can_be_merged(tester: Tester) -> None:
    flow = Flow("f")
    flow.stream(NUMBERS).merge(flow.stream(OTHERS).map_values(lambda v: -v)).to(OUT)
    assert [group.name for group in flow.groups] == ["f"]
    tester.run(flow)
    tester.emit(OTHERS, "x", 9)
    assert outcome(tester, OUT) == [("x", -9), *EVENTS]


def test_a_function_chooses_the_stream_of_each_record_or_none(tester: Tester) -> None:
    tester.run(
        a_flow(
            lambda s: s.to(
                lambda key, value: None if key == "c" else BIG if value > 2 else OUT, streams=[OUT, BIG]
            )
        )
    )
    assert outcome(tester, OUT) == [("a", 1), ("b", 2)]
    assert [(r.key, r.value) for r in tester.records(BIG)] == [("a", 3), ("b", 5)]


def test_a_function_that_chooses_a_stream_it_has_not_named_fails(tester: Tester) -> None:
    tester.run(a_flow(lambda s: s.to(lambda key, value: BIG, streams=[OUT])))
    with pytest.raises(GraphError, match="to\\(\\) chose the stream 'big': name all that it may choose"):
        outcome(tester, OUT)


def test_a_chosen_stream_is_not_written_with_the_codecs_of_another_where_another_step_declares_it(
    tester: Tester,
) -> None:
    texts: Stream[str, Any] = Stream("texts", String(), String())

    def steps(stream: KeyedStream[str, int]) -> None:
        stream.filter(lambda _: False).map_values(str).to(texts)
        choose: Any = lambda key, value: texts  # noqa: E731 - of another type than the stream
        stream.to(choose, streams=[OUT])

    tester.run(a_flow(steps))
    with pytest.raises(GraphError, match="chose the stream 'texts'"):
        outcome(tester, OUT)


def test_a_stream_can_be_used_by_several_steps(tester: Tester) -> None:
    def steps(stream: KeyedStream[str, int]) -> None:
        stream.to(BIG)
        stream.filter(lambda v: v > 4).to(OUT)

    tester.run(a_flow(steps))
    assert outcome(tester, OUT) == [("b", 5)]
    assert len(tester.records(BIG)) == len(EVENTS)


# ---- groups -----------------------------------------------------------------------------------------------------------------


def test_stateless_steps_are_one_group_without_a_topic_between_them() -> None:
    flow = Flow("f")
    flow.stream(NUMBERS).filter(bool).map(lambda k, v: (v, k)).peek(print).to(BY_NUMBER)
    (group,) = flow.groups
    assert group.name == "f"
    assert [edge.stream.name for edge in group.inputs] == ["numbers"]
    assert [edge.stream.name for edge in group.outputs] == ["by-number"]


def test_a_flow_is_cut_where_keys_change_and_only_there() -> None:
    flow = Flow("f")
    numbers = flow.stream(NUMBERS)
    numbers.filter(bool).key_by("by-value", str, key=String()).map_values(lambda v: -v).to(OUT)
    numbers.to(BIG)
    assert [group.name for group in flow.groups] == ["f", "f-by-value"]
    first, second = flow.groups
    assert [edge.stream.name for edge in first.outputs] == ["f-by-value", "big"]
    assert [edge.stream.name for edge in second.inputs] == ["f-by-value"]
    assert [edge.stream.name for edge in second.outputs] == ["out"]
    assert flow.group("by-value") is second
    assert flow.groups == (first, second)  # the same ones


def test_names_of_groups_and_topics_do_not_depend_on_steps_without_a_name() -> None:
    def names(*, more: bool) -> list[tuple[str, ...]]:
        flow = Flow("f")
        stream = flow.stream(NUMBERS)
        if more:
            stream = stream.filter(bool).map_values(lambda v: v + 1, value=Long()).peek(print)
        stream = stream.key_by("k", str, key=String())
        if more:
            stream = stream.filter(bool)
        stream.to(OUT)
        return [(group.name, *group.input_topics, *group.tables) for group in flow.groups]

    assert names(more=True) == names(more=False)


def test_repartitioned_records_keep_their_event_time(tester: Tester) -> None:
    flow = Flow("f")
    flow.stream(NUMBERS, time=lambda value: value * 1000).key_by("k", str, key=String()).to(OUT)
    tester.run(flow)
    tester.emit(NUMBERS, "a", 7, timestamp_ms=1_600_000_000_000)
    assert [(r.key, r.timestamp_ms) for r in tester.records(OUT)] == [("7", 7000)]


def test_records_keep_their_timestamps_without_a_time_function(tester: Tester) -> None:
    tester.run(a_flow(lambda s: s.map_values(lambda v: v).to(OUT)))
    tester.emit(NUMBERS, "a", 7, timestamp_ms=1_600_000_000_000)
    assert [r.timestamp_ms for r in tester.records(OUT)] == [1_600_000_000_000]


def test_a_record_for_which_a_step_raises_is_dead_lettered_alone(tester: Tester) -> None:
    flow = Flow("f", on_error=OnError.DEAD_LETTER)
    flow.stream(NUMBERS).map_values(lambda v: 12 // (v - 3)).to(OUT)
    tester.run(flow)
    assert outcome(tester, OUT) == [("a", -6), ("b", -12), ("c", 12), ("b", 6)]
    (letter,) = tester.dead_letters(flow.group())
    assert letter.origin.offset == 2


def test_a_flow_stops_at_a_record_for_which_a_step_raises_unless_told_otherwise(tester: Tester) -> None:
    tester.run(a_flow(lambda s: s.map_values(lambda v: 12 // (v - 3)).to(OUT)))
    with pytest.raises(HandlerFailed):
        outcome(tester, OUT)


@pytest.mark.parametrize(
    "build",
    [
        lambda s, made: s.process(lambda ctx, _: made),
        lambda s, made: s.flat_map_values(lambda _: made),
        lambda s, made: s.flat_map_values(lambda _key, _: made, with_key=True),
        lambda s, made: s.flat_map(lambda _key, _: made),
        lambda s, made: s.flat_map(lambda _key, _: [made]),
        lambda s, made: s.map(lambda _key, _: made),
    ],
)
@pytest.mark.parametrize("made", [{"a": 1, "b": 2}, "ok", b"ok"])
def test_a_dict_or_a_text_is_not_taken_apart_where_a_function_has_forgotten_the_list(
    build: Any, made: Any, tester: Tester
) -> None:
    flow = Flow("f", on_error=OnError.DEAD_LETTER)
    build(flow.stream(NUMBERS), made).to(OUT)
    tester.run(flow)
    tester.emit(NUMBERS, "k", 1)
    assert tester.records(OUT) == []
    (letter,) = tester.dead_letters(flow.group())
    assert "returned a dict or a text, which would be taken apart: return a list" in letter.reason


def test_a_flow_goes_on_after_a_crash_without_losing_or_repeating_records(tester: Tester) -> None:
    flow = a_flow(lambda s: s.filter(bool).repartition("again").to(OUT))
    tester.run(flow)
    tester.crash(flow.groups[0], at="offsets-sent")
    outcome(tester, OUT)
    for group in flow.groups:
        tester.start(group, disk=False)
    assert [(r.key, r.value) for r in tester.records(OUT)] == EVENTS


def test_process_reaches_what_a_handler_reaches(tester: Tester) -> None:
    def handler(ctx: Context[str, Any], value: int) -> list[int]:
        ctx.emit(BIG, ctx.key, value * 100, headers=[("from", b"process")])
        return [value] if ctx.headers else []

    tester.run(a_flow(lambda s: s.filter(lambda v: v > 1).process(handler, Output(BIG)).to(OUT)))
    tester.emit(NUMBERS, "a", 1, headers=[("h", b"")])
    tester.emit(NUMBERS, "a", 2, headers=[("h", b"")])
    tester.emit(NUMBERS, "b", 3)
    assert [(r.key, r.value) for r in tester.records(OUT)] == [("a", 2)]
    assert [(r.key, r.value, r.headers) for r in tester.records(BIG)] == [
        ("a", 200, (("from", b"process"),)),
        ("b", 300, (("from", b"process"),)),
    ]


def test_streams_that_are_keyed_differently_are_read_by_groups_that_are_named(tester: Tester) -> None:
    flow = Flow("f")
    flow.stream(NUMBERS).to(OUT)
    flow.stream(BY_NUMBER, group="texts").map(lambda k, v: (v, k)).to(BIG)
    assert [group.name for group in flow.groups] == ["f", "f-texts"]
    tester.run(flow)
    tester.emit(BY_NUMBER, 5, "x")
    assert [(r.key, r.value) for r in tester.records(BIG)] == [("x", 5)]


# ---- refused programs ---------------------------------------------------------------------------------------------------------


def keyed_differently(flow: Flow) -> None:
    flow.stream(NUMBERS).to(OUT)
    flow.stream(BY_NUMBER).to(Stream("by-number-too", Long(), String()))


def twice_named(flow: Flow) -> None:
    stream = flow.stream(NUMBERS)
    stream.repartition("x")
    stream.key_by("x", str, key=String())


def merged_after_a_cut(flow: Flow) -> None:
    stream = flow.stream(NUMBERS)
    stream.merge(stream.repartition("x"))


def read_twice(flow: Flow) -> None:
    flow.stream(NUMBERS)
    flow.stream(NUMBERS, start="latest")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda flow: None, "reads nothing"),
        (keyed_differently, "keyed differently"),
        (twice_named, "two steps named 'x': repartition and key_by"),
        (merged_after_a_cut, "partitioned differently"),
        (read_twice, "reads 'numbers' twice"),
        (lambda flow: flow.stream(NUMBERS).map(lambda k, v: (k, v)).group_by_key(), "changes keys"),
        (lambda flow: flow.stream(NUMBERS).map(lambda k, v: (k, v)).process(print), "changes keys"),
        (lambda flow: flow.stream(NUMBERS).map(lambda k, v: (k, v)).repartition("x"), "codec by key="),
        (lambda flow: flow.stream(NUMBERS).map_values(str).repartition("x"), "codec by value="),
        (lambda flow: flow.stream(NUMBERS).split(), "without predicates"),
        (lambda flow: flow.stream(NUMBERS).filter(bool).read_from, "read_from of 'filter'"),
        (lambda flow: flow.stream(NUMBERS).to(lambda k, v: OUT, streams=[]), "streams="),
        (lambda flow: flow.stream(NUMBERS).repartition("x y"), "topic name"),
        (
            lambda flow: flow.stream(NUMBERS).key_by("retry", str, key=String()),
            "'f-retry' as a stream, but that topic is its own",
        ),
    ],
)
def test_a_flow_that_cannot_be_is_refused_when_it_is_built(build: Callable[[Flow], Any], reason: str) -> None:
    def compiled() -> None:
        flow = Flow("f")
        build(flow)
        assert flow.groups

    with pytest.raises(GraphError, match=reason):
        compiled()


def test_a_group_of_a_name_that_the_flow_does_not_have_is_refused_with_those_that_it_has() -> None:
    flow = a_flow(lambda s: s.to(OUT))
    with pytest.raises(GraphError, match="no group 'f-x': its groups are f"):
        flow.group("x")


# ---- for people ---------------------------------------------------------------------------------------------------------------


def test_a_flow_describes_its_groups_and_steps_as_text_and_as_a_drawing() -> None:
    flow = Flow("f")
    numbers = flow.stream(NUMBERS)
    numbers.filter(bool).key_by("by-value", str, key=String()).to(OUT)
    numbers.to(BIG)
    described = flow.describe()
    assert str(described) == (
        "flow f\n"
        "  group f\n"
        "    stream numbers\n"
        "      filter\n"
        "        key_by\n"
        "          key_by 'by-value' -> f-by-value\n"
        "      to big\n"
        "  group f-by-value\n"
        "    stream f-by-value\n"
        "      to out\n"
    )
    lines = described.mermaid.splitlines()
    assert lines[0] == "flowchart LR"
    assert '  subgraph "f-by-value"' in lines
    assert '  n3 -- "f-by-value" --> n4' in lines


def test_a_group_and_a_flow_run_side_by_side_in_the_tester(tester: Tester) -> None:
    def double(ctx: Context[str, Any], value: int) -> None:
        ctx.emit(BIG, ctx.key, value * 2)

    tester.run(a_flow(lambda s: s.to(OUT)), Group("g", Input(OUT, double), Output(BIG)))
    outcome(tester, BIG)
    assert [r.value for r in tester.records(BIG)] == [v * 2 for _, v in EVENTS]


def test_several_records_of_one_keep_their_order_when_their_branches_are_merged(tester: Tester) -> None:
    flow = Flow("f")
    both = flow.stream(NUMBERS).flat_map_values(lambda n: [n, n + 1], value=Long())
    odd, even = both.split(lambda n: n % 2)
    table = odd.merge(even).to_table("t", value=Long())
    tester.run(flow)
    tester.emit_many(NUMBERS, [("a", 2), ("b", 3)])
    assert tester.table(table.table) == {"a": 3, "b": 4}


def counted_by_columns(columns: int, groups: int = 1) -> Flow:
    flow = Flow("f")
    parts = [flow.stream(NUMBERS, group=f"part-{number}" if number else "") for number in range(groups)]
    for column in range(columns):
        name = f"{column}-{'x' * 200}"
        parts[column % groups].group_by(name, str, key=String()).count(f"per-{column}")
    return flow


def test_the_largest_number_of_inner_topics_fits_the_metadata_of_an_offset() -> None:
    with pytest.raises(GraphError, match=r"71 inner topics.* have room for 70\. .* stream\(\.\.\., group=\)"):
        assert counted_by_columns(71).groups
    assert counted_by_columns(140, groups=2).groups
    group = counted_by_columns(70).group()
    with Tester() as tester:
        tester.run(group)
        tester.emit(NUMBERS, "a", 1)
        found = tester.kafka.committed(group.name)[TopicPartition(NUMBERS.name, 0)]
        assert (found.next_offset, len(found.metadata) > 3_900) == (1, True)
