from streamtable.base.types import TopicPartition
from streamtable_admin.records import Kept, TopicRecord

BYTES_MAX = 32 << 20
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def record(place: TopicPartition, offset: int, size: int = 1) -> TopicRecord:
    return TopicRecord(place, offset, 0, b"k", bytes(size), ())


def offsets(kept: Kept, place: TopicPartition) -> list[int]:
    return [each.offset for each in kept.records[place]]


def test_the_last_of_each_partition_are_kept() -> None:
    kept = Kept([A, B], 3, BYTES_MAX, first=False)
    kept.add(A, (record(A, offset) for offset in range(10)))
    kept.add(B, [record(B, 0)])
    assert (offsets(kept, A), offsets(kept, B)) == ([7, 8, 9], [0])
    assert kept.dropped


def test_the_first_of_each_partition_are_enough_where_they_are_requested() -> None:
    kept = Kept([A, B], 3, BYTES_MAX, first=True)
    kept.add(A, (record(A, offset) for offset in range(10)))
    assert offsets(kept, A) == [0, 1, 2]
    assert kept.enough(A)
    assert not kept.enough(B)


def test_large_records_make_room_for_later_ones() -> None:
    kept = Kept([A], 500, BYTES_MAX, first=False)
    kept.add(A, (record(A, offset, BYTES_MAX // 4) for offset in range(10)))
    assert offsets(kept, A) == [7, 8, 9]


def test_the_records_that_are_furthest_in_time_give_way_to_others() -> None:
    last, first = (Kept([A, B], 500, 3500, first=first) for first in (False, True))
    for kept, expected in ((last, ([3], [3])), (first, ([0], [0]))):
        for place in (A, B):
            kept.add(place, [TopicRecord(place, n, 10 * n, b"", bytes(1000), ()) for n in range(4)])
        assert (offsets(kept, A), offsets(kept, B)) == expected
        assert kept.dropped
    assert last.cuts == {A: 20, B: 20}
    assert first.cuts == {A: 10, B: 10}


def test_large_records_end_a_look_at_the_first_ones() -> None:
    kept = Kept([A], 500, BYTES_MAX, first=True)
    kept.add(A, (record(A, offset, BYTES_MAX // 2) for offset in range(3)))
    assert kept.enough(A)
