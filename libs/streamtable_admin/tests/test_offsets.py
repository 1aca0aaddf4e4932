"""The offsets of groups, as numbers for people."""

import pytest

from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable_admin.offsets import PartitionOffsets, known_lag


def offsets(number: int, committed: int | None, end: int) -> PartitionOffsets:
    place = TopicPartition("clicks", number)
    if committed is None:
        return PartitionOffsets(place, None, end, None, None)
    return PartitionOffsets(place, Committed(NextOffset(committed)), end, end - committed, None)


@pytest.mark.parametrize(
    ("never_committed_end", "lag"),
    [(0, 3), (20, None)],
    ids=["of an empty partition", "of one with records"],
)
def test_the_lag_is_unknown_while_nothing_was_committed(never_committed_end: int, lag: int | None) -> None:
    assert known_lag([offsets(0, 7, 10), offsets(1, None, never_committed_end)]) == lag
