"""The watermarks that a task passes on: which marks it writes, and when."""

from collections.abc import Callable
from typing import Any

import pytest

from streamtable import Group, Input, Long, Output, Stream, String
from streamtable.base.deadletter import OutputRecord
from streamtable.base.event_time import NO_TIME, InputTime
from streamtable.base.ports import TopicInfo
from streamtable.base.types import Headers, RecordBatch
from streamtable.base.watermarks import (
    LATE_BEFORE,
    PRODUCERS_MAX,
    STAMP_BYTES,
    WATERMARK,
    Mark,
    Marked,
    stamped,
    stamps,
)
from streamtable.engine.time.passed_on import PassedOn
from streamtable.engine.time.producers import ProducerTimes
from streamtable.tables.position import TablePosition

IN, OUT = Stream("in", String(), Long()), Stream("out", String(), Long())
GROUP = Group("g", Input(IN, lambda ctx, value: None), Output(OUT, watermarks=True))


def passed_on(partitions: int) -> PassedOn:
    topics = {
        name: TopicInfo(
            name,
            partitions,
            f"id-{name}",
            compacted=False,
            delete_retention_ms=0,
            max_message_bytes=1_000_000,
        )
        for name in ("in", "out")
    }
    return PassedOn(GROUP, topics, 1)


def written(
    marks: PassedOn, watermark_ms: int, *, now: float = 0.0, idle: bool = False
) -> list[OutputRecord]:
    return list(marks.marks(lambda _: watermark_ms, lambda _: idle, now))


def active(_: int) -> bool:
    return False


def test_a_watermark_is_written_once_into_each_partition() -> None:
    marks = passed_on(2)
    first = written(marks, 100)
    assert [(each.topic, each.partition, Mark.read(each.headers)) for each in first] == [
        ("out", 0, Mark(1, 2, 100)),
        ("out", 1, Mark(1, 2, 100)),
    ]
    assert written(marks, 100) == first, "not committed yet"
    marks.committed(first, now=0.0)
    assert written(marks, 100) == []
    assert len(written(marks, 101)) == 2


def test_many_marks_are_written_once_a_second_and_the_last_is_not_forgotten() -> None:
    marks = passed_on(20)
    marks.committed(written(marks, 100, now=5.0), now=5.0)
    assert written(marks, 200, now=5.5) == []
    assert not marks.must_commit(active, now=5.9)
    assert marks.must_commit(active, now=6.0)
    marks.committed(written(marks, 200, now=6.0), now=6.0)
    assert not marks.must_commit(active, now=9.0)


def test_a_watermark_that_is_not_known_is_not_written() -> None:
    assert written(passed_on(2), -1) == []


def test_a_task_says_at_once_that_it_is_idle_and_that_it_is_not_any_more() -> None:
    marks = passed_on(2)
    assert marks.must_commit(lambda _: True, now=0.0)
    first = written(marks, NO_TIME, idle=True)
    assert Mark.read(first[0].headers) == Mark(1, 2, NO_TIME, idle=True), "it has never had an event"
    marks.committed(first, now=0.0)
    assert not marks.must_commit(lambda _: True, now=1.0)
    marks.committed(written(marks, 100_000, idle=True), now=1.0)
    assert written(marks, 129_999, idle=True) == [], "readers do not wait for it"
    assert len(written(marks, 130_000, idle=True)) == 2
    assert Mark.read(written(marks, 100_000)[0].headers) == Mark(1, 2, 100_000)


def test_producers_that_are_idle_are_left_aside_and_if_all_are_the_greatest_counts() -> None:
    times = ProducerTimes()
    times.marked(Mark(0, 3, NO_TIME, idle=True))
    times.marked(Mark(1, 3, 50))
    assert times.least_ms == NO_TIME, "the third has not said anything"
    times.marked(Mark(2, 3, 90))
    assert (times.least_ms, times.idle) == (50, False)
    times.marked(Mark(1, 3, 60, idle=True))
    assert times.least_ms == 90
    times.marked(Mark(2, 3, 90, idle=True))
    assert (times.least_ms, times.idle) == (90, True)
    again = ProducerTimes(times.watermarks_ms, times.idle_ones)
    again.marked(Mark(0, 3, 10))
    assert (again.least_ms, again.idle) == (10, False)


def test_what_was_committed_of_producers_comes_back() -> None:
    time = InputTime(
        1_700_000_000_000,
        1_700_000_000_500,
        (1_700_000_000_700, 1_700_000_000_000, 1_700_000_009_000),
        frozenset({2}),
    )
    position = TablePosition.decode(TablePosition(5, True, time=time).encode())
    assert position is not None
    assert position.time == time


def test_the_watermarks_of_any_number_of_producers_fit_the_metadata_and_are_not_above_what_they_said() -> (
    None
):
    said = tuple(1_700_000_000_000 + 3_600_000 * number for number in range(5_000))
    idle = frozenset(range(0, 4_000, 3))
    text = TablePosition(5, True, time=InputTime(said[0], said[0], said, idle)).encode()
    assert len(text) < 3_000
    position = TablePosition.decode(text)
    assert position is not None
    assert position.time is not None
    assert position.time.producers_ms == (said[0],) * len(said)
    assert position.time.idle == idle


