"""Checks of a cluster that answers: its brokers, the groups on it, and its clock. Each yields findings and changes nothing."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from streamtable.base.types import TopicPartition
from streamtable.errors import AuthorizationError, RetryLater
from streamtable.graph.topic_owners import shared_topics
from streamtable_admin.cluster import BrokerAddress, Cluster
from streamtable_admin.deadletter_log import DeadLetterLog
from streamtable_admin.findings import Finding, ok, problem, warning
from streamtable_admin.offsets import group_offsets, known_lag
from streamtable_admin.reading import PATIENT, ReadLimits
from streamtable_admin.text import at, count, duration
from streamtable_admin.versions import ask
from streamtable_admin.watermark import event_times, watermark_findings

LETTERS_READ_MAX = 20_000
SKEW_MS = 1_000
OFFSETS_TOPIC = "__consumer_offsets"
DAY_MINUTES = 1_440

_PROTOCOLS = "group.coordinator.rebalance.protocols"
ONE_BROKER = "one broker only: nothing is replicated, and while it is down nothing works"


def abilities(cluster: Cluster, brokers: Iterable[BrokerAddress]) -> Iterator[Finding]:
    """Check the version of Kafka, and whether it supports the group protocol that is used."""
    protocol = cluster.kafka.options.get("security.protocol", "plaintext").lower()
    if protocol != "plaintext":
        yield ok("version", f"not checked: this needs a listener without {protocol.upper()}")
        return
    for broker in brokers:
        subject = f"broker {broker.number}"
        try:
            found = ask(broker.host, broker.port, cluster.timeout)
        except RetryLater as error:
            yield warning(subject, str(error), "check whether the listener needs TLS or SASL")
            continue
        features = ", ".join(f"{name} {level}" for name, level in sorted(found.features.items()))
        yield ok(subject, f"features: {features or 'none'}")
        offered = found.consumer_groups and "consumer" in _protocols(cluster, broker)
        if cluster.kafka.group_protocol == "classic":
            yield ok(subject, "groups use the classic protocol, as STREAMTABLE_GROUP_PROTOCOL says")
        elif offered:
            yield ok(subject, "groups use the consumer protocol (KIP-848)")
        else:
            yield warning(
                subject,
                "groups use the classic protocol: this broker does not offer the consumer protocol (KIP-848)",
                "Kafka 4.0 or newer has it, with group.version=1 (kafka-features.sh upgrade --feature group.version=1) "
                f"and {_PROTOCOLS}=classic,consumer; set STREAMTABLE_GROUP_PROTOCOL=classic to keep the classic one",
            )


def _protocols(cluster: Cluster, broker: BrokerAddress) -> str:
    """Return the protocols that a broker's settings allow; all of them if this user may not see its settings."""
    try:
        return cluster.admin.broker_settings(broker.number).get(_PROTOCOLS, "consumer")
    except AuthorizationError:
        return "consumer"


def owners(cluster: Cluster, groups: Iterable[str]) -> Iterator[Finding]:
    """Check that no topic belongs to two of these groups, according to their committed offsets."""
    # What a group owns does not change with its transactions.
    for topic, one, other in shared_topics({name: cluster.latest(name) for name in groups}):
        yield problem(
            f"topic {topic}",
            f"belongs to the groups {one} and {other}: each takes the other's records for its own",
            "stop both, give one of the groups, or its state or step, another name, and rebuild both tables",
        )


