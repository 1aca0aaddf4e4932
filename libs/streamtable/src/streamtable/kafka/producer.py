"""Sends single records, each with its own acknowledgement."""

import threading
import time
from collections import deque
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streamtable.base.types import Ack, Headers
from streamtable.errors import QueueFull, RetryLater, StreamtableError
from streamtable.kafka.client_log import ClientLog
from streamtable.kafka.errors import DEAD, REFUSED, cause, describe, fatal, forbidden, refused, sendable

log = structlog.get_logger()
Done = Callable[[Ack | StreamtableError], None]
IDLE_S = 0.1
_NO_TOPIC = "there is no such topic; 'streamtable topics apply' creates what topics.yaml declares"
_CLOSED = "the producer was closed before Kafka had acknowledged it"
_WHY: dict[int, str] = {  # where the client's own words say too little
    KafkaError.UNKNOWN_TOPIC_OR_PART: _NO_TOPIC,
    KafkaError._UNKNOWN_TOPIC: _NO_TOPIC,  # noqa: SLF001 - codes
    KafkaError._PURGE_QUEUE: _CLOSED,  # noqa: SLF001
    KafkaError._PURGE_INFLIGHT: _CLOSED,  # noqa: SLF001
}


class KafkaProducer:
    """`ports.Producer` on librdkafka, with one thread that serves delivery reports.

    Args:
        producer: The client.
        log: The log for the client's own messages.
        delivery_timeout: The seconds that a record waits for room in the queue. Its delivery fails as many seconds later.
    """

    def __init__(self, producer: Producer, log: ClientLog, delivery_timeout: float) -> None:
        self._producer = producer
        self._log = log
        self._delivery_timeout = delivery_timeout
        self._refused: deque[tuple[Done, StreamtableError]] = deque()  # answered by the thread, as all are
        self._served = threading.Condition()
        self._closing = self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="kafka-producer", daemon=True)
        self._thread.start()

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        done: Done,
        *,
        partition: int = -1,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> None:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                done(Ack(message.topic() or "", message.partition() or 0, message.offset() or 0))
            else:
                done(_failure(error, topic, self._log))

        own = sendable(headers, topic) if headers else None
        deadline = time.monotonic() + self._delivery_timeout
        while True:
            try:
                self._producer.produce(topic, value, key, partition, report, None, timestamp_ms, own)
            except BufferError:
                if time.monotonic() > deadline or self._closing:
                    raise QueueFull(
                        "the producer's queue stayed full, so the record was not sent: send it again",
                        topic=topic,
                    ) from None
                with self._served:
                    self._served.wait(IDLE_S)
            except KafkaException as exception:
                self._refused.append((done, _failure(cause(exception), topic, self._log)))
                return
            else:
                return

    def flush(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        with self._served:
            while self._waiting() and (left := deadline - time.monotonic()) > 0:
                self._served.wait(min(left, IDLE_S))
        return self._waiting()

    def close(self, timeout: float) -> None:
        if self._closing:
            return
        self.flush(timeout)
        self._closing = True
        self._purge()
        self.flush(1.0)  # the purged ones are answered by the thread
        self._stopping = True
        self._thread.join()
        # The purge has made room for a record that another thread was waiting to queue.
        self._purge()
        self._producer.flush(1.0)
        self._answer_refused()

    def _purge(self) -> None:
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    def _waiting(self) -> int:
        return len(self._producer) + len(self._refused)

    def _serve(self) -> None:
        while not self._stopping:
            try:
                served = self._producer.poll(IDLE_S)
            except KafkaException as exception:
                # The client says once that it failed for good; the records' own reports follow.
                self._log.error(cause(exception))
                served = 1
            except Exception:
                # A report's callback has failed: the other reports must not wait for ever because of it.
                log.exception("callback of an acknowledgement failed")
                served = 1
            served += self._answer_refused()
            if served:
                with self._served:
                    self._served.notify_all()

    def _answer_refused(self) -> int:
        served = 0
        while self._refused:
            done, error = self._refused[0]
            try:
                done(error)
            except Exception:
                log.exception("callback of a refusal failed")
            self._refused.popleft()
            served += 1
        return served


def _failure(error: KafkaError, topic: str, client: ClientLog) -> StreamtableError:
    if error.code() in REFUSED:
        return refused(error, topic)
    if refusal := forbidden(error):
        return client.caller.lacks(refusal, "WRITE", topic)
    if error.fatal() or error.code() in DEAD:
        return fatal(error, "producing")
    why = _WHY.get(error.code()) or client.unresolved
    text = f"the record was not delivered{f': {why}' if why else ''} ({describe(error)})"
    return RetryLater(text, topic=topic)
