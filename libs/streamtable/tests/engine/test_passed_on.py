"""The watermarks that a task passes on: which marks it writes, and when."""

from streamtable import Group, Input, Long, Output, Stream, String
from streamtable.engine.passed_on import PassedOn
from streamtable.engine.producer_times import ProducerTimes
from streamtable.event_time import InputTime
from streamtable.ports import TopicInfo
from streamtable.tables.position import TablePosition
from streamtable.watermarks import PRODUCERS_MAX, WATERMARK, Mark

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


def test_a_watermark_is_written_once_into_each_partition() -> None:
    marks = passed_on(2)
    written = marks.marks(100, now=0.0)
    assert [(each.topic, each.partition, Mark.read(each.headers)) for each in written] == [
        ("out", 0, Mark(1, 2, 100)),
        ("out", 1, Mark(1, 2, 100)),
    ]
    assert marks.marks(100, now=0.0) == written, "not committed yet"
    marks.committed(written, now=0.0)
    assert marks.marks(100, now=0.0) == ()
    assert len(marks.marks(101, now=0.0)) == 2


def test_many_marks_are_written_once_a_second_and_the_last_is_not_forgotten() -> None:
    marks = passed_on(20)
    marks.committed(marks.marks(100, now=5.0), now=5.0)
    assert marks.marks(200, now=5.5) == ()
    assert not marks.must_commit(now=5.9)
    assert marks.must_commit(now=6.0)
    marks.committed(marks.marks(200, now=6.0), now=6.0)
    assert not marks.must_commit(now=9.0)


def test_a_watermark_that_is_not_known_is_not_written() -> None:
    assert passed_on(2).marks(-1, now=0.0) == ()


def test_what_was_committed_of_producers_comes_back() -> None:
    time = InputTime(
        1_700_000_000_000, 1_700_000_000_500, (1_700_000_000_700, 1_700_000_000_000, 1_700_000_009_000)
    )
    position = TablePosition.decode(TablePosition(5, True, time=time).encode())
    assert position is not None
    assert position.time == time


def test_the_watermarks_of_any_number_of_producers_fit_the_metadata_and_are_not_above_what_they_said() -> (
    None
):
    said = tuple(1_700_000_000_000 + 3_600_000 * number for number in range(5_000))
    text = TablePosition(5, True, time=InputTime(said[0], said[0], said)).encode()
    assert len(text) < 3_000
    position = TablePosition.decode(text)
    assert position is not None
    assert position.time is not None
    assert position.time.producers_ms == (said[0],) * len(said)


def test_the_watermark_before_each_record_is_the_least_of_what_producers_have_said_before_it() -> None:
    times = ProducerTimes()
    marks = [(0, Mark(0, 2, 50)), (2, Mark(1, 2, 10)), (2, Mark(0, 2, 90)), (3, Mark(1, 2, 70))]
    assert times.before_each(4, marks) == [-1, -1, 10, 70]
    assert times.least_ms == -1


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
