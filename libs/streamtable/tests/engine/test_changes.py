"""The changes of joined tables that happened while the group was away."""

from typing import Any

import pytest

from streamtable import (
    Changes,
    Context,
    Group,
    Input,
    Json,
    OnError,
    Output,
    RowChange,
    Stream,
    String,
    Table,
)
from streamtable.base.types import TopicPartition
from streamtable.engine.records import dispatch
from streamtable.errors import DeserializationError, HandlerFailed, InputLost
from streamtable.flow import Flow
from streamtable_testing.tester import Tester

EVENTS = Stream[str, Any]("events", String(), Json())
USERS = Table[str, Any]("users", String(), Json())
WRITES = Stream[str, Any]("users", String(), Json())
LOG = Stream[str, Any]("log", String(), Json())


def look(ctx: Context[str, Any], event: Any) -> None:
    ctx.emit(LOG, ctx.key, ["event", event, ctx.join(USERS)])


def changed(ctx: Context[str, Any], change: RowChange[Any]) -> None:
    ctx.emit(LOG, ctx.key, [ctx.key, change.old, change.new])


def following(*edges: Any, **options: Any) -> Group[str, Any]:
    changes = Changes(USERS, changed, **{"start": "earliest", **options})
    return Group("g", Input(EVENTS, look), changes, Output(LOG), *edges)


def delete_all(tester: Tester) -> None:
    """Delete all records of the table, as its retention does."""
    topic: Any = tester.kafka.topic("users")
    tester.kafka.delete_records(TopicPartition("users", 0), topic.partitions[0].high)


def logged(tester: Tester) -> list[Any]:
    return [record.value for record in tester.records(LOG)]


