"""Bugs to plant in the joins of flows: each breaks one rule of docs/explanation/joins.md."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streamtable.engine.due.chunks import Chunks
from streamtable.engine.named.state import KeptState
from streamtable.flow.joins.as_of import AsOfJoin
from streamtable.flow.joins.foreign_key import Left, Parts, Right
from streamtable.flow.joins.key_filter import KeyFilter
from streamtable.flow.joins.recent_records import RecentRecords
from streamtable.flow.joins.rules import Bounds
from streamtable.flow.joins.streams import StreamJoin, _Joining
from streamtable.flow.joins.waiting_records import records_of, times_of
from streamtable.tables.ordered_table import OrderedTable

Plant = Callable[[pytest.MonkeyPatch], None]


# ---- streams --------------------------------------------------------------------------------------------------------------


def matched_records_come_out_alone_too(patch: pytest.MonkeyPatch) -> None:
    """Records that matched while they waited are forgotten."""
    waited = StreamJoin._waited

    def waited_and_forgotten(self: StreamJoin, rows: Any, due: Any) -> Any:
        unmatched = [(raw, where, row[:1] + b"\0" + row[2:]) for raw, where, row in due.rows]
        forgotten: Any = SimpleNamespace(rows=unmatched, times_ms=due.times_ms)
        return waited(self, rows, forgotten)

    patch.setattr(StreamJoin, "_waited", waited_and_forgotten)


def records_that_come_out_alone_stay_in_the_changelog(patch: pytest.MonkeyPatch) -> None:
    """After a crash they are emitted again."""
    changes = KeptState.changes

    def changes_without_deletions(self: KeptState) -> Any:
        found = changes(self)
        return [row for row in found if row[1] is not None] if self.state.name == "both" else found

    patch.setattr(KeptState, "changes", changes_without_deletions)


def waiting_records_only_on_the_own_disk(patch: pytest.MonkeyPatch) -> None:
    """They are missing after a lost disk, and in another process."""
    _keep_from_the_changelog(patch, "both")


def waiting_records_expire_early(patch: pytest.MonkeyPatch) -> None:
    """The grace is ignored."""
    life_ms = Bounds.life_ms
    patch.setattr(Bounds, "life_ms", lambda self, side: life_ms(self, side) - self.grace_ms)


def waiting_records_expire_late(patch: pytest.MonkeyPatch) -> None:
    """The grace counts twice."""
    life_ms = Bounds.life_ms
    patch.setattr(Bounds, "life_ms", lambda self, side: life_ms(self, side) + self.grace_ms)


def closed_windows_match(patch: pytest.MonkeyPatch) -> None:
    """Whether a record comes too late for one that waits depends on the rows that have been deleted by then."""
    match = _Joining._match

    def match_all(self: _Joining, side: Any, first: int, keys: Any, times: Any, late_before: Any) -> Any:
        return match(self, side, first, keys, times, [-1] * len(late_before))

    patch.setattr(_Joining, "_match", match_all)
    patch.setattr("streamtable.flow.joins.streams.times_of", lambda record: (*times_of(record)[:2], -1))


def waiting_records_of_the_same_time_replace_each_other(patch: pytest.MonkeyPatch) -> None:
    """The number that distinguishes them restarts with each batch."""

    def records_from_0(side: Any, times: Any, _: int, *rest: Any) -> Any:
        return records_of(side, times, 0, *rest)

    patch.setattr("streamtable.flow.joins.streams.records_of", records_from_0)


def records_that_are_rolled_back_stay_in_memory(patch: pytest.MonkeyPatch) -> None:
    """They match once more when they are read again."""
    patch.setattr(OrderedTable, "forget_notes", lambda _: None)


def keys_from_before_a_restart_are_taken_as_without_records(patch: pytest.MonkeyPatch) -> None:
    """The filter of keys ignores rows that were in the table when it was created."""
    patch.setattr(OrderedTable, "last_due_ms", lambda _: None)


def keys_are_forgotten_while_their_records_wait(patch: pytest.MonkeyPatch) -> None:
    """The filter of keys drops a batch's keys with the next batch."""
    add = KeyFilter.add

    def add_to_an_empty_one(self: KeyFilter, keys: Any, due_ms: int) -> None:
        self._generations = [type(self._generations[0])(64)]
        add(self, keys, due_ms)

    patch.setattr(KeyFilter, "add", add_to_an_empty_one)


def frozen_records_match_nothing(patch: pytest.MonkeyPatch) -> None:
    """Only those in the dicts and in the table are looked at."""
    patch.setattr(RecentRecords, "frozen", lambda *_: [])


