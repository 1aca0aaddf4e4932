"""Sends events to a stream and reports when all in-sync replicas have acknowledged them."""

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from typing import Generic, Self, TypeVar

import structlog

from streamtable.base.own_process import OwnProcess
from streamtable.base.ports import Log, WindowedKeys
from streamtable.base.topics import Stream, hash_of_rows
from streamtable.base.tracing import UNTRACED, carrying, tracer_of
from streamtable.base.types import Ack, Headers
from streamtable.errors import QueueFull, RetryLater, SerializationError, StreamtableError

K = TypeVar("K")
V = TypeVar("V")
Done = Callable[[Ack | StreamtableError], None]

log = structlog.get_logger()

_TIME_MS_MAX = 1 << 63


class Emitter(Generic[K, V]):
    """Sends to one stream, from any thread. The stream's partitioner chooses the partition of a key.

        with Emitter(USER_CLICKS, kafka) as emitter:
            emitter.emit("alice", click)

    For keys in windows it asks Kafka once how many partitions the topic has. Make a new emitter after partitions were added.

    No failure goes unnoticed: it is set in the record's future, and if the future's result was not read, it is raised
    by `flush` or `close`, and so by leaving the `with` block.

    Args:
        stream: The stream to send to.
        log: The Kafka cluster.
        close_timeout: Seconds that leaving the `with` block waits for acknowledgements.
        delivery_timeout: Seconds after which a record that is not acknowledged fails with `RetryLater`, and is not
            sent any more. A service that answers requests sets it below the time that a request waits.

    Raises:
        ConfigurationError: The `delivery_timeout` is out of bounds.
    """

    def __init__(
        self, stream: Stream[K, V], log: Log, *, close_timeout: float = 30.0, delivery_timeout: float = 120.0
    ) -> None:
        self.stream = stream
        self._log = log
        self._windowed = isinstance(stream.key, WindowedKeys)
        self._partitions = 0  # of the topic, once they are needed
        self._producer = log.producer(stream.partitioner, delivery_timeout)
        self._tracer = tracer_of(log)
        self._close_timeout = close_timeout
        self._closed = False
        self._here = OwnProcess(f"the emitter of {stream.name!r}")
        self._unseen = _Failures()

    def emit(self, key: K, value: V | None, *, headers: Headers = (), timestamp_ms: int = 0) -> Future[Ack]:
        """Queue a record; wait only while the queue is full, and at most the delivery timeout.

        Args:
            key: The key of the record, which decides the partition; None in a stream without keys.
            value: The value; None writes a tombstone, which deletes the key from a compacted topic.
            headers: The headers, names and bytes.
            timestamp_ms: Milliseconds since 1970; 0: now.

        Returns:
            A future of the record's place in the log, or of its failure: `RetryLater` (not acknowledged in time: it may have
            arrived), `QueueFull` (it was not sent), `SerializationError` (larger than Kafka accepts). Cannot be cancelled.
            Callbacks run in the producer's thread and must not block.

        Raises:
            SerializationError: The key or the value does not fit their codec, or the timestamp is no time; nothing was queued.
            RetryLater: The emitter is closed; or Kafka does not say how many partitions a stream of windowed keys has.
            UsedAfterFork: The process was forked after the emitter was made.
        """
        self._here.check()
        if self._closed:
            raise RetryLater("the emitter is closed: make a new one", topic=self.stream.name)
        if key is None and not self.stream.keyless:
            raise SerializationError(
                "a record needs a key, which decides its partition; a stream of records without keys has key=NoKey()",
                topic=self.stream.name,
            )
        if timestamp_ms.__class__ is not int or not 0 <= timestamp_ms < _TIME_MS_MAX:
            raise SerializationError(
                f"the timestamp {timestamp_ms!r}: give an int of milliseconds since 1970, or 0 for now",
                topic=self.stream.name,
            )
        try:
            key_bytes = None if key is None else self.stream.key.encode(key)
            value_bytes = None if value is None else self.stream.value.encode(value)
        except SerializationError as error:
            error.topic = self.stream.name
            raise
        # The client hashes whole keys.
        partition = self._partition_of_window(key_bytes) if self._windowed and key_bytes is not None else -1
        answer = _Answer(lambda: self._unseen)
        done: Done = answer.settle
        if self._tracer is not UNTRACED:
            headers, done = self._traced(headers, done)
        try:
            self._producer.produce(
                self.stream.name,
                key_bytes,
                value_bytes,
                done,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )
        except QueueFull as error:
            done(error)
        return answer

    def emit_now(self, key: K, value: V | None, *, headers: Headers = (), timestamp_ms: int = 0) -> Ack:
        """Emit a record as `emit` does and wait for the acknowledgement. Raises the errors of the future."""
        return self.emit(key, value, headers=headers, timestamp_ms=timestamp_ms).result()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records emitted so far are acknowledged or have failed.

        Args:
            timeout: Seconds to wait; None: until each is acknowledged, or has failed at its delivery timeout.

        Raises:
            RetryLater: Some are not, after `timeout` seconds.
            StreamtableError: The first failure whose future has not been read.
            UsedAfterFork: As in `emit`.
        """
        self._here.check()
        seconds = math.inf if timeout is None else timeout
        waiting = self._producer.flush(seconds)
        failures, self._unseen = self._unseen, _Failures()
        failures.raise_first(self.stream.name)
        if waiting:
            raise RetryLater(
                f"{waiting} records are not acknowledged after {seconds:g} s", topic=self.stream.name
            )

    def close(self, timeout: float | None = None) -> None:
        """Flush and disconnect; records without an answer after `timeout` seconds fail with `RetryLater`.

        Raises:
            StreamtableError: The first failure whose future has not been read.
        """
        if self._closed or self._here.elsewhere:  # in a forked process there is nothing to close
            return
        self._closed = True
        self._producer.close(self._close_timeout if timeout is None else timeout)
        self._unseen.raise_first(self.stream.name)

    def _partition_of_window(self, key: bytes) -> int:
        """Return the partition of the key in a window: windows are where the records of their key are."""
        if not self._partitions:
            with closing(self._log.cluster()) as cluster:
                topic = cluster.topics([self.stream.name]).get(self.stream.name)
            if topic is None:
                reason = "the topic is missing: 'streamtable topics apply' creates it"
                raise RetryLater(reason, topic=self.stream.name)
            self._partitions = topic.partitions
        return hash_of_rows(self.stream)(key) % self._partitions

    def _traced(self, headers: Headers, done: Done) -> tuple[Headers, Done]:
        """Return the headers to send and the function to call with the answer, when the record is traced."""
        span = self._tracer.send(self.stream.name)

        def end(answer: Ack | StreamtableError) -> None:
            if isinstance(answer, Ack):
                span.note(partition=answer.partition, offset=answer.offset)
                span.end()
            else:
                span.end(answer)
            done(answer)

        return carrying(headers, span.headers), end if span.headers else done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except StreamtableError as failure:
            if error is None:
                raise
            log.warning("emitter failed after another error", stream=self.stream.name, failure=str(failure))


class _Failures:
    """Failures since the last flush whose futures were not read: their number, and the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._first: StreamtableError | None = None

    def add(self, error: StreamtableError) -> None:
        with self._lock:
            self._count += 1
            self._first = self._first or error

    def looked_at(self, error: StreamtableError) -> None:
        with self._lock:
            self._count -= 1
            if self._first is error:
                self._first = None

    def raise_first(self, topic: str) -> None:
        with self._lock:
            count, first = self._count, self._first
        if not count:
            return
        if first is None:
            raise RetryLater(f"{count} records failed: their futures say why", topic=topic)
        failed = first.__class__.__new__(first.__class__)  # some have other arguments
        failed.__dict__.update(vars(first), message=f"{count} records failed: {first.message}", topic=topic)
        raise failed from first


class _Answer(Future[Ack]):
    """A future that records whether its failure was read."""

    def __init__(self, unseen: Callable[[], _Failures]) -> None:
        super().__init__()
        self._unseen = unseen
        self._among: _Failures | None = None
        self.set_running_or_notify_cancel()  # the record is on its way and cannot be called back

    def settle(self, answer: Ack | StreamtableError) -> None:
        if isinstance(answer, Ack):
            self.set_result(answer)
        else:
            self._among = self._unseen()
            self._among.add(answer)
            self.set_exception(answer)

    def result(self, timeout: float | None = None) -> Ack:
        self.exception(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        error = super().exception(timeout)
        if isinstance(error, StreamtableError) and self._among is not None:
            self._among.looked_at(error)
            self._among = None
        return error
