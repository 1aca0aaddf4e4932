from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from microbatch.buffer import Buffer, PoisonBisector
from microbatch.limits import Limits
from streamtable.base.types import NextOffset, RecordBatch
from streamtable.errors import HandlerFailed


@dataclass
class Message:
    at: int
    size: int

    def key(self) -> bytes:
        return b""

    def value(self) -> bytes:
        return b"x" * self.size

    def offset(self) -> int:
        return self.at

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)


def records(topic: str, first: int, sizes: list[int]) -> RecordBatch:
    return RecordBatch(topic, 0, [Message(first + index, size) for index, size in enumerate(sizes)])


def start(*topics: str) -> dict[str, NextOffset]:
    return dict.fromkeys(topics, NextOffset(0))


@given(
    chunks=st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 12), min_size=1)), max_size=8),
    most_records=st.integers(1, 9),
    most_bytes=st.integers(1, 30),
)
def test_cutting_keeps_all_records_in_order_and_every_batch_within_its_limits(
    chunks: list[tuple[str, list[int]]], most_records: int, most_bytes: int
) -> None:
    buffer = Buffer(Limits(most_records, most_bytes), start("a", "b"))
    expected: list[tuple[str, int]] = []
    next_offset = {"a": 0, "b": 0}
    for topic, sizes in chunks:
        buffer.add(records(topic, next_offset[topic], sizes), 0.0)
        expected += [(topic, next_offset[topic] + index) for index in range(len(sizes))]
        next_offset[topic] += len(sizes)
    found: list[tuple[str, int]] = []
    while len(buffer):
        full = buffer.full
        batch = buffer.cut()
        count = sum(len(chunk.records) for chunk in batch)
        size = sum(chunk.bytes for chunk in batch)
        assert 1 <= count <= most_records
        assert size <= most_bytes or count == 1
        assert full or not len(buffer)
        found += [(chunk.records.topic, offset) for chunk in batch for offset in chunk.records.offsets]
    assert found == expected


def test_redelivered_records_are_buffered_once() -> None:
    buffer = Buffer(Limits(), start("a"))
    buffer.add(records("a", 0, [1, 1, 1]), 5.0)
    buffer.add(records("a", 1, [1, 1, 1]), 6.0)
    assert (len(buffer), buffer.next_offsets, buffer.first_arrival) == (4, {"a": 4}, 5.0)


def test_halving_ends_with_one_record_and_stops_after_the_failed_batch() -> None:
    bisector = PoisonBisector()
    bisector.halve(10, {"a": 10})
    bisector.halve(5, {"a": 5})
    assert bisector.until == {"a": 10}
    for topic_end, most in ((4, 4), (6, 8), (10, None)):
        bisector.passed({"a": topic_end})
        assert bisector.records_max == most
    assert not bisector.until
    bisector.isolated("a", 12, HandlerFailed("bad"))
    bisector.passed({"a": 12})
    assert list(bisector.found) == [("a", 12)]
    bisector.passed({"a": 13})
    assert bisector.found == {}
