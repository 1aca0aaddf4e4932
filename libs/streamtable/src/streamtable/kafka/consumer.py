"""A member of a group: assignment, positions, records, committed offsets."""

import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Partition

from streamtable.base.ports import RebalanceListener
from streamtable.base.settings import GroupProtocol
from streamtable.base.types import Committed, RecordBatch, TopicPartition
from streamtable.errors import InputLost, Migrated, RetryLater, StreamtableError
from streamtable.kafka.client_log import ClientLog
from streamtable.kafka.errors import (
    DEAD,
    END,
    FORBIDDEN,
    LOST,
    MIGRATED,
    PASSING,
    STATE,
    cause,
    describe,
    fatal,
    forbidden,
    migrated,
    unreadable,
)
from streamtable.kafka.fetch import Records

log = structlog.get_logger()

REJOIN_EVERY_S = 1.0
START = OFFSET_BEGINNING
UNRELEASED = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()
"""The text by which a fatal error names its cause: its error code says only that it is fatal."""
UNSUPPORTED = KafkaError(KafkaError.UNSUPPORTED_VERSION).str()
"""The same, for a broker that knows the consumer protocol and does not offer it."""
SEEK_WAIT_S = 2.0
WAKE_WAIT_S = 0.02
QUIET_S = 5.0


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """The client's serialized group metadata, and the member id, empty until the group has been joined.

    The client makes up its id before it joins and puts it into the metadata with generation -1, which the broker
    accepts from anyone; so the generation decides.
    """

    metadata: bytes
    member_id: str


def membership_of(metadata: bytes, member_id: str | None) -> GroupMembership:
    head = b"CGMDv2:"
    if not metadata.startswith(head):
        raise AssertionError(f"unknown form of group metadata: {metadata[:16]!r}")
    (generation,) = struct.unpack_from("=i", metadata, len(head))
    return GroupMembership(metadata, (member_id or "") if generation > 0 else "")


def partitions(places: Iterable[TopicPartition]) -> list[Partition]:
    return [Partition(topic, partition) for topic, partition in places]


def offsets_of(offsets: Mapping[TopicPartition, Committed]) -> list[Partition]:
    return [Partition(*place, offset, metadata) for place, (offset, metadata) in offsets.items()]


def _places(assigned: Iterable[Partition]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in assigned]


