"""Dead letters as the command line knows them: read from the topic, filtered, and whether they were replayed."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from streamtable.deadletter import ERROR, MESSAGE, REPLAYED_OFFSET, TIME, VALUE_OMITTED, Origin
from streamtable.kafka.admin import KafkaAdmin
from streamtable.topics import legal_name
from streamtable_cli.decode import Decoder, document_of_headers
from streamtable_cli.errors import NotFound, Refused
from streamtable_cli.output import at
from streamtable_cli.reading import read_to
from streamtable_cli.session import Session, partitions_of, places_of
from streamtable_cli.tail import Record, records_of
from streamtable_cli.times import milliseconds

_DIGITS_MAX = 18
_PLACE = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")


@dataclass(frozen=True)
class Letter:
    """A dead letter.

    Attributes:
        origin: None if its headers do not say: it was written by something else, and cannot be replayed.
        replayed: when it was last sent again, in milliseconds since 1970; None if never.
    """

    record: Record
    origin: Origin | None
    replayed: int | None

    @property
    def name(self) -> str:
        """As it is named on the command line: PARTITION:OFFSET."""
        return f"{self.record.place.partition}:{self.record.offset}"

    @property
    def time(self) -> int:
        """When it could not be processed."""
        said = _number(dict(self.record.headers).get(TIME))
        return self.record.timestamp if said is None else said

    def header(self, name: str) -> str:
        return (dict(self.record.headers).get(name) or b"").decode(errors="replace")

    @property
    def omitted(self) -> bool:
        """Its value was too large for the dead-letter topic, and is at its origin only."""
        return VALUE_OMITTED in dict(self.record.headers)

    def document(self, decoder: Decoder) -> dict[str, Any]:
        origin = self.origin
        return {
            "letter": self.name,
            "time": at(self.time) or None,
            "origin": {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset}
            if origin
            else None,
            "attempt": origin.attempt if origin else None,
            "error": self.header(ERROR) or None,
            "message": self.header(MESSAGE) or None,
            "key": decoder.key(self.record.place.topic, self.record.key, self.record.headers).document(),
            "value": decoder.value(
                self.record.place.topic, self.record.value, self.record.headers
            ).document(),
            "value_omitted_bytes": self.header(VALUE_OMITTED) or None,
            "replayed": at(self.replayed) if self.replayed is not None else None,
            "headers": document_of_headers(self.record.headers),
        }


@dataclass(frozen=True)
class Filter:
    """Which letters are wanted; what is None does not matter."""

    origin_topic: str | None = None
    error: str | None = None
    since: int | None = None
    until: int | None = None
    grep: re.Pattern[str] | None = None

    def wanted(self, letter: Letter, decoder: Decoder) -> bool:
        if self.origin_topic is not None and (
            letter.origin is None or letter.origin.topic != self.origin_topic
        ):
            return False
        if self.error is not None and letter.header(ERROR) != self.error:
            return False
        if self.since is not None and letter.time < self.since:
            return False
        if self.until is not None and letter.time >= self.until:
            return False
        return self.grep is None or any(self.grep.search(text) for text in _texts(letter, decoder))


def _texts(letter: Letter, decoder: Decoder) -> Iterator[str]:
    record = letter.record
    yield letter.header(MESSAGE)
    yield str(decoder.key(record.place.topic, record.key, record.headers))
    yield str(decoder.value(record.place.topic, record.value, record.headers))


def filter_of(
    origin_topic: str | None,
    error: str | None,
    since: str | None,
    until: str | None,
    grep: str | None,
    now: float,
) -> Filter:
    """Raises `Refused` for a time or an expression that is none."""
    try:
        pattern = re.compile(grep) if grep is not None else None
    except (re.error, RecursionError, OverflowError) as problem:
        raise Refused(f"--grep {grep!r} is no regular expression: {problem}") from problem
    return Filter(
        origin_topic,
        error,
        milliseconds(since, now) if since is not None else None,
        milliseconds(until, now) if until is not None else None,
        pattern,
    )


def dead_letters_of(group: str) -> str:
    """The topic. Raises `ConfigurationError` for a group that cannot be one."""
    return legal_name(f"{legal_name(group, 'group')}-dead-letters", "dead-letter topic")


def read_letters(
    session: Session,
    admin: KafkaAdmin,
    group: str,
    *,
    wanted: Callable[[Letter], bool],
    partitions: Iterable[int] = (),
    whole: bool = False,
) -> list[Letter]:
    """The letters of a group, by partition and offset, as far as they are wanted.

    Args:
        session: the run.
        admin: the cluster.
        group: whose letters.
        wanted: asked of each.
        partitions: of the dead-letter topic; all if there are none.
        whole: wait for open transactions: a marker may stand behind one.

    Raises:
        NotFound: the group has no dead-letter topic.
        RetryLater: with `whole`, a transaction stays open.
    """
    topic = dead_letters_of(group)
    marks = admin.watermarks(places_of(topic, partitions_of(admin, topic), partitions))
    found: dict[tuple[int, int], Letter] = {}
    replayed: dict[tuple[int, int], int] = {}
    starts = {place: mark.low for place, mark in marks.items()}
    ends = {place: mark.high for place, mark in marks.items()}
    for batch in read_to(session, admin, starts, ends, whole=whole):
        for record in records_of(batch):
            marked = marked_offset(record)
            if marked is not None:
                replayed[record.place.partition, marked] = Letter(record, None, None).time
                continue
            letter = Letter(record, Origin.read(record.headers), None)
            if wanted(letter):
                found[record.place.partition, record.offset] = letter
    return [
        Letter(letter.record, letter.origin, replayed.get(place)) for place, letter in sorted(found.items())
    ]


def marked_offset(record: Record) -> int | None:
    """If the record is a marker: the offset of the letter that was sent again."""
    return _number(dict(record.headers).get(REPLAYED_OFFSET))


def _number(text: bytes | None) -> int | None:
    """None for what is no number of 64 bits; anybody may write headers, and Python refuses very long numbers."""
    return int(text) if text is not None and text.isdigit() and len(text) <= _DIGITS_MAX else None


def place_named(text: str) -> tuple[int, int]:
    """PARTITION:OFFSET. Raises `Refused`."""
    match = _PLACE.fullmatch(text)
    if match is None or not text.isascii():
        raise Refused(f"{text!r} names no dead letter: expected PARTITION:OFFSET, for example 3:17")
    return int(match[1]), int(match[2])


def the_letters(
    session: Session, admin: KafkaAdmin, group: str, names: Iterable[str], *, whole: bool = False
) -> list[Letter]:
    """Those that are named. Raises `NotFound` if one is not there."""
    places = {place_named(name) for name in names}
    letters = read_letters(
        session,
        admin,
        group,
        wanted=lambda letter: (letter.record.place.partition, letter.record.offset) in places,
        partitions={partition for partition, _ in places},
        whole=whole,
    )
    there = {(letter.record.place.partition, letter.record.offset) for letter in letters}
    if missing := sorted(places - there):
        partition, offset = missing[0]
        raise NotFound(f"group {group!r} has no dead letter {partition}:{offset}")
    return letters
