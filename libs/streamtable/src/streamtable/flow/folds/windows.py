"""The stateful steps of windows: folds of whole batches into rows by key and window; late records are dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamtable.base.topics import Stream
from streamtable.flow.folds.folds import Keep
from streamtable.flow.plan.columns import Columns, Scope, emit
from streamtable.flow.windows.keys import START
from streamtable.flow.windows.windows import TimeWindow
from streamtable.graph.state import State


@dataclass(frozen=True)
class Late:
    """The output of late records: those that belong to closed windows only.

    Args:
        stream: The output stream of late records; None: they are only counted.
        state: The table of the windows.
        beside: Whether each value is a pair, of a number and the value itself.
    """

    stream: Stream[Any, Any] | None
    state: State[Any, Any]
    beside: bool = False

    def leave_out(self, scope: Scope, records: Columns, in_time: Sequence[bool]) -> None:
        """Count the late records, and write them to the stream for late records."""
        if all(in_time):
            return
        records = records.only([not each for each in in_time])
        scope.table(self.state).late += len(records)
        if self.stream is not None:
            if self.beside:
                records = records.with_values([value for _, value in records.values])
            emit(scope, self.stream, records)


@dataclass(frozen=True)
class KeepWindows(Keep):
    """The step that folds records into the rows of their tumbling or hopping windows.

    Args:
        state: The table.
        aggregate: The aggregate that makes rows.
        window: The kind of window.
        late: The output of late records.
    """

    window: TimeWindow
    late: Late

    def placed(self, scope: Scope, records: Columns) -> Columns:
        """Return each record once for each open window that it belongs to, by the key of the window's row."""
        raw, times, late_before = records.keyed_times()
        scope.table(self.state).offered += len(times)
        indexes, starts = self.window.assign(times)
        kinds = set(starts)
        closes = {start: self.window.closes_at(start, self.window.end_of(start)) for start in kinds}
        # Some may be closed, if both are of one record.
        if starts and min(closes.values()) <= max(late_before):
            indexes = range(len(times)) if indexes is None else indexes
            open_ = [at for at, index in enumerate(indexes) if closes[starts[at]] > late_before[index]]
            if len(open_) < len(starts):
                late = set(indexes)  # without the records that have no window
                indexes, starts = [indexes[at] for at in open_], [starts[at] for at in open_]
                kinds = set(starts)
                late -= set(indexes)
                self.late.leave_out(scope, records, [index not in late for index in range(len(times))])
        if indexes is not None:
            records = records.at(indexes)
            raw = records.encoded_keys
        ends = {start: START.pack(start) for start in kinds}
        if len(kinds) == 1:
            (end,) = ends.values()
            keys = [key + end for key in raw]
        else:
            keys = [key + end for key, end in zip(raw, map(ends.__getitem__, starts), strict=True)]
        return records.by(self.state.key, keys)
