"""Tables of a flow: rows by key, and the steps that follow their changes."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from streamtable.base.ports import Codec
from streamtable.base.topics import Table, legal_codec
from streamtable.errors import GraphError
from streamtable.flow import steps
from streamtable.flow.checks import check_duration, check_function
from streamtable.flow.folds.emission import EmitLater, PendingRow, pending_changes
from streamtable.flow.folds.folds import Keep, Keeping, Retractable, Take, taken, taking
from streamtable.flow.plan.nodes import DueRecords, Node, Source, sources_of
from streamtable.flow.plan.plan import Plan
from streamtable.flow.table_joins import TableJoins
from streamtable.flow.windows.pending import PendingKey, emitted_at
from streamtable.graph.aggregate import Aggregate
from streamtable.graph.due import Due
from streamtable.graph.state import State

if TYPE_CHECKING:
    from streamtable.flow.grouped import GroupedTable
    from streamtable.flow.stream import KeyedStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")

_MS = timedelta(milliseconds=1)


class KeyedTable(TableJoins[K, V]):
    """Rows of type `V` by keys of type `K`: a table that the flow keeps, or reads, or a view of one.

    Steps after it get its changes: for each key and batch of records the row before and the row after. How often a row
    changes in between depends on how records are divided into batches; the last change of a row does not. So functions behind a
    table must not raise for any row: the record that has made the row would be undone with it, or not, as batches fall.

    Tables are made by `Flow.table` and by steps, not by programs.
    """

    def __init__(
        self,
        plan: Plan,
        node: Node,
        key: Codec[K],
        value: Codec[V] | None,
        kept: Callable[[], Table[K, V]] | None,
    ) -> None:
        self._plan, self._node, self._key, self._value = plan, node, key, value
        if value is not None:
            legal_codec(value, "value", node.label)
        self._kept = kept
        self._state: State[K, V] | None = None
        self._versions: Node | None = None  # whose records are the versions of the rows, each of them
        # The function from an encoded key to the time when its window closes; None: there are no windows.
        self._closes_at: Callable[[bytes, bytes], int | None] | None = None

    @classmethod
    def kept(
        cls, plan: Plan, node: Node, keep: Keeping, take: Take | None, *helpers: State[Any, Any]
    ) -> "KeyedTable[K, V]":
        """Return the table that a step keeps, in which it folds the records of a node.

        Args:
            plan: The plan of the flow.
            node: The node.
            keep: The step.
            take: Takes numbers from the records first; None: there is nothing to take.
            helpers: Other tables of the step.
        """
        state = keep.state
        step, leaf = taking(take, keep)
        label, edges = f"{state.meaning} {state.name!r}", (state, *helpers)
        own = plan.add(label, node, step=step, leaf=leaf, edges=edges, makes=state.name)
        table = KeyedTable(plan, own, state.key, state.value, lambda: plan.table_of(node.group, state))
        table._state = state
        return table

    @property
    def table(self) -> Table[K, V]:
        """The table for views: `app.view(counts.table)`.

        Raises:
            GraphError: The rows are not kept: this is a view of tables by `filter`, `map_values` or a join.
        """
        if self._kept is None:
            raise GraphError(
                f"the rows of {self._node.label}() are not kept: view the table before it, or keep them by to_stream().to_table(name)"
            )
        return self._kept()

    @overload
    def filter(self, predicate: Callable[[V], object]) -> "KeyedTable[K, V]": ...
    @overload
    def filter(
        self, predicate: Callable[[K, V], object], *, with_key: Literal[True]
    ) -> "KeyedTable[K, V]": ...
    def filter(self, predicate: Callable[..., object], *, with_key: bool = False) -> "KeyedTable[K, V]":
        """Keep the rows that match the predicate; a row that no longer matches is deleted.

        Args:
            predicate: Called with the row, or with key and row; never with None.
            with_key: Call it with key and row.
        """
        step = steps.filter_rows(predicate, with_key=with_key)
        return self._derived("filter", step, self._value)

    @overload
    def map_values(
        self, function: Callable[[V], V2], *, value: Codec[V2] | None = None
    ) -> "KeyedTable[K, V2]": ...
    @overload
    def map_values(
        self, function: Callable[[K, V], V2], *, with_key: Literal[True], value: Codec[V2] | None = None
    ) -> "KeyedTable[K, V2]": ...
    def map_values(
        self, function: Callable[..., V2], *, with_key: bool = False, value: Codec[V2] | None = None
    ) -> "KeyedTable[K, V2]":
        """Replace each row by the result of the function. It must always return the same result for the same row.

        Args:
            function: Called with the row, or with key and row; never with None: a deletion stays one.
            with_key: Call it with key and row.
            value: The codec of the new rows, for a step behind that writes them to a topic of the flow's own.
        """
        step = steps.map_rows(function, with_key=with_key)
        return self._derived("map_values", step, value)

    def to_stream(self) -> "KeyedStream[K, V | None]":
        """Return the changes as records: the new row, or None for a deleted one."""
        from streamtable.flow.stream import KeyedStream  # noqa: PLC0415 - each is made by the other

        node = self._plan.add("to_stream", self._node, step=steps.rows_as_records, as_records=True)
        value: Codec[Any] | None = self._value  # a tombstone needs no codec
        return KeyedStream(self._plan, node, self._key, value)

    def every(self, name: str, interval: timedelta) -> "KeyedStream[K, V | None]":
        """Return the changes as records, at most one for each row and interval of event time: the row as it is by then.

        A row that has changed comes out when event time has reached the end of the interval, or when its window closes, so
        the last record of a window is its final row. Intervals are aligned to 1970. None is the value of a row that was
        deleted, or of a session that was merged into another. The event time of a record is the last millisecond before it
        comes out.

        Args:
            name: The name of the step: the changes that wait are kept in the table `<group>-<name>`.
            interval: The length of an interval.

        Raises:
            GraphError: The interval is no duration of whole milliseconds, or a step has changed the rows. When the flow is
                compiled: the group reads tables alone, which have no event time.
        """
        from streamtable.flow.stream import KeyedStream, checked_value  # noqa: PLC0415 - each is made by the other

        check_duration(interval, f"every({name!r}) has interval", _MS)
        rows = checked_value(self._value, f"every({name!r})")
        plan, emitted, ms = self._plan, DueRecords(self._key, pending_changes), interval // _MS
        plan.claim(name, "every")
        # The event time of a record is the last millisecond before it comes out.
        due: Due[Any, Any] = Due(emitted_at, emitted, by_key=True, on_error=plan.on_error, holds=_MS)
        made = self._node
        while made.parents and not made.edges:  # steps without a name come and go
            (made,) = made.parents
        meaning = f"changes of {made.label}, emitted every {ms} ms"
        pending = State(name, key=PendingKey(self._key), value=PendingRow(rows), due=due, meaning=meaning)
        sources = [each.source for each in sources_of(self._node) if each.source is not None]
        topics = {each.topic.name for each in sources}
        fed = any(each.feeds in topics for each in plan.nodes)
        apart = len(topics) > 1 or fed or any(each.kind == "closed" for each in sources)
        step = EmitLater(pending, ms, self._closes_at, apart)
        more: dict[str, Any] = {"windowed": True, "interval_ms": ms, "as_records": True}
        plan.add(f"every {ms} ms {name!r}", self._node, step=step, edges=(pending,), **more)
        source = Source(pending, emitted.edge, kind="pending", due=emitted)
        node = plan.add(f"emitted {name!r}", group=self._node.group, source=source)
        value: Codec[Any] = rows  # a tombstone needs no codec
        return KeyedStream(plan, node, self._key, value)

    @overload
    def group_by(
        self, name: str, function: Callable[[V], K2], *, key: Codec[K2], value: Codec[V] | None = None
    ) -> "GroupedTable[K2, V]": ...
    @overload
    def group_by(
        self,
        name: str,
        function: Callable[[K, V], K2],
        *,
        with_key: Literal[True],
        key: Codec[K2],
        value: Codec[V] | None = None,
    ) -> "GroupedTable[K2, V]": ...
    def group_by(
        self,
        name: str,
        function: Callable[..., K2],
        *,
        key: Codec[K2],
        value: Codec[V] | None = None,
        with_key: bool = False,
    ) -> "GroupedTable[K2, V]":
        """Group the rows by another key, to aggregate them. When a row changes, the old one is taken away from its group
        and the new one added, perhaps to another group.

        Args:
            name: The name of the step; the rows go through the topic `<flow>-<name>`.
            function: Called with the row, or with key and row. It must be deterministic.
            key: The codec of the new keys.
            value: The codec of the rows; by default their present one.
            with_key: Call it with key and row.
        """
        from streamtable.flow.grouped import GroupedTable  # noqa: PLC0415 - each is made by the other
        from streamtable.flow.stream import checked_value, through  # noqa: PLC0415 - the same

        check_function(function, f"group_by({name!r}) has function", "takes the key from the row")
        codec = checked_value(value or self._value, f"group_by({name!r})")
        step = steps.retractions(function, with_key=with_key)
        node = self._plan.add("retract and add", self._node, step=step)
        behind = through(self._plan, node, name, "group_by", key, Retractable(codec))
        return GroupedTable(self._plan, behind._node, key, codec)  # noqa: SLF001 - of this package

    def _derived(self, label: str, step: Any, value: Codec[Any] | None) -> "KeyedTable[K, Any]":
        node = self._plan.add(label, self._node, step=step)
        table: KeyedTable[K, Any] = KeyedTable(self._plan, node, self._key, value, None)
        table._closes_at = self._closes_at
        return table


def kept_table(
    plan: Plan,
    node: Node,
    name: str,
    aggregate: Aggregate[Any, V],
    key: Codec[K],
    value: Codec[V],
    operator: str = "",
) -> KeyedTable[K, V]:
    """Fold the records of a node into a state table of its group."""
    operator = operator or aggregate.meaning
    plan.claim(name, operator)
    state = State(name, key=key, value=value, meaning=operator)
    take, aggregate = taken(aggregate)
    return KeyedTable.kept(plan, node, Keep(state, aggregate), take)
