"""Sending dead letters again, each exactly once, whatever crashes.

A letter and the marker that says so go out in one transaction. All replays of a group share a transactional id: when
one begins, what another has left open is aborted, and only then the letters and markers are read.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from streamtable.deadletter import (
    PREFIX,
    RECORD_OVERHEAD_BYTES,
    VALUE_OMITTED,
    OutputRecord,
    replayed_marker,
)
from streamtable.engine.failpoint import Failpoint
from streamtable.errors import StreamtableError
from streamtable.kafka.admin import KafkaAdmin
from streamtable.ports import Outbox
from streamtable.types import TopicPartition
from streamtable_cli.errors import NotFound, Refused
from streamtable_cli.letters import Letter
from streamtable_cli.output import count
from streamtable_cli.reading import read_to
from streamtable_cli.session import Session
from streamtable_cli.tail import records_of

OPEN_S = 30.0
COMMIT_S = 9.0
BATCH_LETTERS = 500
BATCH_BYTES = 4_000_000


@dataclass(frozen=True)
class Replay:
    """What has been done.

    Attributes:
        sent: letters that went out now.
        before: letters left out because they had gone out before.
    """

    sent: list[Letter]
    before: list[Letter]


def replay(
    session: Session,
    admin: KafkaAdmin,
    group: str,
    *,
    select: Callable[[], list[Letter]],
    again: bool,
    now: Callable[[], float],
    reached: Failpoint,
) -> Replay:
    """Send letters to `<group>-retry`.

    Args:
        session: the run.
        admin: the cluster.
        group: whose letters.
        select: reads the letters that are wanted, and all markers; called when no other replay of the group can
            commit any more.
        again: also those that were sent before.
        now: seconds since 1970.
        reached: called with the names of the steps of a commit, for tests.

    Raises:
        NotFound: there is no retry topic.
        Refused: a letter cannot be sent: it has no origin, or does not fit. Nothing was sent.
        StreamtableError: what went wrong with Kafka; some may have been sent, and are marked. It can be run again.
    """
    retry = f"{group}-retry"
    topic = admin.topics([retry]).get(retry)
    if topic is None:
        raise NotFound(
            f"there is no topic {retry!r} to send dead letters to: declare it, `streamtable topics apply`"
        )
    outbox = session.kafka.outbox(f"{group}.streamtable-cli-replay")
    try:
        outbox.open(OPEN_S)
        letters = select()
        before = [letter for letter in letters if letter.replayed is not None and not again]
        wanted = [letter for letter in letters if letter.replayed is None or again]
        records = [_record(session, admin, letter, retry) for letter in wanted]
        for letter, record in zip(wanted, records, strict=True):
            if record.partition >= topic.partitions:
                raise Refused(
                    f"letter {letter.name}: {retry} has {count(topic.partitions, 'partition')} only"
                )
            if record.size + RECORD_OVERHEAD_BYTES > topic.max_message_bytes:
                raise Refused(
                    f"letter {letter.name} has {record.size} bytes, and {retry} takes {topic.max_message_bytes} "
                    "(max.message.bytes)"
                )
        for batch in _batches(zip(wanted, records, strict=True)):
            _send(outbox, group, batch, now(), reached)
        return Replay(wanted, before)
    finally:
        outbox.close()


def _send(
    outbox: Outbox, group: str, batch: list[tuple[Letter, OutputRecord]], now: float, reached: Failpoint
) -> None:
    outbox.begin()
    try:
        reached("begun")
        for letter, record in batch:
            place = letter.record.place
            marker = replayed_marker(*place, letter.record.offset, group=group, now=now)
            for each in (record, marker):
                outbox.produce(
                    each.topic,
                    each.key,
                    each.value,
                    partition=each.partition,
                    headers=each.headers,
                    timestamp_ms=each.timestamp_ms,
                )
        reached("outputs-produced")
        outbox.flush(COMMIT_S)
        reached("flushed")
    except StreamtableError:
        outbox.abort(COMMIT_S)
        raise
    outbox.commit(COMMIT_S)
    reached("committed")


def _batches(
    pairs: Iterable[tuple[Letter, OutputRecord]],
) -> Iterator[list[tuple[Letter, OutputRecord]]]:
    batch: list[tuple[Letter, OutputRecord]] = []
    size = 0
    for pair in pairs:
        if batch and (len(batch) >= BATCH_LETTERS or size + pair[1].size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(pair)
        size += pair[1].size
    if batch:
        yield batch


def _record(session: Session, admin: KafkaAdmin, letter: Letter, retry: str) -> OutputRecord:
    """The letter as it goes to the retry topic: as it is; a value that was too large for it comes from its origin."""
    record, origin = letter.record, letter.origin
    if origin is None:
        raise Refused(f"letter {letter.name} does not say where it comes from: it is none of Streamtable's")
    key, value = record.key, record.value
    headers = list(record.headers)
    if letter.omitted:
        place = TopicPartition(origin.topic, origin.partition)
        found = [
            each
            for batch in read_to(session, admin, {place: origin.offset}, {place: origin.offset + 1})
            for each in records_of(batch)
        ]
        if not found or (origin.timestamp_ms >= 0 and found[0].timestamp != origin.timestamp_ms):
            raise Refused(
                f"letter {letter.name} is without its value, and {place}@{origin.offset} does not hold it any more"
            )
        key, value = found[0].key, found[0].value
        # Its own headers had been left out with the value.
        theirs = [header for header in found[0].headers if not header[0].startswith(PREFIX)]
        headers = theirs + [header for header in headers if header[0] != VALUE_OMITTED]
    return OutputRecord(retry, key, value, headers, partition=record.place.partition)
