from console.records import BYTES_MAX, Record, _Kept
from streamtable.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def record(place: TopicPartition, offset: int, size: int = 1) -> Record:
    return Record(place, offset, 0, b"k", bytes(size), ())


def offsets(kept: _Kept, place: TopicPartition) -> list[int]:
    return [each.offset for each in kept.records[place]]


def test_the_last_of_each_partition_are_kept() -> None:
    kept = _Kept([A, B], 3, first=False)
    kept.add(A, (record(A, offset) for offset in range(10)))
    kept.add(B, [record(B, 0)])
    assert (offsets(kept, A), offsets(kept, B)) == ([7, 8, 9], [0])
    assert kept.dropped


def test_the_first_of_each_partition_are_enough_where_they_are_wanted() -> None:
    kept = _Kept([A, B], 3, first=True)
    kept.add(A, (record(A, offset) for offset in range(10)))
    assert offsets(kept, A) == [0, 1, 2]
    assert kept.enough(A)
    assert not kept.enough(B)


def test_large_records_make_room_for_later_ones() -> None:
    kept = _Kept([A], 500, first=False)
    kept.add(A, (record(A, offset, BYTES_MAX // 4) for offset in range(10)))
    assert offsets(kept, A) == [7, 8, 9]


def test_large_records_end_a_look_at_the_first_ones() -> None:
    kept = _Kept([A], 500, first=True)
    kept.add(A, (record(A, offset, BYTES_MAX // 2) for offset in range(3)))
    assert kept.full