@pytest.mark.parametrize("disk", [True, False])
def test_changes_that_were_deleted_before_the_group_handled_them_are_refused(
    tester: Tester,
    disk: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    group = following()
    tester.create(WRITES)
    tester.run(group)
    tester.emit(WRITES, "a", 1)
    tester.stop(group)
    tester.emit(WRITES, "a", 2)
    delete_all(tester)
    tester.emit(WRITES, "b", 3)
    with pytest.raises(InputLost, match=r"records were deleted \(retention\).*\(users\[0\]@"):
        tester.start(group, disk=disk)
    assert logged(tester) == [["a", None, 1]]


def test_handled_changes_may_be_deleted(tester: Tester) -> None:
    group = following()
    tester.create(WRITES)
    tester.run(group)
    tester.emit(WRITES, "a", 1)
    tester.stop(group)
    delete_all(tester)
    tester.emit(WRITES, "b", 3)
    tester.start(group)
    assert logged(tester) == [["a", None, 1], ["b", None, 3]]


# ---- deletions that Kafka has deleted ------------------------------------------------------------------------------------

DAYS = 86_400


def stand_still(tester: Tester) -> None:
    """Let Kafka compact the table, and delete its tombstones."""
    for _ in range(2):
        tester.emit(WRITES, "z", 0)
        tester.kafka.compact("users")
        tester.clock.advance(3 * DAYS)


@pytest.fixture
def table(tester: Tester) -> Stream[str, Any]:
    tester.create(WRITES)
    return WRITES


DISK = pytest.mark.parametrize("disk", [True, False])


@DISK
def test_a_deletion_that_kafka_has_deleted_unread_is_handled_at_the_start(
    tester: Tester,
    table: Stream[str, Any],
    disk: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    group = following()
    tester.run(group)
    for key in "abz":
        tester.emit(table, key, 1)
    tester.stop(group)
    tester.emit(table, "a", None)
    stand_still(tester)
    seen = len(logged(tester))
    tester.start(group, disk=disk)
    tester.emit(EVENTS, "a", 0)
    tester.emit(EVENTS, "b", 0)
    tester.emit(table, "a", 5)
    assert sorted(logged(tester)[seen:-3]) == [["a", 1, None], ["z", 1, 0]]
    assert logged(tester)[-3:] == [["event", 0, None], ["event", 0, 1], ["a", None, 5]]
    for again in (True, False):
        seen = len(logged(tester))
        tester.stop(group)
        tester.start(group, disk=again)
        assert len(logged(tester)) == seen


@pytest.mark.parametrize("on_error", [OnError.SKIP, OnError.DEAD_LETTER])
def test_a_deletion_that_the_handler_refuses_is_not_offered_again_when_the_copy_is_loaded_again(
    tester: Tester, table: Stream[str, Any], on_error: OnError
) -> None:
    refused: list[Any] = []

    def refuse(ctx: Context[str, Any], change: RowChange[Any]) -> None:
        if change.new is None:
            refused.append((ctx.key, change.old))
            ctx.fail("no deletions")

    group = Group[str, Any]("g", Changes(USERS, refuse, start="earliest", on_error=on_error))
    tester.run(group)
    for key in "abz":
        tester.emit(table, key, 1)
    tester.emit(table, "a", None)
    tester.stop(group)
    tester.emit(table, "b", None)
    stand_still(tester)
    for disk in (False, False, True):
        tester.start(group, disk=disk)
        tester.stop(group)
    letters = 2 if on_error is OnError.DEAD_LETTER else 0
    assert (set(refused), len(tester.dead_letters(group))) == ({("a", 1), ("b", 1)}, letters)
    if letters:
        tester.start(group)
        del refused[:]
        tester.retry(group, tester.dead_letters(group)[1])
        assert set(refused) == {("b", 1)}


def test_a_missed_deletion_that_is_refused_stops_the_group_until_the_handler_is_corrected(
    tester: Tester, table: Stream[str, Any]
) -> None:
    allowed, seen = False, []

    def on_change(ctx: Context[str, Any], change: RowChange[Any]) -> None:
        if change.new is None and not allowed:
            ctx.fail("no deletions")
        seen.append((ctx.key, change.old, change.new))

    group = Group[str, Any]("g", Changes(USERS, on_change, start="earliest"))
    tester.run(group)
    for key in "az":
        tester.emit(table, key, 1)
    tester.stop(group)
    tester.emit(table, "a", None)
    stand_still(tester)
    for _ in range(2):
        with pytest.raises(HandlerFailed, match=r"no deletions. Correct the handler \(users"):
            tester.start(group)
    allowed = True
    tester.start(group)
    assert seen.count(("a", 1, None)) == 1


def test_many_missed_deletions_are_handled_in_slices_also_over_a_crash(
    tester: Tester, table: Stream[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "ROWS_AT_ONCE", 2)
    broken, seen = "k2", []

    def on_change(ctx: Context[str, Any], change: RowChange[Any]) -> None:
        if ctx.key == broken and change.new is None:
            raise HandlerGone
        if change.new is None:
            seen.append(ctx.key)
            ctx.emit(LOG, ctx.key, "deleted")

    group = Group[str, Any]("g", Changes(USERS, on_change, start="earliest"), Output(LOG))
    tester.run(group)
    for number in range(7):
        tester.emit(table, f"k{number}", 1)
    tester.stop(group)
    for number in range(7):
        tester.emit(table, f"k{number}", None)
    stand_still(tester)
    with pytest.raises(HandlerFailed):
        tester.start(group)
    broken = ""
    tester.start(group)
    assert sorted(str(record.key) for record in tester.records(LOG)) == [f"k{number}" for number in range(7)]


class HandlerGone(Exception):
    """An error of a handler."""


@DISK
def test_a_row_that_is_still_to_change_is_joined_as_it_was_handled_last(
    tester: Tester,
    table: Stream[str, Any],
    disk: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    group = following()
    tester.run(group)
    tester.emit(table, "a", 1)
    tester.stop(group)
    tester.emit(EVENTS, "a", 1)
    tester.emit(table, "a", 2)
    tester.kafka.compact("users")
    tester.start(group, disk=disk)
    tester.emit(EVENTS, "a", 2)
    assert logged(tester) == [["a", None, 1], ["event", 1, 1], ["a", 1, 2], ["event", 2, 2]]


def test_rows_that_expired_are_no_deletions(tester: Tester, table: Stream[str, Any]) -> None:
    group = following()
    tester.run(group)
    tester.emit(table, "a", 1)
    tester.stop(group)
    delete_all(tester)
    tester.start(group, disk=False)
    tester.emit(EVENTS, "a", 0)
    assert logged(tester) == [["a", None, 1], ["event", 0, None]]


def test_a_flow_over_a_table_counts_no_row_that_was_deleted_while_it_stood_still(
    tester: Tester, table: Stream[str, Any]
) -> None:
    flow = Flow("f")
    counts = flow.table(USERS).group_by("by-city", lambda row: row, key=String()).count("per-city")
    assert counts is not None
    tester.run(flow)
    for key in "abz":
        tester.emit(table, key, "X")
    for group in flow.groups:
        tester.stop(group)
    tester.emit(table, "a", None)
    for _ in range(2):
        tester.emit(table, "z", "Y")
        tester.kafka.compact("users")
        tester.clock.advance(3 * DAYS)
    for group in flow.groups:
        tester.start(group)
    rows = [tester.table(group, state) for group in flow.groups for state in group.states]
    assert {"X": 1, "Y": 1} in rows


# ---- changes that cannot be decoded, or kept ---------------------------------------------------------------------------------


@DISK
def test_the_joined_row_is_what_the_topic_holds_also_if_it_cannot_be_decoded(
    tester: Tester,
    table: Stream[str, Any],
    disk: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    seen: list[Any] = []

    def look_at(ctx: Context[str, Any], event: Any) -> None:
        try:
            seen.append((event, ctx.join(USERS)))
        except DeserializationError:
            seen.append((event, "unreadable"))

    group = Group[str, Any]("g", Input(EVENTS, look_at), Changes(USERS, lambda *_: None, start="earliest"))
    tester.run(group)
    tester.emit(table, "a", 1)
    tester.emit(EVENTS, "a", 1)
    tester.emit_raw("users", b"a", b"{bad")
    tester.emit(EVENTS, "a", 2)
    tester.stop(group)
    tester.start(group, disk=disk)
    tester.emit(EVENTS, "a", 3)
    tester.emit(table, "a", 4)
    tester.emit(EVENTS, "a", 4)
    assert seen == [(1, 1), (2, "unreadable"), (3, "unreadable"), (4, 4)]


def test_a_row_that_is_too_large_to_be_kept_as_known_is_treated_as_missing(tester: Tester) -> None:
    writes = Stream[str, str]("users", String(), String())
    users = Table[str, str]("users", String(), String())
    seen: list[Any] = []

    def on_change(ctx: Context[str, Any], change: RowChange[str]) -> None:
        seen.append((ctx.key, change.old, change.new))

    tester.create(writes)
    topic: Any = tester.kafka.topic("users")
    tester.emit(writes, "a", "x" * (topic.info.max_message_bytes - 209))
    tester.emit(writes, "b", "small")
    group = Group[str, Any]("g", Changes(users, on_change))
    tester.run(group)
    tester.emit(writes, "a", "small")
    tester.emit(writes, "b", "other")
    assert seen == [("a", None, "small"), ("b", "small", "other")]
