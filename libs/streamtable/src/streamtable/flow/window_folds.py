"""The stateful steps of windows: folds of whole batches into rows by key and window; what comes too late is left out."""

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from streamtable.flow.columns import Columns, Scope
from streamtable.flow.folds import Fold, changes_of, kept_apart
from streamtable.flow.keys import END_START, START
from streamtable.flow.windows import Session, SessionBounds, TimeWindow
from streamtable.state import State, StateRows
from streamtable.topics import Stream

_ALWAYS_MS = (1 << 63) - 1
_NOTES_MAX = 50_000  # keys of a partition whose sessions are remembered: about 15 MB
_SPANS_MAX = 16  # sessions of a key; where there are more, those that matter are read again


@dataclass(frozen=True)
class Late:
    """What becomes of records that belong to closed windows only.

    Args:
        stream: Where they are written; None: nowhere.
        state: The table whose windows they belong to.
    """

    stream: Stream[Any, Any] | None
    state: State[Any, Any]

    def leave_out(self, scope: Scope, records: Columns, in_time: Sequence[bool]) -> None:
        """Count the records that do not come in time, and write them to the stream for late records."""
        if all(in_time):
            return
        records = records.only([not each for each in in_time])
        scope.table(self.state).late += len(records)
        if self.stream is not None:
            scope.emit_many(
                self.stream, (), records.values, raw_keys=records.raw_keys, timestamps_ms=records.times
            )


@dataclass(frozen=True)
class KeepWindows:
    """The step that folds records into the rows of their tumbling or hopping windows.

    Args:
        state: The table.
        fold: The fold.
        window: The kind of window.
        late: What becomes of records that come too late.
    """

    state: State[Any, Any]
    fold: Fold
    window: TimeWindow
    late: Late

    def leaf(self, scope: Scope, records: Columns) -> None:
        """Fold the records, where nothing follows."""
        found = self._in_windows(scope, records)
        keys = found.raw_keys or ()
        self.fold(scope.table(self.state).raw.changing(keys), keys, found.values)

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Fold the records. Returns one change for each key and window, in the order of their last records."""
        return changes_of(scope, self.state, self.fold, self._in_windows(scope, records))

    def _in_windows(self, scope: Scope, records: Columns) -> Columns:
        """Return each record once for each open window that it belongs to, by the key of the window's row."""
        raw, times, late_before = records.keyed_times()
        indexes, starts = self.window.assign(times)
        # Of a window that starts here, the row is closed for a record whose `late_before` is not below start + life.
        life = self.window.size_ms + self.window.grace_ms
        if starts and min(starts) + life <= max(late_before):  # perhaps: if they are of one record
            indexes = range(len(times)) if indexes is None else indexes
            open_ = [at for at, index in enumerate(indexes) if starts[at] + life > late_before[index]]
            if len(open_) < len(starts):
                indexes, starts = [indexes[at] for at in open_], [starts[at] for at in open_]
                used = set(indexes)
                self.late.leave_out(scope, records, [index in used for index in range(len(times))])
        if indexes is not None:
            records = records.at(indexes)
            raw = records.raw_keys or ()
        kinds = set(starts)
        ends = {start: START.pack(start) for start in kinds}
        if len(kinds) == 1:
            (end,) = ends.values()
            keys = [key + end for key in raw]
        else:
            keys = [key + end for key, end in zip(raw, map(ends.__getitem__, starts), strict=True)]
        return records.by(self.state.key, keys)


