"""Deletes the records of topics between the groups of a flow once their only reader has committed them, as Kafka Streams does.

A topic between two groups of a flow keeps its records for ever, since retention would count from the times of events. So
the group that reads it deletes what it has committed. It asks Kafka for the committed offsets each time: nothing that this
process believes to have committed is deleted, only what any successor would not read again.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from streamtable.base.ports import ClusterClient
from streamtable.base.types import TopicPartition
from streamtable.errors import AuthorizationError, ConfigurationError, RetryLater
from streamtable.graph.group import Group
from streamtable.graph.topic_settings import purged_topics

log = structlog.get_logger()

PURGE_SECONDS = 30.0
"""The interval between deletions of committed records of these topics, in seconds."""


class Purger:
    """Deletes what a group has committed of the inputs that nobody else reads.

    Args:
        group: The graph.
        cluster: Kafka.
        enabled: Whether it deletes anything.
    """

    def __init__(self, group: Group[Any, Any], cluster: ClusterClient, *, enabled: bool) -> None:
        self._group = group.name
        self._topics = purged_topics(group) if enabled else ()
        self._cluster = cluster

    def purge(self, partitions: Iterable[int]) -> None:
        """Delete the committed records of these partitions, which this process works on."""
        places = [TopicPartition(topic, number) for number in partitions for topic in self._topics]
        if not places:
            return
        try:
            committed = self._cluster.stable_offsets(self._group, places)
            marks = self._cluster.watermarks(places)
            for topic in self._topics:
                before = {
                    place: each.next_offset
                    for place, each in committed.items()
                    if place.topic == topic
                    and each is not None
                    and marks[place].low < each.next_offset <= marks[place].high
                }
                self._delete(topic, before)
        except RetryLater as error:  # as while a transaction is pending: the next turn deletes more
            log.debug("purge postponed", group=self._group, reason=str(error))

    def _delete(self, topic: str, before: Mapping[TopicPartition, int]) -> None:
        try:
            if before:
                self._cluster.delete_records(before)
        except (AuthorizationError, ConfigurationError) as error:
            self._topics = tuple(each for each in self._topics if each != topic)
            log.warning(
                "committed records are not deleted",
                group=self._group,
                topic=topic,
                reason=str(error),
                advice="the topic keeps what the group has handled. Grant DELETE on it ('streamtable users apply'), or set "
                "STREAMTABLE_PURGE=false to keep it knowingly, and start again",
            )
