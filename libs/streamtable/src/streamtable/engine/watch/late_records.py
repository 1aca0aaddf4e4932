"""Counts the records of windows and joins, and reports each minute when too many of them were late."""

import threading
from collections import Counter, defaultdict
from typing import Any

import structlog

from streamtable.base.lateness import LATE_SHARE_MAX, advice, moved_by
from streamtable.engine.basetask import Work
from streamtable.graph.group import Group
from streamtable.observe import GroupGauge, Metrics

log = structlog.get_logger()

_MINUTE_SECONDS = 60.0
_Place = tuple[str, int]


class LateRecords:
    """The records that one member has given to windows and joins.

    Args:
        group: The graph.
        metrics: The metrics to update.
    """

    def __init__(self, group: Group[Any, Any], metrics: Metrics) -> None:
        self._group = group
        self._metrics = metrics
        self._lock = threading.Lock()
        self._records = Counter[_Place]()
        self._late = Counter[tuple[str, int, str]]()  # with the input that had moved the watermark
        self._share = GroupGauge(metrics.late_share, group.name)
        self._since: float | None = None

    def committed(self, work: Work) -> None:
        """Count the records of committed work. Called by the main thread."""
        name, partition = self._group.name, work.task.partition
        for table, count in work.offered.items():
            topic = self._group.named_topic(table)
            self._metrics.windowed_records.labels(name, topic, str(partition)).inc(count)
            with self._lock:
                self._records[topic, partition] += count
        for table, count in work.late.items():
            topic, mover = self._group.named_topic(table), moved_by(work.times)
            self._metrics.late_records.labels(name, topic, str(partition), mover).inc(count)
            with self._lock:
                self._late[topic, partition, mover] += count

    def judge(self, now: float) -> None:
        """Report the last minute, if it is over. Called by the background thread. `now`: monotonic time."""
        if self._since is None:
            self._since = now
        if now - self._since < _MINUTE_SECONDS:
            return
        self._since = now
        with self._lock:
            records, self._records = self._records, Counter()
            late, self._late = self._late, Counter()
        numbers, movers_of = Counter[_Place](), defaultdict[str, Counter[str]](Counter)
        for (topic, partition, mover), count in late.items():
            numbers[topic, partition] += count
            movers_of[topic][mover] += count
        self._share.show({place: count / max(records[place], count) for place, count in numbers.items()})
        for topic, movers in movers_of.items():
            number, of = movers.total(), sum(count for (other, _), count in records.items() if other == topic)
            if number > LATE_SHARE_MAX * of:
                ((mover, _),) = movers.most_common(1)
                log.warning(
                    "records late",
                    group=self._group.name,
                    topic=topic,
                    late=number,
                    records=of,
                    moved_by=mover,
                    advice=advice(mover),
                )

    def close(self) -> None:
        """Drop the gauges."""
        self._share.show({})
