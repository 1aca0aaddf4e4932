"""Transactions of a database over several tables, put together again from the topics of a connector.

The changes of a transaction are spread over topics and partitions, and come in any order. The connector says in a topic of its
own that a transaction has ended, and how many changes each table has of it. A transaction counts when all of them have come,
and all transactions before it count.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec import Struct

from streamtable.errors import ConfigurationError, StreamtableError
from streamtable_capture.change import DatabaseChange
from streamtable_capture.positions import Position, beyond, later_of, position_of
from streamtable_capture.rows import RowType

_POSTGRES_ID = re.compile(r"^(\d+):(\d+)$")
_APPLIED_KEPT = 10_000


class TableCount(Struct, frozen=True):
    """The number of changes that a transaction has of a table."""

    data_collection: str
    event_count: int


class TransactionMark(Struct, frozen=True):
    """A record of the connector's topic of transactions: the begin or the end of one."""

    status: str
    id: str
    ts_ms: int = 0
    data_collections: list[TableCount] | None = None

    @property
    def position(self) -> int | None:
        """The position of its end in PostgreSQL's log; None elsewhere."""
        found = _POSTGRES_ID.match(self.id)
        return int(found[2]) if found else None


def name_of(transaction_id: str) -> str:
    """Return what the records of one transaction have in common: PostgreSQL's connector changes the position behind it."""
    found = _POSTGRES_ID.match(transaction_id)
    return found[1] if found else transaction_id


class ValueMissing(StreamtableError):
    """A change lacks the value of a column, and no row has it: the topic does not begin with the table."""


class ReadChange(NamedTuple):
    """A change as it was read.

    Attributes:
        key: Its key; None of a truncation.
        change: The change.
        new_key: The key that the row has after it, if the key has changed.
    """

    key: Any
    change: DatabaseChange[Any]
    new_key: Any = None


@dataclass
class TableAtOnce:
    """The rows of a table at the last transaction that counts.

    Attributes:
        rows: The rows by key.
    """

    types: RowType[Any]
    rows: dict[Any, Any] = field(default_factory=dict)
    _positions: dict[Any, Position] = field(default_factory=dict)  # also of deleted rows
    _cleared: Position | None = None  # by the last truncation
    _moved: dict[Any, dict[str, Any]] = field(default_factory=dict)  # within one transaction

    def apply(self, read: ReadChange) -> None:
        """Apply a change, unless it is known: without positions each one is new. Raises `ValueMissing`."""
        change, key, position = read.change, read.key, position_of(read.change)
        if change.op == "t":
            self._clear(position)
            return
        last = later_of(self._positions.get(key), self._cleared)
        if position is not None and last is not None and beyond(position, last) is False:
            return
        if change.deletes:
            row = self.rows.pop(key, None)
            if read.new_key is not None and row is not None:
                self._moved[read.new_key] = self.types.columns(row)
        elif change.unavailable:
            self.rows[key] = self._merged(read)
        else:
            self.rows[key] = change.after
        if position is not None:
            self._positions[key] = position

    def end_transaction(self) -> None:
        """Forget the rows whose keys have changed in it."""
        self._moved.clear()

    def _merged(self, read: ReadChange) -> Any:
        row, missing = self.rows.get(read.key), read.change.unavailable
        old = self._moved.get(read.key, {}) if row is None else self.types.columns(row)
        if lacking := [each for each in missing if each not in old]:
            table = read.change.source.qualified_table
            raise ValueMissing(
                f"the value of {', '.join(map(repr, lacking))} in table {table!r} is unavailable, and there is no row to take it "
                "from: the topic does not begin with the table, or the table has got the column since. Take a new snapshot to a new "
                f"topic, or set ALTER TABLE {table} REPLICA IDENTITY FULL"
            )
        return self.types.converted({**(read.change.known or {}), **{each: old[each] for each in missing}})

    def _clear(self, position: Position | None) -> None:
        self._cleared = later_of(self._cleared, position)
        for key in list(self.rows):
            last = self._positions.get(key)
            if position is None or last is None or beyond(position, last):
                del self.rows[key]


@dataclass
class _Pending:
    """The part of a transaction that has come: its changes, and by table how many different ones."""

    changes: list[tuple[str, ReadChange]] = field(default_factory=list)
    seen: dict[str, set[Any]] = field(default_factory=dict)


