"""The fold of sessions over batches, held to its definition record by record; and what it leaves in table and changelog."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable import Long, OnError, Stream, String
from streamtable.engine.named.state import KeptState
from streamtable.flow import Flow, Session, WindowedTable
from streamtable.flow.folds.sessions import KeepSessions
from streamtable.flow.folds.windows import Late
from streamtable.flow.plan.columns import Columns
from streamtable.flow.windows.keys import END_START
from streamtable.graph.aggregate import Folded
from streamtable.graph.due import Due
from streamtable.graph.state import State
from streamtable.handlers.state_table import StateTable
from streamtable.store.memory import MemoryStores
from streamtable_testing.tester import Tester

TIMES = Stream("times", String(), Long())  # a value is its own event time
SESSION = Session(timedelta(milliseconds=5), grace=timedelta(milliseconds=5))
BYTES_MAX = 1_000_000
GAP, LIFE = SESSION.gap_ms, SESSION.closes_at(0, 0)
Record = tuple[bytes, int, int, int]
"""Key, event time, value, and the time before which windows are closed for it."""
Sessions = dict[tuple[bytes, int, int], str]


def added(row: str, value: int) -> str | None:
    """Write down the values; a 9 ends the session."""
    return None if value == 9 else row + str(value)


def merged(one: str, other: str) -> str:
    return f"({one}{other})"


def emit(tester: Tester, *events: tuple[str, int]) -> None:
    tester.emit_many(TIMES, events)


def rows(tester: Tester, table: WindowedTable[str, Any]) -> dict[tuple[str, int, int], Any]:
    return {(key.key, key.start_ms, key.end_ms): row for key, row in tester.table(table.table).items()}


class Kept:
    """One partition of a table of sessions over a store, with the step, and its changelog as a reader would apply it."""

    def __init__(self) -> None:
        due: Due[Any, Any] = Due(
            SESSION.closing(), lambda _: None, keep=timedelta(days=1), by_key=True, times=SESSION.closings()
        )
        self.state: State[Any, Any] = State("t", key=SESSION.key(String()), value=String(), due=due)
        self.stores = MemoryStores()
        self.store = self.stores.open("t", 0)
        self.kept = KeptState(self.state, self.store, BYTES_MAX, 1 << 20)
        assert self.kept.index is not None
        self.index = self.kept.index
        folded = Folded(added, str, merger=merged)
        self.keep = KeepSessions(self.state, folded, SESSION, Late(None, self.state))
        self.changelog: dict[bytes, bytes] = {}
        self.followed: Sessions = {}
        self.careful = False

    def table(self, _: State[Any, Any]) -> StateTable[Any, Any]:
        return self.kept.handle

    def choose(self, *, careful: bool) -> None:
        """Continue carefully or not, as the engine may after a commit or a rewind only."""
        self.careful = careful
        self.kept.journal.forget()
        self.kept.choose_rows(careful=careful)

    def fold_and_undo(self, records: list[Record], *, follow: bool) -> None:
        """Do carefully what fails, and undo it."""
        self.kept.journal.begin()
        followed = dict(self.followed)
        self.fold(records, follow=follow)
        self.kept.journal.undo()
        self.followed = followed

    def fold(self, records: list[Record], *, follow: bool) -> None:
        if self.careful:
            self.kept.journal.begin()
        self._fold(records, follow=follow)
        if self.careful:
            self.kept.journal.encoded.update(self.kept.journal.written())

    def _fold(self, records: list[Record], *, follow: bool) -> None:
        keys, times, values, bounds = (list(column) for column in zip(*records, strict=True))
        columns = Columns(String(), keys, None, values, times, bounds, None)
        if not follow:
            self.keep.leaf(self, columns)  # type: ignore[arg-type] # only its table is asked for
            return
        changes = self.keep.step(self, columns)  # type: ignore[arg-type] # the same
        for raw, old, new in zip(changes.raw_keys or (), changes.olds or (), changes.values, strict=True):
            assert self.followed.get(named(raw)) == old
            if new is None:
                del self.followed[named(raw)]
            else:
                self.followed[named(raw)] = new

    def commit(self) -> None:
        """Write as a commit does. If not carefully, a deletion is written only of a row that the changelog has."""
        self.index.look()
        self.index.before_commit()
        changes = self.kept.changes()
        gone = {key for key, data in changes if data is None}
        assert self.careful or gone <= self.changelog.keys()
        for key, data in changes:
            if data is None:
                self.changelog.pop(key, None)
            else:
                self.changelog[key] = data
        self.store.write(self.kept.rows(changes), b"")
        self.kept.committed()
        self.index.committed()
        with self.store.scan() as found:
            stored = dict(found)
        assert {key[1:]: data for key, data in stored.items() if key[:1] == b"r"} == self.changelog
        entries = {key[9:] for key in stored if key[:1] == b"d"}
        assert entries == self.changelog.keys()

    def rewind(self) -> None:
        self.kept.forget()
        self.index.forget(b"", b"")

    def sessions(self) -> Sessions:
        return {named(raw): row for raw, row in self.kept.table.scan()}


def named(raw: bytes) -> tuple[bytes, int, int]:
    """The key, the start and the end of a session."""
    end, start = END_START.unpack(raw[-16:])
    return raw[:-16], start, end


def defined(found: Sessions, records: list[Record]) -> Sessions:
    """The definition, record by record."""
    found = dict(found)
    for key, time, value, bound in records:
        near = sorted(
            (start, end)
            for each, start, end in found
            if each == key and start - GAP <= time <= end + GAP and end + LIFE > bound
        )
        if not near and time + LIFE <= bound:
            continue
        row: str | None = None
        for span in near:
            former = found.pop((key, *span))
            row = former if row is None else merged(row, former)
        row = added(row or "", value)
        if row is not None:
            start, end = min([time, *(s for s, _ in near)]), max([time, *(e for _, e in near)])
            found[key, start, end] = row
    return found


record = st.tuples(
    st.sampled_from([b"a", b"b", b"a\0"]), st.integers(0, 60), st.integers(0, 9), st.integers(0, 70)
)


@settings(max_examples=100, deadline=None)
@given(st.lists(record, max_size=30), st.data())
def test_sessions_are_those_of_the_definition_however_records_fall_into_batches_and_commits(
    records: list[Record], data: st.DataObject
) -> None:
    follow = data.draw(st.booleans())
    bounds = [0, *sorted(data.draw(st.sets(st.integers(1, max(1, len(records) - 1))))), len(records)]
    kept, expected = Kept(), Sessions()
    committed = (Sessions(), Sessions())
    for begin, end in pairwise(bounds):
        part = records[begin:end]
        if not part:
            continue
        if kept.careful and data.draw(st.booleans()):
            kept.fold_and_undo(part, follow=follow)
            assert kept.sessions() == expected
        kept.fold(part, follow=follow)
        expected = defined(expected, part)
        assert kept.sessions() == expected
        assert kept.followed == (expected if follow else {})
        match data.draw(st.sampled_from(["", "look", "commit", "rewind"])):
            case "look":
                kept.index.look()
            case "commit":
                kept.commit()
                committed = expected, dict(kept.followed)
                kept.choose(careful=data.draw(st.booleans()))
            case "rewind":
                kept.rewind()
                expected, kept.followed = committed[0], dict(committed[1])
                kept.choose(careful=data.draw(st.booleans()))
    kept.commit()
    assert kept.sessions() == expected


def test_a_session_that_has_grown_around_a_closed_one_is_merged_in_the_order_of_the_starts() -> None:
    batches: list[list[Record]] = [
        [(b"a", 3, 4, 0), (b"a", 15, 1, 0)],
        [(b"a", 27, 8, 0), (b"a", 22, 3, 0)],
        [
            (b"a", 18, 5, 36),
            (b"a", 13, 1, 33),
        ],  # the session of 15 is closed for these two, which are near to 22
        [(b"a", 15, 5, 0)],  # from another producer, which has closed nothing
    ]
    kept, expected = Kept(), Sessions()
    for batch in batches:
        kept.fold(batch, follow=False)
        expected = defined(expected, batch)
        assert kept.sessions() == expected


def test_a_session_that_grows_between_two_commits_costs_one_record_and_one_deletion() -> None:
    kept = Kept()
    kept.fold([(b"a", 10, 1, 0)], follow=False)
    kept.commit()
    for time in (11, 12, 13):
        kept.fold([(b"a", time, 1, 0), (b"b", time, 1, 0)], follow=False)
    changes = kept.kept.changes()
    assert [(*named(key), data) for key, data in changes] == [
        (b"a", 10, 10, None), (b"a", 10, 13, b"1111"), (b"b", 11, 13, b"111")
    ]  # fmt: skip


def test_a_session_that_has_become_longer_comes_out_only_as_it_is_at_the_end(tester: Tester) -> None:
    flow = Flow("f")
    table = flow.stream(TIMES, time=lambda value: value).group_by_key().window(SESSION).count("counts")
    out = Stream("out", table.table.key, Long())
    table.final().to(out)
    tester.run(flow)
    emit(tester, *(("a", time) for time in (1, 4, 7, 9)))
    emit(tester, ("a", 11))
    emit(tester, ("b", 100))
    assert [(*(found.key or ()), found.value) for found in tester.records(out)] == [("a", 1, 11, 5)]


@pytest.mark.parametrize("follow", [True, False], ids=["changes", "table alone"])
def test_sessions_are_right_when_a_record_among_others_of_its_key_has_failed(
    tester: Tester, *, follow: bool
) -> None:
    def total(row: int, value: int) -> int:
        if value == 12:
            raise ValueError("no twelve")
        return row + value

    flow = Flow("f", on_error=OnError.DEAD_LETTER)
    grouped = flow.stream(TIMES, time=lambda value: value).group_by_key().window(SESSION)
    table = grouped.aggregate("totals", int, total, lambda one, other: one + other, value=Long())
    if follow:
        table.changes().to(Stream("out", table.table.key, Long()))
    tester.run(flow)
    emit(tester, ("a", 10), ("b", 10))
    # Without the twelve the 16 is too far from the ten.
    emit(tester, ("a", 12), ("a", 16), ("b", 14), ("a", 17), ("b", 19))
    emit(tester, ("a", 13), ("b", 12))
    assert rows(tester, table) == {("a", 10, 17): 56, ("b", 10, 19): 43}


def test_more_sessions_of_a_key_than_are_remembered_are_found_again(tester: Tester) -> None:
    flow = Flow("f")
    day = Session(SESSION.gap, grace=timedelta(seconds=10))
    table = flow.stream(TIMES, time=lambda value: value).group_by_key().window(day).count("counts")
    tester.run(flow)
    times = [10 * number for number in range(40)]
    for time in times:
        emit(tester, ("a", time))
    emit(tester, *(("a", time + 1) for time in reversed(times)))
    assert rows(tester, table) == {("a", time, time + 1): 2 for time in times}
