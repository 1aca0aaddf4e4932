"""The dead letters of a group: read from its topic, with whether each was replayed, and replayed exactly once.

A dead letter and the marker that records its replay are produced in one transaction. All replays of a group share one
transactional id: a replay that begins fences and aborts an earlier one before it reads the letters and the markers.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamtable.base.deadletter import (
    ERROR,
    MESSAGE,
    PREFIX,
    RECORD_OVERHEAD_BYTES,
    REPLAYED_OFFSET,
    TIME,
    VALUE_OMITTED,
    Origin,
    OutputRecord,
    replayed_marker,
)
from streamtable.base.failpoint import Failpoint, failpoint_at, no_failpoint
from streamtable.base.ports import TransactionalProducer
from streamtable.base.topics import legal_name
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.errors import StreamtableError
from streamtable.graph.companion import CALLS
from streamtable_admin.cluster import Cluster
from streamtable_admin.errors import NoSuchDeadLetter, NoSuchTopic, Refused
from streamtable_admin.reading import PATIENT, ReadLimits, read_to
from streamtable_admin.records import TopicRecord, collect, records_of
from streamtable_admin.text import count

REPLAY_TRANSACTIONAL_ID = "{group}.streamtable-admin-replay"
"""The transactional id of all replays of a group: a second replay fences the first, whichever program runs it."""
BATCH_LETTERS = 500
BATCH_BYTES = 4_000_000
_DIGITS_MAX = 18
_NAME = re.compile(r"([0-9]{1,9}):([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True)
class LoggedDeadLetter:
    """A record that a group could not process.

    Attributes:
        origin: The input record; None if its headers do not name it, so that it cannot be replayed.
        replayed: The time when it was last replayed, in milliseconds since 1970; None if never.
    """

    record: TopicRecord
    origin: Origin | None
    replayed: int | None = None

    @staticmethod
    def of(record: TopicRecord) -> "LoggedDeadLetter":
        """Return the dead letter in a record of a dead-letter topic."""
        return LoggedDeadLetter(record, Origin.read(record.headers))

    @property
    def holds_row(self) -> bool:
        """Whether it holds a timer or another row that fell due, and neither a record of an input nor a call to make again."""
        origin, own = self.origin, self.record.place.topic.removesuffix("dead-letters")
        is_call = origin is not None and origin.topic == own + CALLS and self.omitted_bytes is None
        # Deletions of joined rows that were missed have no offset either.
        return origin is not None and origin.offset < 0 and origin.topic.startswith(own) and not is_call

    @property
    def id(self) -> tuple[int, int]:
        """Its partition and offset in the dead-letter topic."""
        return self.record.place.partition, self.record.offset

    @property
    def name(self) -> str:
        """Its name for people: PARTITION:OFFSET in the dead-letter topic."""
        return f"{self.record.place.partition}:{self.record.offset}"

    @property
    def time(self) -> int:
        """The time when processing the record failed, in milliseconds since 1970."""
        found = _number(dict(self.record.headers).get(TIME))
        return self.record.timestamp if found is None else found

    @property
    def error(self) -> str:
        """The kind of the error."""
        return self._header(ERROR)

    @property
    def message(self) -> str:
        """The message of the error."""
        return self._header(MESSAGE)

    @property
    def omitted_bytes(self) -> int | None:
        """The size of a value that is at the origin only, with the record's own headers: they were too large; None if all is here.

        0: the record has no value, and its headers, or its key, were too large.
        """
        return _number(dict(self.record.headers).get(VALUE_OMITTED))

    def origin_document(self) -> dict[str, Any] | None:
        """Return its origin as JSON can express it."""
        if self.origin is None:
            return None
        topic, partition, offset = self.origin.topic, self.origin.partition, self.origin.offset
        return {"topic": topic, "partition": partition, "offset": offset}

    def _header(self, name: str) -> str:
        return (dict(self.record.headers).get(name) or b"").decode(errors="replace")


@dataclass(frozen=True)
class Replayed:
    """The outcome of a replay.

    Attributes:
        sent: The letters that were produced.
        before: Letters that had been replayed before.
        rows: Letters with a timer or another row that fell due: there is no input to send them to.
    """

    sent: list[LoggedDeadLetter]
    before: list[LoggedDeadLetter]
    rows: list[LoggedDeadLetter]


@dataclass(frozen=True, slots=True)
class ReplayTimeouts:
    """Seconds to wait for the transaction: `open` for its beginning, `commit` for its end."""

    open: float = 30.0
    commit: float = 9.0


PATIENT_REPLAY = ReplayTimeouts()


def dead_letter_topic(group: str) -> str:
    """Return the name of a group's dead-letter topic. Raises `ConfigurationError` for an illegal group name."""
    return legal_name(f"{legal_name(group, 'group')}-dead-letters", "dead-letter topic")


