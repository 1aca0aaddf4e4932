"""Grouped streams and tables, which are aggregated by key."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar, overload

from streamtable.base.ports import Codec
from streamtable.base.topics import Stream
from streamtable.codec import Long
from streamtable.errors import GraphError
from streamtable.flow.cogrouped import CogroupedStream
from streamtable.flow.folds.folds import Retracting, as_read, copied, numbers_of_rows
from streamtable.flow.folds.table_sums import ExactSumCodec, KeepSum, holds_floats
from streamtable.flow.plan.nodes import Node
from streamtable.flow.plan.plan import Plan
from streamtable.flow.ranked import ranked_table
from streamtable.flow.stream import checked_value
from streamtable.flow.table import KeyedTable, kept_table
from streamtable.flow.windowed import RETENTION, SessionStream, TimeWindowedStream
from streamtable.flow.windows.windows import Session, Sliding, TimeWindow
from streamtable.graph.aggregate import Aggregate, Collect, Count, Folded, Max, Min, Ranked, Sum, reduced
from streamtable.graph.state import State

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
N = TypeVar("N", int, float)


class Grouped(ABC, Generic[K, V]):
    """The records of a stream or the rows of a table by a key, to be aggregated.

    An aggregate has the name of its table, whose topic is `<group>-<name>`. The name stays with the state, so choose it
    once; steps around it can be added, removed and reordered.
    """

    def __init__(self, plan: Plan, node: Node, key: Codec[K], value: Codec[V] | None) -> None:
        self._plan = plan
        self._node = node
        self._key = key
        self._value = value

    @abstractmethod
    def fold(self, name: str, aggregate: Aggregate[V, A], *, value: Codec[Any]) -> KeyedTable[K, A]:
        """Fold the values of each key into a row, by an aggregate: `Mean`, `TopK`, or one of your own.

        Args:
            name: The name of the table.
            aggregate: The aggregate.
            value: The codec of the rows.
        """

    def count(self, name: str, *, value: Codec[int] | None = None) -> KeyedTable[K, int]:
        """Count the values of each key.

        Args:
            name: The name of the table.
            value: The codec of the rows; `Long()` unless given.
        """
        return self.fold(name, Count(), value=value or Long())

    @overload
    def sum(self, name: str, of: Callable[[V], int | None]) -> KeyedTable[K, int]: ...
    @overload
    def sum(self, name: str, of: Callable[[V], N | None], *, value: Codec[N]) -> KeyedTable[K, N]: ...
    def sum(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> KeyedTable[K, Any]:
        """Sum a number taken from each value.

        Args:
            name: The name of the table.
            of: Takes the number from the value. None: the record is skipped. With NaN, or infinities of both signs, the sum
                is NaN.
            value: The codec of the sums; `Long()` unless given.
        """
        return self.fold(name, Sum(of), value=value or Long())

    @overload
    def min(self, name: str, of: Callable[[V], int | None]) -> KeyedTable[K, int]: ...
    @overload
    def min(self, name: str, of: Callable[[V], A | None], *, value: Codec[A]) -> KeyedTable[K, A]: ...
    def min(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> KeyedTable[K, Any]:
        """Keep the least value that `of` returns; NaN is greater than any number. Arguments as in `sum`."""
        return self.fold(name, Min(of), value=value or Long())

    @overload
    def max(self, name: str, of: Callable[[V], int | None]) -> KeyedTable[K, int]: ...
    @overload
    def max(self, name: str, of: Callable[[V], A | None], *, value: Codec[A]) -> KeyedTable[K, A]: ...
    def max(
        self, name: str, of: Callable[[V], Any], *, value: Codec[Any] | None = None
    ) -> KeyedTable[K, Any]:
        """Keep the greatest value that `of` returns; NaN is greater than any number. Arguments as in `sum`."""
        return self.fold(name, Max(of), value=value or Long())

    def collect(self, name: str, of: Callable[[V], A], *, value: Codec[Any]) -> KeyedTable[K, list[A]]:
        """Collect parts of the values into a list, in their order. A row grows with its key: keep few, or small ones.

        Args:
            name: The name of the table.
            of: Takes from a value the part that is kept.
            value: The codec of the lists.
        """
        return self.fold(name, Collect(of), value=value)


class GroupedStream(Grouped[K, V]):
    """The records of a stream by their keys, to be aggregated into a table."""

    def fold(self, name: str, aggregate: Aggregate[V, A], *, value: Codec[Any]) -> KeyedTable[K, A]:
        return kept_table(self._plan, self._node, name, as_read(name, aggregate, value), self._key, value)

    def reduce(
        self, name: str, combine: Callable[[V, V], V], *, value: Codec[V] | None = None
    ) -> KeyedTable[K, V]:
        """Combine the values of each key to one of the same type.

        Args:
            name: The name of the table.
            combine: Called with the row and the next value, returns the new row, which may be the old one changed in place.
                The first value is the first row.
            value: The codec of the rows; by default the codec of the values.
        """
        codec = checked_value(value or self._value, f"reduce({name!r})")
        return self.fold(name, reduced(combine, partial(copied, codec)), value=codec)

    def aggregate(
        self, name: str, initial: Callable[[], A], add: Callable[[A, V], A], *, value: Codec[A]
    ) -> KeyedTable[K, A]:
        """Fold the values of each key into a row, by functions.

        Args:
            name: The name of the table.
            initial: Makes the initial row; the first value is added to it.
            add: Called with the row and the next value, returns the new row, which may be the old one changed in place.
            value: The codec of the rows.
        """
        return self.fold(name, Folded(add, initial), value=value)

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
            late: A stream for the records whose windows have all been closed; they change nothing. Each aggregate writes its own
                late records: where several use the same windows, give it to one of them, by a `window()` of its own. Of
                sessions, a record may be late for one aggregate and not for another, which has skipped its None.
            retention: The time that the row of a window is kept after the window has closed. Then it is deleted, also from
                the table's topic: a `Sink` of the table deletes it from its target.
        """
        kind = SessionStream if isinstance(window, Session) else TimeWindowedStream
        return kind(self._plan, self._node, self._key, self._value, window, late, retention)

    def cogroup(self, add: Callable[[A, V], A]) -> CogroupedStream[K, A]:
        """Begin an aggregate of several streams: `one.cogroup(add).cogroup(other, add_other).aggregate(name, initial)`.

        Records of the same input stay in order; the order between inputs is not defined.

        Args:
            add: Called with the row and the next value of this stream; returns the new row.
        """
        return CogroupedStream(self._plan, self._key, (self._node,), (add,))


