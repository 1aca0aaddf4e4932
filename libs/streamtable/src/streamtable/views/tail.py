"""A tail: the records of a stream by key, live, from any offset on.

The newest records are in memory, indexed by key; older ones are read from Kafka for the reader that asks for them. So a reader
that comes back with the offset where it was misses nothing, as long as Kafka has the records.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from itertools import takewhile
from typing import Any, Final, Generic, NamedTuple, TypeVar

import structlog

from streamtable.base.closing import Closing
from streamtable.base.message import prefix_header, with_prefixes
from streamtable.base.own_process import OwnProcess
from streamtable.base.ports import ClusterClient, Log, WindowedKeys
from streamtable.base.topics import Stream, hash_of_rows
from streamtable.base.types import BadToken, RecordBatch, TopicPartition
from streamtable.errors import (
    ChangesMissed,
    DeserializationError,
    InputLost,
    NotReady,
    RetryLater,
    StreamtableError,
)
from streamtable.views.topic_follower import TopicFollower
from streamtable.views.watch import LoopWake, Wake, wake_all

K = TypeVar("K")
V = TypeVar("V")
log = structlog.get_logger()

KEPT_BYTES: Final = 16 << 20
_RECORD_BYTES: Final = 250  # what a record takes in memory beside its key and value
_KEY_BYTES: Final = 800  # what a key takes in the index of the records in memory
_BEFORE: Final = 2_000  # offsets of each partition that are read again at the start
_POLL_RECORDS: Final = 10_000
_POLL_SECONDS: Final = 0.2
_RETRY_SECONDS: Final = 0.5
_POLLS: Final = 25  # of one reader of old records, before it makes room for others
_FOUND_BYTES: Final = 1 << 20  # of old records that are read for one reader at a time
_READERS: Final = 4  # of old records, at a time


class TailRecord(NamedTuple, Generic[K, V]):
    """A committed record of a stream; `value` is None for a deletion."""

    key: K
    value: V | None
    partition: int
    offset: int


class _Kept(NamedTuple):
    """A record in memory; `key` is the key that readers ask for: of a windowed row, without the window."""

    offset: int
    key: bytes
    whole_key: bytes
    value: bytes | None

    @property
    def size(self) -> int:
        return len(self.whole_key) + len(self.value or b"") + _RECORD_BYTES


class _KeptPartition:
    """The newest records of a partition.

    Attributes:
        start: All committed records from this offset on are here,
        position: up to this one, exclusive.
        size: About how many bytes they take.
    """

    def __init__(self, start: int) -> None:
        self.start = self.position = start
        self.size = 0
        self._records: deque[_Kept] = deque()
        self._of_key: dict[bytes, deque[_Kept]] = {}

    def add(self, record: _Kept) -> None:
        self._records.append(record)
        self.size += record.size + (0 if record.key in self._of_key else _KEY_BYTES)
        self._of_key.setdefault(record.key, deque()).append(record)

    def forget_first(self) -> None:
        first = self._records.popleft()
        of_key = self._of_key[first.key]
        of_key.popleft()
        if not of_key:
            del self._of_key[first.key]
            self.size -= _KEY_BYTES
        self.size -= first.size
        self.start = first.offset + 1

    def since(self, key: bytes, offset: int) -> list[_Kept]:
        """Return the records of a key from an offset on, which is not before `start`."""
        newest = reversed(self._of_key.get(key, ()))  # mostly few are new
        return list(takewhile(lambda record: record.offset >= offset, newest))[::-1]


class _Read(NamedTuple):
    """The result of a read: the records, the next offset to read, and whether records were missed by deletion."""

    found: list[_Kept]
    read_to: int
    missed: bool = False


class Following(Closing, Generic[K, V]):
    """The records of one key from an offset on, without end; a context manager. Made by `Tail.follow`; it has one reader.

    Attributes:
        key: The encoded key.
        partition: The partition of the key.
    """

    def __init__(self, tail: "Tail[K, V]", key: bytes, partition: int, offset: int) -> None:
        self.key, self.partition = key, partition
        self.read_to = offset  # all records before it have been returned, or are in the list
        self.topic_id = tail.topic_id  # of the topic that the offset is of
        self.wake: Wake = bool
        self._tail = tail
        self._found: deque[_Kept] = deque()
        self._job: Future[_Read] | None = None
        self._reading: asyncio.Future[_Read] | None = None

    @property
    def offset(self) -> int:
        """All records before it have been returned: a reader who follows from here misses nothing."""
        return self._found[0].offset if self._found else self.read_to

    async def next_async(self) -> TailRecord[K, V]:
        """Return the next record, as soon as there is one. It may be cancelled, and no record is lost by that.

        Raises:
            ChangesMissed: Kafka has deleted records before they were read; the next call continues behind them.
            DeserializationError: The record cannot be decoded; the next call continues behind it.
            StreamtableError: The tail was closed, or the error that has stopped it permanently.
        """
        loop = asyncio.get_running_loop()
        while not self._found:
            woken = loop.create_future()
            self.wake = LoopWake(loop, woken)
            found = self._tail.look(self)
            if found is None:
                await self._read_back()
            elif found:
                self._found.extend(found)
            else:
                try:
                    await woken
                finally:
                    self._tail.forget(self)
        return self._tail.decoded(self._found.popleft(), self.partition)

    async def _read_back(self) -> None:
        """Have a thread read the records that are no longer in memory. If cancelled, the next call takes them."""
        if self._reading is None:
            self._job = self._tail.read_back(self)
            self._reading = asyncio.wrap_future(self._job)
        await asyncio.wait([self._reading])
        done, self._reading, self._job = self._reading, None, None
        if done.cancelled():  # the tail was closed, which the next look raises
            return
        try:
            read = done.result()
        except RetryLater:
            await asyncio.sleep(_RETRY_SECONDS)
            return
        self._found.extend(read.found)
        self.read_to = read.read_to
        if read.missed:
            topic = self._tail.stream.name
            missed = ChangesMissed(f"records of {topic!r} were deleted before they were read")
            raise missed.at(topic, self.partition, self.read_to)

    def close(self) -> None:
        """Wait until no thread works for it. Not to be called while a record is awaited."""
        if self._job is not None and not self._job.cancel():
            wait([self._job])


class Tail(Closing, Generic[K, V]):
    """The records of a stream by key, live, from any offset on. Made by `App.tail`. Any thread.

        with app.tail(PAGE_MINUTES) as closed, closed.follow("/index.html") as minutes:
            while True:
                record = await minutes.next_async()
                print(record.key.start_ms, record.value)

    All readers share one consumer and one thread; a record costs only the readers of its key. It follows the partitions
    that the topic had at its start.

    Args:
        stream: The stream. Of one with windows (`WindowedKey`, `SessionKey`), readers follow the key without its window.
        log_: Kafka.
        name: The name on the consumers and in the log.
        kept_bytes: About how much memory the newest records take. Older ones are read from Kafka when they are asked for.
        before: The number of offsets of each partition that are read again at the start.
        closed: Called when it is closed.
    """

    def __init__(
        self,
        stream: Stream[K, V],
        log_: Log,
        name: str = "view",
        *,
        kept_bytes: int = KEPT_BYTES,
        before: int = _BEFORE,
        closed: "Callable[[Tail[K, V]], object]" = bool,
    ) -> None:
        self.stream = stream
        self._log, self._name, self._kept_bytes, self._before = log_, f"tail-{name}", kept_bytes, before
        self._closed = closed
        self._windows = stream.key if isinstance(stream.key, WindowedKeys) else None
        self._lock = threading.Lock()  # of the next six
        self.topic_id = ""
        self._parts: list[_KeptPartition] = []
        self._ends: list[int] = []
        self._waiting: dict[tuple[int, bytes], set[Following[K, V]]] = {}
        self._failure: Exception | None = None
        self._client: ClusterClient | None = None
        self._here = OwnProcess(f"the tail of {stream.name!r}")
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix=self._name)
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    # ---- any thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow the stream in a thread. Does not wait for the broker."""
        self._thread.start()

    def close(self) -> None:
        """Stop following the stream; readers that wait raise an error. May be called twice."""
        if self._here.elsewhere:  # in a forked process there is nothing to close
            return
        self._stop.set()
        self._end(StreamtableError(f"the tail of {self.stream.name!r} was closed", topic=self.stream.name))
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown(cancel_futures=True)
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
        self._closed(self)

    @property
    def ready(self) -> bool:
        """Whether it has read up to the end that the stream had at the start. Raises its permanent error."""
        with self._lock:
            self._check()
            ends = zip(self._parts, self._ends, strict=True)
            return bool(self._parts) and all(part.position >= end for part, end in ends)

    def follow(self, key: Any, partition: int | None = None, offset: int | None = None) -> Following[K, V]:
        """Return the records of a key from an offset on, or from now on.

        Args:
            key: The key; of a stream with windows the key without its window.
            partition: The partition of the offset.
            offset: The first offset to return, such as a `Following.offset`; None: the present end. It does not say which topic
                it is of: where the topic was created again since, and is longer, records before the offset are missing.

        Raises:
            NotReady: It has not read up to the end yet.
            BadToken: The records of this key are in another partition.
        """
        if not self.ready:
            raise NotReady(f"the newest records of {self.stream.name!r} are being read")
        windows = self._windows
        raw = self.stream.key.encode(key) if windows is None else windows.bounds(key, 0, 0)[0]
        home = hash_of_rows(self.stream)(raw) % len(self._parts)
        if partition not in {None, home}:
            raise BadToken(f"the records of this key are in partition {home} of {self.stream.name!r}")
        data = raw if windows is None else windows.inner(raw)
        return Following(self, data, home, self._parts[home].position if offset is None else offset)

    # ---- for `Following` -------------------------------------------------------------------------------------------

    def look(self, following: Following[K, V]) -> list[_Kept] | None:
        """Return the records in memory from its position on; None: memory does not reach back so far.

        If there is nothing yet, its `wake` is called when there is.
        """
        with self._lock:
            self._check()
            part = self._parts[following.partition]
            if (
                following.topic_id != self.topic_id
            ):  # its offset says nothing about a topic that was created again
                following.topic_id, following.read_to = self.topic_id, -1
            if not part.start <= following.read_to <= part.position:
                return None
            found = part.since(following.key, following.read_to)
            following.read_to = part.position
            if not found:
                self._waiting.setdefault((following.partition, following.key), set()).add(following)
            return found

    def forget(self, following: Following[K, V]) -> None:
        """Do not wake this one any more. If it would have been, all until now was not for it."""
        place = (following.partition, following.key)
        with self._lock:
            waiting = self._waiting.get(place, set())
            if following in waiting:
                following.read_to = self._parts[following.partition].position
                waiting.discard(following)
                if not waiting:
                    del self._waiting[place]

    def read_back(self, following: Following[K, V]) -> "Future[_Read]":
        """Read older records from Kafka, in a thread; not all at once if there are many."""
        with self._lock:
            self._check()
            return self._pool.submit(self._read, following.key, following.partition, following.read_to)

    def decoded(self, kept: _Kept, partition: int) -> TailRecord[K, V]:
        """Return the record. Raises `DeserializationError` with its place."""
        try:
            value = None if kept.value is None else self.stream.value.decode(kept.value)
            return TailRecord(self.stream.key.decode(kept.whole_key), value, partition, kept.offset)
        except DeserializationError as error:
            error.at(self.stream.name, partition, kept.offset)
            raise

    def _read(self, key: bytes, partition: int, offset: int) -> "_Read":
        place = TopicPartition(self.stream.name, partition)
        low, high = self._cluster().watermarks([place])[place]
        if not low <= offset <= high:
            # Deleted by retention, or with the whole topic, which was created again.
            return _Read([], low, missed=True)
        if offset >= self._parts[partition].position:  # another process has read further than this one
            self._stop.wait(_POLL_SECONDS)
            return _Read([], offset)
        found: list[_Kept] = []
        with closing(self._log.table_reader(f"{self._name}-back")) as reader:
            reader.assign({place: offset})
            try:
                for _ in range(_POLLS):
                    for batch in reader.poll(_POLL_RECORDS, _POLL_SECONDS):
                        found += [kept for kept in self._kept(batch) if kept.key == key]
                    at = reader.position(place)
                    large = sum(kept.size for kept in found) > _FOUND_BYTES
                    if at >= self._parts[partition].start or large or self._stop.is_set():
                        break
            except InputLost:
                at = reader.position(place)
                # If Kafka has deleted it meanwhile, the next call sees that; else a record is damaged.
                if not found and at >= self._cluster().watermarks([place])[place].low:
                    raise
        return _Read(found, at)

    # ---- its thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except (RetryLater, InputLost) as error:
                # The latter: retention was faster, or the topic was created again.
                log.warning("tail restarts", topic=self.stream.name, error=str(error))
            except Exception as error:
                log.exception("the tail has stopped", topic=self.stream.name)
                self._end(error)
                return
            self._stop.wait(_RETRY_SECONDS)

    def _follow(self) -> None:
        """Read from shortly before the end on, until stopped."""
        follower = TopicFollower(self._log, self._cluster(), self.stream.name, self._before, len(self._parts))
        with self._lock:
            self._parts = [_KeptPartition(start) for start in follower.starts]
            self._ends, self.topic_id = follower.ends, follower.info.topic_id
            # Together with the above: what a reader has seen must not be compared with a new position.
            wakes = self._all_waiting()
        wake_all(wakes)
        with closing(follower.batches(self._name, self._stop)) as read:
            for batches, positions in read:
                self._add(batches, positions)

    def _add(self, batches: Iterable[RecordBatch], positions: Sequence[int]) -> None:
        woken: set[Following[K, V]] = set()
        most = self._kept_bytes // len(positions)
        with self._lock:
            for batch in batches:
                part = self._parts[batch.partition]
                for kept in self._kept(batch):
                    part.add(kept)
                    for following in self._waiting.pop((batch.partition, kept.key), ()):
                        following.read_to = kept.offset  # the records before it have other keys
                        woken.add(following)
                while part.size > most:
                    part.forget_first()
            for part, position in zip(self._parts, positions, strict=True):
                part.position = position
        wake_all([following.wake for following in woken])

    def _end(self, error: Exception) -> None:
        """Have every reader raise this error, unless another one has stopped the tail before."""
        with self._lock:
            self._failure = self._failure or error
            wakes = self._all_waiting()
        wake_all(wakes)

    def _check(self) -> None:
        """Raise the error that has stopped it. With the lock held, as a reader that begins to wait afterwards is not woken."""
        self._here.check()
        if self._failure is not None:
            raise self._failure.with_traceback(None)  # which would grow each time

    def _all_waiting(self) -> list[Wake]:
        """Return the calls that wake the waiting readers, which then wait no longer. With the lock held."""
        wakes = [following.wake for waiting in self._waiting.values() for following in waiting]
        self._waiting.clear()
        return wakes

    def _kept(self, batch: RecordBatch) -> Iterator[_Kept]:
        inner = bytes if self._windows is None else self._windows.inner
        records = with_prefixes(batch, prefix_header(self.stream.value))
        for offset, key, value in zip(records.offsets, records.keys, records.values, strict=True):
            if key is not None:
                yield _Kept(offset, inner(key), key, value)

    def _cluster(self) -> ClusterClient:
        with self._lock:
            self._client = self._client or self._log.cluster()
            return self._client
