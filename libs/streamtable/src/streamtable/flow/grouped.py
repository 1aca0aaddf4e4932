"""Grouped streams and tables, which are aggregated by key."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar, overload

from streamtable import Long
from streamtable.arithmetic import greatest, least
from streamtable.flow import folds
from streamtable.flow.cogrouped import CogroupedStream
from streamtable.flow.nodes import Node
from streamtable.flow.plan import Plan
from streamtable.flow.stream import checked_value
from streamtable.flow.table import KeyedTable, kept_table
from streamtable.flow.table_sums import ExactSumCodec, KeepSum, holds_floats
from streamtable.flow.windowed import RETENTION, SessionStream, TimeWindowedStream, Windows
from streamtable.flow.windows import Session, Sliding, TimeWindow
from streamtable.ports import Codec
from streamtable.state import State
from streamtable.topics import Stream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
N = TypeVar("N", int, float)


class GroupedStream(Generic[K, V]):
    """The records of a stream by their keys, to be aggregated into a table.

    The name of an aggregate is that of its table: the topic is `<group>-<name>`. It stays with the state, so choose it
    once; steps around it can be added, removed and reordered.
    """

    def __init__(self, plan: Plan, node: Node, key: Codec[K], value: Codec[V] | None) -> None:
        self._plan = plan
        self._node = node
        self._key = key
        self._value = value

    def count(self, name: str, *, value: Codec[int] | None = None) -> KeyedTable[K, int]:
        """Count the records of each key.

        Args:
            name: The name of the table.
            value: The codec of the rows; `Long()` unless given.
        """
        return self._kept(name, "count", folds.count, value or Long())

    @overload
    def sum(self, name: str, of: Callable[[V], int | None]) -> KeyedTable[K, int]: ...
    @overload
    def sum(self, name: str, of: Callable[[V], N | None], *, value: Codec[N]) -> KeyedTable[K, N]: ...
    def sum(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> KeyedTable[K, Any]:
        """Sum up a number of each record.

        Args:
            name: The name of the table.
            of: Takes the number from the value. None: the record is left out. With NaN, or infinities of both signs, the sum
                is NaN.
            value: The codec of the sums; `Long()` unless given.
        """
        return self._kept(name, "sum", folds.total, value or Long(), folds.numbers(of))

    @overload
    def min(self, name: str, of: Callable[[V], int | None]) -> KeyedTable[K, int]: ...
    @overload
    def min(self, name: str, of: Callable[[V], A | None], *, value: Codec[A]) -> KeyedTable[K, A]: ...
    def min(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> KeyedTable[K, Any]:
        """Keep the least of the values taken from the records; NaN is greater than any other. Arguments as in `sum`."""
        return self._kept(name, "min", folds.combined(least), value or Long(), folds.numbers(of))

    @overload
    def max(self, name: str, of: Callable[[V], int | None]) -> KeyedTable[K, int]: ...
    @overload
    def max(self, name: str, of: Callable[[V], A | None], *, value: Codec[A]) -> KeyedTable[K, A]: ...
    def max(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> KeyedTable[K, Any]:
        """Keep the greatest of the values taken from the records; NaN is greater than any other. Arguments as in `sum`."""
        return self._kept(name, "max", folds.combined(greatest), value or Long(), folds.numbers(of))

    def reduce(
        self, name: str, combine: Callable[[V, V], V], *, value: Codec[V] | None = None
    ) -> KeyedTable[K, V]:
        """Combine the values of each key to one of the same type.

        Args:
            name: The name of the table.
            combine: Called with the row and the next value, returns the new row, which may be the old one changed in place.
                The first value is the first row.
            value: The codec of the rows; by default that of the values.
        """
        codec = checked_value(value or self._value, f"reduce({name!r})")
        return self._kept(name, "reduce", folds.reduce(combine, codec), codec)

    def aggregate(
        self, name: str, initial: Callable[[], A], add: Callable[[A, V], A], *, value: Codec[A]
    ) -> KeyedTable[K, A]:
        """Fold the values of each key into a row.

        Args:
            name: The name of the table.
            initial: Makes the row to which the first value is added.
            add: Called with the row and the next value, returns the new row, which may be the old one changed in place.
            value: The codec of the rows.
        """
        return self._kept(name, "aggregate", folds.aggregate(initial, add), value)

    @overload
    def window(
        self,
        window: TimeWindow | Sliding,
        *,
        late: Stream[K, V] | None = None,
        retention: timedelta = RETENTION,
    ) -> TimeWindowedStream[K, V]: ...
    @overload
    def window(
        self, window: Session, *, late: Stream[K, V] | None = None, retention: timedelta = RETENTION
    ) -> SessionStream[K, V]: ...
    def window(
        self,
        window: TimeWindow | Sliding | Session,
        *,
        late: Stream[K, V] | None = None,
        retention: timedelta = RETENTION,
    ) -> TimeWindowedStream[K, V] | SessionStream[K, V]:
        """Divide the records of each key into windows by their event times.

        Args:
            window: `Tumbling`, `Hopping`, `Sliding` or `Session`.
            late: A stream for the records whose windows have all been closed; they change nothing.
            retention: The time that the row of a window is kept after the window has closed.
        """
        windows = Windows(self._plan, self._node, self._key, self._value, window, late, retention)
        return SessionStream(windows) if isinstance(window, Session) else TimeWindowedStream(windows)

    def cogroup(self, add: Callable[[A, V], A]) -> CogroupedStream[K, A]:
        """Begin an aggregate of several streams: `one.cogroup(add).cogroup(other, add_other).aggregate(name, initial)`.

        The order of records of the same input stays; that of different inputs is not defined.

        Args:
            add: Called with the row and the next value of this stream; returns the new row.
        """
        return CogroupedStream(self._plan, self._key, (self._node,), (add,))

    def _kept(
        self, name: str, operator: str, fold: folds.Fold, value: Codec[A], take: folds.Take | None = None
    ) -> KeyedTable[K, A]:
        return kept_table(self._plan, self._node, name, operator, fold, self._key, value, take)


class GroupedTable(Generic[K, V]):
    """The rows of a table by another key, to be aggregated: each row counts as it is now.

    There is no `min` and no `max`: nothing can be taken away from them. A group that has become empty keeps its row, with
    the count 0, as in Kafka Streams.
    """

    def __init__(self, plan: Plan, node: Node, key: Codec[K], value: Codec[V]) -> None:
        self._plan = plan
        self._node = node
        self._key = key
        self._value = value

    def count(self, name: str, *, value: Codec[int] | None = None) -> KeyedTable[K, int]:
        """Count the rows of each group. Arguments as in `GroupedStream.count`."""
        return self._kept(name, "count of rows", folds.count_rows, value or Long())

    @overload
    def sum(self, name: str, of: Callable[[V], int | None]) -> KeyedTable[K, int]: ...
    @overload
    def sum(self, name: str, of: Callable[[V], N | None], *, value: Codec[N]) -> KeyedTable[K, N]: ...
    def sum(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> KeyedTable[K, Any]:
        """Sum up a number of each row. Arguments as in `GroupedStream.sum`.

        A sum with NaN or infinity is right again when their rows are gone: what is needed for that is kept in the table
        `<group>-<name>-exact`, if `value` is a codec of floats.
        """
        plan, rows = self._plan, value or Long()
        plan.claim(name, "sum of rows")
        state: State[K, Any] = State(name, key=self._key, value=rows, meaning="sum of rows")
        exact = None
        if holds_floats(rows):
            helper = plan.claim(f"{name}-exact", f"sum({name!r})")
            exact = State(helper, key=self._key, value=ExactSumCodec(), meaning="exact sums of rows")
        keep = KeepSum(state, exact)
        step, leaf = folds.taking(folds.numbers_of_rows(of), (keep.step, keep.leaf))
        edges = (state,) if exact is None else (state, exact)
        label = f"sum of rows {name!r}"
        node = plan.add(self._node.group, label, self._node, step=step, leaf=leaf, edges=edges, timed=True)
        return KeyedTable.of_state(plan, node, state)

    def aggregate(
        self,
        name: str,
        initial: Callable[[], A],
        add: Callable[[A, V], A],
        subtract: Callable[[A, V], A],
        *,
        value: Codec[A],
    ) -> KeyedTable[K, A]:
        """Fold the rows of each group into a row.

        Args:
            name: The name of the table.
            initial: Makes the row to which the first one is added.
            add: Called with the aggregate and a row that has come; returns the new aggregate.
            subtract: Called with the aggregate and a row that is gone; returns the new aggregate. It must undo `add`.
            value: The codec of the aggregates.
        """
        return self._kept(name, "aggregate of rows", folds.aggregate_rows(initial, add, subtract), value)

    def _kept(self, name: str, operator: str, fold: folds.Fold, value: Codec[A]) -> KeyedTable[K, A]:
        return kept_table(self._plan, self._node, name, operator, fold, self._key, value)
