"""The settings of the topics of groups: how topics are created, and which settings lose event times or results.

Kafka counts retention from the timestamp of a record. In the topics of flows that is the time of the event, which may be
years ago: default retention deletes such a record as soon as it is written, and a broker that dates records by itself
(`LogAppendTime`) loses the time. So these topics get settings of their own, whatever the defaults of the cluster are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamtable.base.ports import TopicInfo
from streamtable.base.topics import DEAD_LETTER_CONFIG, TABLE_CONFIG
from streamtable.errors import TopicMismatch
from streamtable.graph.group import Group

_NO_LIMIT = (1 << 63) - 1
_CREATE_TIME = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(_NO_LIMIT),
    "message.timestamp.after.max.ms": str(_NO_LIMIT),
}

INNER_CONFIG: Mapping[str, str] = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}
"""The settings of a topic from a group to itself: its loop, its retries, its visits."""
EVENTS_CONFIG: Mapping[str, str] = {**_CREATE_TIME, "retention.ms": "-1"}
"""The settings of a topic whose timestamps are the times of events."""
BETWEEN_CONFIG: Mapping[str, str] = {**EVENTS_CONFIG, "cleanup.policy": "delete"}
"""The settings of a stream between two groups."""
REPARTITION_CONFIG: Mapping[str, str] = {**BETWEEN_CONFIG, "segment.bytes": str(50 << 20)}
"""The settings of a stream between two groups that is purged: the disk is freed by whole segments."""


@dataclass(frozen=True)
class TopicWarning:
    """A setting of a topic that loses results or changes their timestamps.

    Attributes:
        topic: The topic.
        setting: The name of the setting.
        value: Its value.
        effect: The effect on the results, as a sentence.
        advice: The change that prevents it.
    """

    topic: str
    setting: str
    value: str
    effect: str
    advice: str


def settings_of_topics(groups: Sequence[Group[Any, Any]]) -> dict[str, Mapping[str, str]]:
    """Return the settings for creating the topics of these groups; inputs from outside have none."""
    found: dict[str, Mapping[str, str]] = {}
    read = {edge.stream.name for group in groups for edge in group.inputs}
    for edge in (edge for group in groups for edge in group.outputs):
        found[edge.stream.name] = (
            BETWEEN_CONFIG if edge.stream.name in read else EVENTS_CONFIG if edge.event_times else {}
        )
    for group in groups:
        found |= {edge.stream.name: REPARTITION_CONFIG for edge in group.inputs if edge.purge}
        found |= dict.fromkeys((group.retry, group.visits_topic, f"{group.name}-loop"), INNER_CONFIG)
        found[group.dead_letters] = DEAD_LETTER_CONFIG
    for group in groups:
        others = [
            *(join.table.name for join in group.joins),
            *(lookup.table.name for lookup in group.lookups),
        ]
        found |= dict.fromkeys((*group.tables, *others), TABLE_CONFIG)
    return found


def refuse_lost_times(group: Group[Any, Any], topics: Mapping[str, TopicInfo]) -> None:
    """Check that the topics between the groups of a flow keep the times of events.

    Raises:
        TopicMismatch: The broker dates their records by itself.
    """
    written = [edge.stream.name for edge in group.outputs if edge.watermarks]
    followed = [] if group.event_time is None else [each for each in group.inputs if each.time is None]
    for name in dict.fromkeys([*written, *(edge.stream.name for edge in followed if edge.purge)]):
        if not topics[name].keeps_timestamps:
            raise TopicMismatch(
                f"{name!r}, between groups of the flow of group {group.name!r}, has message.timestamp.type=LogAppendTime: the "
                "broker replaces the times of events by its own, and windows and joins would be wrong. Stop the flow, set "
                f"it: kafka-configs.sh --alter --topic {name} --add-config message.timestamp.type=CreateTime, or by "
                "'streamtable topics apply'; records that are there keep the broker's time",
                topic=name,
            )


def topic_warnings(group: Group[Any, Any], topics: Mapping[str, TopicInfo]) -> Iterator[TopicWarning]:
    """Yield the settings of the group's outputs that would lose results of old events.

    A retention that the topic has itself is a decision; one that is the broker's default is not.
    """
    outputs = dict.fromkeys(edge.stream.name for edge in group.outputs if edge.event_times)
    for topic in (topics[name] for name in outputs):
        if not topic.keeps_timestamps:
            yield TopicWarning(
                topic.name,
                "message.timestamp.type",
                "LogAppendTime",
                "its records carry the time of the broker instead of the times of events",
                "set message.timestamp.type=CreateTime",
            )
        elif topic.retention_ms is not None and "retention.ms" not in topic.own_settings:
            yield TopicWarning(
                topic.name,
                "retention.ms",
                str(topic.retention_ms),
                "the broker's default retention counts from the times of events: it deletes results of events that are "
                "older, also as soon as they are written",
                "set retention.ms of the topic itself: -1, or the age of the oldest events whose results are useful",
            )
        if topic.keeps_timestamps and topic.timestamp_before_max_ms < _NO_LIMIT:
            yield TopicWarning(
                topic.name,
                "message.timestamp.before.max.ms",
                str(topic.timestamp_before_max_ms),
                "results of older events are refused",
                "set message.timestamp.before.max.ms=9223372036854775807",
            )


def purged_topics(group: Group[Any, Any]) -> tuple[str, ...]:
    """Return the topics that only this group reads, whose records it deletes once they are committed.

    Not its loop and its retries: an audit and a rebuild read them as the group did. Retention deletes their records, which
    carry the time when they were written.
    """
    return tuple(edge.stream.name for edge in group.inputs if edge.purge)
