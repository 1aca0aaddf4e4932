"""Windowed streams and tables: aggregates by key and window."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar, overload

from streamtable.base.keys import canonical
from streamtable.base.ports import Codec
from streamtable.base.topics import Stream, Table, check_kind
from streamtable.codec import Long
from streamtable.errors import GraphError
from streamtable.flow.checks import check_part
from streamtable.flow.folds.folds import Keeping, as_read, copied, taken, taking
from streamtable.flow.folds.sessions import KeepSessions
from streamtable.flow.folds.sliding import KeepSliding, times_state
from streamtable.flow.folds.windows import KeepWindows, Late
from streamtable.flow.joins.rules import checked_codecs
from streamtable.flow.joins.tables import TableJoin
from streamtable.flow.plan.nodes import DueRecord, DueRecords, Node, Source
from streamtable.flow.plan.plan import Plan
from streamtable.flow.stream import KeyedStream, checked_value
from streamtable.flow.table import KeyedTable
from streamtable.flow.windows.keys import Windowed, check_matching, check_written
from streamtable.flow.windows.windows import Session, Sliding, TimeWindow, Window
from streamtable.graph.aggregate import Aggregate, Collect, Count, Folded, Max, Min, Sum, reduced
from streamtable.graph.due import Due
from streamtable.graph.edge import OnError
from streamtable.graph.group import Output
from streamtable.graph.state import State
from streamtable.handlers.due_rows import DueRows

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
N = TypeVar("N", int, float)
V2 = TypeVar("V2")
V3 = TypeVar("V3")

RETENTION = timedelta(days=1)


def due_of(window: Window, closed: DueRecords, retention: timedelta, on_error: OnError) -> Due[Any, Any]:
    """Return the due times of the rows of a table with these windows: each is due when its window closes."""
    return Due(
        window.closing(),
        closed,
        keep=retention,
        by_key=True,
        times=window.closings(),
        on_error=on_error,
        # The event time of a closed window is its last millisecond.
        holds=timedelta(milliseconds=window.closes_at(0, 0) + 1),
    )


def closed_rows(window: Window, due: DueRows[Windowed[Any], Any]) -> list[DueRecord]:
    """Return the rows of closed windows as records, with the last millisecond of each window."""
    # It is in time for all steps behind it, whose rows fall due later by the time that this one was open (`Stages.lags`).
    behind_end = 0 if window.inclusive else 1
    return [(raw, row, end, end) for raw, key, row in due.rows for end in (key.end_ms - behind_end,)]


@dataclass(frozen=True, eq=False, repr=False)
class WindowedStream(Generic[K, V]):
    """The records of a stream by their keys and windows, to be aggregated into a table.

    An aggregate has the name of its table, as in `GroupedStream`. A record whose windows have all been closed is
    late: it changes nothing.

    Args:
        plan: The plan of the flow.
        node: The node of the records.
        key: The codec of the keys.
        value: The codec of the values, if one is known.
        window: The kind of window.
        late: The output stream of late records; None: they are only counted.
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
            check_written("late= of window()", self.key, self.late.key)
        retention: object = self.retention
        if not isinstance(retention, timedelta) or retention < timedelta(0):
            raise GraphError(f"windows with retention={retention!r}: give a timedelta of 0 or more")

    def fold(self, name: str, aggregate: Aggregate[V, A], *, value: Codec[Any]) -> "WindowedTable[K, A]":
        """Fold the values of each key and window into a row, by an aggregate: `Mean`, `TopK`, or one of your own.

        Args:
            name: The name of the table.
            aggregate: The aggregate. For sessions it needs a `merge`.
            value: The codec of the rows.
        """
        window, plan = self.window, self.plan
        aggregate, operator = as_read(name, aggregate, value), aggregate.meaning
        if isinstance(window, Session) and not aggregate.merges:
            raise GraphError(
                f"{operator} {name!r} by sessions: {type(aggregate).__name__} has no merge(), which makes one row of two sessions that have become one"
            )

        # Late records are written with their values.
        take, folded = taken(aggregate, beside=self.late is not None)
        plan.claim(name, operator)
        key = window.key(self.key)
        closed = DueRecords(canonical(key), partial(closed_rows, window))
        due = due_of(window, closed, self.retention, plan.on_error)
        state = State(name, key=key, value=value, due=due, meaning=f"{operator} in {window.meaning}")
        late = Late(self.late, state, beside=folded is not aggregate and self.late is not None)
        edges: list[Any] = [state]
        keep: Keeping
        if isinstance(window, Session):
            keep = KeepSessions(state, folded, window, late)
        elif isinstance(window, Sliding):
            helper = plan.claim(f"{name}-times", f"{operator}({name!r})")
            edges.append(times_state(helper, self.key, value, window, plan.on_error))
            keep = KeepSliding(state, edges[-1], folded, window, late)
        else:
            assert isinstance(window, TimeWindow), "there are no others"
            keep = KeepWindows(state, folded, window, late)
        if self.late is not None:
            edges.append(Output(self.late, event_times=True))
        step, leaf = taking(take, keep)
        timed: dict[str, Any] = {"windowed": True, "grace_ms": window.grace_ms}
        label = f"{operator} {name!r} in {window.meaning}"
        node = plan.add(label, self.node, step=step, leaf=leaf, edges=tuple(edges), makes=name, **timed)
        final = Source(state, closed.edge, kind="closed", due=closed)
        return WindowedTable(plan, node, key, value, lambda: plan.table_of(node.group, state), window, final)

    def count(self, name: str, *, value: Codec[int] | None = None) -> "WindowedTable[K, int]":
        """Count the records of each key and window.

        Args:
            name: The name of the table.
            value: The codec of the rows; `Long()` unless given.
        """
        return self.fold(name, Count(), value=value or Long())

    @overload
    def sum(self, name: str, of: Callable[[V], int | None]) -> "WindowedTable[K, int]": ...
    @overload
    def sum(self, name: str, of: Callable[[V], N | None], *, value: Codec[N]) -> "WindowedTable[K, N]": ...
    def sum(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> "WindowedTable[K, Any]":
        """Sum a number taken from each record.

        Args:
            name: The name of the table.
            of: Takes the number from the value. None: the record is skipped, as if it had not come. With NaN, or infinities
                of both signs, the sum is NaN.
            value: The codec of the sums; `Long()` unless given.
        """
        return self.fold(name, Sum(of), value=value or Long())

    @overload
    def min(self, name: str, of: Callable[[V], int | None]) -> "WindowedTable[K, int]": ...
    @overload
    def min(self, name: str, of: Callable[[V], A | None], *, value: Codec[A]) -> "WindowedTable[K, A]": ...
    def min(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> "WindowedTable[K, Any]":
        """Keep the least of the values taken from the records; NaN is greater than any other. Arguments as in `sum`."""
        return self.fold(name, Min(of), value=value or Long())

    @overload
    def max(self, name: str, of: Callable[[V], int | None]) -> "WindowedTable[K, int]": ...
    @overload
    def max(self, name: str, of: Callable[[V], A | None], *, value: Codec[A]) -> "WindowedTable[K, A]": ...
    def max(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> "WindowedTable[K, Any]":
        """Keep the greatest of the values taken from the records; NaN is greater than any other. Arguments as in `sum`."""
        return self.fold(name, Max(of), value=value or Long())

    def collect(self, name: str, of: Callable[[V], A], *, value: Codec[Any]) -> "WindowedTable[K, list[A]]":
        """Collect parts of the records into a list, in their order. Arguments as in `Grouped.collect`."""
        return self.fold(name, Collect(of), value=value)

    def reduce(
        self, name: str, combine: Callable[[V, V], V], *, value: Codec[V] | None = None
    ) -> "WindowedTable[K, V]":
        """Combine the values of each key and window to one of the same type.

        Args:
            name: The name of the table.
            combine: Called with the row and the next value, and for sessions with the rows of two that are merged.
            value: The codec of the rows; by default the codec of the values.
        """
        codec = checked_value(value or self.value, f"reduce({name!r})")
        return self.fold(name, reduced(combine, partial(copied, codec)), value=codec)


class TimeWindowedStream(WindowedStream[K, V]):
    """The records of a stream by their keys and by tumbling, hopping or sliding windows."""

    def aggregate(
        self, name: str, initial: Callable[[], A], add: Callable[[A, V], A], *, value: Codec[A]
    ) -> "WindowedTable[K, A]":
        """Fold the values of each key and window into a row. Arguments as in `GroupedStream.aggregate`."""
        return self.fold(name, Folded(add, initial), value=value)


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
            initial: Makes the initial row of a session; its first value is added to it.
            add: Called with the row and the next value; returns the new row.
            merge: Called with the rows of an earlier and of a later session that have become one; returns its row.
            value: The codec of the rows.
        """
        return self.fold(name, Folded(add, initial, merger=merge), value=value)


class WindowedTable(KeyedTable[Windowed[K], V]):
    """Rows by key and window: a table that the flow keeps, in the order of Kafka Streams' keys.

    A row is deleted when its window has been closed for the retention, from the topic too. The task of the records' key
    keeps it, so the key alone decides its partition, not key and window. The deletion is not passed on to the steps of the
    same group: tables that `group_by` makes of the rows still include the rows of expired windows. Whatever reads the table's
    topic sees a deletion: a `Sink` deletes the row from its target, and `Flow.table`, `Changes` and tables made of them lose it.
    """

    def __init__(
        self,
        plan: Plan,
        node: Node,
        key: Codec[Windowed[K]],
        value: Codec[V] | None,
        kept: Callable[[], Table[Windowed[K], V]] | None,
        window: Window,
        final: Source,
    ) -> None:
        super().__init__(plan, node, key, value, kept)
        self._window = window
        self._closes_at = window.closing()
        self._final = final

    def changes(self) -> KeyedStream[Windowed[K], V | None]:
        """Return the changes as records, for each row and batch of records the row after it.

        None is the value of a session that was merged into another. How often a row changes in between depends on how
        records fall into batches: for one record per window, take `final`.
        """
        return self.to_stream()

    def final(self) -> KeyedStream[Windowed[K], V]:
        """Return exactly one record for each key and window: its row when the window has closed, and can change no more.

        The event time of the record is the last millisecond of the window.
        """
        node = self._plan.source(self._node.group, self._final, f"final {self._final.topic.name!r}")
        return KeyedStream(self._plan, node, self._key, self._value)

    def join(  # type: ignore[override] # a windowed table is joined with windowed tables only, and not by other keys
        self,
        name: str,
        other: "WindowedTable[K, V2]",
        function: Callable[[V, V2], V3],
        *,
        value: Codec[V3] | None = None,
    ) -> "WindowedTable[K, V3]":
        """Join the rows of two tables with the same windows: one row for each key and window that both tables have.

        A change of either side changes the joined row until the window closes. `final()` of the join returns one record for
        each joined row, when the window has closed for both sides. The rows of both sides are kept in the table
        `<group>-<name>` while their window is open.

        Args:
            name: The name of the step, and of the table of both sides' rows.
            other: The right table, in the same group, with equal windows: tumbling or hopping ones with the same grace.
            function: Called with the left and the right row; returns the joined row, or None for none. It must be
                deterministic.
            value: The codec of the joined rows, for `every` and for a step that writes them to an internal topic.

        Raises:
            GraphError: The windows differ, or are sessions or sliding windows, whose bounds come from the records of each
                side; the tables belong to different groups; or a step has changed the rows of one.
        """
        return self._join_windows("join", name, other, function, value)

    def left_join(  # type: ignore[override] # as join
        self,
        name: str,
        other: "WindowedTable[K, V2]",
        function: Callable[[V, V2 | None], V3],
        *,
        value: Codec[V3] | None = None,
    ) -> "WindowedTable[K, V3]":
        """Join as `join` does, with a row wherever the left table has one; the right one is None where there is none."""
        return self._join_windows("left_join", name, other, function, value)

    def outer_join(  # type: ignore[override] # as join
        self,
        name: str,
        other: "WindowedTable[K, V2]",
        function: Callable[[V | None, V2 | None], V3],
        *,
        value: Codec[V3] | None = None,
    ) -> "WindowedTable[K, V3]":
        """Join as `join` does, with a row wherever either table has one; the other one is None where there is none."""
        return self._join_windows("outer_join", name, other, function, value)

    def _join_windows(
        self,
        operator: str,
        name: str,
        other: "WindowedTable[K, Any]",
        function: Callable[..., V3],
        value: Codec[V3] | None,
    ) -> "WindowedTable[K, V3]":
        what = f"{operator}({name!r}) of a windowed table"
        check_part(self._plan, other, what, WindowedTable)
        right: WindowedTable[K, Any] = other
        window, plan = self._window, self._plan
        if not isinstance(window, TimeWindow) or window != right._window:
            raise GraphError(
                f"{what}: its rows are of {window.meaning}, the right table's of {right._window.meaning}. Join tables "
                "with equal tumbling or hopping windows"
            )
        check_matching(what, self._key, right._key)
        values = checked_codecs(operator, name, "rows", self._value, right._value)
        join = TableJoin(operator, name, function, values)
        # When a window is closed, no side changes any more: the row has been in final().
        closed = DueRecords(self._key, join.closed_rows)
        due = due_of(window, closed, timedelta(0), plan.on_error)
        node, state = join.added(plan, (self._node, right._node), self._key, due, f" in {window.meaning}")
        final = Source(state, closed.edge, kind="closed", due=closed)
        return WindowedTable(plan, node, self._key, value, None, window, final)
