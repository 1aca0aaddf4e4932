"""The tables of one partition of a group, as its task reads and writes them."""

from typing import Any

from streamtable.base.clock import Clock
from streamtable.base.deadletter import RECORD_OVERHEAD_BYTES
from streamtable.base.ports import Store
from streamtable.base.topics import Table
from streamtable.engine.basetask import Changed, Recovered
from streamtable.engine.named.handled import HandledRows
from streamtable.engine.named.ids import IdTable
from streamtable.engine.named.meanings import StateRecords
from streamtable.engine.named.state import KeptState
from streamtable.engine.named.tables import Named
from streamtable.graph.group import HANDLED, IDS, STATES, Group
from streamtable.tables.joined import JoinedTable
from streamtable.tables.working_table import WorkingTable

_FILTER_BYTES_MAX = 4 << 20  # of a partition: for three million ids at the full effect


class PartitionTables:
    """The tables of one partition. Their uncommitted changes are dropped as a whole.

    Args:
        group: The graph.
        recovered: The partition, with its tables complete.
        cache_bytes: The size of the cache of decoded rows.
        clock: The clock, for the times of ids.

    Attributes:
        own: The rows of the group's table; None if the group keeps none.
        ids: The ids of the events that count once; None if no input has `once`.
        handled: The rows that the handlers of `Changes` were given last; None if there are none.
        records: The meanings of the state tables, and the progress of rows that fall due; None if there are no state tables.
        states: The state tables.
        named: The named tables of the group, by their names: all these but its own.
        joins: The partition's part of each joined table.
    """

    def __init__(self, group: Group[Any, Any], recovered: Recovered, cache_bytes: int, clock: Clock) -> None:
        self._group = group
        self._recovered = recovered
        self.own = self._own_table(cache_bytes)
        self.named = dict[str, Named]()
        self.ids: IdTable | None = None
        self.handled: HandledRows | None = None
        self.records: StateRecords | None = None
        if IDS in group.named_tables:
            self.named[IDS] = self.ids = IdTable(
                self._store_of(IDS), group.inputs, self._bytes_max(IDS), _FILTER_BYTES_MAX, clock
            )
        if HANDLED in group.named_tables:
            self.named[HANDLED] = self.handled = HandledRows(
                self._store_of(HANDLED), self._bytes_max(HANDLED)
            )
        if STATES in group.named_tables:
            self.named[STATES] = self.records = StateRecords(self._store_of(STATES))
        self.states = [
            KeptState(state, self._store_of(state.name), self._bytes_max(state.name), cache_bytes)
            for state in group.all_states
        ]
        self.named |= {kept.state.name: kept for kept in self.states}
        self.joins = self._joined_tables(cache_bytes)
        own = [] if self.own is None else [self.own]
        self._all: list[Any] = [*own, *self.joins.values(), *self.named.values()]
        self._decoded: list[WorkingTable[Any]] = [*own, *(kept.table for kept in self.states)]
        self.cache(cache_bytes)

    def _own_table(self, cache_bytes: int) -> WorkingTable[Any] | None:
        if self._group.persist is None:
            return None
        # Not `group.table`, which is for readers: a group may show them less of its rows than it keeps.
        own = Table(self._group.table.name, self._group.key, self._group.persist.value)
        return WorkingTable(self._recovered.stores[own.name], own.value, cache_bytes)

    def _joined_tables(self, cache_bytes: int) -> dict[str, JoinedTable[Any]]:
        # If changes are handled, a table is loaded only to the committed offset, whatever its time.
        handled = {change.table.name for change in self._group.changes}
        joins = {
            join.table.name: JoinedTable(
                join.table.name,
                self._recovered.stores[join.table.name],
                join.table.value,
                cache_bytes,
                timed=bool(join.wait),
                time_ms=-1 if join.table.name in handled else int(self._recovered.loaded_at * 1000),
            )
            for join in self._group.joins
        }
        for name, (rows, end) in self._recovered.unread.items():
            joins[name].expect(rows, end)
        return joins

    def _store_of(self, name: str) -> Store:
        return self._recovered.stores[self._group.named_topic(name)]

    def _bytes_max(self, name: str) -> int:
        topic = self._recovered.topics[self._group.named_topic(name)]
        return topic.max_message_bytes - RECORD_OVERHEAD_BYTES

    def cache(self, bytes_max: int) -> None:
        """Set about how much memory decoded rows of all tables, and the filter of new ids, may take."""
        if self.ids is not None:
            filter_bytes = min(_FILTER_BYTES_MAX, bytes_max // 4)
            self.ids.filter_bytes(filter_bytes)
            bytes_max -= filter_bytes
        tables: list[Any] = [*self.joins.values(), *self._decoded]
        for table in tables:
            table.cache_bytes = bytes_max // len(tables)

    @property
    def changed(self) -> Changed:
        """The size of their changes since the last commit."""
        return Changed(
            sum(each.changed_bytes for each in self._all), sum(each.changed_memory for each in self._decoded)
        )

    def committed(self) -> None:
        """Forget the changes: they are in the stores now."""
        for each in self._all:
            each.committed()

    def forget(self) -> None:
        """Drop the changes since the last commit."""
        for each in self._all:
            each.forget()
