"""Records of a consumer as columns, without an object per record."""

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, overload

from confluent_kafka import Consumer, KafkaError, Message

from streamtable import RecordBatch
from streamtable.base.types import HEADERS_UNREADABLE, Headers, TopicPartition

if TYPE_CHECKING:
    from streamtable_native._native import ErrorItem, Queue, Run

_SERVE_EVERY_S = 0.1
"""The longest time that rebalances and errors, which stay in the client's own queue, wait for records; and the time after
which partitions are forwarded again."""


class NativeRecord(NamedTuple):
    """One record, with the methods of `confluent_kafka.Message`. It is made where one record alone is looked at."""

    key_: bytes | None
    value_: bytes | None
    offset_: int
    timestamp_: tuple[int, int]
    headers_: Headers | None

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def offset(self) -> int:
        return self.offset_

    def timestamp(self) -> tuple[int, int]:
        return self.timestamp_

    def headers(self) -> Headers | None:
        return self.headers_


@dataclass(frozen=True, slots=True)
class RecordColumns(Sequence[NativeRecord]):
    """Consecutive records of one partition, a column for each field.

    Args:
        keys: Their keys.
        values: Their values.
        offsets: Their offsets.
        times: Their timestamps in milliseconds since 1970.
        kinds: The kinds of their timestamps: 0 none, 1 create time, 2 append time.
        headers: Their headers; None: no record has any.
        rising: Each offset is above its predecessor.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    offsets: "memoryview[int]"
    times: "memoryview[int]"
    kinds: bytes
    headers: list[Headers | None] | None
    rising: bool

    @classmethod
    def of(cls, run: "Run") -> "RecordColumns":
        """Return the columns of the extension."""
        _, _, keys, values, offsets, times, kinds, found, rising = run
        headers: list[Headers | None] | None = None
        if found is not None:
            headers = [[HEADERS_UNREADABLE] if each is NotImplemented else each for each in found]
        return cls(
            keys, values, memoryview(offsets).cast("q"), memoryview(times).cast("q"), kinds, headers, rising
        )

    def joined(self, more: "RecordColumns") -> "RecordColumns":
        """Return the columns of these records and the next ones."""
        headers = None
        if self.headers is not None or more.headers is not None:
            headers = [*(self.headers or [None] * len(self)), *(more.headers or [None] * len(more))]
        return RecordColumns(
            self.keys + more.keys,
            self.values + more.values,
            _joined(self.offsets, more.offsets),
            _joined(self.times, more.times),
            self.kinds + more.kinds,
            headers,
            self.rising and more.rising and more.offsets[0] > self.offsets[-1],
        )

    def only(self, keep: Sequence[bool]) -> "RecordColumns":
        """Return the records whose index is true in `keep`."""
        return RecordColumns(
            list(compress(self.keys, keep)),
            list(compress(self.values, keep)),
            _numbers(compress(self.offsets, keep)),
            _numbers(compress(self.times, keep)),
            bytes(compress(self.kinds, keep)),
            None if self.headers is None else list(compress(self.headers, keep)),
            self.rising,
        )

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> NativeRecord: ...
    @overload
    def __getitem__(self, index: slice) -> "RecordColumns": ...
    def __getitem__(self, index: int | slice) -> "NativeRecord | RecordColumns":
        headers = None if self.headers is None else self.headers[index]
        if isinstance(index, slice):
            return RecordColumns(
                self.keys[index],
                self.values[index],
                self.offsets[index],
                self.times[index],
                self.kinds[index],
                headers,  # type: ignore[arg-type] # a list for a slice
                self.rising,
            )
        stamp = (self.kinds[index], self.times[index])
        return NativeRecord(self.keys[index], self.values[index], self.offsets[index], stamp, headers)  # type: ignore[arg-type] # of one record


class NativeBatch(RecordBatch):
    """A `RecordBatch` whose columns are there already."""

    messages: RecordColumns

    # The base class makes its columns from messages when they are first asked for, which has a price for each record.

    @cached_property
    def keys(self) -> list[bytes | None]:
        return self.messages.keys

    @cached_property
    def values(self) -> list[bytes | None]:
        return self.messages.values

    @cached_property
    def offsets(self) -> list[int]:
        return self.messages.offsets.tolist()

    def rising(self) -> int:
        return len(self) if self.messages.rising else super().rising()

    def timestamps(self) -> list[int]:
        return self.messages.times.tolist()

    def each_headers(self) -> Iterator[Headers | None]:
        return iter(self.messages.headers or [None] * len(self))

    def only(self, keep: Sequence[bool]) -> RecordBatch:
        times = None if self.times is None else self.times.only(keep)
        return NativeBatch(self.topic, self.partition, self.messages.only(keep), times)


class NativeRecords:
    """The records of a consumer's partitions, in a queue beside the client's own.

    Rebalances, log lines and errors of the client stay in its own queue, since only the client can call its callbacks.

    Args:
        consumer: The client.
        queue: A new queue of it.
    """

    def __init__(self, consumer: Consumer, queue: "Queue") -> None:
        self._consumer = consumer
        self._queue = queue
        self._attached: set[TopicPartition] = set()
        self._forward_at = 0.0
        self._closed = False

    def attach(self, places: Iterable[TopicPartition]) -> None:
        """Take records of these partitions. They are about to be assigned: no record goes to the client's own queue."""
        if not self._closed:  # a consumer that is being closed may still be given partitions
            self._attached.update(places)
            self._forward()

    def detach(self, places: Iterable[TopicPartition]) -> None:
        """Take no more records of these partitions, which are about to be unassigned."""
        gone = self._attached.intersection(places)
        self._attached -= gone
        for place in gone:
            self._queue.detach(*place)

    def take(
        self, max_records: int, timeout: float, on_error: Callable[[Message], None]
    ) -> list[RecordBatch]:
        """Return the queued records; if there are none, those that have arrived with the next one.

        Args:
            max_records: The number of records, at most.
            timeout: The seconds to wait.
            on_error: Called for each error in place of a record.

        Returns:
            A batch for each partition, in the order of their first records.
        """
        deadline = time.monotonic() + timeout
        while True:
            served = self._serve_client(on_error)
            runs, errors = self._queue.take(max_records, 0)
            left = deadline - time.monotonic()
            if not runs and not errors and not served and left > 0:
                runs, errors = self._wait(max_records, min(left, _SERVE_EVERY_S))
            for item in errors:
                on_error(_message(item))
            if runs or errors or served or left <= _SERVE_EVERY_S:
                return _batches(runs)

    def close(self) -> None:
        """Stop taking records, before the client is closed. May be called twice."""
        if not self._closed:
            self._closed = True
            # librdkafka aborts the process in the close of a consumer with a partition that is still forwarded.
            self.detach(list(self._attached))
            self._queue.close()

    def _forward(self) -> None:
        self._forward_at = time.monotonic() + _SERVE_EVERY_S
        for place in self._attached:
            self._queue.attach(*place)

    def _serve_client(self, on_error: Callable[[Message], None]) -> bool:
        """Let the client call its callbacks and report its errors. Returns whether there was one."""
        messages = self._consumer.consume(1, 0)
        for message in messages:
            if message.error() is None:
                text = f"a record of {message.topic()}[{message.partition()}] is in the client's own queue"
                raise AssertionError(text)
            on_error(message)
        # A partition that is assigned again soon after it was unassigned loses its forwarding: librdkafka clears it when it
        # has stopped fetching for the former assignment, at some time later. Records wait in the partition until then.
        if time.monotonic() >= self._forward_at:
            self._forward()
        return bool(messages)

    def _wait(self, max_records: int, seconds: float) -> "tuple[list[Run], list[ErrorItem]]":
        runs, errors = self._queue.take(1, max(1, int(seconds * 1000)))
        more = self._queue.take(max_records - 1, 0) if runs and max_records > 1 else ([], [])
        return runs + more[0], errors + more[1]


def _batches(runs: "Iterable[Run]") -> list[RecordBatch]:
    found: dict[tuple[str, int], RecordColumns] = {}
    for run in runs:
        place, columns = run[:2], RecordColumns.of(run)
        found[place] = found[place].joined(columns) if place in found else columns
    return [NativeBatch(topic, partition, columns) for (topic, partition), columns in found.items()]


def _message(item: "ErrorItem") -> Message:
    topic, partition, offset, code, text = item
    return Message(topic=topic, partition=partition, offset=offset, error=KafkaError(code, text))


def _numbers(values: Iterable[int]) -> "memoryview[int]":
    return memoryview(array("q", values))


def _joined(first: "memoryview[int]", second: "memoryview[int]") -> "memoryview[int]":
    return memoryview(b"".join((first, second))).cast("q")
