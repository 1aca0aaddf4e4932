"""Finds hanging transactions, and the partitions of a processor that wait for them.

Consumers of committed records read up to the last stable offset, where the first open transaction of the partition
begins. It is usually some other producer's, and ends within its time-out. If it does not (its producer has a long
time-out, or the broker has lost its marker), the consumer is not notified: to it the partition looks as if it ended there.
What stands still is found here by pure functions; `HangingTransactions` asks Kafka, and reports each of them once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from streamtable.base.clock import Clock
from streamtable.base.ports import ClusterClient
from streamtable.base.transactions import RUNBOOK, commands
from streamtable.base.types import TopicPartition
from streamtable.errors import StreamtableError
from streamtable.observe import GroupGauge, Metrics

log = structlog.get_logger()

_OFFSETS_TOPIC: Final = "__consumer_offsets"
_SHOWN_MAX: Final = 3
_UNKNOWN: Final = -1


@dataclass(frozen=True)
class ReadProgress:
    """The read progress of a partition.

    Attributes:
        place: The partition of an input, or of a table that is being loaded.
        position: All committed records below this offset have been read.
        end: The end offset of the partition, or the offset where the table is complete.
    """

    place: TopicPartition
    position: int
    end: int


@dataclass(frozen=True)
class Standstill:
    """A partition that waits at an offset.

    Attributes:
        offset: The last stable offset, where the transaction begins; -1 if it is not known.
        since: Monotonic time when it was first seen there.
    """

    offset: int
    since: float


def standstills(
    before: Mapping[TopicPartition, Standstill],
    readings: Iterable[ReadProgress],
    stable_ends: Mapping[TopicPartition, int],
    now: float,
) -> dict[TopicPartition, Standstill]:
    """Return the partitions that were read up to the last stable offset, with more records behind it.

    Args:
        before: The result of the last look.
        readings: The read progress of the partitions.
        stable_ends: Their last stable offsets.
        now: Monotonic time.
    """
    found = {}
    for reading in readings:
        offset = stable_ends.get(reading.place, reading.end)
        if offset <= reading.position < reading.end:
            known = before.get(reading.place)
            found[reading.place] = known if known and known.offset == offset else Standstill(offset, now)
    return found


class HangingTransactions:
    """Reports partitions that have waited for the same transaction for too long. `look` belongs to one thread.

    Args:
        group: The name of the group.
        cluster: Asked for last stable offsets.
        clock: Monotonic time.
        timeout: Seconds after which a transaction that does not end is reported.
        metrics: Takes the seconds that each of the partitions has waited.
    """

    def __init__(
        self, group: str, cluster: ClusterClient, clock: Clock, timeout: float, metrics: Metrics
    ) -> None:
        self._group = group
        self._cluster = cluster
        self._clock = clock
        self._timeout = timeout
        self._seconds = GroupGauge(metrics.hanging_transaction_seconds, group)
        self._seen: dict[TopicPartition, Standstill] = {}
        self._reported: dict[TopicPartition, Standstill] = {}

    def look(self, readings: Iterable[ReadProgress], offsets_pending_since: float | None) -> None:
        """Check what waits now.

        Args:
            readings: The read progress of the inputs, and of the tables that are being loaded.
            offsets_pending_since: Monotonic time since when the group's committed offsets are held by a transaction;
                None if they are not.

        Raises:
            RetryLater: Kafka does not answer.
        """
        unread = [each for each in readings if each.position < each.end]
        ends = self._cluster.stable_ends([each.place for each in unread]) if unread else {}
        self._seen = standstills(self._seen, unread, ends, self._clock.monotonic())
        if offsets_pending_since is not None:
            place = self._cluster.offsets_partition(self._group) or TopicPartition(_OFFSETS_TOPIC, _UNKNOWN)
            self._seen[place] = Standstill(self._offset_of(place), offsets_pending_since)
        self._report()

    @property
    def reason(self) -> str:
        """Return the reason why the processor makes no progress; empty if no transaction is the cause. Any thread."""
        reported = dict(self._reported)
        if not reported:
            return ""
        seconds = self._clock.monotonic() - min(each.since for each in reported.values())
        return (
            f"it has waited for {seconds:.0f} s for a transaction that does not end, in {_listed(reported)}; see the log "
            "for the commands that show and end it"
        )

    def close(self) -> None:
        """Drop the gauges."""
        self._seconds.show({})
        self._reported = {}

    def _report(self) -> None:
        now = self._clock.monotonic()
        hanging = {place: each for place, each in self._seen.items() if now - each.since >= self._timeout}
        new = {place: each for place, each in hanging.items() if place not in self._reported}
        over = self._reported.keys() - hanging.keys()
        if new:
            self._log(new, now)
        if over:
            log.info("transaction has ended", group=self._group, partitions=_listed(over))
        self._seconds.show({place: now - each.since for place, each in hanging.items()})
        self._reported = hanging

    def _log(self, new: Mapping[TopicPartition, Standstill], now: float) -> None:
        place, first = min(new.items(), key=lambda item: item[1].since)
        show, abort = commands(self._cluster.servers, place, first.offset)
        log.error(
            "partitions wait for a transaction that does not end",
            group=self._group,
            partitions={str(each): standstill.offset for each, standstill in new.items()},
            seconds=round(now - first.since),
            show=show,
            abort=abort,
            first_read=RUNBOOK,
        )

    def _offset_of(self, place: TopicPartition) -> int:
        """Return the start of the first open transaction of the offsets topic, if this user may describe it."""
        if place.partition < 0:
            return _UNKNOWN
        try:
            return self._cluster.stable_ends([place])[place]
        except StreamtableError as error:
            log.debug("the last stable offset is not known", group=self._group, reason=str(error))
            return _UNKNOWN


def _listed(places: Iterable[TopicPartition]) -> str:
    names = [str(place) for place in sorted(places)]
    more = len(names) - _SHOWN_MAX
    return ", ".join(names[:_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
