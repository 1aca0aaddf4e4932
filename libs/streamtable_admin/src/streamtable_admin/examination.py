"""The examination of a cluster that `streamtable doctor` and the console share.

Other packages add checks by entry points of the group `streamtable.findings`, each a function of the cluster, the names of the groups
and the time in milliseconds since 1970.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from streamtable.errors import RetryLater, StreamtableError
from streamtable_admin import cluster_checks, reachability, replicas
from streamtable_admin.cluster import BrokerAddress, Cluster
from streamtable_admin.findings import Finding, Level, problem
from streamtable_admin.reading import PATIENT, ReadLimits

_CONNECT_S = 2.0
_LETTERS = "-dead-letters"


def reached_brokers(cluster: Cluster) -> tuple[list[BrokerAddress], list[Finding]]:
    """Return the brokers, none if none can be reached, and the findings on the way."""
    servers = cluster.kafka.bootstrap_servers
    try:
        brokers = cluster.admin.brokers()
    except RetryLater as error:
        return [], list(reachability.bootstrap(servers, _CONNECT_S, str(error)))
    found = list(reachability.advertised(brokers, servers, _CONNECT_S))
    reached = any(each.level is not Level.PROBLEM for each in found)
    return brokers if reached else [], found


def cluster_findings(
    cluster: Cluster,
    brokers: Sequence[BrokerAddress],
    groups: Sequence[str],
    now_ms: int,
    *,
    file: Path | None = None,
    limits: ReadLimits = PATIENT,
) -> Iterator[Finding]:
    """Check brokers, the topics, members, lag and dead letters of groups, what packages add, and the clock.

    Args:
        cluster: The cluster.
        brokers: Its brokers.
        groups: The names of the groups.
        now_ms: The time, in milliseconds since 1970.
        file: The file that declares topics, to check these too.
        limits: The limits of each read of dead letters.
    """
    yield from checked("version", lambda: cluster_checks.abilities(cluster, brokers))
    yield from checked("brokers", lambda: cluster_checks.settings(cluster, brokers))
    yield from checked("topics", lambda: replicas.kept(cluster, file, groups, len(brokers)))
    yield from checked("topics", lambda: cluster_checks.owners(cluster, groups))
    for name in groups:
        yield from checked(f"group {name}", lambda name=name: cluster_checks.group(cluster, name, limits))  # type: ignore[misc]  # bound now
    for added in sorted(entry_points(group="streamtable.findings")):
        yield from checked(added.name, lambda added=added: added.load()(cluster, groups, now_ms))  # type: ignore[misc]  # bound now
    yield from checked("clock", lambda: cluster_checks.clock(cluster))


def groups_with_dead_letters(cluster: Cluster) -> list[str]:
    """Return the names of all groups that have a dead-letter topic."""
    known = cluster.admin.topic_partitions()
    return [name.removesuffix(_LETTERS) for name in known if name.endswith(_LETTERS)]


def checked(subject: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check; a failed check is a finding too."""
    try:
        return list(check())
    except StreamtableError as error:
        return [problem(subject, f"could not be checked: {error}", "solve this, and check again")]