class TransactionOrder:
    """Applies changes to tables, one transaction after the other.

    Args:
        tables: The tables by their names in the database, such as `public.customers`. Another name does as well once a change
            of the table was read: it says the table.

    Attributes:
        applied: The id of the last transaction that counts; None before the first.
        steps: The number of transactions that were applied.
        caught_up: Whether transactions are applied as they end; before `catch_up` they wait.
    """

    def __init__(self, tables: Mapping[str, TableAtOnce]) -> None:
        self._tables = tables
        self._named = {name: name for name in tables}  # also by the names that their changes have
        self._pending: dict[str, _Pending] = {}
        self._ended = OrderedDict[str, tuple[TransactionMark, float]]()
        self._known = OrderedDict[str, Container[str]]()  # with the tables that their ends have counted
        self._outside: list[tuple[str, ReadChange]] = []  # of snapshots: they belong to no transaction
        self._until: int | None = None
        self.applied: str | None = None
        self.steps = 0
        self.caught_up = False

    def read(self, table: str, read: ReadChange) -> None:
        """Take a change. Raises `ConfigurationError` for one that no end of a transaction has counted or will count."""
        source, transaction = read.change.source, read.change.transaction
        self._named[source.qualified_table] = self._named[f"{source.db}.{source.qualified_table}"] = table
        if transaction is None:
            self._read_outside(table, read)
            return
        name = name_of(transaction.id)
        if name in self._known:
            # The connector repeats it; were it none of those that counted, it would be applied late rather than never.
            self._apply(table, read, self._known[name])
            return
        pending = self._pending.setdefault(name, _Pending())
        seen = pending.seen.setdefault(table, set())
        # Without positions the connector's number says which changes of a row are different ones.
        place = position_of(read.change) or transaction.total_order
        mark = (read.key, repr(place), read.change.op)
        if mark not in seen:
            seen.add(mark)
            pending.changes.append((table, read))

    def ended(self, mark: TransactionMark, at: float = 0.0) -> None:
        """Take the end of a transaction, and the time when it was read; ends come in the order of the transactions."""
        name = name_of(mark.id)
        if mark.status == "END" and name not in self._known:
            self._ended.setdefault(name, (mark, at))

    def catch_up(self) -> None:
        """Begin to apply: all that the topics have had at the start was read."""
        self.caught_up = True
        self._apply_outside()

    def step(self) -> bool:
        """Apply the next transaction, if all of it has come. Raises `ValueMissing`, and `ConfigurationError` as `read`."""
        if not self.caught_up or not self._ended or self.missing():
            return False
        name, (mark, _) = self._ended.popitem(last=False)
        pending, counted = self._pending.pop(name, _Pending()), frozenset(self._counts(mark))
        self._until = mark.position
        self._apply_outside()  # first: the transaction may have changed these rows, and lack values that they have
        for table, read in sorted(pending.changes, key=_place):
            self._apply(table, read, counted)
        for each in self._tables.values():
            each.end_transaction()
        self._known[name] = counted
        if len(self._known) > _APPLIED_KEPT:
            self._known.popitem(last=False)
        self.applied, self.steps = mark.id, self.steps + 1
        return True

    def missing(self) -> Mapping[str, int]:
        """Return how many changes of the next transaction have not come, by table; empty if none is waited for."""
        if self.next_ended is None:
            return {}
        mark, _ = self.next_ended
        seen = self._pending.get(name_of(mark.id), _Pending()).seen
        left = {table: count - len(seen.get(table, ())) for table, count in self._counts(mark).items()}
        return {table: count for table, count in left.items() if count > 0}

    @property
    def next_ended(self) -> tuple[TransactionMark, float] | None:
        """The next transaction, which has ended and does not count yet, and the time when its end was read."""
        return next(iter(self._ended.values()), None)

    def _counts(self, mark: TransactionMark) -> Mapping[str, int]:
        """Return how many changes of each table a transaction has; tables that are not read are missing."""
        found = Counter[str]()
        for each in mark.data_collections or ():
            if each.data_collection in self._named:
                found[self._named[each.data_collection]] += each.event_count
        return found

    def _apply(self, table: str, read: ReadChange, counted: Container[str]) -> None:
        """Apply a change of a transaction. Raises `ConfigurationError` if no table has waited for it."""
        if table not in counted:
            raise ConfigurationError(
                f"the end of a transaction did not count changes of {read.change.source.qualified_table!r} for {table!r}, and it has "
                "some: give the codec of its topic table=, as Debezium(Row, table=...), and start the views again"
            )
        self._tables[table].apply(read)

    def _read_outside(self, table: str, read: ReadChange) -> None:
        """Take a row of a snapshot. It is applied at once if it cannot be ahead of the last transaction that counts."""
        if self.caught_up and read.change.op in {"c", "u", "d"}:
            raise ConfigurationError(
                f"a change of {read.change.source.qualified_table!r} has no transaction: set provide.transaction.metadata=true, and "
                "do not flatten the records"
            )
        begun = self._pending or self._ended or self.applied is not None
        # Before the first transaction only a row of an incremental snapshot can have a change of one.
        incremental = read.change.source.snapshot == "incremental"
        waits = (self._until is None or self._is_ahead(read)) if begun else incremental
        self._show(table, read, waits=waits or not self.caught_up)

    def _apply_outside(self) -> None:
        """Apply rows of snapshots: after the start only up to the end of a transaction, as they may be ahead of it."""
        rows, self._outside = self._outside, []
        for table, read in rows:
            self._show(table, read, waits=self._is_ahead(read))

    def _show(self, table: str, read: ReadChange, *, waits: bool) -> None:
        if waits:
            self._outside.append((table, read))
        else:
            self._tables[table].apply(read)

    def _is_ahead(self, read: ReadChange) -> bool:
        """Whether a row of a snapshot may have changes that were made after the last transaction."""
        position = position_of(read.change)
        return self._until is not None and isinstance(position, int) and position >= self._until


def _place(entry: tuple[str, ReadChange]) -> tuple[int, int]:
    """Return the place of a change in its transaction: its position, and of equal ones the number that the connector gives."""
    change = entry[1].change
    position, number = position_of(change), change.transaction.total_order if change.transaction else 0
    return (position if isinstance(position, int) else 0), number
