"""A function that raises StopIteration, as `next()` without a default does, fails for its record: no other record is lost."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamtable import EventTime, Group, Input, Json, Long, Mean, Once, OnError, Stream, String, Sum
from streamtable.flow import Flow, KeyedStream
from streamtable_testing.tester import Tester

EVENTS = Stream[str, Any]("events", String(), Json())
OUT = Stream[str, Any]("out", String(), Json())
Events = KeyedStream[str, Any]


def first(event: Any) -> Any:
    return next(iter(event["n"]))


def emit_five(tester: Tester) -> None:
    """Emit events of 1 to 5 in one batch; the second one has nothing to take."""
    tester.emit_many(EVENTS, [(f"k{n}", {"n": [n] if n != 2 else []}) for n in range(1, 6)])


STEPS: dict[str, Callable[[Events], Any]] = {
    "map": lambda events: events.map(lambda key, event: (key, first(event))),
    "map_values": lambda events: events.map_values(first),
    "filter": lambda events: events.filter(lambda event: first(event) > 0),
    "flat_map": lambda events: events.flat_map(lambda key, event: [(key, first(event))]),
    "flat_map_values": lambda events: events.flat_map_values(lambda event: [first(event)]),
    "a generator": lambda events: events.flat_map_values(lambda event: (first(each) for each in [event])),
    "peek": lambda events: events.peek(lambda _, event: first(event)),
    "split": lambda events: events.split(lambda event: first(event) > 0)[0],
    "sum": lambda events: events.group_by_key().fold("sums", Sum(first), value=Long()).to_stream(),
    "mean": lambda events: events.group_by_key().fold("means", Mean(first), value=Json()).to_stream(),
    "left_join_table": lambda events: events.left_join_table(
        events.to_table("latest", value=Json()), lambda event, _: first(event)
    ),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_handles_the_other_records(step: str) -> None:
    flow = Flow("f", on_error=OnError.DEAD_LETTER)
    STEPS[step](flow.stream(EVENTS)).to(OUT)
    with Tester() as tester:
        tester.run(flow)
        emit_five(tester)
        assert [record.key for record in tester.records(OUT)] == ["k1", "k3", "k4", "k5"]
        (letter,) = (letter for group in flow.groups for letter in tester.dead_letters(group))
        assert "StopIteration" in str(letter)


@pytest.mark.parametrize(
    ("given", "edges"),
    [
        ({"time": first}, [EventTime(max_ahead=None)]),
        ({"once": Once(by=first, within=timedelta(hours=1))}, []),
    ],
)
def test_an_input_handles_the_other_records(given: Any, edges: Any) -> None:
    seen: list[str] = []
    handled = Input(EVENTS, lambda ctx, _: seen.append(ctx.key), on_error=OnError.DEAD_LETTER, **given)
    group: Group[str, Any] = Group("g", handled, *edges)
    with Tester() as tester:
        tester.run(group)
        emit_five(tester)
        assert seen == ["k1", "k3", "k4", "k5"]
        assert len(tester.dead_letters(group)) == 1
