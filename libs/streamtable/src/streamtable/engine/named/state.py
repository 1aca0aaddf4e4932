"""One partition of a state table: a named table of the group whose rows handlers read and write."""

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any

from streamtable.base.ports import Store
from streamtable.engine.calls.undo import OrderedJournal
from streamtable.engine.due.index import DueIndex, expanded_in_order, indexed
from streamtable.graph.state import State
from streamtable.handlers.state_table import StateTable
from streamtable.tables.indexed_rows import RowsOf
from streamtable.tables.ordered_table import OrderedTable

_INDEXED_MAX = 50_000  # keys
_SAMPLED = 1_000  # keys


class KeptState:
    """The rows of one state table in one partition; see `engine.named.tables.Named`.

    Args:
        state: The state.
        store: The committed rows.
        bytes_max: The maximum size of a record of its topic.
        cache_bytes: About how much memory decoded rows may take.

    Attributes:
        table: The rows.
        journal: Stands in front of them while records are handled carefully.
        handle: The state table as handlers see it.
        index: Finds the rows that are due; None if none ever are.
    """

    def __init__(self, state: State[Any, Any], store: Store, bytes_max: int, cache_bytes: int) -> None:
        self.state = state
        self.store = store
        self.index: DueIndex | None = None
        if state.due is None:
            self.table: OrderedTable[Any] = OrderedTable(store, state.value, cache_bytes)
        else:
            self.table = OrderedTable(RowsOf(store), state.value, cache_bytes)
            self.index = DueIndex(state.due, store, self.table)
        self.journal = OrderedJournal(self.table, bytes_max, state.name)
        self.handle: StateTable[Any, Any] = StateTable(state, self.table)
        self._bytes_max = bytes_max
        # Keys whose entries the last commits have written, where the key alone decides: they need not be written again.
        self._indexed: set[bytes] = set()
        self._writing: list[tuple[bytes, bytes | None]] = []

    def choose_rows(self, *, careful: bool) -> None:
        """Let handlers work on the rows, or on their journal if each record must be undoable alone."""
        self.handle.work_on(self.journal if careful else self.table)

    @property
    def changed_bytes(self) -> int:
        return self.table.changed_bytes

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """Return the records for the changelog. Raises `SerializationError` if a row does not fit its schema or its topic."""
        return self.table.changes(self._bytes_max, self.journal.encoded)

    def rows(self, changes: list[tuple[bytes, bytes | None]]) -> Iterable[tuple[bytes, bytes | None]]:
        due = self.state.due
        if due is None:
            return changes
        if not due.by_key:
            return indexed(due)(self.store, changes)
        self._writing = changes
        assert self.index is not None, "made for states whose rows fall due"
        chunks, in_chunks = self.index.chunk_changes()
        rows = expanded_in_order(due, changes, self._indexed | in_chunks, self.index.noted)
        return chain(chunks, rows)

    def committed(self) -> None:
        self.handle.late = self.handle.offered = 0
        # Rows that are never due have no entries, and one of them may be written by each commit.
        noted: Mapping[bytes, int] = {} if self.index is None else self.index.noted
        written = (key for key, data in self._writing if data is not None and key in noted)
        if not any(map(self.table.is_written, self._indexed)):
            # Rows that are written only once need not be remembered. A few show whether rows are written again.
            self._indexed = set(islice(written, _SAMPLED))
        elif len(self._indexed) > _INDEXED_MAX:
            self._indexed = set(written)
        else:
            self._indexed.update(written)
            self._indexed.difference_update(key for key, data in self._writing if data is None)
        self._writing = []
        self.table.committed()

    def forget(self) -> None:
        self.handle.late = self.handle.offered = 0
        self.table.forget()
