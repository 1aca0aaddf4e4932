"""The findings for a watermark that does not advance, from the committed offsets alone."""

from streamtable.base.event_time import NO_TIME, InputTime
from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable.tables.position import TablePosition
from streamtable_admin.findings import Level
from streamtable_admin.offsets import PartitionOffsets
from streamtable_admin.watermark import event_times, watermark_findings

NOW = 1_700_000_000_000
HOUR = 3_600_000


def committed(topic: str, partition: int, time: InputTime | None, lag: int = 0) -> PartitionOffsets:
    metadata = TablePosition(0, True, time=time).encode()
    place = TopicPartition(topic, partition)
    return PartitionOffsets(place, Committed(NextOffset(5), metadata), 5 + lag, lag, None)


def found(*offsets: PartitionOffsets) -> list[tuple[Level, str]]:
    findings = watermark_findings("group g", event_times(offsets), NOW)
    return [(each.level, each.fact) for each in findings]


def test_a_group_that_does_not_follow_event_time_has_no_finding() -> None:
    unknown = PartitionOffsets(TopicPartition("in", 0), Committed(NextOffset(5), "?"), 5, 0, None)
    nothing = PartitionOffsets(TopicPartition("in", 1), None, 5, None, None)
    assert found(committed("in", 2, None), unknown, nothing) == []


def test_watermarks_that_follow_the_clock_are_good() -> None:
    near = InputTime(NOW - 40_000, NOW - 40_000)
    assert found(committed("in", 0, near), committed("in", 1, InputTime(NOW, NOW))) == [
        (Level.OK, "its watermarks are at most 40 s behind the clock")
    ]


def test_the_input_that_is_behind_is_named_with_its_lag() -> None:
    reached = NOW - HOUR
    assert found(
        committed("orders", 3, InputTime(reached, reached), lag=7),
        committed("clicks", 3, InputTime(NOW, reached)),
    ) == [
        (
            Level.WARNING,
            "partition 3 has the watermark 2023-11-14 21:13:20: orders holds it back, 7 of its records are not handled yet",
        )
    ]


def test_an_idle_input_is_not_the_one_that_holds_the_watermark_back() -> None:
    reached = NOW - HOUR
    ((_, fact),) = found(
        committed("idle", 0, InputTime(NOW - 9 * HOUR, reached)),
        committed("silent", 0, InputTime(reached, reached)),
    )
    assert fact.endswith("silent holds it back, it has been silent since 2023-11-14 21:13:20")


def test_an_input_without_a_record_is_named() -> None:
    ((_, fact),) = found(
        committed("empty", 0, InputTime(NO_TIME, NO_TIME)), committed("clicks", 0, InputTime(NOW, NO_TIME))
    )
    assert fact == "partition 0 has no watermark yet: empty holds it back, it has had no record"


def test_the_task_that_holds_back_a_stream_with_watermarks_is_named() -> None:
    reached = NOW - HOUR
    held = InputTime(reached, reached, (NOW, reached, NOW))
    ((_, fact),) = found(committed("by-user", 0, held))
    assert fact.endswith(
        "by-user holds it back, of the 3 tasks that write it, task 1 stands at 2023-11-14 21:13:20"
    )
    idle = held._replace(producers_ms=(NOW, NO_TIME, reached), idle=frozenset({1}))
    ((_, fact),) = found(committed("by-user", 0, idle))
    assert "task 2 stands at" in fact, "an idle task is not waited for"
    unknown = InputTime(NO_TIME, NO_TIME, (NOW, NOW, NO_TIME))
    ((_, fact),) = found(committed("by-user", 0, unknown))
    assert fact.endswith("of the 3 tasks that write it, task 2 has not written its watermark yet")


def test_nothing_holds_a_watermark_back_that_advances_in_silence() -> None:
    old = NOW - 24 * HOUR
    silent = [
        committed("never", 0, InputTime(NO_TIME, NO_TIME)),
        committed("old", 1, InputTime(old, old + HOUR)),
        committed("by-user", 2, InputTime(old, old, (old, NO_TIME), frozenset({0, 1}))),
    ]
    said = (Level.OK, "its inputs are silent, and its watermarks advance as time passes")
    assert found(*silent) == [said]
    near = committed("in", 3, InputTime(NOW - 40_000, NOW - 40_000))
    assert found(*silent, near) == [(Level.OK, "its watermarks are at most 40 s behind the clock")]
    assert [level for level, _ in found(committed("never", 0, InputTime(NO_TIME, NO_TIME), lag=1))] == [
        Level.WARNING
    ]


def test_of_a_group_that_writes_its_own_input_the_input_behind_both_is_named() -> None:
    reached = NOW - HOUR
    payments = InputTime(reached, reached)
    again = InputTime(reached - 1, reached - 1, (reached - 1, NOW))
    ((_, fact), (_, other)) = found(
        committed("payments", 0, payments),
        committed("by-order", 0, again),
        committed("payments", 1, InputTime(NOW, NOW)),
        committed("by-order", 1, again),
    )
    assert "payments holds it back, it has been silent since" in fact
    assert "by-order holds it back, of the 2 tasks that write it, task 0 stands at" in other
