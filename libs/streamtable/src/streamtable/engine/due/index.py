"""An index of the rows of a state table by the time they are due, kept beside them in the local store.

The store of such a table holds `r` and the key for each row, and `d`, the time (8 bytes, big-endian) and the key for each
row that is due at some time; the entries of rows that are appended share rows (`due_chunks`). All are made when records of
the changelog are applied, so a lookup reads only the rows that are due. Uncommitted rows are indexed in memory.

An *entry* is the time and the key. Two entries are remembered, under the name of the state, in the named table `states`:
`fired_from`, the first that has not been handed to the handler, and `kept_from`, the first whose row has not been deleted
because its time was over.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

from streamtable.base.ports import Store
from streamtable.engine.due.chunks import CHUNK, NEVER_MS, TIME, Chunks, entry_of, time_of, unfired_in
from streamtable.engine.due.later import Later
from streamtable.errors import Fatal
from streamtable.graph.due import Due
from streamtable.tables.indexed_rows import ROW
from streamtable.tables.ordered_table import OrderedTable
from streamtable.tables.replica import Expand, Rows

_ENTRY, _AFTER_ENTRIES = b"d", b"e"  # as `ROW`
_NONE_NOTED: Mapping[bytes, int] = MappingProxyType({})


def key_of(entry: bytes) -> bytes:
    """Return the key of an entry's row."""
    return entry[TIME.size :]


def after_time(time_ms: int) -> bytes:
    """Return the first possible entry after this time."""
    return entry_of(time_ms + 1, b"")


def indexed(due: Due[Any, Any]) -> Expand:
    """Return the function that turns changelog records into rows of the local store, index entries included."""
    if due.by_key:
        # Of several records of a key the last one counts.
        return lambda _, changes: expanded_in_order(due, sorted(dict(changes).items()))

    def expanded(store: Store, changes: Rows) -> Rows:
        written: dict[bytes, bytes | None] = {}
        for key, value in changes:
            local = ROW + key
            new = None if value is None else _when(due, key, value)
            former = store.get(local)
            old = None if former is None else _when(due, key, former)
            if old is not None and old != new:
                written[_ENTRY + entry_of(old, key)] = None
            if new is not None:
                written[_ENTRY + entry_of(new, key)] = b""
            written[local] = value
        # What comes in order costs RocksDB half the time.
        return [(key, written[key]) for key in sorted(written)]

    return expanded


def expanded_in_order(
    due: Due[Any, Any],
    changes: Sequence[tuple[bytes, bytes | None]],
    indexed_keys: AbstractSet[bytes] = frozenset(),
    noted: Mapping[bytes, int] = _NONE_NOTED,
) -> Rows:
    """Return the store rows of changed rows, of a table whose keys alone decide when its rows are due.

    Args:
        due: When rows fall due.
        changes: The rows in the order of their keys, each once.
        indexed_keys: Keys whose entries are in the store already, or are written otherwise.
        noted: When rows of some keys are due, the changed ones among them.
    """
    entered = (
        [(key, value) for key, value in changes if value is None or key not in indexed_keys]
        if indexed_keys
        else changes
    )
    times = _noted_times(due, [key for key, _ in entered], noted)
    if None in times:
        entered = [each for each, time_ms in zip(entered, times, strict=True) if time_ms is not None]
    due_ms = [time_ms for time_ms in times if time_ms is not None]
    heads = {time_ms: _ENTRY + entry_of(time_ms, b"") for time_ms in set(due_ms)}
    # Writes in order cost RocksDB half the time: by time, and by key among entries of the same time, as the sort is
    # stable. One by one, as all of them together would double the memory of a commit.
    return chain(
        (
            (heads[due_ms[index]] + entered[index][0], None if entered[index][1] is None else b"")
            for index in sorted(range(len(due_ms)), key=due_ms.__getitem__)
        ),
        ((ROW + key, value) for key, value in changes),
    )


def _noted_times(
    due: Due[Any, Any], keys: Sequence[bytes], noted: Mapping[bytes, int]
) -> Sequence[int | None]:
    """Return when the rows of these keys are due: as noted, else as the key alone decides."""
    times: list[int | None] = list(map(noted.get, keys))
    if None not in times:
        return times
    found = iter(_times(due, [key for key, time_ms in zip(keys, times, strict=True) if time_ms is None]))
    return [next(found) if time_ms is None else time_ms for time_ms in times]


