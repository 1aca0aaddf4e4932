"""A minute with too many late records is reported; each kind of window and join counts them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from streamtable.base.event_time import InputTime
from streamtable.base.topics import Stream, Table
from streamtable.codec.plain import Long, String
from streamtable.engine.watch import late_records
from streamtable.engine.watch.late_records import LateRecords
from streamtable.flow import Flow, Session, Sliding, Tumbling
from streamtable.graph.group import Group, Input
from streamtable.graph.state import State
from streamtable.observe import Metrics
from streamtable_testing import Tester

EVENTS: Stream[str, int] = Stream("events", String(), Long())
OTHERS: Stream[str, int] = Stream("others", String(), Long())
MINUTE, HOUR_MS, BEGAN_MS = timedelta(minutes=1), 3_600_000, 1_600_000_000_000
NO_GRACE = timedelta(0)


class Counted:
    """A group with one table of windows, whose work a test commits."""

    def __init__(self) -> None:
        state = State("n", key=String(), value=Long())
        self.group: Group[str, Any] = Group("g", Input(EVENTS, lambda ctx, event: None), state)
        self.registry = CollectorRegistry()
        self.late = LateRecords(self.group, Metrics.register(self.registry))
        self.late.judge(0.0)

    def commit(self, records: int, late: int, *, stream_ms: int = 500, partition: int = 0) -> None:
        task = type("Task", (), {"partition": partition})
        work: Any = type("Work", (), {"task": task, "offered": {"n": records}, "late": {"n": late} if late else {},
                                      "times": {"events": InputTime(stream_ms, 500)}})  # fmt: skip
        self.late.committed(work)

    def share(self, partition: int = 0) -> float | None:
        place = {"group": "g", "topic": "g-n", "partition": str(partition)}
        return self.registry.get_sample_value("streamtable_late_share", place)


def test_a_minute_with_more_than_five_percent_of_late_records_is_reported_with_what_moved_the_watermark(
    logged: list[Any],
) -> None:
    counted = Counted()
    counted.commit(50, 6)
    counted.commit(50, 0, partition=1)
    counted.late.judge(59.0)
    assert not logged
    counted.late.judge(60.0)
    (line,) = logged
    assert (line["event"], line["log_level"]) == ("records late", "warning")
    assert (line["group"], line["topic"], line["late"], line["records"]) == ("g", "g-n", 6, 100)
    assert line["moved_by"] == "events"
    assert "grace" in line["advice"]
    assert (counted.share(0), counted.share(1)) == (0.12, None)
    counted.late.judge(121.0)  # a minute without late records
    assert len(logged) == 1
    assert counted.share() is None


def test_five_percent_and_less_are_counted_and_not_reported(logged: list[Any]) -> None:
    counted = Counted()
    counted.commit(100, 5)
    counted.late.judge(61.0)
    assert not logged
    assert counted.share() == 0.05


def test_silence_that_moved_the_watermark_is_named(logged: list[Any]) -> None:
    counted = Counted()
    counted.commit(1, 1, stream_ms=400)
    counted.late.judge(61.0)
    assert logged[0]["moved_by"] == "(silence)"
    assert "idle_after" in logged[0]["advice"]


def windows(kind: Any) -> Callable[[Flow], None]:
    return lambda flow: (
        flow.stream(EVENTS, time=lambda at: at).group_by_key().window(kind).count("n") and None
    )


def joined(flow: Flow) -> None:
    one, other = (flow.stream(each, time=lambda at: at) for each in (EVENTS, OTHERS))
    one.join("n", other, lambda mine, theirs: mine, within=MINUTE, grace=NO_GRACE)


def as_of(flow: Flow) -> None:
    rows = flow.table(Table("rows-table", String(), Long()))
    flow.stream(EVENTS, time=lambda at: at).join_as_of("n", rows, lambda event, row: event, history=MINUTE, grace=NO_GRACE)  # fmt: skip


@pytest.mark.parametrize(
    "build",
    [windows(Tumbling(MINUTE, grace=NO_GRACE)), windows(Session(MINUTE, grace=NO_GRACE)),
     windows(Sliding(MINUTE, grace=NO_GRACE)), joined, as_of],
    ids=["tumbling", "session", "sliding", "stream join", "join as of"],
)  # fmt: skip
def test_every_kind_of_window_and_join_counts_its_records_and_those_that_are_late(
    build: Callable[[Flow], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow("f")
    build(flow)
    counts = {"offered": 0, "late": 0}

    def committed(self: LateRecords, work: Any) -> None:
        for name in counts:
            counts[name] += getattr(work, name).get("n", 0)

    monkeypatch.setattr(late_records.LateRecords, "committed", committed)
    with Tester(now=BEGAN_MS / 1000) as tester:
        tester.run(flow)
        if "others" in tester.kafka.topics:
            tester.emit(OTHERS, "z", BEGAN_MS)
        for at in (BEGAN_MS, BEGAN_MS - HOUR_MS, BEGAN_MS - 2 * HOUR_MS):
            tester.emit(EVENTS, "a", at)
    assert counts == {"offered": 3 + ("others" in tester.kafka.topics), "late": 2}
