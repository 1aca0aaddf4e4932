"""A partition of a state table in a task: a working table whose rows, committed or not, can be scanned in key order."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from streamtable.base.ports import Codec, CommittedRows
from streamtable.tables.working_table import WorkingTable

V = TypeVar("V")

_ROWS_AT_ONCE = 256
_FIRST = itemgetter(0)
_INSERTED_MAX = 32  # keys; more are sorted together
_APPENDED_BYTES = 300  # of memory beside an appended row: when it is due, and what a step remembers of it


class DueTimes(Protocol):
    """The due times of the rows of a table. `engine.due.index.DueIndex` implements this protocol."""

    def gone_before_ms(self) -> int: ...
    def last_ms(self) -> int | None: ...
    def appended(self, keys: Sequence[bytes], times: Sequence[int]) -> None: ...


class OrderedTable(WorkingTable[V]):
    """The rows of one partition by encoded key, with scans over committed and uncommitted rows. One thread.

    Args:
        store: The committed rows. The table never writes to it.
        codec: The codec of the rows.
        cache_bytes: About how much memory decoded rows may take, beside those that have changed since the last commit.

    Attributes:
        fresh: The keys that were changed or restored since the index over the rows was last updated; None: there is no index.
        notes: The cache of a step; see `ExpiringLog.notes`.
        commits: The number of commits so far.
        due: The due times of the rows; None: they never fall due.
    """

    due: DueTimes | None = None

    def __init__(self, store: CommittedRows, codec: Codec[V], cache_bytes: int) -> None:
        super().__init__(store, codec, cache_bytes)
        self.fresh: set[bytes] | None = None
        self.notes: dict[bytes, Any] = {}
        self.commits = 0
        self._touched: set[bytes] | None = None  # changed since `_ordered` was made; None: it is not in use
        self._ordered: list[bytes] = []  # changed since the last commit, and perhaps restored since
        self._new: set[bytes] = set()  # rows that the store certainly does not have
        self._replaced: set[bytes] = set()  # deleted rows that will hardly be read again
        self._appended: list[Sequence[bytes]] = []  # rows that will hardly be read again

    @property
    def log(self) -> "OrderedTable[V]":
        """See `StateRows.log`."""
        return self

    @property
    def changed_memory(self) -> int:
        return super().changed_memory + _APPENDED_BYTES * sum(map(len, self._appended))

    def changing(self, keys: Iterable[bytes]) -> dict[bytes, V | None]:
        keys = set(keys)
        self._note(keys)
        return super().changing(keys)

    def put(self, key: bytes, value: V | None) -> None:
        super().put(key, value)
        self._note((key,))

    def forget_notes(self) -> None:
        """Empty `notes`."""
        self.notes = {}

    def replace(self, gone: Collection[bytes], made: Mapping[bytes, V], new: Collection[bytes]) -> None:
        """Write rows and delete those that they replace. A row that is created and deleted between two commits costs no record.

        Args:
            gone: The keys of the rows to delete; none of them is in `made`.
            made: The rows to write.
            new: The keys of those in `made` that the table did not have before.
        """
        self._new.update(set(new) - self._changed)
        never = self._new.intersection(gone)
        for key in never:
            self._rows.pop(key, None)
        deleted = dict.fromkeys(set(gone) - never)
        self._rows.update(deleted)
        self._rows.update(made)
        self._replaced.update(deleted)
        for keys in (self._changed, self._touched, self.fresh):
            if keys is not None:
                keys.difference_update(never)
                keys.update(deleted, made)

    def append(self, keys: Sequence[bytes], rows: Sequence[V], due_ms: Sequence[int]) -> None:
        """Write rows with new keys that will hardly be read again.

        Args:
            keys: Their keys.
            rows: The rows.
            due_ms: The due time of each row, which depends on its key alone, in milliseconds since 1970.
        """
        self._rows.update(zip(keys, rows, strict=True))
        self._changed.update(keys)
        self._appended.append(keys)
        if self._touched is not None:
            self._touched.update(keys)
        if self.due is not None:
            self.due.appended(keys, due_ms)

    def restore(self, key: bytes, data: bytes | None, *, changed: bool) -> None:
        super().restore(key, data, changed=changed)
        self._note((key,))
        self.forget_notes()

    def committed(self) -> None:
        self.commits += 1
        for keys in self._appended:
            for key in keys:
                self._rows.pop(key, None)
        for key in self._replaced:
            if self._rows.get(key, key) is None:
                del self._rows[key]
        super().committed()
        self._unchanged()

    def forget(self) -> None:
        super().forget()
        self._unchanged()
        self.forget_notes()

    def changed_row(self, key: bytes) -> V | None:
        """Return a row that was changed since the last commit; None if it was deleted."""
        return self._rows.get(key)

    def is_written(self, key: bytes) -> bool:
        """Whether a row was changed since the last commit, and not deleted."""
        return key in self._changed and self._rows.get(key) is not None

    def changed_keys(self) -> list[bytes]:
        """Return the keys of the rows that were changed or deleted since the last commit."""
        return list(self._changed)

    def gone_before_ms(self) -> int:
        return 0 if self.due is None else self.due.gone_before_ms()

    def last_due_ms(self) -> int | None:
        return None if self.due is None else self.due.last_ms()

    def deleted(self, keys: Iterable[bytes]) -> set[bytes]:
        """Return the rows of these, changed since the last commit, that were deleted."""
        rows = self._rows
        return {key for key in keys if rows.get(key) is None}

    def peek(self, keys: Iterable[bytes]) -> list[V | None]:
        """Return rows as they are now, without loading the missing ones into the cache."""
        rows = self._rows
        return [rows[key] if key in rows else self._peek(key, self.store.get(key)) for key in keys]

    def peek_encoded(self, key: bytes) -> bytes | None:
        """Return a row as it is now, encoded. Raises `SerializationError`."""
        return self.encoded(key) if self.is_changed(key) else self.store.get(key)

    def _peek(self, key: bytes, data: bytes | None) -> V | None:
        return None if data is None else self._decoded(key, data)

    def _note(self, keys: Collection[bytes]) -> None:
        for noted in (self._touched, self.fresh):
            if noted is not None:
                noted.update(keys)

    def _unchanged(self) -> None:
        self._touched, self._ordered = None, []
        self._new, self._replaced, self._appended = set(), set(), []
        if self.fresh is not None:
            self.fresh = set()

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, at_once: int = _ROWS_AT_ONCE
    ) -> Iterator[tuple[bytes, V]]:
        """Iterate over the rows with start <= key < end in the order of their keys, uncommitted changes among them.

        It reads some rows at a time and holds nothing of the store in between, so rows may be changed meanwhile, and
        the iteration may be abandoned at any place.

        Args:
            start: The first key; None: from the beginning.
            end: The end of the range, exclusive; None: to the end.
            at_once: The number of rows to read from the store first, if few will be needed; then more each time.
        """
        while True:
            with self.store.scan(start, end) as rows:
                stored = list(islice(rows, at_once))
            last = stored[-1][0] if len(stored) == at_once else None
            at_once = min(2 * at_once, _ROWS_AT_ONCE)
            for key, data in self._merged(stored, start, end if last is None else last + b"\0"):
                row = self._row_of(key, data)
                if row is not None:
                    yield key, row
            if last is None:
                return
            start = last + b"\0"

    def ranges(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, V]]]:
        """Return the rows of several short ranges, each as in `scan`. The rows stay in the cache, as with `get`.

        Args:
            bounds: The first key of each range, and the first behind it; in order, or it takes longer.
        """
        if self._crowded:
            self._make_room()
        stored = self.store.ranges(bounds)
        merged = [self._merged(found, *each) for each, found in zip(bounds, stored, strict=True)]
        rows, row_of = self._rows, self._row_of
        self._keep(
            [(key, data) for each in merged for key, data in each if data is not None and key not in rows]
        )
        return [[(key, row) for key, _ in each if (row := row_of(key, None)) is not None] for each in merged]

    def stored(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return the rows that the store has in several short ranges, as they are now, encoded.

        Rows that are new since the last commit are skipped, which saves the search for them.
        """
        found = self.store.rows_in(bounds)
        changed = self._changed
        if changed.isdisjoint(map(_FIRST, found)):
            return found
        return [
            (key, row)
            for key, data in found
            if (row := self.encoded(key) if key in changed else data) is not None
        ]

    def _merged(
        self, stored: list[tuple[bytes, bytes]], start: bytes | None, end: bytes | None
    ) -> list[tuple[bytes, bytes | None]]:
        """Yield the rows of the store, merged with the changed keys in the same range."""
        changed = self._changed_between(start, end)
        if not changed:
            return stored  # type: ignore[return-value] # a row is never None here
        found: dict[bytes, bytes | None] = {**dict.fromkeys(changed), **dict(stored)}
        return sorted(found.items())

    def _changed_between(self, start: bytes | None, end: bytes | None) -> list[bytes]:
        if self._touched is None:
            self._ordered = sorted(self._changed)
        elif len(self._touched) > _INSERTED_MAX:
            # Merging two sorted parts takes linear time.
            self._ordered = list(dict.fromkeys(sorted([*self._ordered, *sorted(self._touched)])))
        else:
            for key in self._touched:
                place = bisect_left(self._ordered, key)
                if self._ordered[place : place + 1] != [key]:
                    self._ordered.insert(place, key)
        self._touched = set()
        keys = self._ordered
        first = 0 if start is None else bisect_left(keys, start)
        after = len(keys) if end is None else bisect_left(keys, end)
        return keys[first:after]

    def _row_of(self, key: bytes, data: bytes | None) -> V | None:
        """Return the row as it is now. A cached one wins: a handler may have changed it in place."""
        if key in self._rows:
            return self._rows[key]
        return self.get(key) if data is None else self._decoded(key, data)
