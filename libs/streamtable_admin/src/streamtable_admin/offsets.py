"""Committed offsets of consumer groups, and their lag in records."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamtable.base.types import Committed, TopicPartition
from streamtable.tables.position import TablePosition
from streamtable_admin import lag
from streamtable_admin.cluster import Cluster, GroupDescription
from streamtable_admin.errors import NotFound
from streamtable_admin.reading import PATIENT, ReadLimits, read_to

__all__ = [
    "PartitionOffsets",
    "TablePosition",
    "group_named",
    "group_offsets",
    "known_lag",
    "named_tables",
    "partition_ranges",
    "unread",
]


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The offsets of a group in one partition.

    Attributes:
        committed: The committed offset; None if nothing was ever committed.
        end: The end of the partition.
        lag: Records that can be read and were not; None if nothing was committed. See `unread`.
        table: The position in the changelog that was committed with the offset; None if the group keeps no table.
    """

    place: TopicPartition
    committed: Committed | None
    end: int
    lag: int | None
    table: TablePosition | None


def group_named(cluster: Cluster, name: str) -> GroupDescription:
    """Describe a group. Raises `NotFound`."""
    found = cluster.describe_groups([name]).get(name)
    if found is None:
        raise NotFound(f"there is no group {name!r}: it has no members and no committed offsets")
    return found


def group_offsets(cluster: Cluster, group: GroupDescription) -> list[PartitionOffsets]:
    """Return the offsets of all partitions of each topic that has any committed offset or assigned member."""
    committed = cluster.committed(group.name)
    found = {*committed, *(place for member in group.members for place in member.partitions)}
    # Partitions that were added to an input hold records too, though the group has not come to them yet.
    known = cluster.admin.topic_partitions()
    added = (
        TopicPartition(topic, number)
        for topic in {place.topic for place in found}
        for number in range(known.get(topic, 0))
    )
    places = sorted({*found, *added})
    marks = cluster.admin.watermarks_known(places)
    positions = {place: TablePosition.decode(each.metadata) for place, each in committed.items()}
    keeps_table = any(each and each.changelog for each in positions.values())
    starts = {place: each.next_offset for place, each in committed.items() if place in marks}
    lags = unread(cluster, starts)
    tables = positions if keeps_table else {}
    return [
        PartitionOffsets(place, committed.get(place), marks[place].high, lags.get(place), tables.get(place))
        for place in places
        if place in marks
    ]


def known_lag(offsets: Iterable[PartitionOffsets]) -> int | None:
    """Return the lag of all partitions together; None if one with records has no committed offset."""
    found = list(offsets)
    if any(each.committed is None and each.end for each in found):
        return None
    return sum(each.lag or 0 for each in found)


def unread(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None = None,
    *,
    limits: ReadLimits = PATIENT,
    complete: bool = False,
) -> dict[TopicPartition, int]:
    """Return the number of records that can be read from `starts` on, to the end or up to `ends`; see `streamtable_admin.lag`.

    Args:
        cluster: The cluster to read from.
        starts: The committed offsets.
        ends: Count up to these offsets only.
        limits: The limits of counting.
        complete: Fail rather than count too few.
    """

    def counted(
        begins: Mapping[TopicPartition, int], stops: Mapping[TopicPartition, int]
    ) -> Counter[TopicPartition]:
        found = Counter[TopicPartition]()
        for batch in read_to(cluster, begins, stops, limits=limits, complete=complete):
            found[batch.place] += len(batch)
        return found

    return lag.unread(lag.readable(cluster.admin, starts), starts, counted, ends)


def partition_ranges(places: Iterable[TopicPartition]) -> str:
    """Return a short text of partitions: `clicks 0-3,7`."""
    parts: dict[str, list[list[int]]] = {}
    for topic, number in sorted(places):
        runs = parts.setdefault(topic, [])
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "; ".join(
        f"{topic} {','.join(str(low) if low == high else f'{low}-{high}' for low, high in runs)}"
        for topic, runs in parts.items()
    )


def named_tables(committed: Mapping[TopicPartition, Committed]) -> Sequence[str]:
    """Return the suffixes of the named tables that a group had at its last commits, state tables included."""
    positions = [TablePosition.decode(each.metadata) for each in committed.values()]
    return sorted({name for each in positions if each is not None for name in each.tables})
