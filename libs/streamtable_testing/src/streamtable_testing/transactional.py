"""The engine's producer on the virtual Kafka, with the same errors as the real adapter: `ports.TransactionalProducer`.

Records are kept until `flush`, or the commit, delivers them. Without a transactional id they are visible then.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from streamtable.base.clock import Clock
from streamtable.base.ports import Membership
from streamtable.base.types import Committed, Headers, QueuedRecord, TopicPartition
from streamtable.errors import (
    Fenced,
    Migrated,
    OutcomeUnknown,
    RetryLater,
    RewindNeeded,
    SerializationError,
    StreamtableError,
)
from streamtable_testing.faults import Wire
from streamtable_testing.group import GroupCoordinator, VirtualMembership
from streamtable_testing.topic import Topic, size_of
from streamtable_testing.transactions import Transactions

T = TypeVar("T")

_CLIENT_BYTES_MAX = 64 << 20


class _Queued(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    partition: int
    headers: Headers
    timestamp_ms: int
    tracked: bool
    refused: Callable[[StreamtableError], None] | None


class _Delivered(NamedTuple):
    tracked: dict[TopicPartition, int]
    refused: list[tuple[_Queued, StreamtableError]]


class _Refused(RewindNeeded):
    """The broker has refused records, which leaves a gap in their sequence, or offsets: it takes a new producer."""


class VirtualTransactionalProducer:
    """A transactional producer.

    Args:
        transactional_id: None for one without transactions.
        transactions: the coordinator.
        topic: finds a topic; None if there is none.
        group: finds a group.
        wire: The connection to the broker.
        clock: The clock for timestamps and the age of transactions.
    """

    def __init__(
        self,
        transactional_id: str | None,
        transactions: Transactions,
        topic: Callable[[str], Topic | None],
        group: Callable[[str], GroupCoordinator],
        wire: Wire,
        clock: Clock,
    ) -> None:
        self._id = transactional_id
        self._transactions = transactions
        self._topic = topic
        self._group = group
        self._wire = wire
        self._clock = clock
        self._epoch = 0
        self._number = 0  # of its transaction: a late request must find the one that it belongs to
        self._begun_at = 0.0
        self._queued: list[_Queued] = []
        self._tracked: dict[TopicPartition, int] = {}
        self._failed: StreamtableError | None = None  # raised by the next flush
        self._doomed: StreamtableError | None = None  # the transaction can only be aborted
        self._damaged = False  # records were refused in a transaction: it takes a new producer
        self._dead: StreamtableError | None = None  # it failed for good

    def open(self, timeout: float) -> None:
        del timeout  # an answer comes at once or not at all
        if (owned := self._id) is not None:
            self._epoch = self._wire.ask("open", lambda: self._transactions.open(owned), silent=RetryLater)

    def begin(self) -> None:
        self._raise_dead()
        if self._id is not None:
            self._number += 1
            self._tracked, self._failed, self._doomed = {}, None, None
            self._begun_at = self._clock.monotonic()

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
        self._raise_dead()
        if size_of(key, value, headers) > _CLIENT_BYTES_MAX:
            raise SerializationError("a record is larger than the client accepts", topic=topic)
        at = timestamp_ms or round(self._clock.now() * 1000)
        self._queued.append(_Queued(topic, key, value, partition, tuple(headers), at, tracked, refused))

    def produce_records(self, records: Sequence[QueuedRecord]) -> None:
        for topic, key, value, headers, timestamp_ms, partition in records:
            self.produce(topic, key, value, partition=partition, headers=headers, timestamp_ms=timestamp_ms)

    def produce_rows(
        self,
        topic: str,
        partition: int,
        rows: Sequence[tuple[bytes, bytes | None]],
        last_headers: Headers = (),
    ) -> None:
        *most, (last_key, last_value) = rows
        for key, value in most:
            self.produce(topic, key, value, partition=partition)
        self.produce(topic, last_key, last_value, partition=partition, headers=last_headers, tracked=True)

    def flush(self, timeout: float) -> Mapping[TopicPartition, int]:
        del timeout
        self._raise_dead()
        self._deliver()
        tracked, self._tracked = self._tracked, {}
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        return tracked

    def send_offsets(self, offsets: Mapping[TopicPartition, Committed], membership: Membership) -> None:
        self._raise_dead()
        if not isinstance(membership, VirtualMembership) or not membership.member_id:
            raise Migrated("no offsets are sent outside of the group: it has not been joined, or was left")
        group, sent = self._group(membership.group), dict(offsets)

        def send() -> None:
            transaction = self._transactions.ongoing(self._id or "", self._epoch)
            group.check(membership)
            if reason := group.offsets.refused(sent):
                raise _Refused(reason)
            group.offsets.add(transaction, sent)

        try:
            self._ask("send-offsets", send, silent=OutcomeUnknown, refused=RewindNeeded)
        except (Migrated, RewindNeeded) as error:
            self._doomed = error
            self._damaged = self._damaged or isinstance(error, _Refused)
            raise

    def commit(self, timeout: float) -> None:
        del timeout
        if self._id is None:
            return
        self._raise_dead()
        try:
            self._deliver()
        except RewindNeeded as error:
            raise OutcomeUnknown(error.message) from error
        if self._doomed is not None:
            raise self._doomed
        self._end(commit=True)

    def abort(self, timeout: float) -> None:
        del timeout
        self._queued, self._tracked, self._failed = [], {}, None
        if self._id is None:
            return
        self._raise_dead()
        self._end(commit=False)
        if self._damaged:
            raise OutcomeUnknown("a record has failed, so the next transaction takes a new producer")

    def close(self) -> None:
        self._queued = []

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _end(self, *, commit: bool) -> None:
        owned, epoch = self._id or "", self._epoch

        def end() -> None:
            self._transactions.end(owned, epoch, commit=commit)

        refused = RewindNeeded if commit else OutcomeUnknown
        self._ask("commit" if commit else "abort", end, silent=OutcomeUnknown, refused=refused)
        self._number += 1

    def _deliver(self) -> None:
        queued, self._queued = self._queued, []
        if not queued:
            return
        number = self._number
        try:
            delivered = self._ask(
                "records", lambda: self._append(queued, number), silent=RewindNeeded, refused=_Refused
            )
        except RewindNeeded as error:
            self._doomed = error
            self._damaged = self._id is not None and isinstance(error, _Refused)
            raise
        self._tracked.update(delivered.tracked)
        for record, why in delivered.refused:
            if record.refused is not None and isinstance(why, SerializationError):
                record.refused(why)
            if record.tracked or record.refused is not None or self._id is None:
                self._failed = self._failed or why
            self._doomed = why
            self._damaged = self._id is not None

    def _append(self, queued: list[_Queued], number: int) -> _Delivered:
        """Append records, as the broker does."""
        transaction = None
        if self._id is not None:
            if number != self._number:
                raise RewindNeeded("the transaction of these records is over")
            transaction = self._transactions.ongoing(self._id, self._epoch)
        done = _Delivered({}, [])
        for record in queued:
            topic = self._topic(record.topic)
            place = TopicPartition(record.topic, max(record.partition, 0))
            if topic is None or record.partition >= len(topic.partitions):
                done.refused.append((record, RewindNeeded("there is no such partition").at(*place)))
                continue
            if record.partition >= 0:
                partition = topic.partitions[record.partition]
            else:
                partition = topic.partition_of(record.key)
            if not topic.fits(record.key, record.value, record.headers):
                error = SerializationError("a record is larger than the topic accepts").at(*partition.place)
                done.refused.append((record, error))
                continue
            offset = partition.append(
                record.key, record.value, record.headers, record.timestamp_ms, transaction
            )
            if record.tracked:
                done.tracked[partition.place] = offset
        return done

    def _ask(
        self,
        call: str,
        effect: Callable[[], T],
        *,
        silent: type[StreamtableError],
        refused: type[StreamtableError],
    ) -> T:
        try:
            return self._wire.ask(call, effect, silent=silent, refused=refused)
        except Fenced as error:
            age = self._clock.monotonic() - self._begun_at
            self._dead = error
            if age >= self._transactions.timeout:
                # Most likely the broker has given the transaction up.
                text = f"{call} was refused: the transaction was {age:.1f} s old ({error.message})"
                self._dead = OutcomeUnknown(text)
            raise self._dead from error

    def _raise_dead(self) -> None:
        if self._dead is not None:
            raise self._dead