def group(cluster: Cluster, name: str, limits: ReadLimits = PATIENT) -> Iterator[Finding]:
    """Check members, lag and dead letters of a group."""
    subject = f"group {name}"
    found = cluster.describe_groups([name]).get(name)
    if found is None:
        yield warning(subject, "has never run: it has no members and no offsets", "start it if it should run")
    else:
        offsets = group_offsets(cluster, found)
        behind = known_lag(offsets)
        protocol = f" ({found.protocol} protocol)" if found.members else ""
        members = f"{count(len(found.members), 'member')}{protocol}"
        fact = f"{found.state}, {members}, lag {'unknown' if behind is None else behind}"
        if not found.members:
            found_so = warning if behind == 0 else problem
            yield found_so(subject, fact, "no process of it is running: start it if it should run")
        else:
            yield ok(subject, fact)
        yield from watermark_findings(subject, event_times(offsets), time.time_ns() // 1_000_000)
    yield from dead_letters(cluster, name, limits)


def dead_letters(cluster: Cluster, group: str, limits: ReadLimits = PATIENT) -> Iterator[Finding]:
    """Yield the number of dead letters that were never replayed."""
    topic = f"{group}-dead-letters"
    places = [
        TopicPartition(topic, number) for number in range(cluster.admin.topic_partitions().get(topic, 0))
    ]
    records = sum(high - low for low, high in cluster.admin.watermarks_known(places).values())
    subject, look = f"group {group}", f"streamtable dead-letters list {group}"
    if records > LETTERS_READ_MAX:
        yield warning(subject, f"about {records} records in {topic}", look)
    elif records:
        letters = DeadLetterLog(cluster, group, limits=limits).read()
        if waiting := sum(letter.replayed is None for letter in letters):
            yield warning(subject, f"{count(waiting, 'dead letter')} never replayed", look)
        else:
            yield ok(subject, f"{count(len(letters), 'dead letter')}, all replayed")
    elif places:
        yield ok(subject, "no dead letters")


def clock(cluster: Cluster) -> Iterator[Finding]:
    """Check whether this machine's clock is behind the brokers'. Writes nothing.

    Kafka has no request for its time. But each committed offset is a record with a timestamp of the broker's clock, so
    none can be later than now. This detects a clock of ours that is behind, but not one that is ahead, which looks like
    brokers without recent commits.
    """
    newest = cluster.admin.newest_timestamp(OFFSETS_TOPIC)
    now = int(time.time() * 1000)
    if newest is None:
        yield ok("clock", "not compared with the brokers': no group has committed offsets yet")
    elif newest > now + SKEW_MS:
        yield warning(
            "clock",
            f"this machine's is at least {duration((newest - now) / 1000)} behind the brokers'",
            "set both by NTP: ages, retention and event times are compared across machines",
        )
    else:
        yield ok("clock", f"not behind the brokers' (last offset committed at {at(newest)} by their clock)")


def settings(cluster: Cluster, brokers: Sequence[BrokerAddress]) -> Iterator[Finding]:
    """Check the settings of a broker that matter for exactly once and durability."""
    found = cluster.admin.broker_settings(brokers[0].number)
    if len(brokers) == 1:
        yield warning("brokers", ONE_BROKER, "use three or more for data that must not be lost")
    else:
        yield from _at_least(found, min(3, len(brokers)), REPLICAS)
        yield from _at_least(found, 2, IN_SYNC)
    yield from _at_least(found, 7 * DAY_MINUTES, LONG_ENOUGH)
    yield from _at_least(found, 10_000, TRANSACTIONS)
    for name, why in SWITCHES.items():
        if (value := found.get(name)) not in (None, "false"):
            yield warning("brokers", f"{name} is {value}", f"set it to false: {why}")
    yield ok("brokers", f"{len(brokers)}; settings read from broker {brokers[0].number}")


REPLICAS = {
    "offsets.topic.replication.factor": "losing a broker loses the groups' offsets",
    "transaction.state.log.replication.factor": "losing a broker loses its transactions",
    "default.replication.factor": "topics are not replicated by default",
}
IN_SYNC = {
    "transaction.state.log.min.isr": "an acknowledged commit may be on one broker only",
    "min.insync.replicas": "acknowledged records may be on one broker only",
}
LONG_ENOUGH = {"offsets.retention.minutes": "a group that pauses for longer loses its offsets, and stops"}
TRANSACTIONS = {"transaction.max.timeout.ms": "the library's transactions may take 10 s"}
SWITCHES = {
    "auto.create.topics.enable": "a misspelt topic is created, with the wrong number of partitions",
    "unclean.leader.election.enable": "acknowledged records can be lost",
}


def _at_least(found: Mapping[str, str], least: int, names: Mapping[str, str]) -> Iterator[Finding]:
    for name, why in names.items():
        value = found.get(name, "")
        if value.isdecimal() and int(value) < least:
            yield warning("brokers", f"{name} is {value}", f"{least} or more: {why}")
