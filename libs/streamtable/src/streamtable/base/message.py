"""Records that are not as the client has delivered them: with another date, or with the prefix that a header has named."""

from typing import Any, cast

import structlog

from streamtable.base.ports import HeaderPrefix
from streamtable.base.types import KafkaMessage, RecordBatch

log = structlog.get_logger()


class MadeMessage:
    """A message of these parts. Offset -1: it stands in no topic, such as a due row for a dead letter."""

    __slots__ = ("_parts",)

    def __init__(
        self, key: Any, value: Any, timestamp: tuple[int, int], headers: Any = (), offset: Any = -1
    ) -> None:
        self._parts = key, value, timestamp, headers, offset

    def key(self) -> Any:
        return self._parts[0]

    def value(self) -> Any:
        return self._parts[1]

    def timestamp(self) -> Any:
        return self._parts[2]

    def headers(self) -> Any:
        return self._parts[3]

    def offset(self) -> Any:
        return self._parts[4]


def dated(message: KafkaMessage, timestamp_ms: int) -> MadeMessage:
    """Return a message with another timestamp than the one it has in Kafka."""
    when = (message.timestamp()[0], timestamp_ms)
    return MadeMessage(message.key(), message.value(), when, message.headers(), message.offset())


def latest(records: RecordBatch) -> dict[bytes, bytes | None]:
    """Return the last value of each key in records of a table. Those without a key are skipped, with a warning."""
    rows = dict(zip(records.keys, records.values, strict=True))
    if None in rows:
        del rows[None]
        log.warning("record without a key in a table skipped", **records.place._asdict())
    return cast("dict[bytes, bytes | None]", rows)


def prefix_header(codec: object) -> str:
    """Return the name of the header that may hold the prefix of a topic's values; "" if its codec knows none."""
    return codec.prefix_header if isinstance(codec, HeaderPrefix) else ""


def with_prefixes(records: RecordBatch, header: str) -> RecordBatch:
    """Return records whose values begin with the prefixes that stand in this header of theirs, and no longer in the header.

    So all that keeps their bytes, such as joins, stores and dead letters, keeps the prefix. A tombstone stays one.
    """
    if not header or not any(
        each and any(name == header for name, _ in each) for each in records.each_headers()
    ):
        return records
    made = [_with_prefix(each, records.headers(at), header) for at, each in enumerate(records.messages)]
    return RecordBatch(records.topic, records.partition, made, records.times)


def _with_prefix(message: KafkaMessage, headers: Any, header: str) -> MadeMessage:
    value, prefix = message.value(), dict(reversed(headers)).get(header)  # the first one counts, as elsewhere
    if value is not None and prefix:
        value, headers = prefix + value, [each for each in headers if each[0] != header]
    return MadeMessage(message.key(), value, message.timestamp(), headers, message.offset())
