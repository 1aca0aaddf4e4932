"""The options that select the dead letters of a command."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from streamtable_admin.deadletter_log import LoggedDeadLetter
from streamtable_admin.decode import Decoder
from streamtable_admin.errors import Refused
from streamtable_cli.times import milliseconds

OriginTopic = Annotated[str | None, typer.Option(metavar="TOPIC", help="Only records from this topic.")]
Error = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only letters with this error, for example DeserializationError."),
]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only letters from this time on; 2h: two hours ago.")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only letters before this time.")]
Grep = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Only letters whose message, key or value, as shown, match."),
]


@dataclass(frozen=True)
class Filter:
    """The conditions for a dead letter; None: no condition."""

    origin_topic: str | None = None
    error: str | None = None
    since: int | None = None
    until: int | None = None
    grep: re.Pattern[str] | None = None

    def matches(self, letter: LoggedDeadLetter, decoder: Decoder) -> bool:
        return (
            self.origin_topic in (None, letter.origin and letter.origin.topic)
            and self.error in (None, letter.error)
            and (self.since is None or letter.time >= self.since)
            and (self.until is None or letter.time < self.until)
            and (self.grep is None or any(self.grep.search(text) for text in _texts(letter, decoder)))
        )


def _texts(letter: LoggedDeadLetter, decoder: Decoder) -> Iterator[str]:
    record = letter.record
    yield letter.message
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
    """Return the filter that the options describe. Raises `Refused` for a malformed time or regular expression."""
    try:
        pattern = re.compile(grep) if grep is not None else None
    except (re.error, RecursionError, OverflowError) as problem:
        raise Refused(f"--grep {grep!r} is not a regular expression: {problem}") from problem
    begin, end = (None if each is None else milliseconds(each, now) for each in (since, until))
    return Filter(origin_topic, error, begin, end, pattern)
