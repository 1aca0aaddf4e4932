"""Checks that topics keep their records: compaction of changelogs, and enough in-sync replicas."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from streamtable.base.ports import TopicDescription
from streamtable_admin.cluster import Cluster
from streamtable_admin.declared import load
from streamtable_admin.findings import Finding, ok, problem, warning
from streamtable_admin.offsets import named_tables
from streamtable_admin.text import count

OWN = ("table", "retry", "dead-letters", "loop", "visits")
"""The suffixes of the names of a group's own topics."""
SPREAD_MIN = 3
MORE = "give it 3 replicas and min.insync.replicas 2: kafka-reassign-partitions.sh"


def kept(cluster: Cluster, file: Path | None, groups: Iterable[str], brokers: int) -> Iterator[Finding]:
    """Check declared topics, and those of groups, that exist, on so many brokers. Raises `RetryLater` and `ConfigurationError`."""
    named = {group: named_tables(cluster.latest(group)) for group in groups}
    names = {f"{group}-{what}" for group in named for what in OWN}
    if file is not None:
        declared = load(file)
        names |= declared.descriptions().keys()
        named |= {name: [*named.get(name, ()), *each.named_tables] for name, each in declared.groups.items()}
    tables = {f"{group}-{end}" for group, ends in named.items() for end in ("table", *ends)}
    found = cluster.admin.describe(names | tables).values()
    findings = [each for topic in found for each in judged(topic, topic.name in tables, brokers)]
    yield from findings
    if found and not findings:
        yield ok("replicas", f"{count(len(found), 'topic keeps its', 'topics keep their')} records")


def judged(topic: TopicDescription, changelog: bool, brokers: int) -> Iterator[Finding]:  # noqa: FBT001 - one caller
    """Check a topic, by the rules for changelogs if it is one, on so many brokers."""
    subject = f"topic {topic.name}"
    if changelog:
        yield from _compaction(subject, topic.config)
    least, replicas = int(topic.config.get("min.insync.replicas") or 1), topic.replication
    fact = f"{count(replicas, 'replica')}, min.insync.replicas {least}"
    if least > replicas:
        advice = f"set min.insync.replicas to {max(1, replicas - 1)}"
        yield problem(subject, f"{fact}: nothing can be written to it", advice)
    elif least == replicas > 1:
        advice = f"set min.insync.replicas to {replicas - 1}"
        yield warning(subject, f"{fact}: while one broker is down, nothing can be written to it", advice)
    elif replicas < min(SPREAD_MIN, brokers):
        yield warning(subject, f"{fact}, on {brokers} brokers: their loss is the loss of its records", MORE)
    elif least == 1 and replicas >= SPREAD_MIN:
        fact = f"{fact}: an acknowledged record may be on one broker only"
        yield warning(subject, fact, "set min.insync.replicas to 2")


def _compaction(subject: str, config: Mapping[str, str]) -> Iterator[Finding]:
    policies = set(config.get("cleanup.policy", "").split(","))
    if "compact" not in policies:
        yield problem(
            subject,
            "a changelog that is not compacted: rows are lost when retention deletes their records, or it grows for ever",
            "set cleanup.policy to compact; if records are already lost: docs/how-to/rebuild-a-table.md",
        )
    elif "delete" in policies:
        hours = int(config.get("retention.ms") or -1) / 3_600_000
        fact = f"a changelog whose rows are deleted by age, after {hours:,.0f} h without a change"
        yield problem(subject, fact, "set cleanup.policy to compact alone")
