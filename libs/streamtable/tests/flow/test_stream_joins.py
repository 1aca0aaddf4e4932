"""Joins of streams through the engine, without a broker: which pairs come out, what comes out alone, and when."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streamtable import Json, Long, Stream, String
from streamtable.errors import GraphError, StateMeaningChanged, TopicMismatch
from streamtable.flow import Flow, KeyedStream, Tumbling
from streamtable.flow.joins.rules import LEFT, RIGHT, Bounds
from streamtable_testing.tester import Tester

# A value is the name of the event and its time.
CLICKS: Stream[str, Any] = Stream("clicks", String(), Json())
ORDERS: Stream[str, Any] = Stream("orders", String(), Json())
OUT: Stream[str, Any] = Stream("out", String(), Json())


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def names(*values: Any) -> list[Any]:
    return [None if value is None else value[0] for value in values]


WITHIN = (ms(10), ms(20))


def joined(operator: str, within: Any = WITHIN, grace: int = 5) -> Flow:
    flow = Flow("f")
    clicks = flow.stream(CLICKS, time=lambda value: value[1])
    orders = flow.stream(ORDERS, time=lambda value: value[1])
    method: Callable[..., KeyedStream[str, Any]] = getattr(clicks, operator)
    method("both", orders, names, within=within, grace=ms(grace)).to(OUT)
    return flow


def emit(tester: Tester, *events: tuple[str, str, str, int]) -> None:
    """Emit events: "c" or "o" for the stream, the key, the name, the time."""
    for stream, key, name, time in events:
        tester.emit(CLICKS if stream == "c" else ORDERS, key, [name, time])


def written(tester: Tester) -> list[tuple[Any, ...]]:
    return [(each.key, *(each.value or ()), each.timestamp_ms) for each in tester.records(OUT)]


END = [("c", "end of c", "end", 10_000), ("o", "end of o", "end", 10_000)]


# ---- pairs ----------------------------------------------------------------------------------------------------------------


def test_records_match_that_have_the_same_key_and_are_within_the_bounds_both_inclusive(
    tester: Tester,
) -> None:
    tester.run(joined("join"))
    emit(tester, *(("o", "a", f"o{time}", time) for time in (89, 90, 100, 120, 121)), ("c", "a", "c", 100))
    emit(tester, ("c", "b", "c", 100))
    assert written(tester) == [("a", "c", "o90", 100), ("a", "c", "o100", 100), ("a", "c", "o120", 120)]


def test_a_pair_has_the_later_time_whichever_record_comes_first(tester: Tester) -> None:
    tester.run(joined("join"))
    emit(tester, ("c", "a", "c1", 100), ("o", "a", "o1", 95), ("o", "b", "o2", 110), ("c", "b", "c2", 100))
    assert written(tester) == [("a", "c1", "o1", 100), ("b", "c2", "o2", 110)]


def test_duplicates_make_a_pair_each(tester: Tester) -> None:
    tester.run(joined("join"))
    emit(tester, ("c", "a", "c", 100), ("c", "a", "c", 100), ("o", "a", "o", 100), ("o", "a", "o", 100))
    assert written(tester) == [("a", "c", "o", 100)] * 4


def test_a_negative_bound_leaves_out_what_is_too_near(tester: Tester) -> None:
    tester.run(joined("join", within=(ms(-5), ms(20))))
    emit(tester, ("c", "a", "c", 100), *(("o", "a", f"o{time}", time) for time in (100, 104, 105, 120, 121)))
    assert written(tester) == [("a", "c", "o105", 105), ("a", "c", "o120", 120)]


def test_one_duration_stands_for_both_bounds(tester: Tester) -> None:
    tester.run(joined("join", within=ms(10)))
    emit(tester, ("c", "a", "c", 100), *(("o", "a", f"o{time}", time) for time in (89, 90, 110, 111)))
    assert written(tester) == [("a", "c", "o90", 100), ("a", "c", "o110", 110)]


def test_a_stream_can_be_joined_with_itself(tester: Tester) -> None:
    flow = Flow("f")
    clicks = flow.stream(CLICKS, time=lambda value: value[1])
    clicks.join("near", clicks, names, within=ms(10), grace=ms(0)).to(OUT)
    tester.run(flow)
    emit(tester, ("c", "a", "1", 100), ("c", "a", "2", 105))
    assert written(tester) == [
        ("a", "1", "1", 100), ("a", "2", "1", 105), ("a", "1", "2", 105), ("a", "2", "2", 105)
    ]  # fmt: skip


@pytest.mark.parametrize("keys", [["", "\0", "\0\0"], ["n", "ne", "next", "nextt"]])
def test_keys_that_begin_with_each_other_are_not_mixed_up(tester: Tester, keys: Sequence[str]) -> None:
    tester.run(joined("outer_join"))
    for key in keys:
        emit(tester, ("c", key, key, 100), ("o", key, key, 100))
    emit(tester, *END)
    assert written(tester) == [(key, key, key, 100) for key in keys]


def test_a_value_of_none_matches_nothing(tester: Tester) -> None:
    flow = Flow("f")
    clicks = flow.stream(CLICKS, time=lambda value: value[1])
    orders = flow.stream(ORDERS, time=lambda value: value[1])
    none: KeyedStream[str, Any] = orders.map_values(lambda value: None, value=ORDERS.value)
    clicks.outer_join("both", none, names, within=ms(10), grace=ms(0)).to(OUT)
    tester.run(flow)
    emit(tester, ("o", "a", "o", 100), ("c", "a", "c", 100), *END)
    assert written(tester) == [("a", "c", None, 100)]


# ---- what nothing has matched -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("join", []),
        ("left_join", [("a", "c", None, 100)]),
        ("outer_join", [("a", "c", None, 100), ("a", None, "o", 200)]),
    ],
)
def test_what_nothing_has_matched_comes_out_once(tester: Tester, operator: str, expected: Any) -> None:
    tester.run(joined(operator))
    emit(tester, ("c", "a", "c", 100), ("o", "a", "o", 200), *END)
    assert written(tester) == expected
    emit(tester, ("c", "end of c", "more", 20_000), ("o", "end of o", "more", 20_000))
    assert [each for each in written(tester) if each[0] == "a"] == expected


def test_a_record_comes_out_alone_when_its_window_and_the_grace_are_over_and_not_before(
    tester: Tester,
) -> None:
    tester.run(joined("left_join"))
    emit(tester, ("c", "a", "c", 100), ("c", "z", "z", 1_000), ("o", "z", "z", 125))
    assert written(tester) == []
    emit(tester, ("o", "z", "z", 126))
    assert written(tester) == [("a", "c", None, 100)]


def test_what_has_matched_does_not_come_out_alone(tester: Tester) -> None:
    tester.run(joined("outer_join"))
    emit(tester, ("c", "a", "c", 100), ("o", "a", "o", 100))
    emit(tester, *END)
    assert written(tester) == [("a", "c", "o", 100)]


def test_a_match_is_noted_without_handling_the_batch_again(tester: Tester) -> None:
    tester.run(joined("outer_join"))
    with capture_logs() as logged:
        emit(tester, ("c", "a", "c", 100), ("o", "a", "o", 100), ("o", "a", "p", 101), *END)
    assert [each["event"] for each in logged if each["log_level"] != "info"] == []
    assert written(tester) == [("a", "c", "o", 100), ("a", "c", "p", 101)]


@pytest.mark.parametrize("limits", [(30, 10), (25, 13)])
def test_of_many_records_of_a_key_those_within_the_bounds_match(
    tester: Tester, limits: tuple[int, int]
) -> None:
    before, after = limits
    tester.run(joined("join", within=(ms(before), ms(after)), grace=1_000))
    emit(tester, *[("o", "a", f"o{time}", time) for time in range(1_000, 1_100)])
    emit(tester, ("c", "a", "c", 1_050))
    expected = range(1_050 - before, 1_050 + after + 1)
    assert [each[2] for each in written(tester)] == [f"o{time}" for time in expected]


def test_the_last_record_of_a_silent_stream_comes_out(tester: Tester) -> None:
    tester.run(joined("left_join"))
    emit(tester, ("c", "a", "c", 100))
    tester.advance(60)
    assert written(tester) == [("a", "c", None, 100)]


def test_a_record_that_comes_too_late_to_match_comes_out_alone(tester: Tester) -> None:
    tester.run(joined("left_join"))
    emit(tester, ("c", "z", "z", 1_000), ("o", "z", "z", 1_000), ("c", "a", "late", 100))
    emit(tester, ("o", "a", "o", 999))
    assert ("a", "late", None, 100) in written(tester)


def test_the_window_of_a_record_is_closed_for_what_comes_after_its_end_and_grace(tester: Tester) -> None:
    tester.run(joined("join"))
    emit(tester, ("c", "a", "c", 100), ("o", "z", "z", 125), ("o", "a", "in time", 110))
    emit(tester, ("o", "z", "z", 126), ("o", "a", "late", 110))
    assert written(tester) == [("a", "c", "in time", 110)]


def test_nothing_waits_for_longer_than_its_window_and_the_grace(tester: Tester) -> None:
    flow = joined("outer_join")
    tester.run(flow)
    emit(tester, *(("c", "a", f"c{n}", 100 + n) for n in range(9)), *(("o", "b", "o", 100) for n in range(9)))
    assert waiting(tester) == 18
    emit(tester, *END)
    assert waiting(tester) == 2


def waiting(tester: Tester) -> int:
    last = {message.key(): message.value() for _, message in tester.kafka.records("f-both")}
    return sum(data is not None for key, data in last.items() if key != b"next")


# ---- what follows, and what precedes -------------------------------------------------------------------------------------------


def test_steps_after_a_join_get_pairs_and_what_comes_out_alone(tester: Tester) -> None:
    flow = Flow("f")
    clicks = flow.stream(CLICKS, time=lambda value: value[1])
    orders = flow.stream(ORDERS, time=lambda value: value[1])
    both = clicks.left_join("both", orders, names, within=ms(10), grace=ms(0))
    counts = both.group_by_key().window(Tumbling(ms(100), grace=ms(20))).count("counts")
    tester.run(flow)
    emit(tester, ("c", "a", "1", 100), ("c", "a", "2", 150), ("o", "a", "o", 101), *END)
    found = {(key.key, key.start_ms): n for key, n in tester.table(counts.table).items()}
    assert found == {("a", 100): 2}


def test_what_came_out_alone_is_in_a_window_before_the_window_closes(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: windows wait until all that is due before has come out."""
    monkeypatch.setattr("streamtable.engine.firing.runner._ROWS_OF_SLICE_MAX", 10)
    flow = Flow("f")
    clicks = flow.stream(CLICKS, time=lambda value: value[1])
    orders = flow.stream(ORDERS, time=lambda value: value[1])
    both = clicks.left_join("both", orders, names, within=ms(10), grace=ms(0))
    counts = both.group_by_key().window(Tumbling(ms(100), grace=ms(20))).count("counts")
    counts.final().map(lambda window, n: (window.key, n)).to(OUT_COUNTS)
    tester.run(flow)
    tester.emit_many(CLICKS, [("a", ["c", 100])] * 300)  # several slices
    emit(tester, *END)
    assert [(each.key, each.value) for each in tester.records(OUT_COUNTS)] == [("a", 300)]


