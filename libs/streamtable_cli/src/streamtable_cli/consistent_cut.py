"""A consistent cut through two versions of a group: the offsets up to which their tables can be compared.

A partition of a group's table is exactly the result of its inputs up to the committed offsets, and its position in the
changelog is committed with them. So the tables of two versions are comparable, partition by partition, where both have
committed the same offsets of every topic that both read. Offsets that differ only by transaction markers are the same.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from streamtable.base.types import Committed, RecordBatch, TopicPartition
from streamtable.graph.companion import CALLS
from streamtable_admin.cluster import Cluster
from streamtable_admin.errors import NotFound, Refused
from streamtable_admin.offsets import TablePosition, unread
from streamtable_admin.reading import read_to

AGAIN_S = 0.1

Offsets = Mapping[TopicPartition, Committed]
Rows = dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Cut:
    """One partition of both groups.

    Attributes:
        partition: The number of the partition.
        old: The next offsets of the shared topics, by topic.
        new: The same for the other group.
        lag: The lag of each, in records of all topics that it reads.
        table: The positions of their tables at these offsets; None if the metadata lack it: the table is read to its end.
        comparable: Whether both have applied the same input.
    """

    partition: int
    old: Mapping[str, int]
    new: Mapping[str, int]
    lag: tuple[int, int]
    table: tuple[int | None, int | None]
    comparable: bool


class Side(NamedTuple):
    """A group and one of its tables.

    Attributes:
        offsets: The committed offsets of the group.
        group: The name of the group.
        table: The changelog topic of the table.
    """

    offsets: Offsets
    group: str
    table: str

    def position(self, number: int) -> int | None:
        """Return the committed position of a partition of the table, the largest over the inputs, as recovery takes it.

        None: The metadata lack it, or the table was not committed exactly once.
        """
        positions = [
            TablePosition.decode(each.metadata)
            for place, each in self.offsets.items()
            if place.partition == number
        ]
        if not positions or any(each is None or not each.exact for each in positions):
            return None
        ends = [each.end_of(self.group, self.table) for each in positions if each is not None]
        return max((end for end in ends if end is not None), default=None)

    def pending(self, cluster: Cluster, numbers: Iterable[int]) -> Mapping[int, int]:
        """Return the number of pending calls of some partitions, as of the committed offsets; see `pending_calls`."""
        calls = self._replace(table=f"{self.group}-{CALLS}")
        return pending_calls(cluster, self.group, {number: calls.position(number) for number in numbers})


def pending_calls(cluster: Cluster, group: str, ends: Mapping[int, int | None]) -> Mapping[int, int]:
    """Return the number of pending calls of a group, by partition; a record that `retried` keeps is one.

    Args:
        cluster: The Kafka of the group.
        group: The name of the group.
        ends: For each partition the position in their changelog where the read ends; None: at its end.
    """
    known = cluster.admin.topic_partitions().get(topic := f"{group}-{CALLS}", 0)
    marks = cluster.admin.watermarks([TopicPartition(topic, number) for number in ends if number < known])
    stops = {
        place: mark.high if (end := ends[place.partition]) is None else end for place, mark in marks.items()
    }
    found: dict[int, Rows] = {}
    for batch in read_to(cluster, {place: mark.low for place, mark in marks.items()}, stops):
        apply(found.setdefault(batch.partition, {}), batch)
    # A command to the calls of a partition, such as its pause, has a row that begins so.
    return {number: sum(not key.startswith(b"\0") for key in rows) for number, rows in found.items()}


def apply(rows: Rows, batch: RecordBatch) -> None:
    """Apply changes to the rows of a table."""
    for key, value in zip(batch.keys, batch.values, strict=True):
        if key is not None and value is not None:
            rows[key] = value
        elif key is not None:
            rows.pop(key, None)


def cuts_of(
    cluster: Cluster, old: str, new: str, *, table: str = "table", wait: float = 0.0
) -> tuple[list[str], list[Cut]]:
    """Return the shared topics, and for each partition of the groups a cut through both.

    Args:
        cluster: The Kafka of both groups.
        old: The name of a group.
        new: The name of the other group.
        table: The suffix of the changelog topic of each: `table` for the group's own table, or the name of a state.
        wait: The seconds for which each partition is polled until both groups are momentarily at the same input.

    Raises:
        NotFound: A group has no offsets.
        Refused: The groups share no topic.
    """
    deadline = time.monotonic() + wait
    found: dict[int, Cut] = {}
    while True:
        one, other = (cluster.committed(group) for group in (old, new))
        over = time.monotonic() >= deadline
        shared = sorted({place.topic for place in one} & {place.topic for place in other})
        if shared:
            known = cluster.admin.topic_partitions()
            numbers = range(max(known[topic] for topic in shared))
            left = [number for number in numbers if number not in found or not found[number].comparable]
            sides = (Side(one, old, f"{old}-{table}"), Side(other, new, f"{new}-{table}"))
            found |= {cut.partition: cut for cut in _look(cluster, sides, shared, left)}
            if over or all(cut.comparable for cut in found.values()):
                return shared, [found[number] for number in numbers]
        elif over:
            raise _strangers({old: one, new: other})
        time.sleep(AGAIN_S)


def _strangers(groups: Mapping[str, Offsets]) -> NotFound | Refused:
    for name, committed in groups.items():
        if not committed:
            return NotFound(f"group {name!r} has no committed offsets")
    return Refused(f"{' and '.join(groups)} read no topic in common: they are not two versions of one group")


def _look(cluster: Cluster, sides: tuple[Side, Side], shared: list[str], numbers: list[int]) -> list[Cut]:
    old, new = (side.offsets for side in sides)

    def at(offsets: Offsets) -> dict[TopicPartition, int]:
        return {place: each.next_offset for place, each in offsets.items() if place.partition in numbers}

    lags = tuple(unread(cluster, at(each)) for each in (old, new))
    ahead = {
        place: abs(offset - new[place].next_offset)
        for place, offset in at(old).items()
        if place.topic in shared and place in new
    }
    same = _same(cluster, old, new, [place for place, by in ahead.items() if by])
    pending = [side.pending(cluster, numbers) for side in sides]
    cuts = []
    for number in numbers:
        there = [TopicPartition(topic, number) for topic in shared]
        equal = all(place in ahead and (ahead[place] == 0 or place in same) for place in there)
        # A group's own loop and retries are input too: unprocessed records there are missing in its table. So are results of
        # calls that are pending, and records that wait for their next attempt.
        behind = [_of(lag, number, lambda topic: topic not in shared) for lag in lags]
        cuts.append(
            Cut(
                number,
                {place.topic: old[place].next_offset for place in there if place in old},
                {place.topic: new[place].next_offset for place in there if place in new},
                (_of(lags[0], number), _of(lags[1], number)),
                (sides[0].position(number), sides[1].position(number)),
                equal and not any(behind) and not any(each.get(number) for each in pending),
            )
        )
    return cuts


def _of(lag: Mapping[TopicPartition, int], number: int, selected: Callable[[str], bool] = bool) -> int:
    return sum(each for place, each in lag.items() if place.partition == number and selected(place.topic))


def _same(cluster: Cluster, old: Offsets, new: Offsets, places: list[TopicPartition]) -> set[TopicPartition]:
    """Return the partitions without a record between the two offsets."""
    low = {place: min(old[place].next_offset, new[place].next_offset) for place in places}
    high = {place: max(old[place].next_offset, new[place].next_offset) for place in places}
    between = unread(cluster, low, high)
    return {place for place in places if between[place] == 0}
