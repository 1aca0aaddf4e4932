"""The group on the Tester: the engine's own code, without a broker."""

from itertools import permutations

import pytest

from contracts.records import UserStatus, UserStatusUpdate
from streamtable import Avro, Context, Group, Input, Persist, Stream, String
from streamtable_testing import Tester
from user_status.topics import CHANGES, UPDATES, click_counts, statuses

CLICKS = click_counts("clicks")
GROUP = statuses("statuses", "clicks")


def count(ctx: Context[str, int], by: int) -> None:
    ctx.set((ctx.value or 0) + by)


STEPS = Stream("steps", key=String(), value=Avro("long"))
COUNTING = Group("clicks", Input(STEPS, count), Persist(Avro("long")))
"""Stands for click counting, whose table is the contract."""


def update(at: int, identity: str = "a", status: str = "at work") -> UserStatusUpdate:
    return UserStatusUpdate(id=identity, user_id="alice", status=status, at=at)


def row(at: int, identity: str, status: str, clicks: int) -> UserStatus:
    return UserStatus(status=status, at=at, id=identity, clicks=clicks)


def test_a_status_carries_the_clicks_at_its_moment(tester: Tester) -> None:
    tester.run(COUNTING)
    tester.run(GROUP)
    tester.emit(UPDATES, "alice", update(1, "a", "at work"))
    tester.emit(STEPS, "alice", 3)
    tester.emit(STEPS, "bob", 9)
    assert tester.table(GROUP) == {"alice": row(1, "a", "at work", 0)}
    tester.emit(UPDATES, "alice", update(2, "b", "at lunch"))
    tester.emit(STEPS, "alice", 4)
    assert tester.table(GROUP) == {"alice": row(2, "b", "at lunch", 3)}


def test_changes_are_reported_only_of_statuses_that_were_kept_and_are_others(tester: Tester) -> None:
    tester.run(GROUP)
    for each in (
        update(5, "a", "at work"),
        update(4, "b", "too late"),
        update(5, "a", "at work"),  # the same again
        update(6, "c", "at work"),  # the same status, said later
        update(7, "d", "at lunch"),
    ):
        tester.emit(UPDATES, "alice", each)
    reported = [
        (each.value["old"], each.value["new"]) for each in tester.records(CHANGES) if each.value is not None
    ]
    assert reported == [(None, "at work"), ("at work", "at lunch")]
    assert tester.table(GROUP) == {"alice": row(7, "d", "at lunch", 0)}


@pytest.mark.parametrize(
    "updates",
    list(permutations([update(5, "a", "at work"), update(5, "b", "at lunch"), update(3, "c", "at home")])),
)
def test_the_table_does_not_depend_on_the_order_of_the_updates(
    tester: Tester, updates: tuple[UserStatusUpdate, ...]
) -> None:
    tester.run(GROUP)
    tester.emit_many(UPDATES, [("alice", each) for each in updates])
    assert tester.table(GROUP) == {"alice": row(5, "b", "at lunch", 0)}


def test_the_table_of_clicks_is_that_of_the_group_that_is_named() -> None:
    assert (CLICKS.name, CLICKS.group) == ("clicks-table", "clicks")
    assert GROUP.input_topics == ("user-status-updates", "clicks-table", "statuses-retry")
    assert GROUP.table.name == "statuses-table"


def test_an_update_from_the_far_future_is_a_dead_letter_and_later_ones_still_count(tester: Tester) -> None:
    tester.run(GROUP)
    now = round(tester.clock.now() * 1000)
    for each in (
        update(2**53 - 1, "a", "for ever"),
        update(now + 300_001, "b", "a little too far"),
        update(-1, "c", "before all time"),
        update(now + 300_000, "d", "just in time"),
    ):
        tester.emit(UPDATES, "alice", each)
    assert tester.table(GROUP) == {"alice": row(now + 300_000, "d", "just in time", 0)}
    reasons = [str(letter.reason) for letter in tester.dead_letters(GROUP)]
    assert len(reasons) == 3
    assert all("event time" in reason for reason in reasons)


def test_history_that_is_read_again_much_later_is_judged_by_its_own_timestamps(tester: Tester) -> None:
    then = round(tester.clock.now() * 1000)
    tester.run(GROUP)
    tester.emit(UPDATES, "alice", update(then - 5, "a"), timestamp_ms=then - 10)
    tester.emit(
        UPDATES, "alice", update(then, "b", "from the future of its record"), timestamp_ms=then - 300_001
    )
    assert tester.table(GROUP) == {"alice": row(then - 5, "a", "at work", 0)}