OUT_COUNTS = Stream("out-counts", String(), Long())


def test_streams_by_other_keys_are_joined_beside_each_other(tester: Tester) -> None:
    flow = Flow("f")
    clicks = flow.stream(CLICKS, time=lambda value: value[1]).key_by("by-name", lambda v: v[0], key=String())
    orders = flow.stream(ORDERS, time=lambda value: value[1])
    again = orders.key_by("orders-by-name", lambda v: v[0], key=String(), beside=clicks)
    clicks.join("both", again, names, within=ms(10), grace=ms(0)).to(OUT)
    assert [group.name for group in flow.groups] == ["f", "f-by-name"]
    tester.run(flow)
    emit(tester, ("c", "a", "x", 100), ("o", "b", "x", 101), ("o", "b", "y", 101))
    assert written(tester) == [("x", "x", "x", 101)]


def test_streams_of_different_groups_are_refused() -> None:
    flow = Flow("f")
    clicks = flow.stream(CLICKS).key_by("by-name", lambda v: v[0], key=String())
    with pytest.raises(GraphError, match=r"join\(\).*'f', 'f-by-name'.*beside="):
        clicks.join("both", flow.stream(ORDERS), names, within=ms(1), grace=ms(0))


def test_streams_with_different_numbers_of_partitions_are_refused_at_the_start(tester: Tester) -> None:
    tester.create(CLICKS, partitions=2)
    tester.create(ORDERS, partitions=3)
    with pytest.raises(
        TopicMismatch, match=r"it has 3, the input 2.*stream\(\.\.\., group=.*repartition\(name, beside="
    ):
        tester.run(joined("join"))


