"""Types that all layers share: partitions and offsets, records, batches of them as columns."""

import re
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import compress, islice, pairwise
from operator import itemgetter, lt
from typing import Any, NamedTuple, NewType, Protocol

from streamtable.base.event_time import EventTimes
from streamtable.errors import StreamtableError

NextOffset = NewType("NextOffset", int)
"""The offset of the record to be read next: one past the last one applied."""

Header = tuple[str, bytes | None]
Headers = Sequence[Header]
_SECOND = itemgetter(1)
_TOKEN = re.compile(r"([A-Za-z0-9._-]{1,249}):(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,18})")
HEADERS_UNREADABLE: Header = ("streamtable-headers-unreadable", b"a name is not UTF-8")
"""Stands for all headers of a record if the client cannot read them."""
QueuedRecord = tuple[str, bytes | None, bytes | None, Headers, int, int]
"""Topic, key, value, headers, timestamp and partition of a record, as `TransactionalProducer.produce` takes them."""


class Guarantee(Enum):
    """The processing guarantee: the effect of a crash on records and their results."""

    EXACTLY_ONCE = "exactly_once"
    """Inputs, table and outputs are committed in one Kafka transaction."""
    AT_LEAST_ONCE = "at_least_once"
    """No transactions: after a crash the records since the last commit are applied once more."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Committed(NamedTuple):
    """The committed offset of a group in one input partition, with its metadata.

    Attributes:
        next_offset: The next offset to read from the input.
        metadata: The text that was committed with it ("" if none); see `tables.position`.
    """

    next_offset: NextOffset
    metadata: str = ""


class BadToken(StreamtableError):
    """A token does not name an event's place: the client must send a token as the server returned it."""


class Ack(NamedTuple):
    """The place of an emitted record in the log, acknowledged by all in-sync replicas."""

    topic: str
    partition: int
    offset: int

    @property
    def token(self) -> str:
        """The position as text, for an HTTP header: `user-clicks:3:1042`."""
        return f"{self.topic}:{self.partition}:{self.offset}"

    @staticmethod
    def parse(token: str) -> "Ack":
        """Return the ack that `token` was made from. Raises `BadToken` for anything else."""
        found = _TOKEN.fullmatch(token)
        if found is None or int(found[2]) >= 1 << 31 or int(found[3]) >= 1 << 63:
            raise BadToken(f"not a token of an event, such as 'user-clicks:3:1042': {token[:300]!r}")
        return Ack(found[1], int(found[2]), int(found[3]))


class Watermarks(NamedTuple):
    """The first offset still in the log, and the end: the offset that the next record will get.

    The end counts uncommitted records too (ListOffsets with read_uncommitted), because the last stable offset
    was seen behind after a commit had returned.
    """

    low: int
    high: int


class KafkaMessage(Protocol):
    """A record as the Kafka client delivers it; it has the methods of `confluent_kafka.Message`."""

    def key(self) -> Any: ...  # bytes | None; Any because the client's stubs say str too
    def value(self) -> Any: ...
    def offset(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> Any: ...


@dataclass(frozen=True)
class RecordBatch:
    """Consecutive records of one partition, in offset order. Columns are made when first asked for.

    There is no object per record: at a million records a second, one attribute call a record is what counts.
    Offsets rise but may have gaps (transaction markers, compaction).

    Attributes:
        times: The event times of the records; None if they were not asked for.
    """

    topic: str
    partition: int
    messages: Sequence[KafkaMessage]
    times: EventTimes | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @cached_property
    def keys(self) -> list[bytes | None]:
        return self._column("key")

    @cached_property
    def values(self) -> list[bytes | None]:
        return self._column("value")

    @cached_property
    def offsets(self) -> list[int]:
        return self._column("offset")

    def _column(self, name: str) -> list[Any]:
        # The method of the class, not `methodcaller`: it is looked up once, not once a record (17 ns instead of 77).
        return list(map(getattr(type(self.messages[0]), name), self.messages)) if self.messages else []

    @property
    def first_offset(self) -> int:
        offset: int = self.messages[0].offset()
        return offset

    @property
    def last_offset(self) -> int:
        offset: int = self.messages[-1].offset()
        return offset

    def timestamp(self, index: int) -> int:
        """Return milliseconds since 1970; -1 if the record has none."""
        milliseconds: int = self.messages[index].timestamp()[1]
        return milliseconds

    def timestamps(self) -> list[int]:
        """Return the `timestamp` of each, at a third of the cost."""
        return list(map(_SECOND, self._column("timestamp")))

    def headers(self, index: int) -> Headers:
        """Return the headers of a record; `HEADERS_UNREADABLE` alone if a name is not UTF-8."""
        message = self.messages[index]
        try:
            # By `map`: the interpreter's short cut for method calls takes a result for good though an error is set.
            (found,) = map(type(message).headers, (message,))
        except (UnicodeDecodeError, SystemError):
            return self._unreadable(index)
        return found or ()

    def _unreadable(self, index: int) -> Headers:
        # The client keeps a list with null pointers for such names, and would return that when asked again.
        self.messages[index].set_headers([HEADERS_UNREADABLE])  # type: ignore[attr-defined] # only the client's own get here
        return [HEADERS_UNREADABLE]

    def each_headers(self) -> Iterator[Headers | None]:
        """Return the `headers` of each record, at a tenth of the cost; None instead of an empty list."""
        index = 0
        try:
            for found in map(type(self.messages[0]).headers, self.messages):
                yield found
                index += 1
        except (UnicodeDecodeError, SystemError):
            yield self._unreadable(index)
            yield from map(self.headers, range(index + 1, len(self)))

    def part(self, start: int, stop: int) -> "RecordBatch":
        """Return the records from index `start` up to, not including, `stop`."""
        if start == 0 and stop >= len(self.messages):
            return self
        times = None if self.times is None else self.times.part(start, stop)
        return type(self)(self.topic, self.partition, self.messages[start:stop], times)

    def rising(self) -> int:
        """Return the number of records that come before the first one whose offset is not above its predecessor."""
        if all(map(lt, self.offsets, islice(self.offsets, 1, None))):
            return len(self)
        return next(
            index for index, (before, after) in enumerate(pairwise(self.offsets), 1) if after <= before
        )

    def only(self, keep: Sequence[bool]) -> "RecordBatch":
        """Return the records whose index is true in `keep`."""
        times = None if self.times is None else self.times.only(keep)
        return RecordBatch(self.topic, self.partition, list(compress(self.messages, keep)), times)

    def timed(self, times: EventTimes) -> "RecordBatch":
        """Return the same records with these event times."""
        made = copy(self)  # with the columns that have been made
        object.__setattr__(made, "times", times)
        return made
