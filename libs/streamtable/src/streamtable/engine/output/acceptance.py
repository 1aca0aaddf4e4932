"""Checks output records against the limits of their topic, while the handler runs and the traceback points to it."""

from typing import Any

import structlog

from streamtable.base.clock import Clock
from streamtable.base.deadletter import RECORD_OVERHEAD_BYTES
from streamtable.base.ports import TopicInfo
from streamtable.errors import SerializationError

log = structlog.get_logger()

_TIME_MS_MAX = 1 << 63
_CLOCKS_APART_MS = 1_000  # the broker's clock decides; records closer to the limit than this are left to it


class Acceptance:
    """Checks records for one output topic.

    Args:
        topic: The topic, as the broker describes it.
        clock: The time that timestamps are compared with.

    Attributes:
        bytes_max: The most that key, value and headers of a record may have together.
    """

    def __init__(self, topic: TopicInfo, clock: Clock) -> None:
        self.bytes_max = topic.max_message_bytes - RECORD_OVERHEAD_BYTES
        self._topic = topic
        self._clock = clock
        self._retention_ms = topic.retention_ms

    def check(self, key: bytes | None, headers: Any, timestamp_ms: Any) -> None:
        """Check everything but the size. Raises `SerializationError` if the broker or the client would refuse the record."""
        name = self._topic.name
        if key is None and self._topic.compacted:
            raise refusal(name, "has no key, and the topic is compacted: give it one")
        if headers:
            _check_headers(name, headers)
        if timestamp_ms != 0 or type(timestamp_ms) is not int:
            self._check_time(timestamp_ms)

    def check_partition(self, partition: int) -> None:
        """Check a partition that a handler has chosen. Raises `SerializationError` if the topic does not have it."""
        if partition >= self._topic.partitions:
            there = f"the topic has {self._topic.partitions}: give one of them, or -1 to choose it by the key"
            raise refusal(self._topic.name, f"is for partition {partition}, and {there}")

    def _check_time(self, timestamp_ms: Any) -> None:
        topic = self._topic
        if type(timestamp_ms) is not int or not 0 <= timestamp_ms < _TIME_MS_MAX:
            text = f"has the timestamp {timestamp_ms!r}: give an int of milliseconds since 1970"
            raise refusal(topic.name, text)
        if not topic.keeps_timestamps:
            return
        now = int(self._clock.now() * 1000)
        for limit, away, config, way in (
            (topic.timestamp_after_max_ms, timestamp_ms - now, "message.timestamp.after.max.ms", "ahead of"),
            (topic.timestamp_before_max_ms, now - timestamp_ms, "message.timestamp.before.max.ms", "behind"),
        ):
            if away > limit + _CLOCKS_APART_MS:
                time = f"has the timestamp {timestamp_ms}, {away} ms {way} the clock"
                raise refusal(topic.name, f"{time}: the topic accepts {limit} ({config})")
        if self._retention_ms is not None and now - timestamp_ms > self._retention_ms:
            self._retention_ms = None  # said once
            log.warning(
                "record deleted by retention",
                topic=topic.name,
                timestamp_ms=timestamp_ms,
                setting="retention.ms",
                value=topic.retention_ms,
                advice="Kafka counts retention from the timestamp of a record and deletes this one and others as old: set "
                "retention.ms of the topic to -1, or to the age until which events are of use",
            )


def _check_headers(name: str, headers: Any) -> None:
    for header in headers:
        if not (isinstance(header, tuple | list) and len(header) == 2):  # noqa: PLR2004 - name and value
            raise refusal(name, f"has the header {header!r}: give (name, bytes or None)")
        key, value = header
        if not isinstance(key, str) or not isinstance(value, bytes | None):
            kinds = f"{type(key).__name__} and {type(value).__name__}"
            raise refusal(name, f"has a header of {kinds}: give (text, bytes or None)")
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise refusal(name, f"has a header whose name is no UTF-8: {error}") from error


def refusal(topic: str, text: str) -> SerializationError:
    """Return the error for a record of this topic; the text goes on after "the record for the topic"."""
    return SerializationError(f"the record for {topic!r} {text}")