def entries_of_a_chunk_are_forgotten_with_the_first_that_fires(patch: pytest.MonkeyPatch) -> None:
    """It is deleted with the first of its entries that fires, not with the last."""
    changes = Chunks.changes

    def changes_without_what_was_not_taken(self: Chunks, appended: Any, fired_from: bytes) -> Any:
        for each in self._reached.values():
            del each.entries[max(1, each.taken) :]
        return changes(self, appended, fired_from)

    patch.setattr(Chunks, "changes", changes_without_what_was_not_taken)


def chunks_that_begin_before_the_clock_are_passed_over(patch: pytest.MonkeyPatch) -> None:
    """An entry that is late for the clock, and so due at once, is in a chunk that is never read."""
    committed = Chunks.committed

    def committed_and_not_looked_at(self: Chunks, fired_from: bytes) -> None:
        self._written = [name for name in self._written if name >= self._from]
        committed(self, fired_from)

    patch.setattr(Chunks, "committed", committed_and_not_looked_at)


def entries_of_an_undone_batch_stay_taken(patch: pytest.MonkeyPatch) -> None:
    """What falls due in a commit that is undone never comes out."""
    go_back = Chunks.go_back

    def go_back_nowhere(self: Chunks, fired_from: bytes) -> None:
        taken = [each.taken for each in self._reached.values()]
        go_back(self, fired_from)
        for each, before in zip(self._reached.values(), taken, strict=True):
            each.taken = before

    patch.setattr(Chunks, "go_back", go_back_nowhere)


# ---- as of a time ---------------------------------------------------------------------------------------------------------


def old_versions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The last version before the history is deleted too."""
    patch.setattr(AsOfJoin, "_make_base", lambda *_: None)


def versions_that_end_with_their_record_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    """They are deleted in the same batch that emits the record."""
    as_of = AsOfJoin._as_of

    def as_of_what_is_stored(self: AsOfJoin, table: Any, where: Any, _: Any) -> Any:
        return as_of(self, table, where, defaultdict(deque))

    patch.setattr(AsOfJoin, "_as_of", as_of_what_is_stored)


def a_base_is_replaced_by_an_older_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("streamtable.flow.joins.as_of._since", lambda _: 0)


# ---- foreign key ----------------------------------------------------------------------------------------------------------


def answers_for_old_versions_of_a_row_are_taken(patch: pytest.MonkeyPatch) -> None:
    answered = Left._answered

    def answered_in_any_case(self: Left, rows: Any, key: bytes, answer: Parts) -> None:
        row = rows[key]
        answered(self, rows, key, answer if row is None else replace(answer, version=row.version))

    patch.setattr(Left, "_answered", answered_in_any_case)


def answers_go_to_the_partition_of_the_left_key(patch: pytest.MonkeyPatch) -> None:
    """Not to the requesting partition, which has its row."""
    asked = Right._asked

    def asked_by_no_partition(self: Right, table: Any, key: bytes, subscription: Parts) -> Any:
        return asked(self, table, key, replace(subscription, parts=(subscription.parts[0], None)))

    patch.setattr(Right, "_asked", asked_by_no_partition)


def partitions_that_have_asked_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A change of a right row goes to the partitions of the left keys."""
    changed = Right._changed

    def changed_for_the_keys(self: Right, *change: Any, even_if_unchanged: bool) -> Any:
        made = changed(self, *change, even_if_unchanged=even_if_unchanged)
        return ((left, None, answer) for left, _, answer in made)

    patch.setattr(Right, "_changed", changed_for_the_keys)


def changes_of_right_rows_reach_no_subscriber(patch: pytest.MonkeyPatch) -> None:
    changed = Right._changed

    def changed_in_silence(self: Right, table: Any, key: bytes, row: Any, *, even_if_unchanged: bool) -> Any:
        list(changed(self, table, key, row, even_if_unchanged=even_if_unchanged))
        return iter(())

    patch.setattr(Right, "_changed", changed_in_silence)


def versions_of_subscriptions_begin_again(patch: pytest.MonkeyPatch) -> None:
    changed = Left._changed

    def changed_without_the_last(self: Left, table: Any, *change: Any) -> Any:
        return changed(self, SimpleNamespace(get=lambda _: None, put=lambda *_: None), *change)

    patch.setattr(Left, "_changed", changed_without_the_last)


def subscribers_only_on_the_own_disk(patch: pytest.MonkeyPatch) -> None:
    _keep_from_the_changelog(patch, "linked-subscribers")


def answers_only_on_the_own_disk(patch: pytest.MonkeyPatch) -> None:
    _keep_from_the_changelog(patch, "linked")


def _keep_from_the_changelog(patch: pytest.MonkeyPatch, name: str) -> None:
    changes = KeptState.changes

    def changes_without_it(self: KeptState) -> Any:
        found = changes(self)
        return [] if self.state.name == name else found

    patch.setattr(KeptState, "changes", changes_without_it)
