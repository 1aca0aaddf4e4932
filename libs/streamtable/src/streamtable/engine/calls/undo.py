"""The effects of one record, so that it can be undone alone: its rows, its outputs and dead letters.

A handler may change a row in place, so what it found is kept encoded. Most rows cost nothing: one that is as it was at the
last commit is read from the store again, and one that was changed since has been encoded when its own record was kept.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streamtable.base.types import RecordBatch
from streamtable.engine.output.buffer import OutputBuffer, OutputSource
from streamtable.errors import SerializationError
from streamtable.graph.group import OnError
from streamtable.tables.joined import Joined
from streamtable.tables.ordered_table import OrderedTable
from streamtable.tables.working_table import WorkingTable, refuse_if_larger

V = TypeVar("V")

_NEVER_MS = 1 << 63


class RowJournal(Generic[V]):
    """Stands in front of a table and notes each row that a record reads or writes.

    Args:
        table: The table of the rows.
        bytes_max: The most that an encoded row and its key may have.
        name: The name of the table, for errors.

    Attributes:
        encoded: The rows changed since the last commit, as the commit is to write them.
    """

    def __init__(self, table: WorkingTable[V], bytes_max: int, name: str) -> None:
        self.encoded: dict[bytes, bytes | None] = {}
        self._table = table
        self._name = name
        self._bytes_max = bytes_max
        self._found: dict[bytes, tuple[bool, bytes | None]] = {}  # whether it had been changed, and to what
        self._written: set[bytes] = set()

    # ---- as of a table -------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> V | None:
        self._note(key)
        return self._table.get(key)

    def get_many(self, keys: Iterable[bytes]) -> list[V | None]:
        keys = list(keys)
        for key in keys:
            self._note(key)
        return self._table.get_many(keys)

    def changing(self, keys: Iterable[bytes]) -> dict[bytes, V | None]:
        keys = set(keys)
        for key in keys:
            self._note(key)
        self._written |= keys
        return self._table.changing(keys)

    def put(self, key: bytes, value: V | None) -> None:
        self._note(key)
        self._written.add(key)
        self._table.put(key, value)

    # ---- around a record -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a record; the effects of the one before it are kept."""
        self._found = {}
        self._written = set()

    def written(self) -> list[tuple[bytes, bytes | None]]:
        """Return the rows that the record has written, encoded. Raises `SerializationError` if one does not fit."""
        encoded = []
        for key in self._written:
            try:
                data = self._table.encoded(key)
                if len(key) + len(data or b"") > self._bytes_max:
                    refuse_if_larger(len(key) + len(data or b""), self._bytes_max, "it")
            except SerializationError as error:
                raise SerializationError(
                    f"the row of {self._name!r} for key {key[:100]!r} cannot be written: {error.message}"
                ) from error
            encoded.append((key, data))
        return encoded

    def undo(self) -> None:
        """Put the rows back as the record found them."""
        for key, (changed, data) in self._found.items():
            self._table.restore(key, data, changed=changed)

    def forget(self) -> None:
        """Forget the rows: they are committed or dropped."""
        self.begin()
        self.encoded = {}

    def _note(self, key: bytes) -> None:
        if key not in self._found:
            if not self._table.is_changed(key):
                self._found[key] = False, None
            elif key in self.encoded:
                self._found[key] = True, self.encoded[key]
            else:
                self._found[key] = True, self._table.encoded(key)


