"""The joins of a stream, as its methods."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streamtable.base.ports import Codec
from streamtable.base.topics import Table, check_kind
from streamtable.errors import GraphError
from streamtable.flow.checks import check_function, check_part
from streamtable.flow.joins.as_of import AsOfJoin
from streamtable.flow.joins.rules import Bounds, Within, checked_codecs
from streamtable.flow.joins.streams import StreamJoin
from streamtable.flow.joins.table_rows import global_rows_of, join_rows, rows_of
from streamtable.flow.joins.tables import refuse_windowed
from streamtable.flow.plan.nodes import Node
from streamtable.flow.plan.plan import Plan, checked_keys, copartitioned
from streamtable.flow.table import KeyedTable
from streamtable.flow.windows.keys import check_matching
from streamtable.graph.group import Lookup

if TYPE_CHECKING:
    from streamtable.flow.stream import KeyedStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
V3 = TypeVar("V3")


class StreamJoins(ABC, Generic[K, V]):
    """The joins of a keyed stream with streams and tables. `KeyedStream` inherits them."""

    _plan: Plan
    _node: Node
    _key: Codec[K] | None
    _value: Codec[V] | None

    @abstractmethod
    def _made(self, node: Node, key: Codec[K2] | None, value: Codec[V2] | None) -> "KeyedStream[K2, V2]":
        """Return the stream of a node."""

    def join(
        self,
        name: str,
        other: "KeyedStream[K, V2]",
        function: Callable[[V, V2], V3],
        *,
        within: Within,
        grace: timedelta,
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join each record with another stream's records that have the same key and are near enough in event time.

        Each pair comes out once, with the later one's event time. Both sides wait in the table `<group>-<name>`, on disk,
        until nothing can match them any more. A value of None matches nothing.

        A record that comes late still matches, unless the other's window was closed: the input of the later one had gone
        past the last time that the other could match, and the grace.

        Args:
            name: The name of the step, and of the table of waiting records.
            other: The right stream, in the same group: see `repartition(beside=)`.
            function: Called with the values of the left and of the right record; returns the new value.
            within: The time that the right record may be before and after the left one, both inclusive: a pair of durations,
                or one for both. One may be negative: `(timedelta(0), hour)` matches only records after the
                left one, and `(-minute, hour)` only those at least a minute after it.
            grace: The additional time that a record's window stays open for late records.
            value: The codec of the new values, as in `map_values`.

        Raises:
            GraphError: The streams belong to different groups, or a step has changed the keys or values of one.
        """
        return self._joined(StreamJoin("join", name, Bounds.of(within, grace), function), other, value)

    def left_join(
        self,
        name: str,
        other: "KeyedStream[K, V2]",
        function: Callable[[V, V2 | None], V3],
        *,
        within: Within,
        grace: timedelta,
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join as `join` does; a left record that nothing has matched comes out alone, with None in the other's place.

        It comes out exactly once, with its own event time, when its window has closed and nothing can match it any more:
        when the watermark has passed the last time that it could match, and the grace. So none is ever lost, however late
        it comes.

        Windows behind it in the same group close later by that.
        """
        return self._joined(StreamJoin("left_join", name, Bounds.of(within, grace), function), other, value)

    def outer_join(
        self,
        name: str,
        other: "KeyedStream[K, V2]",
        function: Callable[[V | None, V2 | None], V3],
        *,
        within: Within,
        grace: timedelta,
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join as `left_join` does, where unmatched records of the right stream come out too."""
        return self._joined(StreamJoin("outer_join", name, Bounds.of(within, grace), function), other, value)

    def join_table(
        self, table: "KeyedTable[K, V2]", function: Callable[[V, V2], V3], *, value: Codec[V3] | None = None
    ) -> "KeyedStream[K, V3]":
        """Join each record with the row that a table has for its key now, when the record is handled.

        A change of the table makes no record. Which row a record meets depends on how far the table has come: where that
        must be the same each time, take `join_as_of`.

        Args:
            table: A table of the same group: one that the flow keeps, or one of `Flow.table`.
            function: Called with the value and the row; returns the new value. A record without a row is skipped.
            value: The codec of the new values, as in `map_values`.

        Raises:
            GraphError: The table belongs to another group, its rows are not kept, or a step has changed the keys.
        """
        return self._with_rows("join_table", table, function, value)

    def left_join_table(
        self,
        table: "KeyedTable[K, V2]",
        function: Callable[[V, V2 | None], V3],
        *,
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join as `join_table` does; a record without a row is joined with None."""
        return self._with_rows("left_join_table", table, function, value)

    def join_global(
        self,
        table: Table[K2, V2],
        function: Callable[[V, V2], V3],
        *,
        on: Callable[[V], K2 | None],
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join each record with the row of any key of a global table; each process holds a full copy of the table.

        The records may have any keys and partitions. A change of the table makes no record. Which row a record meets depends
        on how far the copy has come; no record is handled before it has been loaded. Take it for small tables: it is a
        `Lookup` of the group, so it takes the disk of a view in each process.

        Args:
            table: The table; `kept.table` of one that a flow keeps.
            function: Called with the value and the row; returns the new value. A record without a row is skipped.
            on: Takes the key of the row from the value; None: there is no row.
            value: The codec of the new values, as in `map_values`.

        Raises:
            GraphError: It is no `Table`.
        """
        return self._with_global("join_global", table, function, on, value)

    def left_join_global(
        self,
        table: Table[K2, V2],
        function: Callable[[V, V2 | None], V3],
        *,
        on: Callable[[V], K2 | None],
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join as `join_global` does; a record without a row is joined with None."""
        return self._with_global("left_join_global", table, function, on, value)

    def join_as_of(
        self,
        name: str,
        table: "KeyedTable[K, V2]",
        function: Callable[[V, V2], V3],
        *,
        history: timedelta,
        grace: timedelta,
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join each record with the row that a table had for its key at the record's event time.

        The row as of a time is the row after the last change up to that time. A record waits until the watermark has passed
        its time and the grace: then the answer is the same however the inputs are interleaved. The waiting records, and
        the old versions of rows, are kept in the table `<group>-<name>`.

        The rows of `to_table` have the event times of the records that they are made of. A table of `Flow.table` has the
        timestamps of its topic, and does not hold the watermark back: in a backlog, or after a stop, a record may be joined
        before the changes up to its time have been read, with an older row or none. Read the topic as a stream, where that
        matters: `flow.stream(PRICES, tombstones=True).to_table("prices")`.

        Args:
            name: The name of the step, and of its table.
            table: A table of the same group: of `to_table` of a stream of events, of `final` or of `every`, or of `Flow.table`. How
                many changes an aggregate has depends on batches, so it is refused, and also what `to_stream` makes of it.
            function: Called with the value and the row; returns the new value. A record without a row is skipped.
            history: The time that old versions are kept, for late records: a record that is later finds no row.
            grace: The time that a record waits for late changes of the table. A change that is later counts for the
                records from the event time that its input had reached, less the grace, and is counted as late, as are
                records that are later than the history: `streamtable_late_records_total`.
            value: The codec of the new values, as in `map_values`.

        Raises:
            GraphError: As in `join`.
        """
        return self._as_of(AsOfJoin.of("join_as_of", name, function, history, grace), table, value)

    def left_join_as_of(
        self,
        name: str,
        table: "KeyedTable[K, V2]",
        function: Callable[[V, V2 | None], V3],
        *,
        history: timedelta,
        grace: timedelta,
        value: Codec[V3] | None = None,
    ) -> "KeyedStream[K, V3]":
        """Join as `join_as_of` does; a record without a row is joined with None."""
        return self._as_of(AsOfJoin.of("left_join_as_of", name, function, history, grace), table, value)

    def _with_rows(
        self, operator: str, table: "KeyedTable[K, V2]", function: Callable[..., V3], value: Codec[V3] | None
    ) -> "KeyedStream[K, V3]":
        check_part(self._plan, table, f"{operator}()", KeyedTable)
        key = checked_keys(self._key, f"{operator}()")
        check_matching(f"{operator}()", key, table._key)  # noqa: SLF001 - of this package
        rows = table._node  # noqa: SLF001 - of this package
        copartitioned((self._node, rows), operator)
        step = join_rows(rows_of(rows, table._state), function, inner=operator == "join_table")  # noqa: SLF001 - the same
        label = f"{operator} with {rows.label}"
        node = self._plan.add(label, self._node, step=step, reads=rows)
        return self._made(node, self._key, value)

    def _with_global(
        self,
        operator: str,
        table: Table[K2, V2],
        function: Callable[..., V3],
        on: Callable[[V], K2 | None],
        value: Codec[V3] | None,
    ) -> "KeyedStream[K, V3]":
        check_kind(table, f"{operator}()", Table)
        check_function(on, f"{operator}() has on", "takes the key of the row from the value")
        step = join_rows(global_rows_of(table, on), function, inner=operator == "join_global")
        label = f"{operator} with table {table.name}"
        node = self._plan.add(label, self._node, step=step, edges=(Lookup(table),))
        return self._made(node, self._key, value)

    def _as_of(
        self, join: AsOfJoin, table: "KeyedTable[K, Any]", value: Codec[V3] | None
    ) -> "KeyedStream[K, V3]":
        what = f"{join.operator}({join.name!r})"
        check_part(self._plan, table, what, KeyedTable)
        key = checked_keys(self._key, what)
        refuse_windowed(join.operator, key, table._key)  # noqa: SLF001 - of this package
        check_matching(what, key, table._key)  # noqa: SLF001 - the same
        values = checked_codecs(join.operator, join.name, "values", self._value, table._value)  # noqa: SLF001 - of this package
        versions = table._versions  # noqa: SLF001 - the same
        if versions is None:
            raise GraphError(
                f"{what} with {table._node.label}: the versions of its rows depend on how records fall into "  # noqa: SLF001 - the same
                "batches. Join a table of to_table() of a stream of events or of every(name, interval), or one of Flow.table()"
            )
        nodes = self._node, versions
        return self._made(join.added(self._plan, nodes, table._node, key, values), key, value)  # noqa: SLF001 - the same

    def _joined(
        self, join: StreamJoin, other: "KeyedStream[K, Any]", value: Codec[V3] | None
    ) -> "KeyedStream[K, V3]":
        what = f"{join.operator}({join.name!r})"
        check_part(self._plan, other, what, type(self))
        right: StreamJoins[K, Any] = other
        key = checked_keys(self._key, what)
        check_matching(what, key, checked_keys(right._key, what))
        values = checked_codecs(join.operator, join.name, "values", self._value, right._value)
        node = join.added(self._plan, (self._node, right._node), key, values)
        return self._made(node, key, value)
