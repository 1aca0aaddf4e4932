"""Dead letters: records that cannot be processed, kept raw with their origin and the reason.

A dead letter is the record's own key, value and headers, plus the headers below. Sent again to `<group>-retry` with
the same headers it goes to the handler of its origin's input; topic and offset that the handler sees are the retry's,
the timestamp is the origin's.

Both records are dated with the time when they are written, as retention counts from a record's own timestamp: with
the timestamp of an old input, the broker would delete them before anybody has read them.

The program that sends it again writes a marker behind it, in the same transaction: see `replayed_marker`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from streamtable.base.message import dated
from streamtable.base.types import HEADERS_UNREADABLE, Header, Headers, RecordBatch
from streamtable.errors import HandlerFailed, StreamtableError

PREFIX = "streamtable-"
ORIGIN_TOPIC = PREFIX + "origin-topic"
ORIGIN_PARTITION = PREFIX + "origin-partition"
ORIGIN_OFFSET = PREFIX + "origin-offset"
ORIGIN_TIMESTAMP = PREFIX + "origin-timestamp-ms"
ERROR = PREFIX + "error"
MESSAGE = PREFIX + "message"
ATTEMPT = PREFIX + "attempt"
GROUP = PREFIX + "group"
TIME = PREFIX + "time-ms"
VALUE_OMITTED = PREFIX + "value-omitted-bytes"
REPLAYED_OFFSET = PREFIX + "replayed-offset"

RECORD_OVERHEAD_BYTES = 208
"""The overhead in bytes of a record batch with a single record, including the trace context that a commit may add to it.
A record that is smaller than the limit of its topic by this much is certain to fit.
"""

_MESSAGE_CHARS_MAX = 1_000
_HEADER_OVERHEAD_BYTES = 8  # the lengths of its name and value


def headers_size(headers: Headers) -> int:
    """Return the bytes of headers, not less than Kafka counts."""
    size = 0
    for name, value in headers:  # mostly none, where `sum` would cost more than all the rest
        size += len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD_BYTES
    return size


class OutputRecord(NamedTuple):
    """An encoded record to be sent. Partition -1: by murmur2 of the key. Timestamp 0: now."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    partition: int = -1

    @property
    def size(self) -> int:
        """The bytes of key, value and headers, not less than Kafka counts."""
        return len(self.key or b"") + len(self.value or b"") + headers_size(self.headers)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a dead letter: the input record and the number of attempts. `timestamp_ms` is -1 if it is not known."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    attempt: int

    @staticmethod
    def of(records: RecordBatch, index: int) -> "Origin":
        """Return the origin of a record of an ordinary input: its own topic, partition and offset."""
        return Origin(
            records.topic, records.partition, records.offsets[index], records.timestamp(index), attempt=0
        )

    @staticmethod
    def read(headers: Headers) -> "Origin | None":
        """Return the origin of a replayed record; None if the headers do not belong to a dead letter."""
        found = dict(headers)
        try:
            stamped = int(found.get(ORIGIN_TIMESTAMP) or b"-1")
            return Origin(
                topic=(found[ORIGIN_TOPIC] or b"").decode(),
                partition=int(found[ORIGIN_PARTITION] or b""),
                offset=int(found[ORIGIN_OFFSET] or b""),
                # Any producer may write headers, with any number.
                timestamp_ms=stamped if -1 <= stamped < 1 << 63 else -1,
                attempt=int(found.get(ATTEMPT) or b"1"),
            )
        except (KeyError, ValueError):
            return None

    def dated(self, record: RecordBatch) -> RecordBatch:
        """Return a single replayed record with the timestamp of its origin, which is its event time."""
        return RecordBatch(record.topic, record.partition, [dated(record.messages[0], self.timestamp_ms)])


def dead_letter(
    records: RecordBatch,
    index: int,
    error: StreamtableError,
    *,
    origin: Origin,
    group: str,
    topic: str,
    now: float,
    bytes_max: int,
) -> OutputRecord:
    """Return the dead letter of a record.

    Args:
        records: The batch that holds the record.
        index: The index of the record in `records`.
        error: The error that prevents its processing.
        origin: The position of the original record.
        group: The group that could not process it.
        topic: The topic of the dead letters; it has the partitions of the input.
        now: Seconds since 1970.
        bytes_max: The maximum size that the topic accepts. If the record does not fit, its value (whose size is noted)
            and its own headers are omitted, and if need be its key; they can still be read at its origin.
    """
    key, value = records.keys[index], records.values[index]
    ours: list[Header] = [
        (ORIGIN_TOPIC, origin.topic.encode()),
        (ORIGIN_PARTITION, b"%d" % origin.partition),
        (ORIGIN_OFFSET, b"%d" % origin.offset),
        (ORIGIN_TIMESTAMP, b"%d" % origin.timestamp_ms),
        # Of a handler that failed, what it raised; of all else what it is for us, whatever library noticed it.
        (ERROR, type(error.__cause__ if isinstance(error, HandlerFailed) else error).__name__.encode()),
        (MESSAGE, error.message[:_MESSAGE_CHARS_MAX].encode(errors="replace")),
        (ATTEMPT, b"%d" % (origin.attempt + 1)),
        (GROUP, group.encode()),
        (TIME, b"%d" % (now * 1000)),
    ]
    theirs = [
        header
        for header in records.headers(index)
        if not header[0].startswith(PREFIX) or header == HEADERS_UNREADABLE
    ]
    letter = OutputRecord(topic, key, value, [*theirs, *ours], int(now * 1000), records.partition)
    room = bytes_max - RECORD_OVERHEAD_BYTES
    if letter.size > room:
        # Also without a value: its replay takes the headers from the origin, and the key.
        letter = letter._replace(value=None, headers=[*ours, (VALUE_OMITTED, b"%d" % len(value or b""))])
    return letter if letter.size <= room else letter._replace(key=None)


def replayed_marker(topic: str, partition: int, offset: int, *, group: str, now: float) -> OutputRecord:
    """Return the record that marks the dead letter at this offset as replayed: no key, no value, the same partition."""
    headers = [(REPLAYED_OFFSET, b"%d" % offset), (GROUP, group.encode()), (TIME, b"%d" % (now * 1000))]
    return OutputRecord(topic, None, None, headers, partition=partition)
