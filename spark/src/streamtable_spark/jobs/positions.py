"""Offsets of partitions: from arguments, from the commits of a group, and as ranges to read. No I/O."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from streamtable.base.types import Committed, TopicPartition
from streamtable.tables.position import TablePosition
from streamtable_spark.errors import ConfigurationError

T = TypeVar("T")

TABLE: Final = "table"
"""The name of the group's own table: the suffix of its topic's name."""
Place: TypeAlias = TopicPartition
Offsets = dict[int, int]
"""The next offset of each partition of a topic, by partition."""


READ_OFFSETS: Final = TypeAdapter(dict[str, Offsets])
"""Reads offsets by topic and partition from JSON, which has the numbers of partitions as text."""

_UNTIL: Final = TypeAdapter(
    Annotated[dict[str, dict[str, Annotated[int, Field(strict=True, ge=0)]]], Field(min_length=1)]
)
_UNTIL_LIKE: Final = 'offsets by topic and partition look like {"user-clicks": {"0": 1200, "1": 1187}}'


@dataclass(frozen=True)
class Span:
    """The offset range to read of one partition: from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def overlaps(self, other: "Span") -> bool:
        return self.start < other.end and other.start < self.end


Spans = dict[str, dict[int, Span]]
"""Offset ranges by topic and partition."""


@dataclass(frozen=True)
class Cut:
    """A consistent cut of a group: the offsets of its inputs, and the positions in the changelogs that belong to them.

    Attributes:
        inputs: The next offset of each input topic, by partition.
        tables: The position in the changelog of each of its tables, by the table's name and partition; `TABLE` is always there.
        watermarks: The watermark of each partition by input, if the group follows event time.
    """

    inputs: Mapping[str, Offsets]
    tables: Mapping[str, Offsets]
    watermarks: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


def by_place(by_topic: Mapping[str, Mapping[int, T]]) -> Iterator[tuple[Place, T]]:
    """Yield each partition of these topics, in the order of their names and its number, and what is known of it."""
    for topic, parts in sorted(by_topic.items()):
        for partition in sorted(parts):
            yield Place(topic, partition), parts[partition]


def parse_until(text: str, topics: Mapping[str, int]) -> dict[str, Offsets] | None:
    """Parse the end offsets of the inputs from an argument.

    Args:
        text: `now`, or JSON such as `{"user-clicks": {"0": 1200, "1": 1187}}`: all partitions of
            each topic that is named; other topics are read to their current end. Also the text of `@FILE`.
        topics: The number of partitions of each input.

    Returns:
        None for `now`.

    Raises:
        ConfigurationError: The text is neither, or does not match the topics.
    """
    if text == "now":
        return None
    try:
        read = _UNTIL.validate_python(json.loads(text, object_pairs_hook=_no_key_twice))
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"[{each}]" if depth else f"{each}" for depth, each in enumerate(first["loc"]))
        said = filter(None, ("--until", where, json.dumps(first["input"])[:80], first["msg"]))
        raise ConfigurationError(f"{': '.join(said)}; {_UNTIL_LIKE}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"--until {text[:80]!r} is neither 'now' nor JSON ({error}); {_UNTIL_LIKE}"
        ) from error
    if strange := sorted(read.keys() - topics.keys()):
        raise ConfigurationError(
            f"--until: {strange[0]!r} is no input of the group; its inputs are {', '.join(sorted(topics))}"
        )
    for topic, offsets in read.items():
        expected = {str(number) for number in range(topics[topic])}
        if strange := sorted(set(offsets) ^ expected, key=lambda name: (len(name), name)):
            what = "is missing" if strange[0] in expected else "is none of its partitions"
            raise ConfigurationError(
                f"--until: {topic} has the partitions 0 to {topics[topic] - 1}, and {strange[0]!r} {what}"
            )
    return {topic: {int(number): at for number, at in offsets.items()} for topic, offsets in read.items()}


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ConfigurationError("--until: a topic or a partition stands there twice")
    return found


def first_beyond(
    offsets: Mapping[str, Offsets], ends: Mapping[str, Offsets]
) -> tuple[Place, int, int] | None:
    """Return the first partition whose offset is greater than its end, with both; None if there is none."""
    for place, offset in by_place(offsets):
        if offset > (end := ends[place.topic][place.partition]):
            return place, offset, end
    return None


def check_within(requested: Mapping[str, Offsets], ends: Mapping[str, Offsets]) -> None:
    """Raise `ConfigurationError` if a requested offset is greater than the end of its partition, naming both."""
    if beyond := first_beyond(requested, ends):
        place, offset, end = beyond
        raise ConfigurationError(
            f"--until: {place} is requested up to {offset}, but its committed log ends at {end}"
        )


def cut_of(group: str, committed: Mapping[Place, Committed | None]) -> Cut:
    """Return the state of a group as a consistent cut, if all of it was committed exactly once.

    Args:
        group: The name of the group, for messages.
        committed: The stable committed offsets of all partitions of its inputs.

    Raises:
        ConfigurationError: The group has no committed offsets, or some that were not committed exactly once.
    """
    if all(each is None for each in committed.values()):
        raise ConfigurationError(
            f"group {group!r} has no committed offsets: it has never run, or they have expired"
        )
    inputs: dict[str, Offsets] = {}
    tables: dict[str, Offsets] = {TABLE: {}}
    watermarks: dict[int, dict[str, int]] = {}
    for (topic, partition), each in committed.items():
        inputs.setdefault(topic, {})[partition] = 0 if each is None else each.next_offset
        if each is None:  # no process has handled records of it yet: the tables hold no result of it
            continue
        position = TablePosition.decode(each.metadata)
        if position is None or not position.exact:
            how = (
                "at least once"
                if position
                else "without the position of its table: a tool has set the offset"
            )
            raise ConfigurationError(
                f"group {group!r} has committed {Place(topic, partition)} {how}, so which rows belong to it is not known; only offsets committed exactly once can be audited"
            )
        for name, mark in {**position.tables, TABLE: position.changelog}.items():
            offsets = tables.setdefault(name, {})
            offsets[partition] = max(mark, offsets.get(partition, mark))
        if position.time is not None:
            watermarks.setdefault(partition, {})[topic] = position.time.watermark_ms
    nothing = {place.partition: 0 for place in committed}
    return Cut(inputs, {name: nothing | marks for name, marks in tables.items()}, watermarks)


def spans_to(ends: Mapping[str, Offsets], starts: Mapping[str, Offsets]) -> Spans:
    """Return the spans of all offsets before the ends. A partition whose end is before its first record is read as empty."""
    return {
        topic: {number: Span(min(starts[topic][number], end), end) for number, end in offsets.items()}
        for topic, offsets in ends.items()
    }
