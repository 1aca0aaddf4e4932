"""Which members of a shared view hold which partitions: a function of the number of members, with no agreement of its own.

A partition is held by the member that the range assignor gives it to, and by the members behind that one. So its holders are
different members, and when one member leaves or joins, one of the holders stays the same, and answers while the others load.
"""

from streamtable.base.range_assignor import range_of


def share_of(place: int, members: int, partitions: int, replicas: int) -> frozenset[int]:
    """Return the partitions that the member at a place holds.

    Args:
        place: 0 for the first of the members, sorted as the range assignor sorts them.
        members: The number of members.
        partitions: The number of partitions.
        replicas: The number of members that hold each partition, as far as there are as many.
    """
    return frozenset(
        number
        for behind in range(min(replicas, members))
        for number in range_of((place - behind) % members, members, partitions)
    )


def holders_of(partition: int, members: int, partitions: int, replicas: int) -> list[int]:
    """Return the places of the members that hold a partition, the one that it is assigned to first."""
    first = next(place for place in range(members) if partition in range_of(place, members, partitions))
    return [(first + behind) % members for behind in range(min(replicas, members))]
