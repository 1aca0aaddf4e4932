"""De-duplication of events by id in one partition: the group's named table `ids`.

The changelog has a record for each commit, not for each id: the ids that it accepted, as a chunk. The local store holds
the chunks too, and a row for each id, made from them when they are applied: at the commit, and when the changelog is
read. A chunk whose ids are all beyond the horizon is deleted from both, a few with each commit.

Keys of the changelog: the input's name, for its stream time; name, NUL and a number that rises, for a chunk.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any

from streamtable.base.clock import Clock
from streamtable.base.ports import Store
from streamtable.errors import Fatal
from streamtable.graph.group import Input
from streamtable.graph.once import AHEAD_MS_MAX, NO_TIME, IdChunk, Once, UnreadableIds, is_repeat, stream_time

if TYPE_CHECKING:
    from streamtable.engine.named.id_arrays import IdFilter

_RECORD, _ID = b"r", b"i"  # what local keys begin with
_SEPARATOR = b"\0"  # no name of a topic contains it
_NUMBER = Struct(">Q")
_TIME = Struct(">q")
_ID_BYTES_MAX = 28  # in a chunk whose times all differ
_CHUNK_IDS_MAX = 4096
_DROPPED_AT_LEAST = 2
_ARRAYS_FROM = 64  # ids at once; fewer are handled one by one
_FILLED_AT_ONCE = 8  # chunks, with each batch, until the filter knows all
_NEW_ID_BYTES = 120  # what a new id takes in memory until the commit, and about what it will write

Changes = Iterable[tuple[bytes, bytes | None]]


class IdTable:
    """The ids that one partition of a group has accepted. One thread; see `engine.named.tables.Named`.

    Args:
        store: The committed ids.
        inputs: The inputs with `once`.
        bytes_max: The maximum size of a record of its topic.
        filter_bytes: The memory of the filter that recognises new ids without a read of the store.
        clock: Bounds the stream time.

    Attributes:
        accepted: The ids of each input.
    """

    def __init__(
        self,
        store: Store,
        inputs: Iterable[Input[Any, Any, Any]],
        bytes_max: int,
        filter_bytes: int,
        clock: Clock,
    ) -> None:
        self.store = store
        once = {edge.stream.name: edge.once for edge in inputs if edge.once is not None}
        self.accepted = {
            name: AcceptedIds(store, name.encode(), each, bytes_max, filter_bytes // len(once), clock)
            for name, each in once.items()
        }

    def filter_bytes(self, bytes_max: int) -> None:
        """Set how much memory the filter that recognizes new ids may take."""
        for each in self.accepted.values():
            each.filter_bytes(bytes_max // len(self.accepted))

    @property
    def repeats(self) -> dict[str, int]:
        """The events skipped as duplicates since the last commit, by input."""
        return {name: each.repeats for name, each in self.accepted.items() if each.repeats}

    @property
    def changed_bytes(self) -> int:
        return _NEW_ID_BYTES * sum(len(each.new) for each in self.accepted.values())

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        return [change for each in self.accepted.values() for change in each.changes()]

    def rows(self, changes: Changes) -> Changes:
        return expanded(self.store, changes)

    def committed(self) -> None:
        for each in self.accepted.values():
            each.committed()

    def forget(self) -> None:
        for each in self.accepted.values():
            each.forget()


@dataclass
class _Batch:
    """The batch accepted last, so that its end can be undone.

    Attributes:
        ids: One for each record.
        times_ms: Stream time at each of them.
        time_before_ms: Stream time before them.
        accepted: Whether each id was accepted, that is, was no repeat; None: all were.
        replaced: The time when an id had been accepted before, since the last commit too, by index.
    """

    ids: Sequence[bytes]
    times_ms: Sequence[int]
    time_before_ms: int
    accepted: list[bool] | None = None
    replaced: dict[int, int] = field(default_factory=dict)


class AcceptedIds:
    """The ids of one input.

    Attributes:
        once: The rule that its ids follow.
        new: The ids accepted since the last commit, in the order of acceptance, with the stream time of each.
        repeats: The number of events skipped as duplicates since the last commit.
    """

    def __init__(
        self, store: Store, topic: bytes, once: Once[Any], bytes_max: int, filter_bytes: int, clock: Clock
    ) -> None:
        self.once = once
        self.repeats = 0
        self._store = store
        self._topic = topic
        self._clock = clock
        self._within_ms = once.within_ms
        room = bytes_max - len(topic) - 100
        self._chunk_ids_max = max(1, min(_CHUNK_IDS_MAX, room // _ID_BYTES_MAX))
        self.new: dict[bytes, int] = {}
        self._filter_bytes = filter_bytes
        self._filter: IdFilter | None = None
        self._filled_from = 0  # the filter knows the chunks from this one on
        self._filter_ids_max: int | None = None  # with more it is made again; None: it is being filled
        self._opened = False
        self._time_ms = self._committed_ms = NO_TIME
        self._first = self._next = 0  # the range of numbers of existing chunks
        self._dropped = 0  # chunks deleted by the current commit
        self._added = 0
        self._last: _Batch | None = None  # since the last commit

    def accept(self, ids: Sequence[bytes], timestamps_ms: Sequence[int]) -> list[bool] | None:
        """Accept the ids of consecutive records that are not repeats.

        Args:
            ids: One for each record.
            timestamps_ms: The timestamp of each record, in milliseconds since 1970.

        Returns:
            For each whether it was accepted; None if all were.
        """
        self._open()
        times = self._times(timestamps_ms)
        self._last = last = _Batch(ids, times, self._time_ms)
        self._time_ms = times[-1]
        perhaps = self._perhaps_accepted(ids)
        known = self._committed(perhaps)
        if not known and self._accept_all(ids, times, perhaps):
            return None
        last.accepted = [self._accept(index, at, known, last) for index, at in enumerate(times)]
        if all(last.accepted):
            return None
        self.repeats += last.accepted.count(False)
        return last.accepted

    def filter_bytes(self, bytes_max: int) -> None:
        if bytes_max != self._filter_bytes:
            self._filter_bytes, self._filter = bytes_max, None  # filled from the store again

    def left_out(self, timestamp_ms: int) -> None:
        """Let the timestamp of a record that has an id and is skipped move the stream time."""
        self._open()
        self._time_ms = stream_time(self._time_ms, timestamp_ms, self._now_ms())

    def take_back(self, begin: int, *, failed: bool = False) -> None:
        """Undo the last `accept` for the records from this index on: they are read again, unless they have failed.

        The timestamp of a record that has failed stays part of the stream time.
        """
        last, self._last = self._last, None
        assert last is not None, "something was accepted since the last commit"
        undone = range(begin, len(last.ids))
        accepted = [index for index in undone if last.accepted is None or last.accepted[index]]
        for index in reversed(accepted):
            del self.new[last.ids[index]]
            if index in last.replaced:
                self.new[last.ids[index]] = last.replaced[index]
        if last.replaced:
            self.new = dict(sorted(self.new.items(), key=itemgetter(1)))  # in the order of acceptance again
        if not failed:
            self._time_ms = last.times_ms[begin - 1] if begin else last.time_before_ms
        self.repeats -= len(undone) - len(accepted)

    def _accept_all(self, ids: Sequence[bytes], times_ms: Sequence[int], perhaps: Sequence[bytes]) -> bool:
        """Accept the ids if none was accepted since the last commit and no two are equal."""
        if not self.new.keys().isdisjoint(perhaps):
            return False
        size = len(self.new) + len(ids)
        self.new.update(zip(ids, times_ms, strict=True))
        if len(self.new) == size:
            return True
        for each in ids:
            self.new.pop(each, None)
        return False

    def _accept(self, index: int, time_ms: int, known: Mapping[bytes, int], last: "_Batch") -> bool:
        each = last.ids[index]
        if is_repeat(self.new.get(each, known.get(each)), time_ms, self._within_ms):
            return False
        if each in self.new:
            last.replaced[index] = self.new.pop(each)  # the order of acceptance is the order of the chunk
        self.new[each] = time_ms
        return True

    def _now_ms(self) -> int:
        return int(self._clock.now() * 1000)

    def _times(self, timestamps_ms: Sequence[int]) -> Sequence[int]:
        newest, now_ms = max(timestamps_ms), self._now_ms()
        if newest <= self._time_ms:
            return [self._time_ms] * len(timestamps_ms)
        if newest > now_ms + AHEAD_MS_MAX:
            times, time_ms = [], self._time_ms
            for timestamp_ms in timestamps_ms:
                time_ms = stream_time(time_ms, timestamp_ms, now_ms)
                times.append(time_ms)
            return times
        if timestamps_ms[0] >= self._time_ms and timestamps_ms == sorted(timestamps_ms):
            return timestamps_ms
        return list(accumulate(timestamps_ms, max, initial=self._time_ms))[1:]

    def _committed(self, perhaps: Sequence[bytes]) -> dict[bytes, int]:
        """Return the ids among these that were accepted before the last commit, with the stream time then."""
        if self._first == self._next:
            return {}
        get, prefix = self._store.get, _id_prefix(self._topic)
        found = {each: data for each in perhaps if (data := get(prefix + each)) is not None}
        return {each: _TIME.unpack(data)[0] for each, data in found.items()}

    def _perhaps_accepted(self, ids: Sequence[bytes]) -> Sequence[bytes]:
        """Return the ids that may have been accepted before; the others certainly were not.

        All of them are in the filter from now on, including ids whose acceptance is undone later.
        """
        if self._filter is None:
            if len(ids) < _ARRAYS_FROM or self._first == self._next:
                return ids
            from streamtable.engine.named.id_arrays import IdFilter  # noqa: PLC0415 - numpy takes 20 MB

            self._filter, self._filled_from = IdFilter(self._filter_bytes), self._next
            self._filter_ids_max = None
            self._filter.add(b"".join(self.new))  # these are in no chunk yet
        for _ in range(_FILLED_AT_ONCE):
            if self._filled_from == self._first:
                break
            self._filled_from -= 1
            data = self._store.get(_RECORD + _chunk_key(self._topic, self._filled_from))
            if data is not None:
                self._filter.add(IdChunk.decode(data).ids)
        perhaps = self._filter.add(b"".join(ids))
        if self._filled_from > self._first:
            return ids
        if self._filter_ids_max is None:
            # Filling reads all ids, which pays once as many new ones have come, when some have expired.
            self._filter_ids_max = 2 * max(self._filter.room, self._filter.added)
        return [ids[index] for index in perhaps]

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        self._open()
        ids, times = list(self.new), list(self.new.values())
        self._added = 0
        for start in range(0, len(ids), self._chunk_ids_max):
            stop = start + self._chunk_ids_max
            chunk = IdChunk.of(ids[start:stop], times[start:stop])
            yield _chunk_key(self._topic, self._next + self._added), chunk.encode()
            self._added += 1
        self._dropped = 0
        for number in self._expired(2 * self._added + _DROPPED_AT_LEAST):
            self._dropped += 1
            yield _chunk_key(self._topic, number), None
        if self._time_ms != self._committed_ms:
            yield self._topic, _TIME.pack(self._time_ms)

    def _expired(self, limit: int) -> Iterator[int]:
        """Return the first chunks whose ids are all beyond the horizon, a few at a time so that no commit is delayed."""
        for number in range(self._first, min(self._first + limit, self._next)):
            data = self._store.get(_RECORD + _chunk_key(self._topic, number))
            if data is not None and is_repeat(IdChunk.newest_of(data), self._time_ms, self._within_ms):
                return
            yield number

    def committed(self) -> None:
        ids_max = self._filter_ids_max
        if self._filter is not None and ids_max is not None and self._filter.added > ids_max:
            self._filter = None
        self.new, self._last, self.repeats = {}, None, 0
        self._committed_ms = self._time_ms
        self._first += self._dropped
        self._filled_from = max(self._filled_from, self._first)
        self._next += self._added
        self._dropped = self._added = 0

    def forget(self) -> None:
        self.new, self._last, self.repeats = {}, None, 0
        self._time_ms = self._committed_ms
        self._dropped = self._added = 0

    def _open(self) -> None:
        """Read the recorded history. Deferred until first use, where a damaged store can be repaired."""
        if not self._opened:
            time = self._store.get(_RECORD + self._topic)
            self._first, self._next = self._numbers()
            if time is not None:
                self._time_ms = self._committed_ms = _TIME.unpack(time)[0]
            self._opened = True

    def _numbers(self) -> tuple[int, int]:
        start, end = _RECORD + self._topic + b"\0", _RECORD + self._topic + b"\1"
        with self._store.scan(start, end) as rows:
            first = next(rows, None)
        if first is None:
            return 0, 0
        with self._store.scan(start, end, reverse=True) as rows:
            last = next(rows)
        return _number(first[0]), _number(last[0]) + 1


def expanded(store: Store, changes: Changes) -> Changes:
    """Return the rows of the local store that changelog records make; see `tables.replica.Expand`."""
    rows: dict[bytes, bytes | None] = {}
    added: dict[bytes, list[IdChunk]] = {}  # by the prefix of their ids
    for key, value in changes:
        rows[_RECORD + key] = value
        topic, separator, _ = key.partition(_SEPARATOR)
        if not separator:
            continue
        prefix = _id_prefix(topic)
        # Numbers begin at 0 again when no chunk was left at a restart: a chunk may take the place of a deleted one.
        former = store.get(_RECORD + key)
        for each, time_ms in _decoded(former).each() if former is not None else ():
            kept = store.get(prefix + each)
            if kept is not None and _TIME.unpack(kept)[0] <= time_ms:  # else it was accepted again
                rows[prefix + each] = None
        if value is not None:
            added.setdefault(prefix, []).append(_decoded(value))
    # Sorted writes cost RocksDB half the time. New ids come last, so that they win over their own deletion.
    return chain(sorted(rows.items()), *(_id_rows(prefix, chunks) for prefix, chunks in added.items()))


def _id_rows(prefix: bytes, chunks: Sequence[IdChunk]) -> Iterable[tuple[bytes, bytes]]:
    """Return the rows of the ids of chunks; if an id is in several, the last one wins."""
    if sum(map(len, chunks)) < _ARRAYS_FROM:
        rows = {prefix + each: _TIME.pack(time_ms) for chunk in chunks for each, time_ms in chunk.each()}
        return sorted(rows.items())
    from streamtable.engine.named.id_arrays import rows_in_order  # noqa: PLC0415 - numpy takes 20 MB

    return rows_in_order(prefix, chunks)


def _decoded(data: bytes) -> IdChunk:
    try:
        return IdChunk.decode(data)
    except UnreadableIds as error:
        raise Fatal(f"{error.message}; was it written by another program?") from error


def _chunk_key(topic: bytes, number: int) -> bytes:
    return topic + _SEPARATOR + _NUMBER.pack(number)


def _number(local_key: bytes) -> int:
    number: int = _NUMBER.unpack(local_key[-_NUMBER.size :])[0]
    return number


def _id_prefix(topic: bytes) -> bytes:
    return _ID + topic + _SEPARATOR
