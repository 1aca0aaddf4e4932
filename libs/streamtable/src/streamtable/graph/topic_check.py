"""Compares the topics that a group requires with the topics of the cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from streamtable.base.ports import ClusterClient, TopicInfo, WindowedKeys
from streamtable.errors import InputLost, StateLost, TopicMismatch, TopicMissing
from streamtable.graph.group import Group
from streamtable.graph.topic_settings import refuse_lost_times


def required_topics(group: Group[Any, Any]) -> list[str]:
    """Return all topics that the group uses."""
    return list(dict.fromkeys([*group.input_topics, group.dead_letters, *group.tables, *_elsewhere(group)]))


def _elsewhere(group: Group[Any, Any]) -> list[str]:
    """Return the topics whose number of partitions may differ from the group's."""
    return [*(edge.stream.name for edge in group.outputs), *(edge.table.name for edge in group.lookups)]


def partition_counts(
    groups: Sequence[Group[Any, Any]], found: Mapping[str, int], partitions: int
) -> dict[str, int]:
    """Return the number of partitions of all topics of some groups, for those that are to be created.

    Args:
        groups: The groups. A topic between two of them has as many partitions as the inputs of the one that reads it.
        found: The number of partitions of each topic that exists.
        partitions: The number of partitions of a group none of whose topics exists.
    """
    counts = dict(found)
    waiting = [
        (group, [name for name in required_topics(group) if _is_even(group, name)]) for group in groups
    ]
    while waiting:
        known = [each for each in waiting if any(name in counts for name in each[1])]
        group, names = (known or waiting)[0]
        count = next((counts[name] for name in names if name in counts), partitions)
        counts = dict.fromkeys(names, count) | counts
        waiting = [each for each in waiting if each[0] is not group]
    for group in groups:
        for name in required_topics(group):
            counts.setdefault(name, counts[group.input_topics[0]])
    return counts


def _is_even(group: Group[Any, Any], name: str) -> bool:
    """Return whether a topic must have as many partitions as the group's inputs."""
    return name in group.input_topics or name not in _elsewhere(group)


def check_topics(group: Group[Any, Any], cluster: ClusterClient) -> dict[str, TopicInfo]:
    """Compare the group's topics with the broker's.

    Returns:
        All of them, by name.

    Raises:
        TopicMissing: One is missing.
        TopicMismatch: The co-partitioned ones differ in their number of partitions; the message
            names both numbers. Or the broker dates the records between the groups of a flow by itself.
        RetryLater: The broker does not answer.
    """
    names = required_topics(group)
    found = dict(cluster.topics(names))
    missing = [name for name in names if name not in found]
    if missing:
        raise TopicMissing(
            f"group {group.name!r} needs topics that do not exist: {', '.join(missing)}. "
            "Declare them in topics.yaml, as 'streamtable topics declare MODULE:NAME' prints it, and run "
            "'streamtable topics apply'",
            topic=missing[0] if len(missing) == 1 else None,
        )
    first = group.input_topics[0]
    for name in names:
        if _is_even(group, name) and found[name].partitions != found[first].partitions:
            raise TopicMismatch(
                f"group {group.name!r} needs {name!r} to have as many partitions as its input {first!r}: it has "
                f"{found[name].partitions}, the input {found[first].partitions}. {_remedy(group, name, found[first].partitions)}",
                topic=name,
            )
    for name in group.tables:
        if not found[name].compacted:
            raise TopicMismatch(
                f"{name!r}, a table of group {group.name!r}, is not compacted: set cleanup.policy=compact, "
                "or its rows will be deleted by age",
                topic=name,
            )
    refuse_lost_times(group, found)
    return found


def _remedy(group: Group[Any, Any], name: str, partitions: int) -> str:
    if name in {group.retry, group.dead_letters} and not group.tables:
        return (
            "The group keeps no table, so partitions can be added to the topic: "
            f"kafka-topics.sh --alter --topic {name} --partitions {partitions}"
        )
    # The stream of a table's topic would skip deletions.
    is_table = name in {
        *(edge.table.name for edge in group.joins),
        *(edge.table.name for edge in group.changes),
    }
    read, kept = (
        ("table(..., group=...).to_stream()", ".to_table(name)")
        if is_table
        else ("stream(..., group=...)", "")
    )
    return (
        "Partitions cannot be taken away and adding some moves keys to other tables: make a new topic of the right size and "
        f"copy, or in a flow read it by {read} and bring it there by repartition(name, beside=...){kept}"
    )


def check_unchanged(group: Group[Any, Any], cluster: ClusterClient, before: Mapping[str, TopicInfo]) -> None:
    """Check the topics again while the group is running. Raises like `check_topics`.

    Raises:
        InputLost: An input was deleted and created again; its offsets say nothing about the new one.
        StateLost: The same of another topic of the group.
        TopicMismatch: Also if an output has grown that the client does not partition by itself, or not by the whole key.
    """
    found = check_topics(group, cluster)
    looked_up = {edge.table.name for edge in group.lookups} - set(group.input_topics)  # it is loaded again
    for name, topic in found.items():
        if topic.topic_id != before[name].topic_id and name not in looked_up:
            lost = InputLost if name in group.input_topics else StateLost
            raise lost("the topic was deleted and created again while the group was running", topic=name)
    for stream in (edge.stream for edge in group.outputs):
        if stream.partitioner == "murmur2" and not isinstance(stream.key, WindowedKeys):
            continue
        had, has = before[stream.name].partitions, found[stream.name].partitions
        if had != has:  # the client takes over new partitions by itself, but by murmur2 only
            raise TopicMismatch(
                f"output {stream.name!r} of group {group.name!r} had {had} partitions and has {has} now, so keys have "
                "moved away from their earlier records: make a new topic of the right size and copy, or start again "
                "if no group joins it or keeps a table of it",
                topic=stream.name,
            )
