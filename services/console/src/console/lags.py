"""The lag that processes report, without transaction markers, as `streamtable group lag` counts it."""

from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from console.clusters import LIMITS
from contracts.records import ProcessStatus
from streamtable.base.types import TopicPartition
from streamtable.errors import StreamtableError
from streamtable_admin.cluster import Cluster
from streamtable_admin.lag import COUNTED_MAX, readable
from streamtable_admin.offsets import unread

log: Any = structlog.get_logger()
Place = tuple[str, TopicPartition]
"""A group and a partition that it reads."""


class Lags:
    """Counts the records of partitions whose position stands still a few offsets before the end. One thread.

    A processor reports offsets: in a topic that is written in transactions at least one is always left, the transaction marker.

    Args:
        cluster: The cluster to count in.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # By place: the offsets left to read, and the number of records among them.
        self._counted: dict[Place, tuple[int, int]] = {}
        self._reported: dict[Place, int] = {}

    def look(self, statuses: Mapping[str, ProcessStatus]) -> None:
        """Count where the lag is the same as at the last poll: while records arrive it changes, and offsets are precise enough."""
        reported = {
            (status["group"], TopicPartition(each["topic"], each["partition"])): each["lag"]
            for status in statuses.values()
            if status["group"]
            for each in status["inputs"]
            if 0 < each["lag"] <= COUNTED_MAX
        }
        still = {place for place, lag in reported.items() if self._reported.get(place) == lag}
        self._reported = reported
        self._counted = {place: known for place, known in self._counted.items() if place in reported}
        due = [place for place in still if self._counted.get(place, (0, 0))[0] != reported[place]]
        for group in {group for group, _ in due}:
            try:
                self._count(group, [place for of, place in due if of == group])
            except StreamtableError as error:  # no answer, or this user may not read the group or its topics
                reason = str(error)
                log.info("the lag is shown in offsets, records were not counted", group=group, reason=reason)

    def corrected(self, statuses: Mapping[str, ProcessStatus]) -> dict[str, ProcessStatus]:
        """Return the statuses with the lag in records instead of offsets, where they were counted."""
        return {key: self._of(status) for key, status in statuses.items()}

    def _of(self, status: ProcessStatus) -> ProcessStatus:
        if not any(each["lag"] > 0 for each in status["inputs"]):
            return status
        inputs = list(status["inputs"])
        for index, each in enumerate(inputs):
            place = TopicPartition(each["topic"], each["partition"])
            offsets, records = self._counted.get((status["group"], place), (-1, 0))
            if each["lag"] == offsets:
                inputs[index] = {**each, "lag": records}
        return {**status, "inputs": inputs}

    def _count(self, group: str, places: Iterable[TopicPartition]) -> None:
        committed = self._cluster.admin.stable_offsets(group, list(places))
        starts = {place: each.next_offset for place, each in committed.items() if each is not None}
        if not starts:
            return
        marks = readable(self._cluster.admin, starts)
        for place, records in unread(self._cluster, starts, limits=LIMITS, complete=True).items():
            self._counted[group, place] = (marks[place].high - starts[place], records)
