"""The joins of a table, as its methods."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from streamtable.base.ports import Codec
from streamtable.flow.checks import check_function, check_part
from streamtable.flow.joins.foreign_key import ForeignKeyJoin
from streamtable.flow.joins.rules import checked_codecs
from streamtable.flow.joins.tables import TableJoin, refuse_windowed
from streamtable.flow.plan.nodes import Node
from streamtable.flow.plan.plan import Plan
from streamtable.flow.windows.keys import check_matching

if TYPE_CHECKING:
    from streamtable.flow.table import KeyedTable

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
V3 = TypeVar("V3")


class TableJoins(Generic[K, V]):
    """The joins of a keyed table with other tables. `KeyedTable` inherits them."""

    _plan: Plan
    _node: Node
    _key: Codec[K]
    _value: Codec[V] | None

    @overload
    def join(
        self,
        name: str,
        other: "KeyedTable[K, V2]",
        function: Callable[[V, V2], V3],
        *,
        value: Codec[V3] | None = None,
    ) -> "KeyedTable[K, V3]": ...
    @overload
    def join(
        self,
        name: str,
        other: "KeyedTable[K2, V2]",
        function: Callable[[V, V2], V3],
        *,
        on: Callable[[V], K2 | None],
        value: Codec[V3] | None = None,
    ) -> "KeyedTable[K, V3]": ...
    def join(
        self,
        name: str,
        other: "KeyedTable[Any, V2]",
        function: Callable[[V, V2], V3],
        *,
        on: Callable[[V], Any] | None = None,
        value: Codec[V3] | None = None,
    ) -> "KeyedTable[K, V3]":
        """Join the rows of two tables that have the same key: a table with a row where both have one.

        A change of either side changes the joined row, a deletion on either side deletes it. The rows of both sides are
        kept in the table `<group>-<name>`, the joined rows are not: keep them by `to_stream().to_table(name)`.

        With `on=`, each left row names the key of its right row, its foreign key: many may name the same one, and a change
        of either side updates all rows concerned. The tables may belong to different groups, and need not have the same
        keys or partitions: they talk through the topics `<flow>-<name>-subscriptions`, partitioned as the right table, and
        `<flow>-<name>-answers`, with the partitions of the left one. An answer goes to the partition that has asked: the left
        table's records may be in any partitions, as long as all records of a key are in the same one. The right table's
        records must be in the partitions of their keys. After a left row has turned to another key its joined row is
        missing until the answer is there.

        Args:
            name: The name of the step, and of the table of both sides' rows.
            other: The right table, in the same group: see `Flow.table(group=)` and `KeyedStream.repartition(beside=)`.
            function: Called with the left and the right row; returns the joined row, or None for none. It must be
                deterministic.
            on: Takes the key of the right row from the left row; None: there is none. Without it, it is the left row's key.
            value: The codec of the joined rows, for a step behind that writes them to a topic of the flow's own.

        Raises:
            GraphError: The tables belong to different groups, a step has changed the rows of one, or one is windowed.
        """
        return self._joined("join", name, other, function, on, value)

    @overload
    def left_join(
        self,
        name: str,
        other: "KeyedTable[K, V2]",
        function: Callable[[V, V2 | None], V3],
        *,
        value: Codec[V3] | None = None,
    ) -> "KeyedTable[K, V3]": ...
    @overload
    def left_join(
        self,
        name: str,
        other: "KeyedTable[K2, V2]",
        function: Callable[[V, V2 | None], V3],
        *,
        on: Callable[[V], K2 | None],
        value: Codec[V3] | None = None,
    ) -> "KeyedTable[K, V3]": ...
    def left_join(
        self,
        name: str,
        other: "KeyedTable[Any, V2]",
        function: Callable[[V, V2 | None], V3],
        *,
        on: Callable[[V], Any] | None = None,
        value: Codec[V3] | None = None,
    ) -> "KeyedTable[K, V3]":
        """Join as `join` does, with a row wherever the left table has one; the right one is None where there is none."""
        return self._joined("left_join", name, other, function, on, value)

    def outer_join(
        self,
        name: str,
        other: "KeyedTable[K, V2]",
        function: Callable[[V | None, V2 | None], V3],
        *,
        value: Codec[V3] | None = None,
    ) -> "KeyedTable[K, V3]":
        """Join as `join` does, with a row wherever either table has one; the other one is None where there is none."""
        return self._joined("outer_join", name, other, function, None, value)

    def _joined(
        self,
        operator: str,
        name: str,
        other: "KeyedTable[Any, V2]",
        function: Callable[..., V3],
        on: Callable[[V], Any] | None,
        value: Codec[V3] | None,
    ) -> "KeyedTable[K, V3]":
        from streamtable.flow.table import KeyedTable  # noqa: PLC0415 - each is made by the other

        check_part(self._plan, other, f"{operator}({name!r})", KeyedTable)
        if on is not None:
            check_function(
                on, f"{operator}({name!r}) has on", "takes the key of the right row from the left row"
            )
        right: TableJoins[Any, V2] = other
        values = checked_codecs(operator, name, "rows", self._value, right._value)
        nodes = self._node, right._node
        if on is None:
            refuse_windowed(operator, self._key, right._key)
            check_matching(f"{operator}({name!r})", self._key, right._key)
            node, _ = TableJoin(operator, name, function, values).added(self._plan, nodes, self._key)
        else:
            keys = self._key, right._key
            node = ForeignKeyJoin(operator, name, on, function, keys, values).added(self._plan, nodes)
        return KeyedTable(self._plan, node, self._key, value, None)
