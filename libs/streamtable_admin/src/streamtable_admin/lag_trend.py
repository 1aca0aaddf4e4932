"""Whether groups fall behind, found from two snapshots: the partitions, the growth, and which member owns them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from streamtable.base.transactions import RUNBOOK, commands
from streamtable.base.types import TopicPartition
from streamtable.errors import StreamtableError, TransactionPending
from streamtable_admin.cluster import Cluster, GroupDescription, GroupMember
from streamtable_admin.findings import Finding, problem, warning
from streamtable_admin.offsets import PartitionOffsets, group_offsets, partition_ranges
from streamtable_admin.text import count

GROWN_MIN = 100
"""The least growth of a lag in records, and a tenth of it: every lag rises and falls with the commits."""

SLOW_ADVICE = (
    "look at the log of that process: a record that takes long, a store or a call that does not answer, a table that is "
    "being loaded"
)
UNASSIGNED_ADVICE = "a rebalance is under way, or a process does not release it: streamtable group describe"
OPEN_ADVICE = (
    "its producer was killed or is cut off; the broker aborts it after its timeout, which is 10 s for Streamtable. If it "
    "stays, see which producer it is: {show}; then read {runbook} before you abort it: {abort}"
)
OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A partition of a group in a snapshot.

    Attributes:
        committed: The committed offset; None if nothing was ever committed.
        stable_end: The end of the records that can be read; those behind it belong to open transactions.
        end: The end of the partition.
        lag: Records that are left to read.
    """

    committed: int | None
    stable_end: int
    end: int
    lag: int


@dataclass(frozen=True, slots=True)
class LagSnapshot:
    """A group at one moment.

    Attributes:
        at: Seconds, of any monotonic clock.
        group: Its members.
        places: Its inputs and its own topics; its changelogs have no committed offset.
        offsets_held: The partition with the group's committed offsets, if a transaction holds them back, and its last
            stable offset; -1 if it is not known.
    """

    at: float
    group: GroupDescription
    places: Mapping[TopicPartition, PartitionLag]
    offsets_held: tuple[TopicPartition, int] | None = None

    @property
    def has_lag(self) -> bool:
        """Whether there is anything that a second snapshot could explain."""
        held = self.offsets_held is not None
        return held or any(each.lag or each.end > each.stable_end for each in self.places.values())


def take_snapshots(
    cluster: Cluster, names: Iterable[str], clock: Callable[[], float]
) -> dict[str, LagSnapshot]:
    """Return snapshots of the groups that exist. Raises `RetryLater`."""
    found = {}
    for name, group in cluster.describe_groups(names).items():
        offsets: list[PartitionOffsets] = []
        offsets_held = None
        try:
            offsets = group_offsets(cluster, group)
        except TransactionPending:
            offsets_held = _pending_offsets(cluster, name)
        read = {each.place: each for each in offsets}
        own = [
            TopicPartition(topic, number)
            for topic, partitions in cluster.admin.topic_partitions().items()
            for number in range(partitions)
            if topic.startswith(f"{name}-")
        ]
        marks = cluster.admin.watermarks_known({*read, *own})
        stable = cluster.retried(lambda asked=list(marks): cluster.admin.stable_ends(asked))  # type: ignore[misc]  # bound now
        lags = {place: _lag(read.get(place), stable[place], mark.high) for place, mark in marks.items()}
        found[name] = LagSnapshot(clock(), group, lags, offsets_held)
    return found


def _lag(offsets: PartitionOffsets | None, stable_end: int, end: int) -> PartitionLag:
    if offsets is None:
        return PartitionLag(None, stable_end, end, 0)
    committed = None if offsets.committed is None else offsets.committed.next_offset
    return PartitionLag(committed, stable_end, offsets.end, offsets.lag or 0)


def _pending_offsets(cluster: Cluster, group: str) -> tuple[TopicPartition, int]:
    """Return the partition that holds the group's committed offsets, and its last stable offset."""
    place = cluster.admin.offsets_partition(group)
    if place is None:
        return TopicPartition(OFFSETS_TOPIC, -1), -1
    try:
        return place, cluster.admin.stable_ends([place])[place]
    except StreamtableError:
        return place, -1  # mostly because this user has no ACL for it