def test_streams_with_different_numbers_of_partitions_are_joined_by_what_the_refusal_advises(
    tester: Tester,
) -> None:
    tester.create(CLICKS, partitions=2)
    tester.create(ORDERS, partitions=3)
    flow = Flow("f")
    clicks = flow.stream(CLICKS, time=lambda value: value[1])
    orders = flow.stream(ORDERS, time=lambda value: value[1], group="orders").repartition(
        "moved", beside=clicks
    )
    clicks.join("both", orders, names, within=ms(10), grace=ms(0)).to(OUT)
    tester.run(flow)
    emit(tester, *((stream, key, stream + key, 100) for key in "abcd" for stream in "co"))
    assert sorted(written(tester)) == [(key, "c" + key, "o" + key, 100) for key in "abcd"]


def test_a_join_after_a_step_that_changes_keys_or_values_without_a_codec_is_refused() -> None:
    flow = Flow("f")
    clicks, orders = flow.stream(CLICKS), flow.stream(ORDERS)
    with pytest.raises(GraphError, match="changes keys"):
        clicks.map(lambda k, v: (k, v), value=CLICKS.value).join(
            "a", orders, names, within=ms(1), grace=ms(0)
        )
    with pytest.raises(GraphError, match="right side"):
        clicks.join("b", orders.map_values(len), names, within=ms(1), grace=ms(0))


