"""The engine's transactional producer, and the meaning of each error for the commit."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streamtable.base.ports import Membership
from streamtable.base.types import Committed, Headers, QueuedRecord, TopicPartition
from streamtable.errors import Fatal, Migrated, OutcomeUnknown, RetryLater, RewindNeeded, StreamtableError
from streamtable.kafka.client_log import ClientLog
from streamtable.kafka.consumer import GroupMembership, offsets_of
from streamtable.kafka.errors import (
    DEAD,
    FENCED,
    FORBIDDEN,
    MIGRATED,
    REFUSED,
    cause,
    describe,
    fatal,
    forbidden,
    forbidden_in,
    migrated,
    refused,
    sendable,
)
from streamtable.kafka.native import NativeLoops
from streamtable.kafka.options import TRANSACTION_TIMEOUT_S

CONNECT_WAIT_S = 2.0
OVERDUE_S = 1.0  # a call that is asked for longer than its timeout has been forgotten by the client


class _Aside:
    """A call in a thread of its own, which can be abandoned."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="offsets", daemon=True)
        self._thread.start()

    def ended(self, timeout: float) -> bool:
        """Wait for the call. Raises its error."""
        self._thread.join(timeout)
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - raised by `ended`
            self._failure = error


class KafkaTransactionalProducer:
    """`ports.TransactionalProducer` on librdkafka.

    In a transaction only tracked records get a delivery report (it costs 0.45 us): the failure of another one makes
    the client refuse the commit. Without transactions every record gets one.
    """

    def __init__(
        self,
        producer: Producer,
        log: ClientLog,
        *,
        transactional: bool,
        transaction_seconds: float = TRANSACTION_TIMEOUT_S,
        native: NativeLoops | None = None,
    ) -> None:
        self._producer = producer
        self._native = native if transactional else None  # it makes no delivery reports
        self._log = log
        self._transactional = transactional
        self._transaction_seconds = transaction_seconds
        self._tracked: dict[TopicPartition, int] = {}
        self._failed: StreamtableError | None = None
        self._damaged = False  # a record has failed within a transaction
        self._in_doubt = False  # a commit was not answered in time
        self._begun_at = time.monotonic()

    def open(self, timeout: float) -> None:
        if not self._transactional:
            return
        with suppress(KafkaException):  # the question that counts comes next
            # Asked before it has a connection, the client looks for the coordinator once in half a second.
            self._producer.list_topics(timeout=min(timeout, CONNECT_WAIT_S))
        try:
            self._producer.init_transactions(timeout)
        except KafkaException as exception:
            error = cause(exception)
            if error.retriable() and not error.fatal():
                raise RetryLater(
                    f"the transaction coordinator does not answer ({describe(error)})"
                ) from exception
            raise self._final(error, "opening the transactional producer") from exception

    def begin(self) -> None:
        if not self._transactional:
            return
        self._tracked, self._failed = {}, None
        self._begun_at = time.monotonic()
        self._log.transaction_failed = ""
        try:
            self._producer.begin_transaction()
        except KafkaException as exception:
            raise fatal(cause(exception), "beginning a transaction") from exception

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int = -1,
        headers: Headers = (),
        timestamp_ms: int = 0,
        tracked: bool = False,
        refused: Callable[[StreamtableError], None] | None = None,
    ) -> None:
        report: Callable[[KafkaError | None, Message], None] | None
        report = self._report_tracked if tracked else None if self._transactional else self._report
        if refused is not None and not tracked:
            report = partial(self._report_refused, refused)
        own, deadline = sendable(headers, topic) if headers else None, 0.0
        while True:
            try:
                self._producer.produce(topic, value, key, partition, report, None, timestamp_ms, own)
            except BufferError:
                deadline = deadline or time.monotonic() + self._transaction_seconds
                self._serve(self._producer.poll, 0.05)
                if time.monotonic() > deadline:
                    text = f"the producer's queue stayed full for {self._transaction_seconds:.0f} s"
                    raise RewindNeeded(text, topic=topic) from None
            except KafkaException as exception:
                raise self._failure(cause(exception), topic) from exception
            else:
                return

    def produce_records(self, records: Sequence[QueuedRecord]) -> None:
        start = 0 if self._native is None else self._native.produce_records(self._producer, records)
        queue, report = self._producer.produce, None if self._transactional else self._report
        for topic, key, value, headers, time_ms, partition in records[start:]:
            own = sendable(headers, topic) if headers else None
            try:
                queue(topic, value, key, partition, report, None, time_ms, own)
            except (BufferError, KafkaException):
                # Which knows what to do about it.
                self.produce(topic, key, value, partition=partition, headers=headers, timestamp_ms=time_ms)

    def produce_rows(
        self,
        topic: str,
        partition: int,
        rows: Sequence[tuple[bytes, bytes | None]],
        last_headers: Headers = (),
    ) -> None:
        *most, (last_key, last_value) = rows
        if self._native is not None:
            refused = self._native.produce_rows(self._producer, topic, partition, most)
            for key, value in [most[index] for index in refused]:
                self.produce(topic, key, value, partition=partition)  # which knows what to do about it
        else:
            queue, report = self._producer.produce, None if self._transactional else self._report
            for key, value in most:
                try:
                    queue(topic, value, key, partition, report)
                except (BufferError, KafkaException):
                    self.produce(topic, key, value, partition=partition)
        self.produce(topic, last_key, last_value, partition=partition, headers=last_headers, tracked=True)

    def flush(self, timeout: float) -> Mapping[TopicPartition, int]:
        waiting = self._serve(self._producer.flush, timeout)
        tracked, self._tracked = self._tracked, {}
        failed, self._failed = self._failed, None
        if (failed or waiting) and (refusal := forbidden_in(self._log.transaction_failed)):
            # Its records fail by their time-out only; what the client has said of the transaction is why.
            raise self._log.caller.lacks(refusal, "WRITE", (failed and failed.topic) or "")
        if failed is not None:
            raise failed
        if waiting:
            raise RewindNeeded(f"records were not acknowledged in {timeout:g} s")
        return tracked

    def send_offsets(self, offsets: Mapping[TopicPartition, Committed], membership: Membership) -> None:
        if not isinstance(membership, GroupMembership) or not membership.member_id:
            # The broker accepts offsets of someone who never joined, so a zombie would not be fenced.
            raise Migrated("no offsets are sent outside of the group: it has not been joined, or was left")

        producer = self._producer  # kept by a call that never returns, when this outbox has been closed

        def send(timeout: float) -> None:
            producer.send_offsets_to_transaction(offsets_of(offsets), membership.metadata, timeout)

        doing = "sending offsets to the transaction"
        # librdkafka does not look at this timeout while it waits for a coordinator that has just come back, and may
        # miss that: the call then lasts until some connection changes, which can be never (librdkafka #5456).
        seconds = self._transaction_seconds
        asking = _Aside(lambda: self._ask(send, seconds, doing))
        if not asking.ended(seconds + OVERDUE_S):
            raise OutcomeUnknown(f"{doing} did not return in {seconds + OVERDUE_S:g} s")

    def commit(self, timeout: float) -> None:
        if self._transactional:
            try:
                self._ask(self._producer.commit_transaction, timeout, "the commit")
            except OutcomeUnknown:
                self._in_doubt = True
                raise

    def abort(self, timeout: float) -> None:
        self._tracked, self._failed = {}, None
        if self._in_doubt:
            # The client still waits for the answer. An abort would confuse its states: when the answer comes, librdkafka
            # (2.16) may end the process with "BUG: Invalid transaction state transition".
            raise OutcomeUnknown("a commit was not answered, so the next transaction takes a new producer")
        if self._transactional:
            try:
                self._ask(self._producer.abort_transaction, timeout, "the abort")
            except RewindNeeded as error:
                raise OutcomeUnknown(error.message) from error
            if self._damaged:
                # The client continues with a gap in its sequence numbers: the broker refuses the next transaction.
                raise OutcomeUnknown("a record has failed, so the next transaction takes a new producer")

    def close(self) -> None:
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        # Dropped, not closed: the client's own `close` would wait for the broker.
        del self._producer

    def _ask(self, request: Callable[[float], None], timeout: float, doing: str) -> None:
        """Do a step of a transaction; the client resumes a retriable step where it stood."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                request(max(0.001, deadline - time.monotonic()))
            except KafkaException as exception:
                error = cause(exception)
                if error.fatal():
                    raise self._dead(error, doing) from exception
                if error.txn_requires_abort():
                    raise self._failure(error, None) from exception
                if error.code() in MIGRATED:
                    raise migrated(error, doing) from exception
                if not error.retriable():
                    raise self._final(error, doing) from exception
                if time.monotonic() >= deadline:
                    text = f"{doing} was not answered in {timeout:g} s"
                    raise OutcomeUnknown(f"{text} ({describe(error)})") from exception
            else:
                return

    def _serve(self, call: Callable[[float], int], timeout: float) -> int:
        """Serve delivery reports. The client raises its fatal error here, once, whichever call caused it.

        A report that it delivers while that error is already raised fails because of it: then Python raises `SystemError`,
        from it, or from nothing if one report more has wiped it out.
        """
        try:
            return call(timeout)
        except (KafkaException, SystemError) as exception:
            fatal_error = exception if isinstance(exception, KafkaException) else exception.__cause__
            if not isinstance(fatal_error, KafkaException):
                fatal_error = self._lost_error()
            if fatal_error is None:
                raise OutcomeUnknown(
                    "the client failed and lost the reason, which takes a new producer"
                ) from exception
            raise self._dead(cause(fatal_error), "producing") from fatal_error

    def _lost_error(self) -> KafkaException | None:
        """Return the fatal error from a call that a failed client refuses at once, with its reason."""
        try:
            self._producer.begin_transaction()
        except KafkaException as exception:
            return exception if cause(exception).fatal() or cause(exception).code() in FENCED else None
        return None

    def _final(self, error: KafkaError, doing: str, topic: str | None = None) -> Fatal:
        if refusal := forbidden(error):
            return self._log.caller.lacks(refusal, "WRITE", topic or "")
        return fatal(error, doing)

    def _dead(self, error: KafkaError, doing: str, topic: str | None = None) -> StreamtableError:
        """Return the error for the end of this client; it ends the process only where a person must act."""
        age = time.monotonic() - self._begun_at
        if error.code() in FENCED and age >= self._transaction_seconds:
            # Most likely it was the broker that gave the transaction up, after an outage or while this process stood
            # still. If it was another process, that one and this fence each other soon enough to tell.
            return OutcomeUnknown(
                f"{doing} was refused: the transaction was {age:.1f} s old ({describe(error)})"
            )
        if error.code() in FENCED or forbidden(error):
            return self._final(error, doing, topic)
        return OutcomeUnknown(f"{doing} failed for good, which takes a new producer ({describe(error)})")

    def _failure(self, error: KafkaError, topic: str | None) -> StreamtableError:
        """Return the error for a failed record, or for an error that requires an abort."""
        if error.code() in MIGRATED:
            return migrated(error, "the transaction")
        self._damaged = self._transactional
        if error.code() in REFUSED:
            return refused(error, topic)
        if error.code() in DEAD:
            self._serve(self._producer.poll, 0)
        if error.fatal() or error.code() in DEAD or error.code() in FORBIDDEN:
            return self._dead(error, "producing", topic)
        return RewindNeeded(f"the transaction cannot be committed ({describe(error)})", topic=topic)

    def _report(self, error: KafkaError | None, message: Message) -> None:
        # A refused record fails the others of its batch too, and they may be reported first.
        if error is not None and (self._failed is None or error.code() in REFUSED):
            self._failed = self._failure(error, message.topic())
            self._failed.at(message.topic() or "", message.partition() or 0)

    def _report_refused(
        self, on_refused: Callable[[StreamtableError], None], error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self._report(error, message)
            if error.code() in REFUSED and self._failed is not None:
                on_refused(self._failed)

    def _report_tracked(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            self._report(error, message)
        elif offset is None or offset < 0:
            # Success of a retry that the broker had already: it does not say where the record stands.
            self._failed = self._failed or RewindNeeded("a changelog record was stored at an unknown offset")
        else:
            self._tracked[TopicPartition(message.topic() or "", message.partition() or 0)] = offset
