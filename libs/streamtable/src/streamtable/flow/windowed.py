"""Windowed streams and tables: aggregates by key and window."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from operator import add
from typing import Any, Generic, TypeVar, overload

from streamtable import Long
from streamtable.due import Due
from streamtable.errors import GraphError
from streamtable.flow import folds
from streamtable.flow.checks import check_duration, check_kind
from streamtable.flow.emission import EmitLater, PendingKey, PendingRow, emitted_at
from streamtable.flow.keys import Windowed
from streamtable.flow.nodes import Closed, Node, Source, Step
from streamtable.flow.plan import Plan
from streamtable.flow.session_folds import KeepSessions
from streamtable.flow.sliding import KeepSliding, times_state
from streamtable.flow.stream import KeyedStream, checked_value
from streamtable.flow.table import KeyedTable
from streamtable.flow.window_folds import KeepWindows, Late, SessionFold
from streamtable.flow.windows import Session, Sliding, TimeWindow, Window, closing, closings
from streamtable.graph import Output
from streamtable.ports import Codec
from streamtable.state import State
from streamtable.topics import Stream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
N = TypeVar("N", int, float)

RETENTION = timedelta(days=1)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Windows(Generic[K, V]):
    """The records of a stream by key, and by windows of one kind.

    Args:
        plan: The plan of the flow.
        node: The node of the records.
        key: The codec of the keys.
        value: The codec of the values, if one is known.
        window: The kind of window.
        late: The stream to which late records are written; None: they are only counted.
        retention: The time that rows are kept after their window has closed.
    """

    plan: Plan
    node: Node
    key: Codec[K]
    value: Codec[V] | None
    window: Window
    late: Stream[K, V] | None
    retention: timedelta

    def __post_init__(self) -> None:
        check_kind(self.window, "window()", Window)
        if self.late is not None:
            check_kind(self.late, "late= of window()", Stream)
        retention: object = self.retention
        if not isinstance(retention, timedelta) or retention < timedelta(0):
            raise GraphError(f"windows with retention={retention!r}: give a timedelta of 0 or more")

    def kept(
        self,
        name: str,
        operator: str,
        steps_of: Callable[[State[Any, Any], Late], tuple[Step, Step]],
        value: Codec[A],
        more: tuple[State[Any, Any], ...] = (),
    ) -> "WindowedTable[K, A]":
        """Keep a table of these windows; `steps_of` makes its steps, which use `more` states."""
        plan, closed = self.plan, Closed()
        plan.claim(name, operator)
        key = self.window.key(self.key)
        due: Due[Any, Any] = Due(
            closing(self.window),
            closed,
            keep=self.retention,
            by_key=True,
            times=closings(self.window),
            on_error=plan.on_error,
            # The event time of a closed window is its last millisecond.
            holds=timedelta(milliseconds=self.window.closes_at(0, 0) + 1),
        )
        meaning = f"{operator} in {self.window.meaning}"
        state = State(name, key=key, value=value, due=due, meaning=meaning)
        step, leaf = steps_of(state, Late(self.late, state))
        edges = (state, *more, *([] if self.late is None else [Output(self.late, event_times=True)]))
        label = f"{operator} {name!r} in {self.window.meaning}"
        node = plan.add(
            self.node.group, label, self.node, step=step, leaf=leaf, edges=edges, timed=True, windowed=True
        )
        inclusive = not isinstance(self.window, TimeWindow)
        return WindowedTable(plan, node, key, value, state, closed, inclusive=inclusive)


class WindowedStream(Generic[K, V]):
    """The records of a stream by their keys and windows, to be aggregated into a table.

    The name of an aggregate is that of its table, as in `GroupedStream`. A record whose windows have all been closed is
    late: it changes nothing.
    """

    def __init__(self, windows: Windows[K, V]) -> None:
        self._windows = windows

    def count(self, name: str, *, value: Codec[int] | None = None) -> "WindowedTable[K, int]":
        """Count the records of each key and window.

        Args:
            name: The name of the table.
            value: The codec of the rows; `Long()` unless given.
        """
        return self._kept(name, "count", folds.count, SessionFold(_count, add), value or Long())

    @overload
    def sum(self, name: str, of: Callable[[V], int]) -> "WindowedTable[K, int]": ...
    @overload
    def sum(self, name: str, of: Callable[[V], N], *, value: Codec[N]) -> "WindowedTable[K, N]": ...
    def sum(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> "WindowedTable[K, Any]":
        """Sum up a number of each record.

        Args:
            name: The name of the table.
            of: Takes the number from the value.
            value: The codec of the sums; `Long()` unless given.
        """
        return self._combined(name, "sum", of, add, value or Long())

    @overload
    def min(self, name: str, of: Callable[[V], int]) -> "WindowedTable[K, int]": ...
    @overload
    def min(self, name: str, of: Callable[[V], A], *, value: Codec[A]) -> "WindowedTable[K, A]": ...
    def min(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> "WindowedTable[K, Any]":
        """Keep the least of the values taken from the records. Arguments as in `sum`."""
        return self._combined(name, "min", of, min, value or Long())

    @overload
    def max(self, name: str, of: Callable[[V], int]) -> "WindowedTable[K, int]": ...
    @overload
    def max(self, name: str, of: Callable[[V], A], *, value: Codec[A]) -> "WindowedTable[K, A]": ...
    def max(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> "WindowedTable[K, Any]":
        """Keep the greatest of the values taken from the records. Arguments as in `sum`."""
        return self._combined(name, "max", of, max, value or Long())

    def reduce(
        self, name: str, combine: Callable[[V, V], V], *, value: Codec[V] | None = None
    ) -> "WindowedTable[K, V]":
        """Combine the values of each key and window to one of the same type.

        Args:
            name: The name of the table.
            combine: Called with the row and the next value, and for sessions with the rows of two that are merged.
            value: The codec of the rows; by default that of the values.
        """
        codec = checked_value(value or self._windows.value, f"reduce({name!r})")
        sessions = SessionFold(
            lambda row, each: folds.copied(codec, each) if row is None else combine(row, each), combine
        )
        return self._kept(name, "reduce", folds.reduce(combine, codec), sessions, codec)

    def _combined(
        self, name: str, operator: str, of: Callable[[V], A], combine: Callable[[A, A], A], value: Codec[A]
    ) -> "WindowedTable[K, A]":
        def add_one(row: A | None, each: V) -> A:
            return of(each) if row is None else combine(row, of(each))

        return self._kept(name, operator, folds.combined(of, combine), SessionFold(add_one, combine), value)

    def _kept(
        self, name: str, operator: str, fold: folds.Fold, sessions: SessionFold, value: Codec[A]
    ) -> "WindowedTable[K, A]":
        window = self._windows.window
        if isinstance(window, Sliding):
            return self._slid(name, operator, sessions, window, value)

        def steps_of(state: State[Any, Any], late: Late) -> tuple[Step, Step]:
            if isinstance(window, Session):
                merging = KeepSessions(state, sessions, window, late)
                return merging.step, merging.leaf
            assert isinstance(window, TimeWindow), "there are no others"
            keep = KeepWindows(state, fold, window, late)
            return keep.step, keep.leaf

        return self._windows.kept(name, operator, steps_of, value)

    def _slid(
        self, name: str, operator: str, fold: SessionFold, window: Sliding, value: Codec[A]
    ) -> "WindowedTable[K, A]":
        windows = self._windows
        helper = f"{name}-times"
        windows.plan.claim(helper, f"{operator}({name!r})")
        times = times_state(helper, windows.key, value, window, windows.plan.on_error)

        def steps_of(state: State[Any, Any], late: Late) -> tuple[Step, Step]:
            keep = KeepSliding(state, times, fold, window, late)
            return keep.step, keep.leaf

        return windows.kept(name, operator, steps_of, value, (times,))


class TimeWindowedStream(WindowedStream[K, V]):
    """The records of a stream by their keys and by tumbling, hopping or sliding windows."""

    def aggregate(
        self, name: str, initial: Callable[[], A], add: Callable[[A, V], A], *, value: Codec[A]
    ) -> "WindowedTable[K, A]":
        """Fold the values of each key and window into a row. Arguments as in `GroupedStream.aggregate`."""
        never = SessionFold(lambda row, each: add(initial() if row is None else row, each), _no_merge)
        return self._kept(name, "aggregate", folds.aggregate(initial, add), never, value)


class SessionStream(WindowedStream[K, V]):
    """The records of a stream by their keys and sessions."""

    def aggregate(
        self,
        name: str,
        initial: Callable[[], A],
        add: Callable[[A, V], A],
        merge: Callable[[A, A], A],
        *,
        value: Codec[A],
    ) -> "WindowedTable[K, A]":
        """Fold the values of each key and session into a row.

        Args:
            name: The name of the table.
            initial: Makes the row to which the first value of a session is added.
            add: Called with the row and the next value; returns the new row.
            merge: Called with the rows of an earlier and of a later session that have become one; returns its row.
            value: The codec of the rows.
        """
        sessions = SessionFold(lambda row, each: add(initial() if row is None else row, each), merge)
        return self._kept(name, "aggregate", folds.aggregate(initial, add), sessions, value)


class WindowedTable(KeyedTable[Windowed[K], V]):
    """Rows by key and window: a table that the flow keeps, in the order of Kafka Streams' keys.

    A row is deleted when its window has been closed for the retention, from the topic too. The task of the records' key
    keeps it, so its partition is that of the key, not that of key and window. Nothing follows that deletion: what
    `group_by` makes of the rows still holds those of windows that have expired.
    """

    def __init__(
        self,
        plan: Plan,
        node: Node,
        key: Codec[Windowed[K]],
        value: Codec[V],
        state: State[Windowed[K], V],
        closed: Closed,
        *,
        inclusive: bool,
    ) -> None:
        super().__init__(plan, node, key, value, lambda: plan.table_of(node.group, state))
        self._windows = state
        self._closed = closed
        self._inclusive = inclusive  # the end of a window belongs to it

    def changes(self) -> KeyedStream[Windowed[K], V | None]:
        """Return the changes as records, for each row and batch of records the row after it.

        None is the value of a session that was merged into another. How often a row changes in between depends on how
        records fall into batches: for one record per window, take `final`.
        """
        return self.to_stream()

    def every(self, name: str, interval: timedelta) -> KeyedStream[Windowed[K], V | None]:
        """Return the changes as records, at most one for each row and interval of event time: the row as it is by then.

        A row that has changed comes out when event time has reached the end of the interval, or when its window closes, so
        the last record of a window is its final row. Intervals are aligned to 1970. None is the value of a session that
        was merged into another. The event time of a record is the last millisecond before it comes out.

        Args:
            name: The name of the step: the changes that wait are kept in the table `<group>-<name>`.
            interval: The length of an interval.
        """
        check_duration(interval, f"every({name!r}) has interval", _MS)
        plan, closed = self._plan, Closed()
        plan.claim(name, "every")
        due: Due[Any, Any] = Due(emitted_at, closed, by_key=True, on_error=plan.on_error)
        pending = State(
            name,
            key=PendingKey(self._key),
            value=PendingRow(self._windows.value),
            due=due,
            meaning=f"changes of {self._windows.name!r}, emitted every {interval // _MS} ms",
        )
        step = EmitLater(self._windows, pending, interval // _MS)
        label = f"every {interval // _MS} ms {name!r}"
        plan.add(self._node.group, label, self._node, step=step, edges=(pending,), timed=True, windowed=True)
        source = Source(pending, closed.edge, kind="pending")
        node = plan.add(self._node.group, f"emitted {name!r}", source=source)
        value: Codec[Any] | None = self._value  # a tombstone needs no codec
        return KeyedStream(plan, node, self._key, value)

    def final(self) -> KeyedStream[Windowed[K], V]:
        """Return exactly one record for each key and window: its row when the window has closed, and can change no more.

        The event time of the record is the last millisecond of the window.
        """
        source = Source(self._windows, self._closed.edge, kind="closed", inclusive=self._inclusive)
        node = self._plan.closed(self._node, source)
        return KeyedStream(self._plan, node, self._key, self._value)


def _count(row: int | None, _: object) -> int:
    return (row or 0) + 1


def _no_merge(one: Any, _: Any) -> Any:
    raise AssertionError(f"windows of a fixed size are not merged: {one!r}")
