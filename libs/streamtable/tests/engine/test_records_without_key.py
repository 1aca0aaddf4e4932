"""`Input(keyless=True)`: records without a key in a stream that otherwise has keys."""

from typing import Any

import pytest

from streamtable import (
    Context,
    Count,
    Group,
    Input,
    Join,
    Long,
    OnError,
    Persist,
    Stream,
    String,
    Table,
    Timer,
)
from streamtable.errors import GraphError
from streamtable_testing.tester import Tester

EVENTS = Stream[str, str]("events", String(), String())
USERS = Table("users", String(), String())


def test_the_joined_rows_of_a_batch_are_those_of_its_records(tester: Tester) -> None:
    seen: list[Any] = []

    def handle(batch: Any) -> None:
        seen.extend(zip(batch.events, batch.join(USERS), strict=True))

    tester.run(Group("g", Input(EVENTS, batch=handle, keyless=True), Join(USERS)))
    tester.emit_raw("users", b"b", b"Bob")
    for key, value in ((None, b"1"), (b"b", b"2"), (None, b"3")):
        tester.emit_raw("events", key, value, partition=0)
    assert seen == [("1", None), ("2", "Bob"), ("3", None)]


def test_a_row_that_is_set_without_a_key_is_an_error_of_the_record(tester: Tester) -> None:
    def handle(ctx: Context[str, int], event: str) -> None:
        if event == "delete":
            ctx.delete()
        else:
            ctx.set(len(event))

    group = Group("g", Input(EVENTS, handle, keyless=True, on_error=OnError.DEAD_LETTER), Persist(Long()))
    tester.run(group)
    for key, value in ((b"a", b"1"), (None, b"22"), (None, b"delete"), (b"b", b"333")):
        tester.emit_raw("events", key, value, partition=0)
    assert tester.table(group) == {"a": 1, "b": 3}
    (letter,) = tester.dead_letters(group)
    assert "a record without a key has no row to set" in str(letter)


def test_they_have_no_row_and_no_joined_row(tester: Tester) -> None:
    seen: list[Any] = []

    def handle(ctx: Context[str, int], event: str) -> None:
        seen.append((event, ctx.value, ctx.join(USERS)))
        if event == "first":
            ctx.set(7)

    tester.run(Group("g", Input(EVENTS, handle, keyless=True), Join(USERS), Persist(Long())))
    tester.emit_raw("users", b"b", b"Bob")
    for key, value in ((b"b", b"first"), (None, b"without"), (b"b", b"second")):
        tester.emit_raw("events", key, value, partition=0)
    assert seen == [("first", None, "Bob"), ("without", None, None), ("second", 7, "Bob")]


def test_a_timer_that_is_set_without_a_key_is_an_error_of_the_record(tester: Tester) -> None:
    timer = Timer[Any, str, Any]("remind", lambda _, __: None, String())

    def handle(ctx: Context[str, int], event: str) -> None:
        ctx.timers.at(timer, 5, event)

    group = Group("g", Input(EVENTS, handle, keyless=True, on_error=OnError.DEAD_LETTER), timer)
    tester.run(group)
    tester.emit_raw("events", None, b"1", partition=0)
    (letter,) = tester.dead_letters(group)
    assert "a record without a key has no timers" in str(letter)


def test_an_aggregate_of_them_is_refused() -> None:
    with pytest.raises(GraphError, match="keyless=True with aggregate="):
        Input(EVENTS, aggregate=Count(), keyless=True)
