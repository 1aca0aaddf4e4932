"""The partitions that Kafka's range assignor gives to the members of a group, and would give if some of them left.

All topics of a group have the same number of partitions, so the assignment is a function of the place of a member among the
members, sorted as the assignor sorts them.
"""


def order_of(member_id: str, instance_id: str = "") -> tuple[bool, str]:
    """Return the key by which the assignor sorts members: static ones first, by instance id, the others by member id."""
    return not instance_id, instance_id or member_id


def range_of(place: int, members: int, partitions: int) -> range:
    """Return the partitions of the member at a place.

    Args:
        place: 0 for the first of the sorted members.
        members: The number of members.
        partitions: The number of partitions of each topic.
    """
    share, rest = divmod(partitions, members)
    start = place * share + min(place, rest)
    return range(start, start + share + (place < rest))


def range_after_losses(place: int, members: int, partitions: int, losses: int) -> frozenset[int]:
    """Return the partitions that the member at a place has now, or would have if up to `losses` others left, whichever they are.

    Args:
        place: As in `range_of`.
        members: The number of members now.
        partitions: As in `range_of`.
        losses: The most members that leave.
    """
    cases = {
        (place - before, members - before - behind)
        for before in range(min(losses, place) + 1)
        for behind in range(min(losses - before, members - 1 - place) + 1)
    }
    return frozenset(number for there, left in cases for number in range_of(there, left, partitions))
