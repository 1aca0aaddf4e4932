"""Chunks: the index entries of rows that were appended, many of them in one row of the local store.

A row that is appended is written once, and hardly ever looked at before it falls due; an entry of its own would cost
nearly as much as the row. So the rows that one commit has appended, and that are due within the same eight seconds, share
one: `c` and the first of their entries. Its value is their due times and their keys. A chunk is read when the clock
reaches its first entry, so that those in memory are of some seconds only, and deleted with the last of its entries.

A chunk may have entries of rows that are gone, which do not count: only the engine deletes chunks, so a replica that
follows the changelog leaves them, and writes an entry for each further row.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, chain, compress, islice, pairwise
from struct import Struct, pack, unpack_from

from streamtable.base.ports import Store

TIME = Struct(">Q")
NEVER_MS = 1 << 63
CHUNK, _AFTER_CHUNKS = b"c", b"d"
_COUNT = Struct(">I")
_SPAN_BITS = 13  # of the due times of a chunk: 8,192 ms
_SPAN_MS = 1 << _SPAN_BITS

Appended = Sequence[tuple[Sequence[bytes], Sequence[int]]]
"""Keys of rows that were appended together, and when each is due."""


def entry_of(time_ms: int, key: bytes) -> bytes:
    """Return the index entry of a row that is due at this time. Times before 1970 count as 1970."""
    return TIME.pack(time_ms if 0 <= time_ms <= NEVER_MS else min(max(time_ms, 0), NEVER_MS)) + key


def time_of(entry: bytes) -> int:
    """Return the time of an entry."""
    time_ms: int = TIME.unpack_from(entry)[0]
    return time_ms


def chunks_of(appended: Appended) -> list[tuple[bytes, bytes]]:
    """Return the chunks of rows, as rows of the store."""
    keys = list(chain.from_iterable(keys for keys, _ in appended))
    times = list(chain.from_iterable(times for _, times in appended))
    if not keys:
        return []
    if min(times) < 0 or max(times) > NEVER_MS:
        times = [min(max(time_ms, 0), NEVER_MS) for time_ms in times]
    if min(times) >> _SPAN_BITS == max(times) >> _SPAN_BITS:
        return [_chunk(keys, times)]
    spans: defaultdict[int, tuple[list[bytes], list[int]]] = defaultdict(lambda: ([], []))
    for key, time_ms in zip(keys, times, strict=True):
        span = spans[time_ms >> _SPAN_BITS]
        span[0].append(key)
        span[1].append(time_ms)
    return sorted(_chunk(*span) for span in spans.values())


def _chunk(keys: Sequence[bytes], times: Sequence[int]) -> tuple[bytes, bytes]:
    first_ms = min(times)
    first = min(compress(keys, map(first_ms.__eq__, times)))
    head = pack(f">I{len(keys)}Q{len(keys)}I", len(keys), *times, *map(len, keys))
    return CHUNK + entry_of(first_ms, first), head + b"".join(keys)


def entries_in(chunk: bytes) -> list[bytes]:
    """Return the entries of a chunk's value, in order."""
    count = _count(chunk)
    times = unpack_from(f">{count}Q", chunk, _COUNT.size)
    sizes = unpack_from(f">{count}I", chunk, _COUNT.size + TIME.size * count)
    bounds = accumulate(sizes, initial=_COUNT.size + (TIME.size + _COUNT.size) * count)
    return sorted(
        TIME.pack(time_ms) + chunk[begin:end]
        for time_ms, (begin, end) in zip(times, pairwise(bounds), strict=True)
    )


def unfired_in(local: bytes, chunk: bytes, fired_from: bytes) -> int:
    """Return how many entries of a chunk, a row of the store, are not before this one."""
    if local[1:] >= fired_from:
        return _count(chunk)
    entries = entries_in(chunk)
    return len(entries) - bisect_left(entries, fired_from)


def _count(chunk: bytes) -> int:
    count: int = _COUNT.unpack_from(chunk)[0]
    return count