def test_what_comes_out_alone_cannot_be_processed_with_a_record() -> None:
    flow = Flow("f")
    both = flow.stream(CLICKS).left_join("both", flow.stream(ORDERS), names, within=ms(1), grace=ms(0))
    with pytest.raises(GraphError, match="left_join"):
        both.filter(bool).process(lambda ctx, value: [value])


@pytest.mark.parametrize(
    ("within", "grace", "message"),
    [
        ((ms(-5), ms(4)), ms(0), "nothing can match"),
        (ms(5), ms(-1), "at least 0"),
        (timedelta(microseconds=5), ms(0), "whole milliseconds"),
        (5, ms(0), "timedelta"),
    ],
)
def test_bounds_that_cannot_be_are_refused(within: Any, grace: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Bounds.of(within, grace)


def test_a_flow_with_a_join_is_described() -> None:
    text = str(joined("left_join").describe())
    assert "left_join 'both' within 10 ms before and 20 ms after, with a grace of 5 ms" in text
    assert "unmatched of 'both'" in text


# ---- edits ----------------------------------------------------------------------------------------------------------------------


def edited(tester: Tester, first: Flow, second: Flow) -> None:
    """Start another flow in place of the first, on an empty disk."""
    tester.run(first)
    emit(tester, ("c", "a", "c", 100))
    tester.leave(first.group())
    del tester._instances[first.name]
    tester.run(second)


def test_steps_around_a_join_can_be_edited_and_what_waits_is_kept(tester: Tester) -> None:
    flow = Flow("f")
    clicks = flow.stream(CLICKS, time=lambda value: value[1]).peek(lambda key, value: None)
    orders = flow.stream(ORDERS, time=lambda value: value[1]).filter(bool)
    both = clicks.join("both", orders, names, within=(ms(10), ms(20)), grace=ms(5))
    both.filter(bool).to(OUT)
    edited(tester, joined("join"), flow)
    emit(tester, ("o", "a", "o", 100))
    assert written(tester) == [("a", "c", "o", 100)]


@pytest.mark.parametrize(
    ("second", "now"),
    [
        (joined("left_join"), "left_join within 10 ms before"),
        (joined("join", within=ms(10)), "10 ms after"),
        (joined("join", grace=6), "a grace of 6 ms"),
    ],
)
def test_a_join_that_means_something_else_under_its_name_is_refused_at_the_start(
    tester: Tester, second: Flow, now: str
) -> None:
    with pytest.raises(StateMeaningChanged, match=now) as refused:
        edited(tester, joined("join"), second)
    assert "join within 10 ms before and 20 ms after, with a grace of 5 ms" in str(refused.value)


# ---- independence of batches, restarts and the order of the inputs ----------------------------------------------------------------


class Event(NamedTuple):
    side: str
    key: str
    time: int


events_of = st.lists(
    st.builds(Event, st.sampled_from("co"), st.sampled_from("ab"), st.integers(1, 60)), max_size=24
)
bounds_of = st.sampled_from([(10, 10), (0, 15), (12, 0), (-3, 10), (0, 0)])


def expected(events: Sequence[Event], operator: str, within: tuple[int, int], grace: int) -> Counter[Any]:
    """The definition, pair by pair."""
    bounds = Bounds(*within, grace)
    seen = {"c": -1, "o": -1}
    sides: dict[str, list[tuple[int, str, int, int]]] = {"c": [], "o": []}
    for number, (side, key, time) in enumerate(events):
        seen[side] = max(seen[side], time)
        sides[side].append((number, key, time, seen[side]))
    found: Counter[Any] = Counter()
    matched = set()
    for left, key, time, left_seen in sides["c"]:
        for right, other, at, right_seen in sides["o"]:
            near = key == other and time - within[0] <= at <= time + within[1]
            open_ = right_seen < time + bounds.life_ms(LEFT) and left_seen < at + bounds.life_ms(RIGHT)
            if near and open_:
                found[key, left, right, max(time, at)] += 1
                matched |= {left, right}
    for left, key, time, _ in sides["c"]:
        if left not in matched and operator != "join":
            found[key, left, None, time] += 1
    for right, key, time, _ in sides["o"]:
        if right not in matched and operator == "outer_join":
            found[key, None, right, time] += 1
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    events_of, bounds_of, st.sampled_from([0, 7]), st.sampled_from(["join", "left_join", "outer_join"]), st.data()
)  # fmt: skip
def test_pairs_are_those_of_the_definition_however_the_input_is_divided_and_whatever_crashes(
    events: list[Event], within: tuple[int, int], grace: int, operator: str, data: st.DataObject
) -> None:
    bounds = [0, *sorted(data.draw(st.sets(st.integers(0, len(events))))), len(events)]
    restarts = data.draw(st.sets(st.integers(0, len(bounds))))
    failpoint = data.draw(st.sampled_from([None, "begun", "changelog-produced", "offsets-sent", "committed"]))
    flow = joined(operator, within=(ms(within[0]), ms(within[1])), grace=grace)
    with Tester(work_on_request=True) as tester:
        tester.run(flow)
        group = flow.group()
        for number, (begin, end) in enumerate(pairwise(bounds)):
            crash = number in restarts and end > begin
            if crash:
                tester.crash(group, at=failpoint)
            for index in range(begin, end):
                side, key, time = events[index]
                tester.emit(CLICKS if side == "c" else ORDERS, key, [index, time])
            tester.work()
            if crash:
                tester.start(group, disk=number % 2 == 0)
                tester.work()
        emit(tester, *END)
        tester.work()
        found = Counter(each for each in written(tester) if each[0] in "ab")
        assert found == expected(events, operator, within, grace)
