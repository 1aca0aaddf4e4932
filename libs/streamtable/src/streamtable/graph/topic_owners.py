"""The owners of the topics whose names derive from the names of groups.

A group `shop` with a state `totals-day` and a group `shop-totals` with a state `day` would share the changelog
`shop-totals-day`, and each would take the other's rows for its own. Kafka keeps nothing with a topic that could say whose it
is, so the owner is what Kafka keeps atomically with each commit: the committed offsets of a group name its tables
(`TablePosition`). They survive the loss of all disks, need no record that every reader of the changelog would have to skip,
and a group that has lost them cannot continue anyway. Few groups' names can coincide: a topic's name must begin with
the name of its group.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from streamtable.base.ports import ClusterClient
from streamtable.base.types import Committed, TopicPartition
from streamtable.errors import AuthorizationError, GraphError, TopicShared, TransactionPending
from streamtable.graph.group import Group
from streamtable.tables.kept import OWN, is_inner_topic
from streamtable.tables.position import TablePosition

_OTHERS = ("loop", "visits")


def own_topics(group: Group[Any, Any]) -> tuple[str, ...]:
    """Return the topics that belong to the group: its tables, dead letters and retries, its loop and its visits."""
    loop = () if group.loop is None else (group.loop.stream.name,)
    visits = (group.visits_topic,) if group.visits else ()
    return (*group.tables, group.dead_letters, group.retry, *loop, *visits)


def refuse_shared_topics(groups: Sequence[Group[Any, Any]]) -> None:
    """Check that no topic would belong to two of these groups, and that none writes into a table of another.

    Raises:
        GraphError: The message names the topic and both groups.
    """
    owners: dict[str, str] = {}
    for group in groups:
        for topic in own_topics(group):
            # Kafka does not distinguish dots and underscores in the names of its metrics, and refuses such topics.
            if (owner := owners.setdefault(topic.replace(".", "_"), group.name)) != group.name:
                raise GraphError(_text(topic, owner, group.name))
    for group in groups:
        streams = [edge.stream.name for edge in group.outputs]
        for topic in (*streams, *(edge.stream.name for edge in group.inputs if edge.purge)):
            owner = owners.get(topic.replace(".", "_"), group.name)
            if owner != group.name:
                raise GraphError(_text(topic, owner, group.name))


def refuse_topics_of_others(group: Group[Any, Any], cluster: ClusterClient) -> None:
    """Check that no group that has ever committed owns a topic of this one, or a table that this one would write to.

    Raises:
        TopicShared: The message names the topic and both groups.
        RetryLater: Kafka does not answer.
    """
    mine = own_topics(group)
    topics = dict.fromkeys([*mine, *(edge.stream.name for edge in group.outputs)])
    names = {begin for topic in topics for begin in _beginnings(topic)} - {group.name}
    for other in sorted(names & cluster.group_names() if names else ()):
        try:
            found = cluster.stable_offsets(
                other, [TopicPartition(f"{other}-{end}", 0) for end in ("retry", *_OTHERS)]
            )
        except AuthorizationError:
            continue  # who may not ask about that group; it can ask about this one, or an administrator about both
        except TransactionPending as pending:
            # What it owns does not change with its transactions, and one that hangs must not hold up other groups.
            if not pending.latest:
                raise
            found = pending.latest
        for topic in topics_of(other, found).intersection(topics):
            if topic in mine or topic not in {f"{other}-retry", f"{other}-dead-letters"}:
                raise TopicShared(_text(topic, other, group.name), topic=topic)


def topics_of(group: str, committed: Mapping[TopicPartition, Committed | None]) -> set[str]:
    """Return the topics that belong to a group according to its committed offsets, at least the topics of its retries."""
    offsets = {place.topic: each for place, each in committed.items() if each is not None}
    found = {f"{group}-{end}" for end in _OTHERS}.intersection(offsets)
    if f"{group}-retry" in offsets:
        found |= {f"{group}-retry", f"{group}-dead-letters"}
    for each in offsets.values():
        position = TablePosition.decode(each.metadata)
        if position is not None:
            own = [OWN] if position.changelog else []
            record = position.record
            names = {*own, *position.tables, *record.kept, *record.left}
            found |= {f"{group}-{name}" for name in names if not is_inner_topic(name)}
    return found


def shared_topics(
    committed: Mapping[str, Mapping[TopicPartition, Committed | None]],
) -> Iterator[tuple[str, str, str]]:
    """Yield the topics that belong to two groups according to the committed offsets of each, with both names."""
    owners: dict[str, str] = {}
    for group, offsets in committed.items():
        for topic in sorted(topics_of(group, offsets)):
            if (owner := owners.setdefault(topic, group)) != group:
                yield topic, owner, group


def _beginnings(topic: str) -> Iterable[str]:
    return (topic[:index] for index, character in enumerate(topic) if character == "-")


def _text(topic: str, one: str, other: str) -> str:
    return (
        f"the topic {topic!r} would belong to the groups {one!r} and {other!r}, which would take each other's records for "
        "their own: give one of the groups, or its state or step, another name"
    )
