"""Findings about pending calls, for `streamtable doctor`, which finds this function by its entry point."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from streamtable_admin.cluster import Cluster
from streamtable_admin.findings import Finding, warning
from streamtable_admin.text import count, duration
from streamtable_calls.operate import ListedCall, changelog_of, listed


def failing_calls(cluster: Cluster, groups: Iterable[str], now_ms: int) -> Iterator[Finding]:
    """Yield a finding for each call of these groups that has failed and is pending still.

    Args:
        cluster: The cluster.
        groups: The names of the groups.
        now_ms: The time, in milliseconds since 1970.

    Raises:
        RetryLater: The broker has stopped answering.
    """
    topics = cluster.admin.topic_partitions()
    for group in groups:
        if changelog_of(group) not in topics:
            continue
        by_call: dict[str, list[ListedCall]] = defaultdict(list)
        for each in listed(cluster, group, lambda each: each.pending.attempts > 0):
            by_call[each.call].append(each)
        for name, failing in sorted(by_call.items()):
            oldest = min(failing, key=lambda each: each.pending.since_ms)
            since_ms = oldest.pending.since_ms
            yield warning(
                f"call {group} {name}",
                f"{count(len(failing), 'attempted call')} pending, the oldest for "
                f"{duration(max(0, now_ms - since_ms) / 1000)}: {oldest.pending.error.strip()}",
                f"they are attempted again by themselves; 'streamtable calls list {group}' shows them",
                since_ms,
            )