class _Reached:
    """A chunk whose first entry the clock has reached.

    Args:
        entries: Its entries, in order.
    """

    __slots__ = ("entries", "taken")

    def __init__(self, entries: list[bytes]) -> None:
        self.entries = entries
        self.taken = 0

    @property
    def first(self) -> bytes | None:
        """The first entry that was not taken."""
        return self.entries[self.taken] if self.taken < len(self.entries) else None

    def take(self, end: bytes) -> list[bytes]:
        begin = self.taken
        self.taken = bisect_left(self.entries, end, begin)
        return self.entries[begin : self.taken]

    def go_back(self, entry: bytes) -> None:
        self.taken = bisect_left(self.entries, entry)


class Chunks:
    """The chunks of one store. One thread.

    Args:
        store: The committed rows and their entries.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reached: dict[bytes, _Reached] = {}  # by their first entries, which name them
        self._from = b""  # those that begin before this entry have been reached
        self._next: bytes | None = None  # the first that has not been, if `_known`
        self._known = False
        self._begin = b""  # the entries before this one were fired before the last commit
        self._written: list[bytes] = []  # names
        self._deleted: list[bytes] = []

    @property
    def first(self) -> bytes | None:
        """The first entry that was not taken; None: there is none."""
        firsts = [self._ahead(), *(each.first for each in self._reached.values())]
        return min(filter(None, firsts), default=None)

    def take(self, end: bytes) -> tuple[list[bytes], bytes]:
        """Return the next entries and the end of their range: `end`, or the first of the next chunk."""
        ahead = self._ahead()
        until = end if ahead is None else min(end, ahead)
        return list(chain.from_iterable(each.take(until) for each in self._reached.values())), until

    def reach(self) -> None:
        """Read the next chunk. There is one: `take` has named it."""
        name = self._ahead()
        chunk = None if name is None else self._store.get(CHUNK + name)
        assert name is not None, "asked only for a chunk that is ahead"
        assert chunk is not None, "only this thread deletes chunks"
        entries = entries_in(chunk)
        # Of the entries fired before the last commit, as by another process, only enough to delete the chunk are kept.
        begin = min(bisect_left(entries, self._begin), len(entries) - 1)
        self._reached[name] = reached = _Reached(entries[begin:])
        reached.go_back(self._begin)
        self._from, self._known = name + b"\0", False

    def changes(self, appended: Appended, fired_from: bytes) -> list[tuple[bytes, bytes | None]]:
        """Return the chunks to write and to delete, as rows of the store, with the commit that is being made.

        Args:
            appended: The rows that were appended since the last commit.
            fired_from: The entries before this one have been fired.
        """
        fired_ms = time_of(fired_from) if fired_from else 0
        made = chunks_of([each for each in appended if max(each[1]) >= fired_ms])
        self._written = [local[1:] for local, _ in made]
        self._deleted = [name for name, each in self._reached.items() if each.entries[-1] < fired_from]
        return [*((CHUNK + name, None) for name in self._deleted), *made]

    def committed(self, fired_from: bytes) -> None:
        """Note that the changes are in the store, and go on with this entry."""
        for name in self._deleted:
            del self._reached[name]
        if self._written:
            self._from = min([self._from, *self._written])
            self._next = min(filter(None, [self._ahead(), *self._written]))
        self.go_back(fired_from)

    def go_back(self, fired_from: bytes) -> None:
        """Go on with this entry. The changes were not written, or are noted."""
        self._begin = fired_from
        self._written, self._deleted = [], []
        for each in self._reached.values():
            each.go_back(fired_from)

    def last_ms(self) -> int | None:
        """Return a time after which no entry is due; None: there is none."""
        with self._store.scan(CHUNK, _AFTER_CHUNKS, reverse=True) as rows:
            names = [local[1:] for local, _ in islice(rows, 1)]
        return time_of(names[0]) | (_SPAN_MS - 1) if names else None

    def _ahead(self) -> bytes | None:
        if not self._known:
            with self._store.scan(CHUNK + self._from, _AFTER_CHUNKS) as rows:
                ahead = (local[1:] for local, _ in rows if local[1:] not in self._reached)
                self._next = next(ahead, None)
            self._known = True
        return self._next
