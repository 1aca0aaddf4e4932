"""The API of user code: a batch with its records, its rows in the central store, and how it sends."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from microbatch.columns import columns
from microbatch.record import Record
from microbatch.rows import BatchRows, Rows, StoredRows
from streamtable.base.topics import Stream
from streamtable.base.types import Headers, TopicPartition, Watermarks
from streamtable.errors import GraphError

K = TypeVar("K")
E = TypeVar("E")
V = TypeVar("V")
R = TypeVar("R")

_AT_ONCE_MAX = 100


class _Emit(Protocol):
    def __call__(
        self, stream: Stream[Any, Any], key: Any, value: Any, headers: Headers, timestamp_ms: int
    ) -> None: ...


class Send:
    """Sends records to the outputs. They become visible with the commit of the batch, or never."""

    def __init__(self, emit: _Emit, flush: Callable[[], None]) -> None:
        self._emit = emit
        self._flush = flush

    def __call__(
        self,
        stream: Stream[K, V],
        key: K,
        value: V | None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Send a record.

        Args:
            stream: One of the outputs.
            key: The key, which determines the partition.
            value: The value; None: a tombstone.
            headers: Headers, as names and bytes.
            timestamp_ms: The timestamp in milliseconds since 1970; None: now.

        Raises:
            GraphError: The stream is not an output of this `MicroBatch`.
            SerializationError: The record does not fit its schema, or is larger than the topic accepts.
        """
        self._emit(stream, key, value, headers, 0 if timestamp_ms is None else timestamp_ms or 1)

    def flush(self) -> None:
        """Wait until Kafka has all sent records in the open transaction, so that they use no more memory.

        The batch must then end within seconds: the broker aborts a transaction that stays open for 10 s.
        """
        self._flush()


class Batch:
    """Decoded records of the same partition of all inputs. Valid only during the call of `process`.

    Attributes:
        partition: The number of the partition.
        records: The records of all inputs in the order of arrival; records of one input are in the order of offsets.
    """

    def __init__(
        self,
        partition: int,
        records: Sequence[Record[Any, Any]],
        next_offsets: Mapping[str, int],
        kinds: Mapping[str, Rows[Any]],
        stored: StoredRows,
        reject: Callable[[Record[Any, Any], str], None],
        watermarks: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, Watermarks]],
    ) -> None:
        self.partition = partition
        self.records = records
        self._next_offsets = next_offsets
        self._kinds = kinds
        self._stored = stored
        self._reject = reject
        self._watermarks = watermarks
        self._rows: dict[str, BatchRows[Any]] = {}
        self._rejected: set[tuple[str, int]] = set()

    def of(self, stream: Stream[K, E]) -> list[Record[K, E]]:
        """Return the records of one input, in the order of their offsets."""
        return [record for record in self.records if record.stream == stream.name]

    def columns(self, stream: Stream[Any, Any]) -> Any:
        """Return the records of one input as a `pyarrow.RecordBatch`; see `columns.columns`. Needs the extra `arrow`."""
        return columns(self.of(stream))

    def rows(self, rows: Rows[V]) -> BatchRows[V]:
        """Return rows of the central store. Raises `GraphError` for kinds that the `MicroBatch` does not name."""
        found = self._rows.get(rows.name)
        if found is None:
            if self._kinds.get(rows.name) != rows:
                raise GraphError(f"rows {rows.name!r} are not declared: add them to rows= of the MicroBatch")
            found = self._rows[rows.name] = BatchRows(rows, self._stored)
        return found

    def reject(self, record: Record[Any, Any], reason: str) -> None:
        """Send a record to the dead letters, once in a batch: a second reason is ignored. The other effects of the batch stand."""
        if (place := (record.topic, record.offset)) not in self._rejected:
            self._rejected.add(place)
            self._reject(record, reason)

    def has_caught_up(self) -> bool:
        """Return whether this partition of the inputs has no more records after this batch. Queries the broker.

        The last offset of a topic may be a transaction marker, which consumers skip, so a lag of one counts as none,
        and one more record may follow.

        Raises:
            RetryLater: The broker did not respond. Do not catch it: the batch is retried.
        """
        places = [TopicPartition(topic, self.partition) for topic in self._next_offsets]
        marks = self._watermarks(places)
        return all(marks[place].high - self._next_offsets[place.topic] <= 1 for place in places)

    async def gather(self, work: Iterable[Awaitable[R]], *, at_once: int = _AT_ONCE_MAX) -> list[R]:
        """Await at most `at_once` at a time, and return the results in order. The first error cancels the others."""
        room = asyncio.Semaphore(at_once)
        all_work = list(work)

        async def one(each: Awaitable[R]) -> R:
            async with room:
                return await each

        running = [asyncio.ensure_future(one(each)) for each in all_work]
        try:
            return await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for each in all_work:
                if inspect.iscoroutine(each):
                    each.close()  # otherwise Python warns of coroutines that were never awaited

    @property
    def used_rows(self) -> Iterable[BatchRows[Any]]:
        """Return all kinds of rows that the batch has used."""
        return self._rows.values()

    def __len__(self) -> int:
        return len(self.records)
