"""Several grouped streams that are aggregated into one row for each key."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from streamtable.base.ports import Codec
from streamtable.flow.checks import check_part
from streamtable.flow.joins.tables import marked_changes
from streamtable.flow.plan.nodes import Node
from streamtable.flow.plan.plan import Plan, copartitioned
from streamtable.flow.table import KeyedTable, kept_table
from streamtable.flow.windowed import RETENTION, SessionStream, TimeWindowedStream, WindowedTable
from streamtable.flow.windows.keys import check_matching
from streamtable.flow.windows.windows import Session, TimeWindow
from streamtable.graph.aggregate import Folded

if TYPE_CHECKING:
    from streamtable.flow.grouped import GroupedStream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


@dataclass(frozen=True)
class CogroupedStream(Generic[K, A]):
    """Grouped streams, each with a function that adds its values to a row of type `A`; made by `GroupedStream.cogroup`.

    Args:
        plan: The plan of the flow.
        key: The codec of the keys.
        nodes: The nodes of the streams.
        adders: The function of each.
    """

    plan: Plan
    key: Codec[K]
    nodes: tuple[Node, ...]
    adders: tuple[Callable[[Any, Any], Any], ...]

    def cogroup(self, other: "GroupedStream[K, V]", add: Callable[[A, V], A]) -> "CogroupedStream[K, A]":
        """Add another stream, of the same group.

        Args:
            other: The grouped stream.
            add: Called with the row and the next value of this stream; returns the new row.

        Raises:
            GraphError: The stream belongs to another group: see `KeyedStream.repartition(beside=)`.
        """
        from streamtable.flow.grouped import GroupedStream  # noqa: PLC0415 - each is made by the other

        check_part(self.plan, other, "cogroup()", GroupedStream)
        nodes = (*self.nodes, other._node)  # noqa: SLF001 - of this package
        copartitioned(nodes, "cogroup")
        check_matching("cogroup()", self.key, other._key)  # noqa: SLF001 - of this package
        return CogroupedStream(self.plan, self.key, nodes, (*self.adders, add))

    def aggregate(self, name: str, initial: Callable[[], A], *, value: Codec[A]) -> KeyedTable[K, A]:
        """Fold the values of all streams into one row for each key.

        Args:
            name: The name of the table.
            initial: Makes the initial row; the first value is added to it.
            value: The codec of the rows.
        """
        folded = Folded(self._add, initial)
        return kept_table(self.plan, self._merged(), name, folded, self.key, value, "cogroup")

    @overload
    def window(self, window: TimeWindow, *, retention: timedelta = RETENTION) -> "CogroupedWindows[K, A]": ...
    @overload
    def window(self, window: Session, *, retention: timedelta = RETENTION) -> "CogroupedSessions[K, A]": ...
    def window(
        self, window: TimeWindow | Session, *, retention: timedelta = RETENTION
    ) -> "CogroupedWindows[K, A] | CogroupedSessions[K, A]":
        """Divide the records of all streams into windows by their event times. Arguments as in `GroupedStream.window`."""
        records = self.plan, self._merged(), self.key, None
        if isinstance(window, Session):
            return CogroupedSessions(SessionStream(*records, window, None, retention), self._add)
        return CogroupedWindows(TimeWindowedStream(*records, window, None, retention), self._add)

    def _merged(self) -> Node:
        marked = [
            self.plan.add(f"stream {number} of cogroup", node, step=marked_changes(number - 1))
            for number, node in enumerate(self.nodes, 1)
        ]
        return self.plan.add("merge", *marked)

    def _add(self, row: Any, marked: tuple[int, Any]) -> Any:
        number, value = marked
        return self.adders[number](row, value)


@dataclass(frozen=True)
class CogroupedWindows(Generic[K, A]):
    """Streams that are aggregated together, by tumbling or hopping windows."""

    stream: TimeWindowedStream[K, Any]
    add: Callable[[Any, Any], Any]

    def aggregate(self, name: str, initial: Callable[[], A], *, value: Codec[A]) -> WindowedTable[K, A]:
        """Fold the values of each key and window into a row. Arguments as in `CogroupedStream.aggregate`."""
        return self.stream.aggregate(name, initial, self.add, value=value)


@dataclass(frozen=True)
class CogroupedSessions(Generic[K, A]):
    """Streams that are aggregated together, by sessions."""

    stream: SessionStream[K, Any]
    add: Callable[[Any, Any], Any]

    def aggregate(
        self, name: str, initial: Callable[[], A], merge: Callable[[A, A], A], *, value: Codec[A]
    ) -> WindowedTable[K, A]:
        """Fold the values of each key and session into a row.

        Args:
            name: The name of the table.
            initial: Makes the initial row of a session; its first value is added to it.
            merge: Called with the rows of an earlier and of a later session that have become one; returns its row.
            value: The codec of the rows.
        """
        return self.stream.aggregate(name, initial, self.add, merge, value=value)