class GroupedTable(Grouped[K, V]):
    """The rows of a table by another key, to be aggregated: each row counts as it is now.

    A group that has become empty keeps the result over no rows, such as the count 0, as in Kafka Streams; where there is
    no such result, as for the least value, its row is deleted.
    """

    def fold(self, name: str, aggregate: Aggregate[V, A], *, value: Codec[Any]) -> KeyedTable[K, A]:
        aggregate = as_read(name, aggregate, value)
        if isinstance(aggregate, Sum):
            return self._summed(name, aggregate, value)
        if isinstance(aggregate, Ranked):
            return ranked_table(self._plan, self._node, name, aggregate, self._key, value)
        if not aggregate.subtracts:
            raise GraphError(
                f"{aggregate.meaning} {name!r} of a grouped table: {type(aggregate).__name__} has no subtract(), which "
                "takes away a row that has changed or is gone"
            )
        return kept_table(self._plan, self._node, name, Retracting(aggregate), self._key, value)

    def reduce(
        self,
        name: str,
        combine: Callable[[V, V], V],
        subtract: Callable[[V, V], V | None],
        *,
        value: Codec[V] | None = None,
    ) -> KeyedTable[K, V]:
        """Combine the rows of each group to one of the same type.

        Args:
            name: The name of the table.
            combine: Called with the group's row and a row that has come; returns the new one, which may be the old one changed
                in place. The first row of a group is its first row.
            subtract: Called with the group's row and a row that is gone; returns the new one, or None to delete it, as of
                a group that has become empty. It must undo `combine`.
            value: The codec of the groups' rows; by default the codec of the table's rows.
        """
        codec = checked_value(value or self._value, f"reduce({name!r})")
        return self.fold(name, reduced(combine, partial(copied, codec), subtract), value=codec)

    def aggregate(
        self,
        name: str,
        initial: Callable[[], A],
        add: Callable[[A, V], A],
        subtract: Callable[[A, V], A],
        *,
        value: Codec[A],
    ) -> KeyedTable[K, A]:
        """Fold the rows of each group into a row, by functions.

        Args:
            name: The name of the table.
            initial: Makes the initial aggregate; the first row is added to it.
            add: Called with the aggregate and a row that has come; returns the new aggregate.
            subtract: Called with the aggregate and a row that is gone; returns the new aggregate. It must undo `add`.
            value: The codec of the aggregates.
        """
        return self.fold(name, Folded(add, initial, subtractor=subtract), value=value)

    def _summed(self, name: str, aggregate: Sum[Any, Any], value: Codec[Any]) -> KeyedTable[K, Any]:
        """Sum numbers of rows. A sum with NaN or infinity is right again when their rows are gone.

        If `value` is a codec of floats, the table `<group>-<name>-exact` keeps the state that this needs.
        """
        plan, operator, take = self._plan, "sum of rows", numbers_of_rows(aggregate.of)
        plan.claim(name, operator)
        state: State[K, Any] = State(name, key=self._key, value=value, meaning=operator)
        if not holds_floats(value):
            return KeyedTable.kept(plan, self._node, KeepSum(state, None), take)
        helper = plan.claim(f"{name}-exact", f"sum({name!r})")
        exact = State(helper, key=self._key, value=ExactSumCodec(), meaning="exact sums of rows")
        return KeyedTable.kept(plan, self._node, KeepSum(state, exact), take, exact)