def _times(due: Due[Any, Any], keys: Sequence[bytes]) -> Sequence[int | None]:
    """Return when the rows of these keys are due, where the key alone decides."""
    if due.times is None:
        return [_when(due, key, b"") for key in keys]
    try:
        times = due.times(keys)
    except Exception as error:
        for key in keys:
            _when(due, key, b"")  # if `when` raises too, its error names the key
        raise Fatal(
            f"the function `times` of a state table raised {type(error).__name__}: {error}. It has to return what `when` "
            "returns, for each key"
        ) from error
    if len(times) != len(keys):
        raise Fatal(
            f"the function `times` of a state table returned {len(times)} times for {len(keys)} keys. It has to return a "
            "time, or None, for each key"
        )
    return times


def _when(due: Due[Any, Any], key: bytes, data: bytes) -> int | None:
    try:
        return due.when(key, data)
    except Exception as error:
        raise Fatal(
            f"the function `when` of a state table raised {type(error).__name__} for key {key[:100]!r}: {error}. It has to "
            "return a time, or None, for each row"
        ) from error


class DueIndex:
    """The entries of one partition of a state table, committed or not. One thread.

    Args:
        due: When rows fall due.
        store: The committed rows and their entries.
        table: The rows.

    Attributes:
        fired_from: The first entry that was not handed to the handler. Where rows are deleted in the commit that they are
            fired in, it is only where to look from, and goes back to an earlier row that is written.
        kept_from: The first entry whose row was not deleted for its age; only where to look from.
    """

    def __init__(self, due: Due[Any, Any], store: Store, table: OrderedTable[Any]) -> None:
        self.fired_from = self.kept_from = b""
        self._keeps = True  # see `look_for_kept`
        self._due = due
        self._store = store
        self._table = table
        table.fresh = set()
        table.due = self
        # By key, of rows that have changed since the last commit.
        self._entries: dict[bytes, bytes | None] = {}
        self._waiting: list[bytes] = []  # a heap; those that are not in `_unfired` do not count any more
        self._unfired: set[bytes] = set()
        # Where the key alone decides, changed rows have no entry before their time has come: it would cost each of them.
        self._later: list[Later] = []  # a heap
        self._appended: list[tuple[Sequence[bytes], Sequence[int]]] = []  # since the last commit
        self._chunks = Chunks(store)
        self._later_ms: dict[bytes, int] = {}  # when each of them is due
        self._seen_to = b""  # no entry before this one in the store counts
        self._stored: bytes | None = None  # the first from there on, if `_known`
        self._known = False
        self._over_from_ms = 0  # no row is kept for long enough before this time

    @property
    def position(self) -> tuple[bytes, bytes]:
        """`fired_from` and `kept_from`."""
        return self.fired_from, self.kept_from

    def gone_before_ms(self) -> int:
        """Return the time before which no row is due any more, where rows are deleted when they are fired."""
        return time_of(self.fired_from) if self.fired_from and not self._keeps else 0

    def last_ms(self) -> int | None:
        """Return when the last of the rows is due, committed or not; None if none ever is."""
        with self._store.scan(_ENTRY, _AFTER_ENTRIES, reverse=True) as rows:
            times = [time_of(local[1:]) for local, _ in islice(rows, 1)]
        changed = [key for key in self._table.changed_keys() if self._table.changed_row(key) is not None]
        times += [time_ms for time_ms in map(self._time_of, changed) if time_ms is not None]
        return max([*times, *filter(None, [self._chunks.last_ms()])], default=None)

    # ---- changed rows ----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Index the rows changed since the last call. Raises `SerializationError` if one does not fit its schema."""
        table = self._table
        if not table.fresh:
            return
        fresh, table.fresh = table.fresh, set()
        if self._due.by_key:
            fresh = self._put_off(fresh)
        self._enter((key, self._time_of(key)) for key in fresh)

    def _put_off(self, fresh: set[bytes]) -> set[bytes]:
        """Note the times of rows to be indexed later. Returns the keys of those that must be indexed now."""
        # Asked one by one: to subtract the keys of a dict costs as much as the dict has.
        new = {key for key in fresh if key not in self._later_ms}
        now = new & self._entries.keys()
        deleted = self._table.deleted(new - now if now else new)
        self._entries.update(dict.fromkeys(deleted))  # what the store has of them does not count
        keys = list(new - now - deleted if now or deleted else new)
        times = _times(self._due, keys)
        if None in times:
            keys = [key for key, time_ms in zip(keys, times, strict=True) if time_ms is not None]
        if keys:
            self._note(keys, [time_ms for time_ms in times if time_ms is not None])
        return now

    def appended(self, keys: Sequence[bytes], times: Sequence[int]) -> None:
        """Note when rows that were appended are due."""
        self._note(keys, times)
        if not self._keeps:
            self._appended.append((keys, times))

    def chunk_changes(self) -> tuple[Rows, AbstractSet[bytes]]:
        """Return the chunks of the commit, as rows of the store, and the keys of the rows that they stand for."""
        rows = self._chunks.changes(self._appended, self.fired_from)
        return rows, set(chain.from_iterable(keys for keys, _ in self._appended))

    def _note(self, keys: Sequence[bytes], times: Sequence[int]) -> None:
        """Note when changed rows are due, where the key alone decides. They have not been noted since the last commit."""
        later = Later(keys, times)
        heappush(self._later, later)
        self._later_ms.update(zip(keys, times, strict=True))
        if not self._keeps:
            self.fired_from = min(self.fired_from, entry_of(later.first_ms, b""))

    @property
    def noted(self) -> Mapping[bytes, int]:
        """The due times of changed rows that are indexed later, mostly in the order of their times."""
        return self._later_ms

    def _enter_up_to(self, until_ms: int) -> None:
        """Index the noted rows that are due at this time or before."""
        while self._later and self._later[0].first_ms <= until_ms:
            later = heappop(self._later)
            keys, times = later.take(until_ms)
            for key in keys:
                del self._later_ms[key]
            changed = self._table.changed_row
            self._enter(
                (key, None if changed(key) is None else time_ms)
                for key, time_ms in zip(keys, times, strict=True)
            )
            if not later.empty:
                heappush(self._later, later)

    def _enter_chunks(self, end: bytes, limit: int) -> bytes:
        """Index the entries of chunks that are due before `end`, or the first `limit`. Returns up to where all are indexed."""
        while True:
            entries, until = self._chunks.take(end)
            found = ((key_of(entry), time_of(entry)) for entry in entries)
            # Of rows that have changed since the last commit, it is noted already.
            self._enter(
                [each for each in found if each[0] not in self._entries and each[0] not in self._later_ms]
            )
            first = self._first_waiting()
            if until == end or (first is not None and first < until and len(self._unfired) >= limit):
                return until
            self._chunks.reach()

    def _enter(self, times: Iterable[tuple[bytes, int | None]]) -> None:
        """Index changed rows by the times when they are due; None: never."""
        entries, unfired, new = self._entries, self._unfired, list[bytes]()
        for key, time_ms in times:
            former = entries.get(key)
            if former is not None:
                unfired.discard(former)
            entries[key] = entry = None if time_ms is None else entry_of(time_ms, key)
            if entry is not None:
                new.append(entry)
        unfired.update(new)
        if len(new) > len(self._waiting):
            self._waiting += new
            heapify(self._waiting)
        else:
            for entry in new:
                heappush(self._waiting, entry)
        if new and not self._keeps:
            self.fired_from = min([self.fired_from, *new])

    def _time_of(self, key: bytes) -> int | None:
        """Return when a changed row is due; None if never, or if it was deleted."""
        table, due = self._table, self._due
        if table.changed_row(key) is None:
            return None
        return _when(due, key, b"" if due.by_key else table.encoded(key) or b"")

    def before_commit(self) -> None:
        """Fix `fired_from` and `kept_from` for the commit; nothing may change before it."""
        if self._keeps:  # a row may be so late that its time is over already
            later = (entry_of(each.first_ms, b"") for each in self._later[:1])
            self.kept_from = min([self.kept_from, *later, *filter(None, self._entries.values())])

    def committed(self) -> None:
        """Forget the changes: they are in the store now."""
        self._chunks.committed(self.fired_from)
        self._unchanged()
        self.look_for_kept()

    def look_for_kept(self) -> None:
        """Note whether fired rows are kept, or left from an earlier version of the program. Once none is it remains so.

        Asked at the start, and after each commit while some are left to be deleted. Raises `StoreCorrupted`.
        """
        if self._keeps and not self._due.keep:
            with self._store.scan(_ENTRY + self.kept_from, _ENTRY + self.fired_from) as rows:
                self._keeps = any(True for _ in rows)

    def forget(self, fired_from: bytes, kept_from: bytes) -> None:
        """Drop the changes since the last commit and go back to these entries. Reads nothing: the store may be damaged."""
        self.fired_from, self.kept_from = fired_from, kept_from
        self._chunks.go_back(fired_from)
        self._unchanged()

    # ---- due rows --------------------------------------------------------------------------------------------------

    @property
    def first_ms(self) -> int | None:
        """The time before which no row is due; None if no row ever is. Changed rows count as of the last `look`."""
        firsts = self._first_waiting(), self._first_stored(), self._chunks.first
        times = [*(each.first_ms for each in self._later[:1]), *map(time_of, filter(None, firsts))]
        return min(times, default=None)

    @property
    def late(self) -> bool:
        """Whether a written row should have been fired already, which must happen before the next commit."""
        if not self._keeps or not self.fired_from:
            return False
        self._enter_up_to(time_of(self.fired_from))
        first = self._first_waiting()
        return first is not None and first < self.fired_from

    def take(self, until_ms: int, limit: int) -> list[bytes]:
        """Return the next due entries. Each must be given to `fired` or `give_back`.

        Args:
            until_ms: The time that the clock has reached.
            limit: The most that are returned.
        """
        end = after_time(until_ms)
        if self._keeps:
            end = max(end, self.fired_from)  # a clock that was set back does not hold late rows back
        self._enter_up_to(time_of(end))
        end = self._enter_chunks(end, limit)
        stored = self._between(end, limit)
        if len(stored) == limit:
            end = stored[-1]
        else:
            self._seen_to = end
        self._known = False
        found: list[bytes] = []
        while len(found) < limit and (first := self._first_waiting()) is not None and first < end:
            found.append(first)
            self._unfired.discard(first)
        taken = sorted([*found, *stored]) if found else stored
        self.give_back(taken[limit:])
        return taken[:limit]

    def fired(self, entry: bytes) -> None:
        """Note that the entry's row was fired or skipped."""
        self.fired_from = max(self.fired_from, entry + b"\0")

    def give_back(self, entries: Iterable[bytes]) -> None:
        """Make these entries due again."""
        for entry in entries:
            if self._entries.get(key_of(entry)) == entry:
                heappush(self._waiting, entry)
                self._unfired.add(entry)
            else:
                self._seen_to = min(self._seen_to, entry)
                self._known = False

    # ---- rows that were kept for long enough -----------------------------------------------------------------------

    def any_over(self, until_ms: int) -> bool:
        """Whether some rows may have exceeded their retention at this time of the clock."""
        return self._keeps and until_ms >= self._over_from_ms

    def over(self, until_ms: int, limit: int) -> list[bytes]:
        """Return the keys of the next rows that have exceeded their retention, and advance past them.

        Args:
            until_ms: The time that the clock has reached.
            limit: The most that are looked at.
        """
        self._enter_up_to(until_ms - self._due.keep_ms)
        after = after_time(until_ms - self._due.keep_ms)
        end = min(after, self.fired_from)
        keys: list[bytes] = []
        with self._store.scan(_ENTRY + self.kept_from, _AFTER_ENTRIES) as rows:
            for number, (local, _) in enumerate(rows):
                entry, key = local[1:], key_of(local[1:])
                counts = self._entries.get(key, entry) == entry
                # A row that was deleted since the last commit is never fired: it holds back none behind it.
                if entry >= (end if counts else after):
                    self._over_from_ms = time_of(entry) + self._due.keep_ms
                    break
                if number == limit:
                    break
                self.kept_from = entry + b"\0"
                if counts and entry not in self._unfired:
                    keys.append(key)
            else:
                self._over_from_ms = NEVER_MS
        return keys

    @contextmanager
    def unfired_from(self, start: bytes) -> Iterator[Iterator[tuple[bytes, int]]]:
        """Yield the rows of the store that are entries or chunks, from this one on, with the number of entries that were
        not fired. By any thread, as of now.
        """
        fired_from, scan = self.fired_from, self._store.scan
        with (
            scan(max(start, CHUNK), _ENTRY) as chunks,
            scan(max(start, _ENTRY + fired_from), _AFTER_ENTRIES) as entries,
        ):
            in_chunks = ((local, unfired_in(local, chunk, fired_from)) for local, chunk in chunks)
            yield chain(in_chunks, ((local, 1) for local, _ in entries))

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _unchanged(self) -> None:
        self._entries, self._waiting, self._unfired = {}, [], set()
        self._later, self._later_ms, self._appended = [], {}, []
        self._seen_to, self._known, self._over_from_ms = b"", False, 0

    def _first_waiting(self) -> bytes | None:
        while self._waiting and self._waiting[0] not in self._unfired:
            heappop(self._waiting)
        return self._waiting[0] if self._waiting else None

    def _first_stored(self) -> bytes | None:
        start = max(self.fired_from, self._seen_to)
        if not self._known or (self._stored is not None and self._stored < start):
            with self._store.scan(_ENTRY + start, _AFTER_ENTRIES) as rows:
                self._stored = next((local[1:] for local, _ in rows), None)
            self._known = True
        return self._stored

    def _between(self, end: bytes, limit: int) -> list[bytes]:
        """Return the next entries of the store before `end` whose rows have not changed."""
        start = max(self.fired_from, self._seen_to)
        if start >= end:
            return []
        with self._store.scan(_ENTRY + start, _ENTRY + end) as rows:
            unchanged = (local[1:] for local, _ in rows if key_of(local[1:]) not in self._entries)
            return list(islice(unchanged, limit))
