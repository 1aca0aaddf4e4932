"""Renders `infra/topics.yaml`, and its copies for Kubernetes, where each workload has a Kafka user of its own."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from infra.scenarios.manifest import Program, Scenario
from infra.scenarios.text import MarkMissingError, comment, entry, flow, with_region

STATUS_TOPIC: Final = "streamtable-status"
_DEFAULTS: Final = re.compile(r"^defaults:\n  partitions: \d+\n  replication: \d+\n", re.MULTILINE)
TOPIC_KINDS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "results": (
        "Results of flows. Retention counts from the times of their events.",
        {"config": {"message.timestamp.type": "CreateTime", "retention.ms": 2_592_000_000}},
    ),
    "between": (
        (
            "Between the groups of a flow. The timestamps are the times of events, which may be old: nothing is deleted "
            "by age, and the group that reads it deletes what it has handled."
        ),
        {"config": {"message.timestamp.type": "CreateTime", "retention.ms": -1, "segment.bytes": 52_428_800}},
    ),
}


def topics_file(text: str, scenarios: Sequence[Scenario]) -> str:
    """Return `infra/topics.yaml` with the topics, groups and users of these scenarios in its regions."""
    text = with_region(text, "topics", _topics(scenarios))
    text = with_region(text, "groups", _groups(scenarios))
    return with_region(text, "users", _users(scenarios, lambda program: program.service))


def kubernetes_file(
    text: str, scenarios: Sequence[Scenario], *, partitions: int, replication: int, why: str
) -> str:
    """Return the copy of `infra/topics.yaml` for a cluster of Kubernetes.

    Args:
        text: The current `infra/topics.yaml`.
        scenarios: The scenarios.
        partitions: The partitions of each topic that does not say its own.
        replication: The replicas of each partition.
        why: What differs, for its first line.

    Raises:
        MarkMissingError: The file has no marks, or no defaults.
    """
    groups = [group for each in scenarios for group in each.groups]
    autoscaler = comment("KEDA, which asks for the lag of each group.", 2) + entry(
        "autoscaler", {"follows": groups}, 2
    )
    users = _users(scenarios, lambda program: program.workload)
    text = with_region(text, "users", [*users, *autoscaler])
    text = re.sub(
        r"\A(#.*\n)+",
        f"# As infra/topics.yaml, {why}: generated from it and from services/*/scenario.toml by `make gen`.\n",
        text,
    )
    defaults = f"defaults:\n  partitions: {partitions}\n  replication: {replication}\n"
    text, count = _DEFAULTS.subn(defaults, text)
    if count != 1:
        raise MarkMissingError(
            "infra/topics.yaml has not one block `defaults` with partitions and replication"
        )
    return text


def users_of(
    scenarios: Sequence[Scenario], name_of: Callable[[Program], str]
) -> Mapping[str, Mapping[str, Any]]:
    """Return the Kafka users of the programs and what each may do; programs that share a name share its rights."""
    users: dict[str, dict[str, Any]] = {}
    for program in (program for each in scenarios for program in each.programs):
        rights = users.setdefault(name_of(program), {})
        for key, what in program.rights.items():
            rights[key] = what if key == "replays" else [*rights.get(key, ()), *what]
    for rights in users.values():  # each process reports how it is
        rights["writes"] = [*rights.get("writes", ()), STATUS_TOPIC]
    return users


def _topics(scenarios: Sequence[Scenario]) -> list[str]:
    lines: list[str] = []
    met: set[str] = set()
    for topic, what in ((topic, what) for each in scenarios for topic, what in each.topics.items()):
        if not isinstance(what, str):
            lines += entry(topic, what, 2) if what else [f"  {topic}:"]
        elif what in met:
            lines.append(f"  {topic}: *{what}")
        else:  # the first of a kind: the others refer to it
            about, properties = TOPIC_KINDS[what]
            lines += [*comment(about, 2), f"  {topic}: &{what} {flow(properties)}"]
            met.add(what)
    return lines


def _groups(scenarios: Sequence[Scenario]) -> list[str]:
    return [
        line
        for scenario in scenarios
        for group, what in scenario.groups.items()
        for line in (f"  {group}:", *(each for key in what for each in entry(key, what[key], 4)))
    ]


def _users(scenarios: Sequence[Scenario], name_of: Callable[[Program], str]) -> list[str]:
    return [line for user, rights in users_of(scenarios, name_of).items() for line in entry(user, rights, 2)]
