"""The lag of a group in records, counted the same way wherever it is shown.

Between a committed offset and the end there are offsets that hold no record: the ends of transactions, and what
compaction has removed. Few offsets are therefore counted as records; of many the difference is near enough.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from streamtable.base.ports import ClusterClient
from streamtable.base.types import TopicPartition, Watermarks

COUNTED_MAX: Final = 100
"""The records of a partition are counted up to this many offsets."""

Offsets = Mapping[TopicPartition, int]


def readable(cluster: ClusterClient, places: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
    """Return the watermarks of the records that can be read now: an open transaction ends them."""
    places = list(places)
    stable = cluster.stable_ends(places)
    return {
        place: Watermarks(low, max(low, min(high, stable.get(place, high))))
        for place, (low, high) in cluster.watermarks(places).items()
    }


def unread(
    marks: Mapping[TopicPartition, Watermarks],
    starts: Offsets,
    count: Callable[[Offsets, Offsets], Offsets],
    ends: Offsets | None = None,
) -> dict[TopicPartition, int]:
    """Return the number of records that can be read from `starts` on: counted up to `COUNTED_MAX` offsets, else the offsets.

    Args:
        marks: The offsets that can be read; see `readable`.
        starts: The committed offsets.
        count: Counts the committed records from some offsets up to others, of partitions where these differ.
        ends: Count up to these offsets only.
    """
    froms = {place: max(start, marks[place].low) for place, start in starts.items()}
    tos = {place: min(marks[place].high, ends[place]) if ends else marks[place].high for place in starts}
    found = {place: max(0, tos[place] - start) for place, start in froms.items()}
    few = [place for place, behind in found.items() if 0 < behind <= COUNTED_MAX]
    if few:
        counted = count({place: froms[place] for place in few}, {place: tos[place] for place in few})
        found |= {place: counted.get(place, 0) for place in few}
    return found
