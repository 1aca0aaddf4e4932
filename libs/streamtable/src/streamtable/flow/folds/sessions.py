"""The stateful step of session windows: it folds the records of a batch key by key, and writes the sessions that are left.

Nearly all records extend the last session of their key, or begin one after it. The cached sessions of a key show this
without a read of the table, and all its records in the batch are folded into one row, which replaces the previous one.
All other records go through `_Sessions`, which handles each session of a key.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any

from streamtable.flow.folds.folds import Keeping, changed_rows, copied
from streamtable.flow.folds.windows import Late
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.flow.windows.keys import END_START
from streamtable.flow.windows.windows import Session, SessionBounds
from streamtable.graph.aggregate import Aggregate
from streamtable.handlers.state_table import StateRows

_Known = tuple[int, bytes, int, int, tuple[SessionBounds, ...]]
"""The cached sessions of a key: a time (all sessions that end at or after it are known); the encoded key, the start and
the end of the last session; and the sessions before it, in the order of their ends. An empty encoded key: there are
none. It is a tuple of plain values, which the garbage collector does not track.
"""
_Change = tuple[int, bytes, Any, Any]
"""The index of the record that has changed a row, the row's encoded key, and the row before and after."""

_END_OF = attrgetter("end")
_ALWAYS_MS = (1 << 63) - 1
_NEVER_MS = -_ALWAYS_MS
_KNOWN_MAX = 50_000  # keys of a partition that are remembered: about 15 MB
_EARLIER_MAX = 15  # sessions of a key before its last one; those before them are read again if they matter


