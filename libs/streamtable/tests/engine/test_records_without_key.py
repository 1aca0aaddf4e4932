"""`Input(keyless=True)`: records without a key in a stream that otherwise has keys."""

from typing import Any

import pytest

from streamtable import Context, Count, Group, Input, Join, Long, OnError, Persist, Stream, String, Table
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


def test_an_aggregate_of_them_is_refused() -> None:
    with pytest.raises(GraphError, match="keyless=True with aggregate="):
        Input(EVENTS, aggregate=Count(), keyless=True)