def lag_trends(
    cluster: Cluster,
    names: Iterable[str],
    seconds: float,
    clock: Callable[[], float],
    wait: Callable[[float], object],
) -> Iterator[Finding]:
    """Yield the findings of two snapshots that are `seconds` apart; groups without lag need no second snapshot."""
    first = {name: each for name, each in take_snapshots(cluster, names, clock).items() if each.has_lag}
    if not first or seconds <= 0:
        return
    wait(seconds)
    for name, snapshot in take_snapshots(cluster, first, clock).items():
        yield from compare_snapshots(first[name], snapshot, cluster.admin.servers)


def compare_snapshots(before: LagSnapshot, after: LagSnapshot, servers: str) -> Iterator[Finding]:
    """Yield the findings about the changes in a group between two snapshots. Another check covers groups without members."""
    seconds = max(after.at - before.at, 0.001)
    group = after.group
    both = {
        place: (before.places[place], now) for place, now in after.places.items() if place in before.places
    }
    stuck, growing, held_back = (
        [place for place, pair in both.items() if found(*pair)]
        for found in (_is_stuck, _is_growing, _is_held_back)
    )
    subject = f"group {group.name}"
    for owner, places in _by_owner(group, stuck if group.members else ()):
        waiting = sum(after.places[place].lag for place in places)
        yield problem(
            subject,
            f"{partition_ranges(places)}: {count(waiting, 'record')} to do, and nothing committed for {seconds:.0f} s; "
            f"{_owner_text(owner)}",
            SLOW_ADVICE if owner else UNASSIGNED_ADVICE,
        )
    for owner, places in _by_owner(group, growing if group.members else ()):
        was, now = (sum(each.places[place].lag for place in places) for each in (before, after))
        yield warning(
            subject,
            f"{partition_ranges(places)}: lag grows, {was} to {now} in {seconds:.0f} s; {_owner_text(owner)}",
            _too_slow(group, sum(each.committed is not None for each in after.places.values()), len(places)),
        )
    if held_back:
        yield warning(
            subject,
            f"{partition_ranges(held_back)}: a transaction has been open for {seconds:.0f} s, and the records behind it "
            "cannot be read",
            _open_advice(servers, held_back[0], after.places[held_back[0]].stable_end),
        )
    if before.offsets_held is not None and before.offsets_held == after.offsets_held:
        yield problem(
            subject,
            f"a transaction with its committed offsets has been open for {seconds:.0f} s: no partition of it can recover",
            _open_advice(servers, *after.offsets_held),
        )


def _open_advice(servers: str, place: TopicPartition, offset: int) -> str:
    show, abort = commands(servers, place, offset)
    return OPEN_ADVICE.format(show=show, abort=abort, runbook=RUNBOOK)


def _is_stuck(before: PartitionLag, now: PartitionLag) -> bool:
    return before.lag > 0 and now.lag > 0 and before.committed == now.committed


def _is_growing(before: PartitionLag, now: PartitionLag) -> bool:
    return before.committed != now.committed and now.lag - before.lag >= max(GROWN_MIN, before.lag / 10)


def _is_held_back(before: PartitionLag, now: PartitionLag) -> bool:
    return before.stable_end == now.stable_end and before.stable_end < before.end


def _by_owner(
    group: GroupDescription, places: Iterable[TopicPartition]
) -> Iterator[tuple[GroupMember | None, list[TopicPartition]]]:
    owners = {place: member for member in group.members for place in member.partitions}

    def name(place: TopicPartition) -> str:
        return owners[place].member_id if place in owners else ""

    for _, found in groupby(sorted(places, key=lambda place: (name(place), place)), name):
        part = list(found)
        yield owners.get(part[0]), part


def _owner_text(owner: GroupMember | None) -> str:
    if owner is None:
        return "assigned to no member"
    names = " ".join(dict.fromkeys(filter(None, (owner.instance_id, owner.client_id))))
    return f"assigned to {names or owner.member_id} at {owner.host}"


def _too_slow(group: GroupDescription, partitions: int, growing: int) -> str:
    members = len(group.members)
    if growing < partitions / 2 and members > 1:
        return "the other partitions keep up: one key may have most of the records, or that machine is slow"
    if members < partitions:
        return f"records come faster than they are processed: start more processes, {members} of at most {partitions} run"
    return (
        "records come faster than they are processed, with one process per partition: make the handler faster"
    )