@dataclass(frozen=True)
class SessionFold:
    """How the row of a session is made.

    Args:
        add: Called with the row, or None, and a value; returns the new row.
        merge: Called with the rows of an earlier and of a later session; returns that of the whole.
    """

    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class KeepSessions:
    """The step that folds records into the rows of their sessions; merged sessions become one row, and the others go.

    Args:
        state: The table.
        fold: How rows are made.
        window: The kind of window.
        late: What becomes of records that come too late.
    """

    state: State[Any, Any]
    fold: SessionFold
    window: Session
    late: Late

    def leaf(self, scope: Scope, records: Columns) -> None:
        """Fold the records, where nothing follows."""
        table = scope.table(self.state).raw
        self._written(table, self._folded(scope, table, records, apart=False))

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Fold the records. Returns the changes, of sessions that are gone and of those that are there, in the order of
        the records that have made them.
        """
        table = scope.table(self.state).raw
        every = self._folded(scope, table, records, apart=True)
        self._written(table, every)
        changes = [
            (index, raw_key(key, span), sessions.before.get(span), sessions.rows.get(span))
            for key, sessions in every.items()
            for span, index in sessions.touched.items()
            if span in sessions.before or span in sessions.rows
        ]
        changes.sort(key=lambda change: change[:2])
        return (
            records.at([index for index, _, _, _ in changes])
            .by(self.state.key, [key for _, key, _, _ in changes])
            .with_values([new for *_, new in changes], [old for *_, old, _ in changes])
        )

    def _folded(
        self, scope: Scope, table: StateRows[Any], records: Columns, *, apart: bool
    ) -> "dict[bytes, _Sessions]":
        """Fold the records, without writing anything. Returns the sessions of each key.

        Args:
            scope: What the step reaches.
            table: The rows.
            records: The records.
            apart: Keep the rows as they were found, though the fold may change them in place.
        """
        raw, times, late_before = records.keyed_times()
        earliest = dict(zip(raw, times, strict=True))
        if len(earliest) < len(raw):
            for key, time in zip(raw, times, strict=True):
                earliest[key] = min(earliest[key], time)
        gap, life, fold = self.window.gap_ms, self.window.closes_at(0, 0), self.fold
        kept = self.state if apart else None
        every = {key: _Sessions.of(table, kept, key, time - gap) for key, time in earliest.items()}
        in_time = [True] * len(raw)
        columns = zip(raw, times, records.values, late_before, strict=True)
        for index, (key, time, value, bound) in enumerate(columns):
            sessions = every[key]
            # A closed session is final: it is not extended, though the record is near enough. For a record that comes
            # later it may be open all the same: that of another producer.
            least, most = max(time - gap, bound - life + 1), time + gap
            near = [span for span in sessions.spans if span[1] >= least and span[0] <= most]
            if near or time + life > bound:
                sessions.add(near, time, value, index, fold)
            else:
                in_time[index] = False
        self.late.leave_out(scope, records, in_time)
        return every

    @staticmethod
    def _written(table: StateRows[Any], every: "dict[bytes, _Sessions]") -> None:
        """Write the sessions that have changed, and remember which there are."""
        put, delete, notes = table.put, table.delete, table.notes
        for key, sessions in every.items():
            rows = sessions.rows
            for span in sessions.touched:
                row = rows.get(span)
                if row is not None:
                    put(raw_key(key, span), row)
                elif span in sessions.before:
                    delete(raw_key(key, span))
            if len(sessions.spans) <= _SPANS_MAX:
                notes[key] = sessions.since, sessions.spans
        if len(notes) > _NOTES_MAX:
            # Those that were used last come last.
            for key in list(islice(notes, len(notes) - _NOTES_MAX // 2)):
                del notes[key]


def raw_key(key: bytes, span: SessionBounds) -> bytes:
    """Return the encoded key of the row of a session."""
    return key + END_START.pack(span[1], span[0])


@dataclass(slots=True)
class _Sessions:
    """The sessions of one key that records of a batch may belong to.

    Attributes:
        key: The encoded key.
        table: The rows.
        state: The table, if rows are to be kept as they were found.
        since: All sessions that end at this time or later are known.
        spans: The times of those that are known, in order.
        rows: The rows of those that were read or made.
        before: The rows as they were found.
        touched: The index of the last record that has changed a session, also of those that are gone.
    """

    key: bytes
    table: StateRows[Any]
    state: State[Any, Any] | None
    since: int
    spans: list[SessionBounds]
    rows: dict[SessionBounds, Any] = field(default_factory=dict)
    before: dict[SessionBounds, Any] = field(default_factory=dict)
    touched: dict[SessionBounds, int] = field(default_factory=dict)

    @classmethod
    def of(cls, table: StateRows[Any], state: State[Any, Any] | None, key: bytes, since: int) -> "_Sessions":
        """Find the sessions of a key that end at this time or later: as they are remembered, or in the table."""
        # Not there any more until they have been written: if a step fails meanwhile, nothing wrong is remembered.
        known = table.notes.pop(key, None)
        if known is not None and known[0] <= since:
            return cls(key, table, state, *known)
        found = cls(key, table, state, since, [])
        start, after = key + END_START.pack(max(since, 0), 0), key + END_START.pack(_ALWAYS_MS, _ALWAYS_MS)
        length = len(key) + END_START.size
        for raw, row in table.scan(start, after):
            # Other keys of the same length cannot begin with this one's bytes; longer and shorter ones may lie in between.
            if len(raw) == length:
                end, begin = END_START.unpack_from(raw, len(key))
                span = SessionBounds(begin, end)
                found.spans.append(span)
                found._found(span, row)
        found.spans.sort()
        return found

    def _found(self, span: SessionBounds, row: Any) -> None:
        """Take note of a row of the table."""
        self.rows[span] = row
        self.before[span] = row if self.state is None else kept_apart(self.state, [row])[0]

    def add(
        self, near: Sequence[SessionBounds], time: int, value: Any, index: int, fold: SessionFold
    ) -> None:
        """Add a record to the sessions that it is near to, which become one; or begin one with it."""
        row, start, end = None, time, time
        for span in near:
            self.spans.remove(span)
            if span not in self.rows:
                found = self.table.get(raw_key(self.key, span))
                if found is None:
                    continue  # it has been closed for longer than the retention
                self._found(span, found)
            former = self.rows.pop(span)
            row = former if row is None else fold.merge(row, former)
            self.touched[span] = index
            start, end = min(start, span[0]), max(end, span[1])
        whole = SessionBounds(start, end)
        made = fold.add(row, value)
        # None: the row is deleted, and the next record begins a session, in whichever batch it comes.
        if made is not None:
            self.rows[whole] = made
            insort(self.spans, whole)
        self.touched[whole] = index
