"""The stateful steps of windows: folds of whole batches into rows by key and window; what comes too late is left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamtable.flow.columns import Columns, Scope
from streamtable.flow.folds import Fold, changes_of, kept_apart
from streamtable.flow.keys import END_START, START
from streamtable.flow.windows import Session, SessionBounds, TimeWindow, add_session
from streamtable.state import State, StateRows
from streamtable.topics import Stream

_ALWAYS_MS = (1 << 63) - 1


@dataclass(frozen=True)
class Late:
    """What becomes of records that belong to closed windows only.

    Args:
        stream: Where they are written; None: nowhere.
        state: The table whose windows they belong to.
    """

    stream: Stream[Any, Any] | None
    state: State[Any, Any]

    def leave_out(self, scope: Scope, records: Columns) -> None:
        """Count late records, and write them to the stream for them."""
        scope.table(self.state).late += len(records)
        if self.stream is not None and len(records):
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
        raw, times, late_before = records.raw_keys, records.times, records.late_before
        assert raw is not None, "the builder refuses state after changed keys"
        assert times is not None, "the plan asks for them"
        assert late_before is not None, "the plan asks for them"
        indexes, starts = self.window.assign(times)
        # Of a window that starts here, the row is closed for a record whose `late_before` is not below start + life.
        life = self.window.size_ms + self.window.grace_ms
        if starts and min(starts) + life <= max(late_before):  # perhaps: if they are of one record
            indexes = range(len(times)) if indexes is None else indexes
            open_ = [at for at, index in enumerate(indexes) if starts[at] + life > late_before[index]]
            if len(open_) < len(starts):
                indexes, starts = [indexes[at] for at in open_], [starts[at] for at in open_]
                used = set(indexes)
                self.late.leave_out(scope, records.only([index not in used for index in range(len(times))]))
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
        self.step(scope, records)

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Fold the records. Returns the changes: of sessions that are gone, and of those that are there."""
        raw, times, late_before = records.raw_keys, records.times, records.late_before
        assert raw is not None, "the builder refuses state after changed keys"
        assert times is not None, "the plan asks for them"
        assert late_before is not None, "the plan asks for them"
        table = scope.table(self.state).raw
        earliest: dict[bytes, int] = {}
        for key, time in zip(raw, times, strict=True):
            earliest[key] = min(time, earliest.get(key, time))
        gap = self.window.gap_ms
        every = {key: _Sessions.load(table, self.state, key, time - gap) for key, time in earliest.items()}
        in_time = [
            every[key].add(self.window, self.fold, time, value, bound, index)
            for index, (key, time, value, bound) in enumerate(
                zip(raw, times, records.values, late_before, strict=True)
            )
        ]
        if not all(in_time):
            self.late.leave_out(scope, records.only([not each for each in in_time]))
        return self._written(table, records, every)

    def _written(self, table: StateRows[Any], records: Columns, every: "dict[bytes, _Sessions]") -> Columns:
        """Write what has changed. Returns the changes in the order of the records that have made them."""
        changes = [
            (index, key + END_START.pack(span.end, span.start), old, new)
            for key, sessions in every.items()
            for span, index, old, new in sessions.changes()
        ]
        changes.sort(key=lambda change: change[:2])
        keys = [key for _, key, _, _ in changes]
        rows = table.changing(keys)
        rows.update((key, new) for _, key, _, new in changes)
        return (
            records.at([index for index, _, _, _ in changes])
            .by(self.state.key, keys)
            .with_values([new for *_, new in changes], [old for *_, old, _ in changes])
        )


@dataclass
class _Sessions:
    """The sessions of one key that records of a batch may belong to.

    Attributes:
        spans: Their times, in order.
        rows: Their rows.
        before: The rows as they were found.
        touched: The index of the last record that has changed a session, also of those that are gone.
    """

    spans: list[SessionBounds]
    rows: dict[SessionBounds, Any]
    before: dict[SessionBounds, Any]
    touched: dict[SessionBounds, int] = field(default_factory=dict)

    @classmethod
    def load(cls, table: StateRows[Any], state: State[Any, Any], key: bytes, since: int) -> "_Sessions":
        """Read the sessions of a key that end at this time or later."""
        start, after = key + END_START.pack(max(since, 0), 0), key + END_START.pack(_ALWAYS_MS, _ALWAYS_MS)
        length = len(key) + END_START.size
        rows: dict[SessionBounds, Any] = {}
        # Other keys of the same length cannot begin with this one's bytes; longer and shorter ones may lie in between.
        for found, row in table.scan(start, after):
            if len(found) == length:
                end, begin = END_START.unpack_from(found, len(key))
                rows[SessionBounds(begin, end)] = row
        return cls(sorted(rows), rows, dict(zip(rows, kept_apart(state, rows.values()), strict=True)))

    def add(
        self, window: Session, fold: SessionFold, time: int, value: Any, late_before: int, index: int
    ) -> bool:
        """Add a record. Returns False if it comes too late for its session."""
        # A closed session is final: it is not extended, though the record is near enough.
        spans = [span for span in self.spans if window.closes_at(*span) > late_before]
        span, replaced = add_session(spans, time, window.gap_ms)
        if window.closes_at(*span) <= late_before:
            return False
        row = None
        for each in replaced:
            former = self.rows.pop(each)
            row = former if row is None else fold.merge(row, former)
            self.touched[each] = index
        made = fold.add(row, value)
        if made is None:
            spans.remove(
                span
            )  # the row is deleted: the next record begins a session, in whichever batch it comes
        else:
            self.rows[span] = made
        self.spans = spans
        self.touched[span] = index
        return True

    def changes(self) -> Sequence[tuple[SessionBounds, int, Any, Any]]:
        """Return each session that has changed: its record, its row before and its row now."""
        return [
            (span, index, self.before.get(span), self.rows.get(span))
            for span, index in self.touched.items()
            if span in self.before or span in self.rows
        ]
