"""A handler behind a decorator or a lambda that returns a coroutine or a generator stops its group: nothing would run it."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from streamtable import (
    Changes,
    Due,
    Group,
    Input,
    Long,
    Loop,
    OnError,
    Output,
    Persist,
    State,
    Stream,
    String,
    Table,
    Timer,
    Visit,
)
from streamtable.errors import GraphError
from streamtable.flow import Flow
from streamtable.graph.visiting import VisitProgress
from streamtable_testing import Tester

EVENTS = Stream[str, int]("events", String(), Long())
ROWS = Table[str, int]("rows", String(), Long())
SOURCE = Stream[str, int]("rows", String(), Long())
LOOP = Stream[str, int]("g-loop", String(), Long())
SKIP = OnError.SKIP


async def waits(ctx: Any, *_: Any) -> None:
    ctx.set(1)


def yields(ctx: Any, *_: Any) -> Any:
    yield ctx.set(1)


def decorated(function: Any) -> Any:
    @wraps(function)
    def made(*given: Any) -> Any:
        return function(*given)

    return made


def input_of(handler: Any) -> list[Any]:
    return [Input(EVENTS, handler, on_error=SKIP)]


def batch_of(handler: Any) -> list[Any]:
    return [Input(EVENTS, batch=handler, on_error=SKIP)]


def loop_of(handler: Any) -> list[Any]:
    return [
        Input(EVENTS, lambda ctx, event: ctx.loopback(LOOP, ctx.key, event)),
        Loop(LOOP, handler, on_error=SKIP),
    ]


def timer_of(handler: Any) -> list[Any]:
    timer = Timer("t", handler, Long(), on_error=SKIP, clock="wall")
    return [Input(EVENTS, lambda ctx, event: ctx.timers.at(timer, 5, event)), timer]


def changes_of(handler: Any) -> list[Any]:
    return [Changes(ROWS, handler, start="earliest", on_error=SKIP)]


def visit_of(handler: Any) -> list[Any]:
    return [Input(EVENTS, lambda ctx, event: ctx.set(event)), Visit("v", handler, on_error=SKIP)]


@pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("function", [waits, yields])
@pytest.mark.parametrize("edges", [input_of, batch_of, loop_of, timer_of, changes_of, visit_of])
def test_a_decorated_handler_that_returns_what_nothing_would_run_stops_its_group(
    edges: Callable[[Any], list[Any]], function: Any
) -> None:
    group = Group[str, int]("g", *edges(decorated(function)), Persist(Long()))
    with Tester() as tester:
        tester.create(SOURCE)
        tester.run(group)
        if edges is visit_of:
            tester.emit(EVENTS, "a", 1)
            topic, record = group.visits_topic, (b"v", VisitProgress("run").encode())
        else:
            topic, record = SOURCE.name if edges is changes_of else EVENTS.name, (b"a", Long().encode(1))
        with pytest.raises(
            GraphError,
            match=r"returned a coroutine or a generator.*nothing would run it: give a plain function",
        ):
            tester.emit_raw(topic, *record)
        assert tester.dead_letters(group) == []


@pytest.mark.parametrize(
    "step",
    [
        lambda stream: stream.filter(decorated(yields)),
        lambda stream: stream.peek(decorated(yields)),
        lambda stream: stream.split(decorated(yields))[0],
    ],
)
def test_a_predicate_that_returns_a_generator_stops_its_flow(step: Callable[[Any], Any]) -> None:
    flow = Flow("f")
    step(flow.stream(EVENTS)).to(Stream("out", String(), Long()))
    with Tester() as tester:
        tester.run(flow)
        with pytest.raises(GraphError, match="nothing would run it"):
            tester.emit(EVENTS, "a", 1)


def test_rows_that_fall_due_are_not_given_to_a_handler_that_nothing_would_run() -> None:
    due = Due[str, int](lambda key, row: 1_000, decorated(yields), clock="wall")
    state = State("s", key=String(), value=Long(), due=due)
    group = Group[str, Any]("g", Input(EVENTS, lambda ctx, event: ctx.table(state).put("a", event)), state)
    with Tester() as tester:
        tester.run(group)
        with pytest.raises(GraphError, match="nothing would run it"):
            tester.emit(EVENTS, "a", 1)


@pytest.mark.parametrize("empty", [{}, ""])
def test_an_empty_dict_or_text_is_no_record(empty: Any) -> None:
    flow, out = Flow("f"), Stream("out", String(), Long())
    flow.stream(EVENTS).flat_map_values(lambda _: empty, value=Long()).to(out)
    with Tester() as tester:
        tester.run(flow)
        tester.emit(EVENTS, "a", 1)
        assert tester.records(out) == []


def test_a_table_is_no_output() -> None:
    output: Any = Output
    with pytest.raises(GraphError, match="Output"):
        output(ROWS)


def test_a_decorator_may_run_what_its_handler_returns() -> None:
    def runs(ctx: Any, event: int) -> None:
        assert list(yields(ctx, event)) == [None]

    runs.__wrapped__ = yields  # type: ignore[attr-defined]
    group = Group[str, int]("g", Input(EVENTS, runs), Persist(Long()))
    with Tester() as tester:
        tester.run(group)
        tester.emit(EVENTS, "a", 5)
        assert tester.table(group) == {"a": 1}
