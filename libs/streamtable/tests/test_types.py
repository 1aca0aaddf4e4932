from collections.abc import Callable
from typing import Any

from streamtable.types import RecordBatch, TopicPartition

Make = Callable[..., RecordBatch]


def test_a_batch_has_its_columns_in_the_order_of_its_records(batch: Make) -> None:
    records = batch("t", [(b"a", b"1"), (None, None), (b"a", b"")], first=7, partition=3)
    assert records.keys == [b"a", None, b"a"]
    assert records.values == [b"1", None, b""]
    assert records.offsets == [7, 8, 9]
    assert (len(records), records.first_offset, records.last_offset) == (3, 7, 9)
    assert records.place == TopicPartition("t", 3)


def test_a_part_is_half_open_and_the_whole_part_is_the_batch_itself(batch: Make) -> None:
    records = batch("t", [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    assert records.part(1, 2).keys == [b"b"]
    assert len(records.part(3, 3)) == 0
    assert records.part(0, 3) is records


def test_only_keeps_the_chosen_records_with_their_own_offsets(batch: Make) -> None:
    kept = batch("t", [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], first=5).only([True, False, True])
    assert (kept.keys, kept.offsets) == ([b"a", b"c"], [5, 7])


def test_headers_and_time_are_read_of_the_record_asked_for(record: Any) -> None:
    records = RecordBatch("t", 0, [record(b"a", b""), record(b"b", b"", 1, [("h", b"\xff")], 42)])
    assert list(records.headers(0)) == []
    assert list(records.headers(1)) == [("h", b"\xff")]
    assert records.timestamp(1) == 42


def test_a_place_reads_as_topic_and_number() -> None:
    assert str(TopicPartition("clicks", 4)) == "clicks[4]"
