"""Dead letters: the latest of a group, whether they were sent again, and sending them again, each once.

A letter and the marker that it was sent are one transaction. The transactional id is that of the command line's
replay, so that whichever begins later ends what the other has left open, and only then reads the markers.
"""

import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from console.records import NoSuchTopic, Reader, Record
from console.shown import Decoder
from streamtable import Kafka
from streamtable.deadletter import (
    ERROR,
    MESSAGE,
    RECORD_OVERHEAD_BYTES,
    REPLAYED_OFFSET,
    TIME,
    VALUE_OMITTED,
    Origin,
    OutputRecord,
    replayed_marker,
)
from streamtable.errors import RetryLater, StreamtableError
from streamtable.ports import Outbox
from streamtable.types import TopicPartition

if TYPE_CHECKING:
    from streamtable.kafka.admin import KafkaAdmin

LETTERS_MAX: Final = 500
NAME: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")
_LOOKED_AT: Final = 20_000  # offsets of each partition
_OPEN_SECONDS: Final = 4.0
_COMMIT_SECONDS: Final = 4.0
_DIGITS_MAX: Final = 18


class Refused(Exception):
    """The letters cannot be sent as asked; the text says why and quotes nothing but places."""


@dataclass(frozen=True)
class Letter:
    """A dead letter; `replayed` is when it was last sent again, in milliseconds since 1970."""

    record: Record
    replayed: int | None

    @property
    def name(self) -> str:
        return f"{self.record.place.partition}:{self.record.offset}"

    def document(self, decoder: Decoder) -> dict[str, Any]:
        record, origin = self.record, Origin.read(self.record.headers)
        headers = dict(record.headers)

        def text(name: str) -> str:
            return (headers.get(name) or b"").decode(errors="replace")

        return {
            "letter": self.name,
            "time": _number(headers.get(TIME)) or record.timestamp,
            "origin": {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset}
            if origin
            else None,
            "attempt": origin.attempt if origin else None,
            "error": text(ERROR),
            "message": text(MESSAGE),
            "key": decoder.show(record.key),
            "value": decoder.show(record.value),
            "value_omitted_bytes": _number(headers.get(VALUE_OMITTED)),
            "raw": {"key": _hex(record.key), "value": _hex(record.value)},
            "replayed": self.replayed,
        }


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of all groups. Any thread."""

    kafka: Kafka
    reader: Reader

    def latest(self, group: str, limit: int) -> list[Letter]:
        """The latest letters of a group, the latest first. Raises `NoSuchTopic`, `RetryLater`."""
        with self.reader.looking() as admin:
            letters = self._read(admin, self.reader.places(admin, f"{group}-dead-letters"))
        letters.sort(
            key=lambda each: (each.record.timestamp, each.record.place, each.record.offset), reverse=True
        )
        return letters[:limit]

    def replay(self, group: str, names: Collection[str], *, again: bool) -> tuple[list[str], list[str]]:
        """Send letters to the group's retry topic.

        Args:
            group: whose letters.
            names: PARTITION:OFFSET of each.
            again: also those that were sent before.

        Returns:
            The names of those that were sent, and of those left out because they had been sent before.

        Raises:
            NoSuchTopic: the group has no dead letters, or no retry topic.
            Refused: nothing was sent.
            RetryLater: it may be repeated: what was sent is marked.
        """
        with self.reader.looking() as admin:
            # In this order: of a name that no topic can have, Kafka does not say so, but fails.
            places = self.reader.places(admin, f"{group}-dead-letters")
            retry = admin.topics([f"{group}-retry"]).get(f"{group}-retry")
            if retry is None:
                raise NoSuchTopic
            outbox = self.kafka.outbox(f"{group}.streamtable-cli-replay")
            try:
                outbox.open(_OPEN_SECONDS)
                wanted = {int(name.partition(":")[0]) for name in names}
                letters = [
                    each
                    for each in self._read(
                        admin, [place for place in places if place.partition in wanted], names
                    )
                    if each.name in names
                ]
                if missing := sorted(set(names) - {each.name for each in letters}):
                    raise Refused(f"there is no dead letter {missing[0]} any more; nothing was sent")
                due = [each for each in letters if again or each.replayed is None]
                records = [_record(each, retry.name) for each in due]
                for record in records:
                    if record.size + RECORD_OVERHEAD_BYTES > retry.max_message_bytes:
                        raise Refused("a letter is larger than the retry topic takes; nothing was sent")
                if due:
                    _send(outbox, group, list(zip(due, records, strict=True)))
            finally:
                outbox.close()
        sent = {each.name for each in due}
        return sorted(sent), sorted(each.name for each in letters if each.name not in sent)

    def _read(
        self, admin: "KafkaAdmin", places: Iterable[TopicPartition], names: Collection[str] = ()
    ) -> list[Letter]:
        """Those of the last 20,000 offsets of each partition, or from the first that is named on; with their marks.

        When some are named, no mark may be missing: a letter would go out twice.
        """
        marks = admin.watermarks_known(places)
        lowest: dict[int, int] = {}
        for partition, offset in (map(int, name.split(":")) for name in names):
            lowest[partition] = min(offset, lowest.get(partition, offset))
        starts = {
            place: max(mark.low, lowest.get(place.partition, mark.high - _LOOKED_AT))
            for place, mark in marks.items()
        }
        ends = {place: mark.high for place, mark in marks.items()}
        found, sent = [], {}
        for part in self.reader.read(starts, ends, keep=_LOOKED_AT, whole=bool(names)).values():
            for record in part:
                headers = dict(record.headers)
                if (marked := _number(headers.get(REPLAYED_OFFSET))) is not None:
                    sent[record.place.partition, marked] = _number(headers.get(TIME)) or record.timestamp
                else:
                    found.append(record)
        return [Letter(each, sent.get((each.place.partition, each.offset))) for each in found]


def _send(outbox: Outbox, group: str, pairs: list[tuple[Letter, OutputRecord]]) -> None:
    outbox.begin()
    try:
        for letter, record in pairs:
            marker = replayed_marker(*letter.record.place, letter.record.offset, group=group, now=time.time())
            for each in (record, marker):
                outbox.produce(
                    each.topic,
                    each.key,
                    each.value,
                    partition=each.partition,
                    headers=each.headers,
                    timestamp_ms=each.timestamp_ms,
                )
        outbox.flush(_COMMIT_SECONDS)
        outbox.commit(_COMMIT_SECONDS)
    except RetryLater:
        raise
    except StreamtableError as error:
        # The next replay ends what this one has left open, and finds in the markers what was sent.
        raise RetryLater(f"Kafka did not take the letters: {error}") from error


def _record(letter: Letter, retry: str) -> OutputRecord:
    record, headers = letter.record, dict(letter.record.headers)
    if Origin.read(record.headers) is None:
        raise Refused(f"letter {letter.name} does not say where it comes from; nothing was sent")
    if VALUE_OMITTED in headers:
        raise Refused(
            f"letter {letter.name} is without its value, which was too large: send it by 'streamtable dead-letters "
            "replay'; nothing was sent"
        )
    return OutputRecord(retry, record.key, record.value, record.headers, partition=record.place.partition)


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) <= _DIGITS_MAX else None


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data[:4096].hex()