class OrderedJournal(RowJournal[V]):
    """A `RowJournal` in front of a state table."""

    _table: OrderedTable[V]

    def __init__(self, table: OrderedTable[V], bytes_max: int, name: str) -> None:
        super().__init__(table, bytes_max, name)
        self._fresh: dict[bytes, bool] = {}  # whether the table's index was still to look at the row

    def begin(self) -> None:
        super().begin()
        self._fresh = {}

    def undo(self) -> None:
        super().undo()
        if self._table.fresh is not None:
            self._table.fresh.difference_update(key for key, fresh in self._fresh.items() if not fresh)

    def _note(self, key: bytes) -> None:
        super()._note(key)
        if self._table.fresh is not None:
            self._fresh.setdefault(key, key in self._table.fresh)

    def replace(self, gone: Collection[bytes], made: Mapping[bytes, V], new: Collection[bytes]) -> None:  # noqa: ARG002
        """As `OrderedTable.replace`, but row by row: each must be undoable."""
        for key in gone:
            self.put(key, None)
        for key, row in made.items():
            self.put(key, row)

    def append(self, keys: Sequence[bytes], rows: Sequence[V], due_ms: Sequence[int]) -> None:  # noqa: ARG002
        """As `OrderedTable.append`, but row by row, as `replace`."""
        for key, row in zip(keys, rows, strict=True):
            self.put(key, row)

    @property
    def log(self) -> "OrderedJournal[V]":
        """See `StateRows.log`."""
        return self

    @property
    def notes(self) -> dict[bytes, Any]:
        """Nothing is remembered: a record that is undone would have to be forgotten."""
        self._table.forget_notes()
        return {}

    @property
    def commits(self) -> int:
        """As `OrderedTable.commits`."""
        return self._table.commits

    @property
    def cache_bytes(self) -> int:
        """As `OrderedTable.cache_bytes`."""
        return self._table.cache_bytes

    def gone_before_ms(self) -> int:
        """As `OrderedTable.gone_before_ms`."""
        return self._table.gone_before_ms()

    def last_due_ms(self) -> int | None:
        """Nothing is known: to look at all rows that have changed would cost each record."""
        return _NEVER_MS

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, at_once: int = 256
    ) -> Iterator[tuple[bytes, V]]:
        """As `OrderedTable.scan`."""
        for key, row in self._table.scan(start, end, at_once=at_once):
            self._note(key)  # before the handler changes the row in place
            yield key, row

    def ranges(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, V]]]:
        """As `OrderedTable.ranges`."""
        return [list(self.scan(start, end)) for start, end in bounds]

    def stored(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """As `OrderedTable.stored`, with those that are new since the last commit: no step remembers them."""
        keys = [key for rows in self.ranges(bounds) for key, _ in rows]
        return [(key, data) for key in keys if (data := self._table.peek_encoded(key)) is not None]


@dataclass(eq=False)
class RecordUndo:
    """Undoes the effects of a handler for one record or for a few consecutive ones.

    Args:
        rows: The rows of the group's table; None if it keeps none.
        states: The rows of its state tables.
        outgoing: Collects the outputs.
        joins: Handlers may have changed their rows in place.
    """

    rows: RowJournal[Any] | None
    states: Sequence[RowJournal[Any]]
    _outgoing: OutputBuffer
    _joins: Joined

    def __post_init__(self) -> None:
        self._journals = [*([] if self.rows is None else [self.rows]), *self.states]
        self._outputs = self._output_bytes = self._dead_letters = 0

    def begin(self) -> None:
        """Note the state before the next record."""
        outgoing = self._outgoing
        self._outputs = len(outgoing.records)
        self._output_bytes, self._dead_letters = outgoing.bytes, len(outgoing.dead_letters)
        if self._outputs > len(outgoing.sources):
            outgoing.made_by(None)  # the engine itself
        for journal in self._journals:
            journal.begin()

    def keep(self, records: RecordBatch, index: int, on_error: OnError) -> None:
        """Keep the effects of this record since `begin`. Raises `SerializationError` if they do not fit and must be undone."""
        self._keep_rows()
        if len(self._outgoing.records) > self._outputs:
            self._outgoing.made_by(OutputSource(records, index, on_error))

    def keep_unsourced(self) -> None:
        """Keep effects that no record has made. Raises like `keep`."""
        self._keep_rows()
        self._outgoing.made_by(None)

    def _keep_rows(self) -> None:
        encoded = [journal.written() for journal in self._journals]  # all, before any of it stands
        for journal, rows in zip(self._journals, encoded, strict=True):
            journal.encoded.update(rows)

    def undo(self, keys: Iterable[bytes]) -> None:
        """Undo everything since `begin`.

        Args:
            keys: The keys whose joined rows the handler could reach.
        """
        for journal in self._journals:
            journal.undo()
        self._outgoing.back_to(self._outputs, self._output_bytes, self._dead_letters)
        for joined in self._joins.values():
            joined.decode_again(keys)

    def forget(self) -> None:
        """Forget everything: it is committed or dropped."""
        for journal in self._journals:
            journal.forget()