def test_the_watermark_before_each_record_is_the_least_of_what_producers_have_said_before_it() -> None:
    times = ProducerTimes()
    marks = [(0, Mark(0, 2, 50)), (2, Mark(1, 2, 10)), (2, Mark(0, 2, 90)), (3, Mark(1, 2, 70))]
    assert times.before_each(4, marks) == [-1, -1, 10, 70]
    assert times.least_ms == -1


def test_a_producer_that_was_idle_in_between_does_not_take_the_watermark_back_for_the_records_after_it() -> (
    None
):
    times = ProducerTimes([80, 30], {1})
    assert times.before_each(2, [(1, Mark(0, 2, 90)), (1, Mark(1, 2, 30))]) == [80, 90]


def test_only_a_mark_of_a_producer_that_can_be_is_read() -> None:
    for mark in (Mark(0, 1, 0), Mark(1, 2, 5), Mark(PRODUCERS_MAX - 1, PRODUCERS_MAX, 5)):
        assert Mark.read([("other", b"x"), mark.header]) == mark
    wrong = (
        Mark(1, 1, 5),
        Mark(-1, 2, 5),
        Mark(0, PRODUCERS_MAX + 1, 5),
        Mark(0, 1, -1),
        Mark(0, 1, 1 << 60),
    )
    assert [Mark.read([mark.header]) for mark in wrong] == [None] * len(wrong)
    assert Mark.read([(WATERMARK, None)]) is None
    assert Mark.read([(WATERMARK, b"short")]) is None


def test_the_limits_of_a_mark_are_a_hundred_thousand_producers_and_the_end_of_the_year_9999() -> None:
    end_ms = 253_402_300_799_999
    for mark in (Mark(99_999, 100_000, 5), Mark(0, 1, end_ms)):
        assert Mark.read([mark.header]) == mark
    for mark in (Mark(0, 100_001, 5), Mark(0, 1, end_ms + 1)):
        assert Mark.read([mark.header]) is None


def late_before(at: int) -> tuple[str, bytes]:
    return LATE_BEFORE, at.to_bytes(8, "big", signed=True)


def test_a_stamp_replaces_an_earlier_one_and_keeps_the_other_headers() -> None:
    other = ("other", b"x")
    assert list(stamped([late_before(1), other], 2)) == [other, late_before(2)]
    assert list(stamped((), 3)) == [late_before(3)]
    assert [list(each) for each in stamps([4, -5])] == [[late_before(4)], [late_before(-5)]]


def test_a_stamp_makes_a_record_larger_by_the_bytes_that_are_planned_for_it() -> None:
    plain, with_stamp = (OutputRecord("out", b"k", b"v", headers) for headers in ((), stamped((), 5)))
    assert with_stamp.size - plain.size == STAMP_BYTES


@pytest.fixture
def with_headers(record: Callable[..., Any]) -> Callable[..., RecordBatch]:
    """`with_headers((key, headers), ...)`: records with these headers."""

    def make(*given: tuple[bytes | None, Headers | None]) -> RecordBatch:
        return RecordBatch(
            "out", 0, [record(key, b"v", at, headers) for at, (key, headers) in enumerate(given)]
        )

    return make


def test_marks_are_taken_out_from_between_the_records_and_each_record_keeps_its_stamp(
    with_headers: Callable[..., RecordBatch],
) -> None:
    first, second = Mark(0, 2, 10), Mark(1, 2, 20)
    read = Marked.read(
        with_headers(
            (b"a", [late_before(7), ("other", b"x")]),
            (None, [first.header]),
            (None, [("other", b"x")]),
            (b"b", [second.header]),
            (None, [second.header]),
            (b"c", None),
        )
    )
    assert list(read.records.keys) == [b"a", None, b"b", b"c"]
    assert read.late_before_ms == [7, NO_TIME, NO_TIME, NO_TIME]
    assert read.marks == [(1, first), (3, second)]
    assert read.keep == [True, False, True, True, False, True]


def test_a_stamp_that_is_none_is_no_time(with_headers: Callable[..., RecordBatch]) -> None:
    records = with_headers(
        (b"a", [(LATE_BEFORE, None)]), (b"a", [(LATE_BEFORE, b"short")]), (b"a", [late_before(-9)])
    )
    read = Marked.read(records)
    assert read.late_before_ms == [NO_TIME] * 3
    assert (read.records, read.keep) == (records, None)


def test_records_carry_watermarks_if_one_is_a_mark_or_has_a_stamp(
    with_headers: Callable[..., RecordBatch],
) -> None:
    mark, stamp, none = (None, [Mark(0, 1, 5).header]), (b"a", [late_before(7)]), (b"a", None)
    for given, carries in [((mark,), True), ((stamp, none), True), ((none,), False), ((mark, stamp), True)]:
        assert Marked.read(with_headers(*given)).carries is carries
