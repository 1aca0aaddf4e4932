"""The difference between the topics that are declared and those that exist."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamtable.base.ports import TopicDescription

GROW_ONLY: Mapping[str, str] = {
    "retention.ms": "records would be deleted",
    "retention.bytes": "records would be deleted",
    "min.compaction.lag.ms": "records that an audit needs would be compacted away",
    "max.compaction.lag.ms": "records that an audit needs would be compacted away",
    "delete.retention.ms": "local copies that are up to date would be discarded, or keep deleted rows",
    "max.message.bytes": "records that fit today would be refused",
    "message.timestamp.before.max.ms": "records that fit today would be refused",
    "message.timestamp.after.max.ms": "records that fit today would be refused",
    "min.insync.replicas": "acknowledged records could be lost",
}
"""Settings that may be raised but not lowered, and what lowering would do. -1 stands for no limit."""
REFUSED: Mapping[tuple[str, str], str] = {
    ("unclean.leader.election.enable", "true"): "acknowledged records could be lost",
    ("message.timestamp.type", "LogAppendTime"): "the times of events would be lost",
}
"""Values that a topic does not get, and what they would do."""


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """A property of a topic that is not as declared; `problem` says why it cannot be altered, "" if it can."""

    topic: str
    name: str
    found: str
    declared: str
    problem: str = ""

    def __str__(self) -> str:
        text = f"{self.topic}: {self.name} is {self.found}, declared is {self.declared}"
        return f"{text}: {self.problem}" if self.problem else text


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Topics to create, properties to alter in place, properties that must not be altered, and topics as declared."""

    create: tuple[TopicDescription, ...]
    alter: tuple[TopicDifference, ...]
    refused: tuple[TopicDifference, ...]
    same: tuple[str, ...]


def plan_topics(
    declared: Mapping[str, TopicDescription], existing: Mapping[str, TopicDescription]
) -> TopicPlan:
    """Compare the declared topics with the existing ones. Existing topics that are not declared are ignored."""
    both = [(topic, existing[name]) for name, topic in declared.items() if name in existing]
    differences = [difference for topic, found in both for difference in _differences(topic, found)]
    different = {difference.topic for difference in differences}
    return TopicPlan(
        create=tuple(topic for name, topic in declared.items() if name not in existing),
        alter=tuple(difference for difference in differences if not difference.problem),
        refused=tuple(difference for difference in differences if difference.problem),
        same=tuple(topic.name for topic, _ in both if topic.name not in different),
    )


def _differences(topic: TopicDescription, found: TopicDescription) -> Iterator[TopicDifference]:
    if topic.partitions != found.partitions:
        problem = (
            "partitions cannot be taken away; make a new topic and copy"
            if topic.partitions < found.partitions
            else "with more, keys move to other partitions, away from their rows in the tables of the groups that "
            "read it, and their counts start again; make a new topic and copy"
        )
        yield TopicDifference(topic.name, "partitions", str(found.partitions), str(topic.partitions), problem)
    if topic.replication != found.replication:
        problem = "replicas have to be placed on brokers by hand"
        yield TopicDifference(
            topic.name, "replication", str(found.replication), str(topic.replication), problem
        )
    for name, value in topic.config.items():
        there = found.config.get(name, "not set")
        if value != there:
            yield TopicDifference(topic.name, name, there, value, _problem(name, there, value))


def _problem(name: str, found: str, declared: str) -> str:
    if name == "cleanup.policy":
        return "rows of tables would be deleted by age, or events deleted by key; alter it by hand if that is intended"
    lowered = GROW_ONLY.get(name, "") if _limit(declared) < _limit(found) else ""
    problem = REFUSED.get((name, declared)) or lowered
    return f"{problem}; alter it by hand if meant" if problem else ""


def _limit(text: str) -> float:
    try:
        number = int(text)
    except ValueError:
        return float("inf")  # the broker validates it
    return float("inf") if number < 0 else number