def parse_name(text: str) -> tuple[int, int]:
    """Return partition and offset of a dead letter's name. Raises `Refused`."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise Refused(f"{text!r} does not name a dead letter: expected PARTITION:OFFSET, for example 3:17")
    return int(match[1]), int(match[2])


def failpoint_named(name: str | None) -> Failpoint:
    """Return the failpoint of the settings, which kills the process at a step of a commit; for tests."""
    return failpoint_at(name) if name else no_failpoint


@dataclass(frozen=True)
class DeadLetterLog:
    """The dead letters of a group.

    Attributes:
        cluster: The cluster.
        group: The group.
        newest: The maximum number of offsets of each partition to read, from its end.
        limits: The limits of a read.
    """

    cluster: Cluster
    group: str
    newest: int = sys.maxsize
    limits: ReadLimits = PATIENT

    @property
    def topic(self) -> str:
        """The dead-letter topic."""
        return f"{self.group}-dead-letters"

    def read(
        self,
        selected: Callable[[LoggedDeadLetter], bool] = lambda _: True,
        *,
        partitions: Iterable[int] = (),
        complete: bool = False,
        reached: dict[TopicPartition, int] | None = None,
    ) -> list[LoggedDeadLetter]:
        """Return the selected dead letters, in the order of partition and offset.

        Args:
            selected: Whether a letter is returned.
            partitions: The partitions to read; all if there are none.
            complete: Wait for open transactions, which may hold a marker.
            reached: Filled with the offset that the read has reached in each partition. Behind it there may be other letters,
                and markers of those that are returned.

        Raises:
            NoSuchTopic: The group has no dead-letter topic, or no such partition.
            RetryLater: The broker has stopped answering, or a transaction stays open.
        """
        places = self.cluster.partitions(self.topic, partitions)
        marks = self.cluster.admin.watermarks(places)
        starts = {place: max(mark.low, mark.high - self.newest) for place, mark in marks.items()}
        return self._read(starts, marks, selected, complete=complete, reached=reached)

    def named(self, names: Collection[str], *, complete: bool = False) -> list[LoggedDeadLetter]:
        """Return the dead letters of these names.

        A marker stands behind its letter, so each partition is read from the first named letter on.

        Raises:
            Refused: A name is malformed.
            NoSuchTopic: The group has no dead-letter topic, or no such partition.
            NoSuchDeadLetter: A letter does not exist.
            RetryLater: The broker has stopped answering, or a transaction stays open.
        """
        ids = {parse_name(name) for name in names}
        places = self.cluster.partitions(self.topic, {number for number, _ in ids})
        marks = self.cluster.admin.watermarks(places)
        starts = {
            place: max(mark.low, min(offset for number, offset in ids if number == place.partition))
            for place, mark in marks.items()
        }
        letters = self._read(starts, marks, lambda letter: letter.id in ids, complete=complete)
        if missing := sorted(ids - {letter.id for letter in letters}):
            partition, offset = missing[0]
            raise NoSuchDeadLetter(f"group {self.group!r} has no dead letter {partition}:{offset}")
        return letters

    def _read(
        self,
        starts: Mapping[TopicPartition, int],
        marks: Mapping[TopicPartition, Watermarks],
        selected: Callable[[LoggedDeadLetter], bool],
        *,
        complete: bool,
        reached: dict[TopicPartition, int] | None = None,
    ) -> list[LoggedDeadLetter]:
        replayed: dict[tuple[int, int], int] = {}

        def is_selected(record: TopicRecord) -> bool:
            marked = _number(dict(record.headers).get(REPLAYED_OFFSET))
            if marked is None:
                return selected(LoggedDeadLetter.of(record))
            replayed[record.place.partition, marked] = LoggedDeadLetter.of(record).time
            return False

        found = collect(
            self.cluster,
            starts,
            {place: mark.high for place, mark in marks.items()},
            keep=self.newest,
            complete=complete,
            limits=self.limits,
            selected=is_selected,
            reached=reached,
        )
        letters = [LoggedDeadLetter.of(record) for _, part in sorted(found.items()) for record in part]
        return [replace(letter, replayed=replayed.get(letter.id)) for letter in letters]

    def replay(
        self,
        select: Callable[[], list[LoggedDeadLetter]],
        *,
        again: bool,
        now: Callable[[], float],
        reached: Failpoint = no_failpoint,
        timeouts: ReplayTimeouts = PATIENT_REPLAY,
    ) -> Replayed:
        """Produce dead letters to the group's retry topic, each with its marker in the same transaction.

        Args:
            select: Reads the letters to replay, completely; called when no other replay can commit any more.
            again: Also replay letters that were replayed before.
            now: The clock, in seconds since 1970.
            reached: Called with the name of each step of a commit, for tests.
            timeouts: The timeouts of the transactions.

        Raises:
            NoSuchTopic: The group has no retry topic.
            Refused: A letter has no origin or does not fit into the retry topic, or all hold timers or rows that fell
                due. Nothing was sent.
            StreamtableError: Kafka failed. Letters that were sent are marked, so the replay can be repeated.
        """
        retry = f"{self.group}-retry"
        self.cluster.partitions(self.topic)  # of a topic with an illegal name, the next question would fail
        topics = self.cluster.admin.topics([retry, self.topic])
        topic = topics.get(retry)
        if topic is None:
            raise NoSuchTopic(
                f"there is no topic {retry!r} to replay dead letters to: declare it, `streamtable topics apply`"
            )
        outbox = self.cluster.kafka.transactional_producer(
            REPLAY_TRANSACTIONAL_ID.format(group=self.group),
            min(each.max_message_bytes for each in topics.values()),
        )
        try:
            outbox.open(timeouts.open)
            letters = select()
            before = [letter for letter in letters if letter.replayed is not None and not again]
            fresh = [letter for letter in letters if letter.replayed is None or again]
            rows = [letter for letter in fresh if letter.holds_row]
            due = [letter for letter in fresh if not letter.holds_row]
            if rows and not due and not before:
                raise Refused(
                    f"dead letter {rows[0].name} holds a timer or another row that fell due, and no record of an input: it "
                    "cannot be sent again. Correct the handler, and have the timer set again by an event of its key"
                )
            pairs = [(letter, self._retried(letter, retry)) for letter in due]
            for letter, record in pairs:
                if record.partition >= topic.partitions:
                    raise Refused(
                        f"dead letter {letter.name}: {retry} has only {count(topic.partitions, 'partition')}"
                    )
                if record.size + RECORD_OVERHEAD_BYTES > topic.max_message_bytes:
                    raise Refused(
                        f"dead letter {letter.name} has {record.size} bytes, and {retry} accepts "
                        f"{topic.max_message_bytes} (max.message.bytes)"
                    )
            for batch in _batches(pairs):
                self._send(outbox, batch, now(), reached, timeouts)
            return Replayed(due, before, rows)
        finally:
            outbox.close()

    def _send(
        self,
        outbox: TransactionalProducer,
        batch: list[tuple[LoggedDeadLetter, OutputRecord]],
        now: float,
        reached: Failpoint,
        timeouts: ReplayTimeouts,
    ) -> None:
        outbox.begin()
        try:
            reached("begun")
            for letter, record in batch:
                place = letter.record.place
                marker = replayed_marker(*place, letter.record.offset, group=self.group, now=now)
                outbox.produce_records((record, marker))
            reached("outputs-produced")
            outbox.flush(timeouts.commit)
            reached("flushed")
        except StreamtableError:
            outbox.abort(timeouts.commit)
            raise
        outbox.commit(timeouts.commit)
        reached("committed")

    def _retried(self, letter: LoggedDeadLetter, retry: str) -> OutputRecord:
        """Return the record for the retry topic; what was too large for the letter comes from its origin."""
        record, origin = letter.record, letter.origin
        if origin is None:
            raise Refused(f"dead letter {letter.name} does not name its origin: Streamtable did not write it")
        key, value = record.key, record.value
        headers = list(record.headers)
        if letter.omitted_bytes is not None:
            place = TopicPartition(origin.topic, origin.partition)
            known = self.cluster.admin.topic_partitions().get(place.topic, 0)
            marks = self.cluster.admin.watermarks([place] if place.partition < known else [])
            low, high = marks.get(place, (0, 0))
            # The client takes a position below the beginning for a loss of records.
            starts = {place: origin.offset} if low <= origin.offset < high else {}
            read = read_to(self.cluster, starts, {place: origin.offset + 1}, limits=self.limits)
            found = [each for batch in read for each in records_of(batch)]
            if not found or (origin.timestamp_ms >= 0 and found[0].timestamp != origin.timestamp_ms):
                raise Refused(
                    f"dead letter {letter.name} has no value, and {place}@{origin.offset} does not hold it any more. "
                    "Send the others, by their names or by filters such as --since"
                )
            key, value = found[0].key, found[0].value
            # The record's own headers had been dropped with its value.
            own = [header for header in found[0].headers if not header[0].startswith(PREFIX)]
            headers = own + [header for header in headers if header[0] != VALUE_OMITTED]
        return OutputRecord(retry, key, value, headers, partition=record.place.partition)


def _batches(
    pairs: Iterable[tuple[LoggedDeadLetter, OutputRecord]],
) -> Iterator[list[tuple[LoggedDeadLetter, OutputRecord]]]:
    batch: list[tuple[LoggedDeadLetter, OutputRecord]] = []
    size = 0
    for pair in pairs:
        if batch and (len(batch) >= BATCH_LETTERS or size + pair[1].size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(pair)
        size += pair[1].size
    if batch:
        yield batch


def _number(text: bytes | None) -> int | None:
    """Return a number of at most 64 bits; None for anything else, as any producer may write headers."""
    return int(text) if text is not None and text.isdigit() and len(text) <= _DIGITS_MAX else None