@dataclass(frozen=True)
class KeepSessions(Keeping):
    """The step that folds records into the rows of their sessions; the rows of merged sessions become one row.

    Args:
        state: The table.
        aggregate: The aggregate that makes rows, and merges them.
        window: The kind of window.
        late: The output of late records.
    """

    aggregate: Aggregate[Any, Any]
    window: Session
    late: Late

    def leaf(self, scope: Scope, records: Columns) -> None:
        """Fold the records, where nothing follows."""
        self._folded(scope, records, None)

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Fold the records. Returns the changes of removed and of updated sessions, in the order of the
        records that have made them.
        """
        changes: list[_Change] = []
        self._folded(scope, records, changes)
        return changed_rows(records, self.state.key, changes)

    def _folded(self, scope: Scope, records: Columns, changes: list[_Change] | None) -> None:
        """Fold the records of each key, then write the changed sessions.

        Args:
            scope: The part of the task that the step can use.
            records: The records.
            changes: Filled with the changes; None: no step needs them.
        """
        first: dict[bytes, int] = {}
        several: dict[bytes, list[int]] = {}
        for index, key in enumerate(records.keyed_times()[0]):
            if key in first:
                several.setdefault(key, [first[key]]).append(index)
            else:
                first[key] = index
        table = scope.table(self.state)
        table.offered += len(records)
        folding = _Folding(self, table.raw, records, changes)
        folding.look_up(first, several)
        for key, index in first.items():
            folding.fold(key, several.get(key, (index,)))
        if folding.late:
            self.late.leave_out(scope, records, [index not in folding.late for index in range(len(records))])
        folding.write()


class _Folding:
    """The sessions of the keys of a batch. Nothing is written before `write`.

    Args:
        keep: The step.
        table: The rows.
        records: The records.
        changes: Filled with the changes; None: no step needs them, and the previous rows need not be kept.

    Attributes:
        late: The indexes of the late records.
    """

    def __init__(
        self, keep: KeepSessions, table: StateRows[Any], records: Columns, changes: list[_Change] | None
    ) -> None:
        self.late: set[int] = set()
        self.keep = keep
        self._gap, self._life = keep.window.gap_ms, keep.window.closes_at(0, 0)
        self.table = table
        self._values = records.values
        _, self._times, self._late_before = records.keyed_times()
        self.changes = changes
        self._remembered: dict[bytes, _Known] = table.log.notes
        self._known: dict[bytes, _Known] = {}
        self._made: dict[bytes, Any] = {}
        self._new: list[bytes] = []
        self._gone: list[bytes] = []

    def look_up(self, first: dict[bytes, int], several: dict[bytes, list[int]]) -> None:
        """Read the sessions of all keys that are not cached, in one read.

        Args:
            first: The index of the first record of each key.
            several: The indexes of all records of those keys that have more.
        """
        unknown = sorted(first.keys() - self._remembered.keys())
        if not unknown:
            return
        times = self._times
        since = [min(map(times.__getitem__, several.get(key, (first[key],)))) - self._gap for key in unknown]
        found = self.table.ranges(list(map(_range, unknown, since)))
        for key, time, rows in zip(unknown, since, found, strict=True):
            self._remembered[key] = _known(key, time, _spans(key, (raw for raw, _ in rows)))

    def fold(self, key: bytes, indexes: Sequence[int]) -> None:
        """Fold the records of one key, in order."""
        # Removed from the cache until it is written, so that a failure of the step leaves no wrong entry.
        known = self._remembered.pop(key)
        since, former, start, end, earlier = known
        gap, life, times, late_before = self._gap, self._life, self._times, self._late_before
        before_ms = earlier[-1][1] if earlier else _NEVER_MS
        for index in indexes:
            time, closed = times[index], late_before[index] - life
            least = time - gap
            in_order = since <= least
            # A closed session is final and not extended, even by a record within the gap. For a later record of another
            # producer, the session may still be open.
            if closed >= least:
                least = closed + 1
            if not in_order or before_ms >= least:
                return self._fold_any(key, known, indexes)
            if end >= least and start <= time + gap:
                if time > end:
                    end = time
                elif time < start:
                    start = time
            elif end < least and time > closed and index == indexes[0]:
                if former:
                    if len(earlier) == _EARLIER_MAX:
                        since, earlier = max(since, earlier[0].end + 1), earlier[1:]
                    earlier, before_ms = (*earlier, SessionBounds(start, end)), end
                former, start, end = b"", time, time
            else:
                return self._fold_any(key, known, indexes)
        return self._fold_last(key, known, (since, former, start, end, earlier), indexes)

    def _fold_last(self, key: bytes, known: _Known, after: _Known, indexes: Sequence[int]) -> None:
        """Fold the records of one key that all belong to its last session, or to one that begins with the first of them.

        Args:
            key: The encoded key.
            known: The cached sessions of the key.
            after: The sessions to cache; the key of the last session is its former key, or empty if it is new.
            indexes: The indexes of the records.
        """
        since, former, start, end, earlier = after
        row = self.table.get(former) if former else None
        if former and row is None:  # closed for longer than the retention
            return self._fold_any(key, known, indexes)
        before = row if self.changes is None else copied(self.keep.state.value, row)
        first, add, values = self.keep.aggregate.first, self.keep.aggregate.add, self._values
        for place, index in enumerate(indexes):
            row = first(values[index]) if row is None else add(row, values[index])
            if row is None:
                return self._end_last(key, after, before, indexes, place)
        raw = key + END_START.pack(end, start)
        self._made[raw] = row
        self._known[key] = (since, raw, start, end, earlier)
        gone = b"" if raw == former else former
        if raw != former:
            self._new.append(raw)
        if gone:
            self._gone.append(gone)
        if self.changes is not None:
            if gone:
                last = self._last_in(SessionBounds(known[2], known[3]), indexes)
                self.changes.append((last, gone, before, None))
            new = copied(self.keep.state.value, row)
            self.changes.append((indexes[-1], raw, None if gone else before, new))
        return None

    def _end_last(self, key: bytes, after: _Known, before: Any, indexes: Sequence[int], place: int) -> None:
        """Delete the last session, as the function has returned None for one of its records, and fold those behind it.

        The next of them begins a session, in whichever batch it comes.
        """
        since, former, _, _, earlier = after
        sessions = _Sessions(key, self, since, sorted(earlier))
        if former:
            end, start = END_START.unpack_from(former, len(key))
            span = SessionBounds(start, end)
            sessions.before[span] = before
            sessions.touched[span] = self._last_in(span, indexes[: place + 1])
        self._add(sessions, indexes[place + 1 :])

    def _last_in(self, span: SessionBounds, indexes: Sequence[int]) -> int:
        """Return the first of these records that is outside of a session, or else the last."""
        outside = (index for index in indexes if not span.start <= self._times[index] <= span.end)
        return next(outside, indexes[-1])

    def _fold_any(self, key: bytes, known: _Known, indexes: Sequence[int]) -> None:
        """Fold the records of one key into any of its sessions."""
        since, former, start, end, earlier = known
        needed = min(self._times[index] for index in indexes) - self._gap
        spans = sorted([*earlier, SessionBounds(start, end)]) if former else []
        sessions = _Sessions(key, self, since, spans)
        if needed < since:
            sessions.read(needed)
        self._add(sessions, indexes)

    def _add(self, sessions: "_Sessions", indexes: Sequence[int]) -> None:
        """Fold records into the sessions of a key, and keep the changes to write."""
        gap, life = self._gap, self._life
        for index in indexes:
            time, bound = self._times[index], self._late_before[index]
            least, most = max(time - gap, bound - life + 1), time + gap
            near = [span for span in sessions.spans if span[1] >= least and span[0] <= most]
            if near or time + life > bound:
                sessions.add(near, time, self._values[index], index)
            else:
                self.late.add(index)
        key, before, rows = sessions.key, sessions.before, sessions.rows
        for span, index in sessions.touched.items():
            raw, row = raw_key(key, span), rows.get(span)
            if row is not None:
                self._made[raw] = row
                if span not in before:
                    self._new.append(raw)
            elif span in before:
                self._gone.append(raw)
            else:
                continue
            if self.changes is not None:
                self.changes.append((index, raw, before.get(span), copied(self.keep.state.value, row)))
        self._known[key] = _known(key, sessions.since, sessions.spans)

    def write(self) -> None:
        """Write the changed sessions, and update the cache of sessions."""
        self.table.replace(self._gone, self._made, self._new)
        remembered = self._remembered
        remembered.update(self._known)
        if len(remembered) > _KNOWN_MAX:
            # The most recently used ones come last.
            for key in list(islice(remembered, len(remembered) - _KNOWN_MAX // 2)):
                del remembered[key]


@dataclass(slots=True)
class _Sessions:
    """The sessions of one key that records of a batch may belong to.

    Attributes:
        key: The encoded key.
        folding: The sessions of all keys.
        since: All sessions that end at this time or later are known.
        spans: The times of the known sessions, in order.
        rows: The rows of the sessions that were read or created.
        before: The rows as they were found.
        touched: The index of the last record that changed a session, including removed sessions.
    """

    key: bytes
    folding: _Folding
    since: int
    spans: list[SessionBounds]
    rows: dict[SessionBounds, Any] = field(default_factory=dict)
    before: dict[SessionBounds, Any] = field(default_factory=dict)
    touched: dict[SessionBounds, int] = field(default_factory=dict)

    def read(self, since: int) -> None:
        """Read the sessions that end at this time or later."""
        (rows,) = self.folding.table.ranges([_range(self.key, since)])
        self.since, self.spans = since, _spans(self.key, (raw for raw, _ in rows))

    def add(self, near: Sequence[SessionBounds], time: int, value: Any, index: int) -> None:
        """Add a record to the sessions that it is near to, which become one; or begin one with it."""
        folding, aggregate = self.folding, self.folding.keep.aggregate
        row, start, end = None, time, time
        for span in near:
            self.spans.remove(span)
            if span not in self.rows:
                found = folding.table.get(raw_key(self.key, span))
                if found is None:
                    continue  # closed for longer than the retention
                self.rows[span] = found
                self.before[span] = (
                    found if folding.changes is None else copied(folding.keep.state.value, found)
                )
            former = self.rows.pop(span)
            row = former if row is None else aggregate.merge(row, former)
            self.touched[span] = index
            start, end = min(start, span[0]), max(end, span[1])
        whole = SessionBounds(start, end)
        made = aggregate.after(row, value)
        # None: the row is deleted, and the next record begins a session, in whichever batch it comes.
        if made is not None:
            self.rows[whole] = made
            insort(self.spans, whole)
        self.touched[whole] = index


def raw_key(key: bytes, span: SessionBounds) -> bytes:
    """Return the encoded key of the row of a session."""
    return key + END_START.pack(span[1], span[0])


def _range(key: bytes, since: int) -> tuple[bytes, bytes]:
    """Return the range of encoded keys with the sessions of a key that end at this time or later."""
    return key + END_START.pack(max(since, 0), 0), key + END_START.pack(_ALWAYS_MS, _ALWAYS_MS)


def _spans(key: bytes, found: Iterable[bytes]) -> list[SessionBounds]:
    """Return the times of sessions of this key, in order, by encoded keys of such a range."""
    length = len(key) + END_START.size
    # Other keys of the same length cannot begin with this one's bytes; longer and shorter ones may lie in between.
    bounds = [END_START.unpack_from(raw, len(key)) for raw in found if len(raw) == length]
    return sorted(SessionBounds(start, end) for end, start in bounds)


def _known(key: bytes, since: int, spans: Sequence[SessionBounds]) -> _Known:
    """Return the sessions of a key to cache."""
    if not spans:
        return since, b"", _NEVER_MS, _NEVER_MS, ()
    # An open session may have grown around one that was closed for the record that extended it.
    in_order = sorted(spans, key=_END_OF)
    *earlier, last = in_order[-_EARLIER_MAX - 1 :]
    if len(in_order) > len(earlier) + 1:
        since = max(since, in_order[-_EARLIER_MAX - 2].end + 1)
    return since, raw_key(key, last), last.start, last.end, tuple(earlier)