@dataclass(eq=False)
class KafkaGroupConsumer:
    """`ports.GroupConsumer` on librdkafka.

    A partition arrives paused at no position of its own: `seek` says where to read before `resume` lets it.

    Args:
        create: Makes the client; called again when a static member has to wait for its former session to end, when the
            broker does not have the protocol, and when the client has stopped a partition.
        records: Makes what takes the records out of a client.
        log: Receives the client's log lines and errors.
        protocol: With "consumer", assignments come as changes; with "classic", which takes its place on a broker that
            does not have it, as a whole.
    """

    _create: Callable[[GroupProtocol], Consumer]
    _records_of: Callable[[Consumer], Records]
    _log: ClientLog
    protocol: GroupProtocol

    def __post_init__(self) -> None:
        self._consumer = self._create(self.protocol)
        self._records = self._records_of(self._consumer)
        self._closed = False
        self._failure: BaseException | None = None
        self._next: dict[TopicPartition, int] = {}  # where reading continues; no entry until the first seek
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._disturbed = False
        self._passed: dict[TopicPartition, int] = {}  # read to their ends since the last `passed`
        self._heard: set[TopicPartition] = set()  # of these something came since the last look
        self._look_at = time.monotonic() + QUIET_S
        self._subscription: tuple[list[str], RebalanceListener] | None = None
        self._rejoin_at: float | None = None

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self._subscription = (list(topics), listener)
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assigned, on_revoke=self._on_revoked, on_lost=self._on_lost
        )

    def poll(self, max_records: int, timeout: float) -> list[RecordBatch]:
        self._raise_failure()
        if self._rejoin_at is not None and not self._rejoined(timeout):
            return []
        errors: list[Message] = []
        taken = self._records.take(max_records, timeout, errors.append)
        self._raise_failure()
        if self.protocol == "consumer" and self._log.no_consumer_protocol:
            self._fall_back()
            return []
        ends: dict[TopicPartition, int] = {}
        for error in errors:
            self._error_item(error, ends)
        batches = [read for batch in taken if (read := self._following(batch, ends))]
        for place, end in ends.items():
            self._pass_end(place, end)
        if self._disturbed:
            # A change of the assignment makes the client stop fetching, also from the partitions that stay.
            self._disturbed = False
            self._wake(self._next.keys() - self._paused)
        self._mend_quiet()
        return batches

    def join_again(self) -> None:
        self._rejoin_at = time.monotonic()

    def passed(self) -> Mapping[TopicPartition, int]:
        passed, self._passed = self._passed, {}
        return passed

    def end(self, place: TopicPartition) -> int:
        try:
            _, high = self._consumer.get_watermark_offsets(Partition(*place), cached=True)
        except KafkaException:
            return 0
        return max(0, high)  # before the first fetch it is an invalid offset, below 0

    def pause(self, places: Iterable[TopicPartition]) -> None:
        places = list(places)
        self._consumer.pause(partitions(places))
        self._paused.update(places)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        resumed = self._paused.intersection(places)
        if unplaced := resumed - self._next.keys():
            raise AssertionError(f"resumed before a seek: {sorted(unplaced)}")
        self._consumer.resume(partitions(resumed))
        self._paused -= resumed
        self._wake(resumed)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._seek(place, offset)
        self._next[place] = offset
        self._passed.pop(place, None)

    def _pass_end(self, place: TopicPartition, end: int) -> None:
        """Note that nothing is left to read below this offset: the position passes markers and aborted records."""
        if place in self._next and end >= self._next[place]:
            self._next[place] = self._passed[place] = end

    def _following(self, batch: RecordBatch, ends: dict[TopicPartition, int]) -> RecordBatch:
        """Return the records that continue from the position, and note the position behind them.

        The client looks up the start of an assigned partition. If the answer comes after a seek, it asks once more
        half a second later, and goes to the beginning of the partition, wherever it was reading. Records from there on
        are skipped, also within one batch, and the position is sought again. An end of the partition that was reported
        with them is forgotten: records below it have not been returned.
        """
        place, expected = batch.place, self._next.get(batch.place)
        if expected is None:
            return batch
        following = 0 if batch.first_offset < expected else batch.rising()
        read = batch.part(0, following)
        if read:
            self._next[place] = read.last_offset + 1
            self._heard.add(place)
        if following < len(batch):
            ends.pop(place, None)
            self._seek(place, self._next[place])
        return read

    def _mend_quiet(self) -> None:
        """Seek again on partitions from which nothing has come for a while.

        Mostly there is nothing. But a partition whose leader changed, or froze, at the wrong moment stays for minutes
        in a state of the client's in which nothing is fetched: it waits for the answer to a look-up.
        """
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + QUIET_S
            for place in self._next.keys() - self._paused - self._heard:
                self._seek(place, self._next[place])
            self._heard.clear()

    def _wake(self, places: Iterable[TopicPartition]) -> None:
        """Make the client's fetcher look at resumed partitions, which it does only after up to a second by itself.

        A seek to where reading continues does it, except for offset 0, which changes nothing for the client. Then a
        question to the leader does it: any will do. It is one for all partitions, since a leader answers only after the
        fetch before it, which may wait for records.
        """
        at_start = []
        for place in places:
            self._seek(place, self._next[place])
            if self._next[place] == 0:
                at_start.append(Partition(*place, OFFSET_BEGINNING))
        if at_start:
            with suppress(KafkaException):  # then the fetcher takes its second
                self._consumer.offsets_for_times(at_start, timeout=WAKE_WAIT_S)

    def _seek(self, place: TopicPartition, offset: int) -> None:
        deadline = time.monotonic() + SEEK_WAIT_S
        while place in self._assigned:
            try:
                self._consumer.seek(Partition(*place, offset))
            except KafkaException as exception:
                error = cause(exception)
                if error.code() not in STATE:
                    raise fatal(error, "a seek").at(*place, offset) from exception
                if self._rejoin_at is not None:
                    return None  # the next client seeks
                # Right after the assignment the fetcher may not have started, and refuses.
                if time.monotonic() > deadline:
                    return self._find_stopped(place, offset)
                time.sleep(0.002)
            else:
                return None
        raise Migrated("a seek in a partition that is not assigned").at(*place)

    def _find_stopped(self, place: TopicPartition, offset: int) -> None:
        """Raise `InputLost`, or join again, for a partition that the client has stopped, so that it refuses every seek.

        It stops a partition whose position is out of range, and reports that as an error in place of a record. A seek
        makes it drop that error, even if it refuses the seek; so the range is looked up here. If the position is in it,
        an answer to the partition's former assignment has stopped this one: only a new client reads it.
        """
        with suppress(KafkaException):  # then it is found out after joining again
            low, high = self._consumer.get_watermark_offsets(
                Partition(*place), timeout=SEEK_WAIT_S, cached=False
            )
            if not all(low <= each <= high for each in (offset, self._next.get(place, offset))):
                text = f"the records at the reading position are gone: the topic holds {low} to {high}. Find out what was lost, and set the group's offset to accept it"
                raise InputLost(text).at(*place, offset)
        log.warning("partition stopped by the client, joining the group again", **place._asdict())
        self._rejoin_at = time.monotonic() + REJOIN_EVERY_S

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        if not offsets:
            return
        if not self.membership().member_id:
            raise Migrated("nothing is committed outside of the group: it has not been joined, or was left")
        try:
            answers = self._consumer.commit(offsets=offsets_of(offsets), asynchronous=False)
        except KafkaException as error:
            raise self._uncommitted(cause(error)) from error
        for answer in answers:
            if answer.error is not None:
                raise self._uncommitted(answer.error).at(answer.topic, answer.partition, answer.offset)

    def membership(self) -> GroupMembership:
        return membership_of(self._consumer.consumer_group_metadata(), self._consumer.memberid())

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._records.close()
            self._consumer.close()
            self._raise_failure()

    # -- callbacks: an exception in one is kept and raised by `poll`, because the client would continue without state

    def _on_assigned(self, consumer: Consumer, assigned: list[Partition]) -> None:
        for each in assigned:
            # Any start will do until `seek`, if it is one that every partition has: after an error, as for an offset
            # out of range or none committed, the client stops the partition and refuses every seek.
            each.offset = START
        self._disturbed = True
        self._records.attach(_places(assigned))
        if self.protocol == "consumer":
            consumer.incremental_assign(assigned)
        else:
            consumer.assign(assigned)
        consumer.pause(assigned)
        self._assigned.update(_places(assigned))
        self._paused.update(_places(assigned))
        self._tell(lambda listener, places: listener.assigned(places), _places(assigned))

    def _on_revoked(self, consumer: Consumer, revoked: list[Partition]) -> None:
        self._tell(lambda listener, places: listener.revoked(places), _places(revoked))
        self._unassign(consumer, revoked)

    def _on_lost(self, consumer: Consumer, lost: list[Partition]) -> None:
        self._tell(lambda listener, places: listener.lost(places), _places(lost))
        self._unassign(consumer, lost)

    def _unassign(self, consumer: Consumer, gone: list[Partition]) -> None:
        for place in _places(gone):
            self._next.pop(place, None)
            self._passed.pop(place, None)
            self._assigned.discard(place)
            self._paused.discard(place)
        self._disturbed = True
        self._records.detach(_places(gone))
        if self.protocol == "consumer":
            consumer.incremental_unassign(gone)
        else:
            consumer.unassign()

    def _tell(
        self, call: Callable[[RebalanceListener, list[TopicPartition]], None], places: list[TopicPartition]
    ) -> None:
        if not places or self._failure is not None or self._subscription is None:
            return
        try:
            call(self._subscription[1], places)
        except BaseException as error:  # noqa: BLE001 - kept, and raised as it is by `poll` or `close`
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- errors

    def _error_item(self, message: Message, ends: dict[TopicPartition, int]) -> None:
        error = message.error()
        assert error is not None
        if error.code() in END:
            ends[TopicPartition(message.topic() or "", message.partition() or 0)] = message.offset() or 0
            return
        if error.code() in DEAD and UNRELEASED in error.str():
            self._rejoin_at = time.monotonic() + REJOIN_EVERY_S
        elif error.code() in DEAD and UNSUPPORTED in error.str():
            self._log.no_consumer_protocol = True
            return
        elif refusal := forbidden(error):
            raise self._log.caller.lacks(refusal, "READ", message.topic() or "")
        elif error.fatal() or error.code() in DEAD:
            raise fatal(error, "being a member of the group")
        elif error.code() not in PASSING:
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            # Before the first seek nothing is read: such an error is of a former assignment of the partition.
            if place in self._next or error.code() not in LOST:
                raise unreadable(error, *place, message.offset())
        self._log.error(error)

    def _rejoined(self, timeout: float) -> bool:
        """Join again when it is time, as when a static member's former session has not ended. Returns whether it was."""
        assert self._rejoin_at is not None
        wait = self._rejoin_at - time.monotonic()
        if wait > timeout:
            time.sleep(timeout)
            return False
        time.sleep(max(0.0, wait))
        self._rejoin_at = None
        self._replace_client()
        return True

    def _fall_back(self) -> None:
        """Join with the classic protocol instead: the broker is older than 4.0, or its consumer protocol is switched off."""
        log.warning(
            "classic group protocol used: the broker has no consumer protocol (KIP-848), which comes with Kafka 4.0 and "
            "group.version=1",
            client=self._log.caller.group,
        )
        self._replace_client("classic")

    def _replace_client(self, protocol: GroupProtocol | None = None) -> None:
        """Replace the client, which loses all assigned partitions."""
        self._records.close()
        self._consumer.close()
        self._raise_failure()
        self.protocol = protocol or self.protocol
        self._consumer = self._create(self.protocol)
        self._records = self._records_of(self._consumer)
        if self._subscription is not None:
            self.subscribe(*self._subscription)

    def _uncommitted(self, error: KafkaError) -> StreamtableError:
        if error.code() in MIGRATED:
            return migrated(error, "the commit")
        if error.code() in FORBIDDEN:
            return self._log.caller.lacks(error, "READ")
        return RetryLater(f"the commit was not answered ({describe(error)})")
