"""Detection of stalled processors, and the reaction to them; tests/system/test_stalls.py tests a real process."""

import threading
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest

from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.watch.watchdog import (
    Activity,
    Heartbeat,
    StallDetector,
    Wait,
    Watchdog,
    longest_wait,
)
from streamtable.errors import ConfigurationError


def activity(position: int = 0, handling: str = "", **uncommitted: float) -> Activity:
    return Activity(position, handling, {int(name[1:]): since for name, since in uncommitted.items()})


def task_at(position: int) -> Any:
    return SimpleNamespace(position=position)


def test_a_main_thread_has_moved_when_its_position_was_seen_first(clock: Any) -> None:
    detector, heartbeat = StallDetector(30.0, clock), Heartbeat(0.0)
    task = task_at(1)
    heartbeat.polled(0.0, {0: task}, ())
    assert detector.wait(heartbeat, None).seconds == 0.0
    clock.sleep(40.0)
    assert detector.wait(heartbeat, None).seconds == 40.0
    task.position = 2
    assert detector.wait(heartbeat, None).seconds == 0.0
    clock.sleep(5.0)
    assert detector.wait(heartbeat, None).seconds == 5.0


@pytest.mark.parametrize(
    ("seen", "kafka_since", "seconds", "what"),
    [
        (activity(), 0.0, 5.0, "has not polled"),  # idle, or without a partition: it polls all the same
        (activity(handling="in[0]@3..9"), 0.0, 5.0, "in one call of a handler, with in[0]@3..9"),
        (activity(p3=90.0, p1=40.0), 0.0, 60.0, "work of partitions 1, 3 that it could not commit"),
        (activity(p3=97.0), 0.0, 5.0, "has not polled"),
        (activity(p3=40.0), 80.0, 20.0, "could not commit"),  # until then no commit was possible
        (activity(p3=40.0), None, 5.0, "has not polled"),
    ],
)
def test_the_longest_time_without_progress_decides(
    seen: Activity, kafka_since: float | None, seconds: float, what: str
) -> None:
    wait = longest_wait(seen, 95.0, kafka_since, 100.0)
    assert wait.seconds == seconds
    assert what in wait.what


def test_work_waits_from_the_first_attempt_to_commit_it_until_one_succeeds() -> None:
    heartbeat = Heartbeat(0.0)
    heartbeat.polled(1.0, {0: task_at(0), 1: task_at(0)}, ())
    for now in (2.0, 7.0, 9.0):
        heartbeat.commit_due([0, 1], now)
    heartbeat.committed([1])
    assert heartbeat.activity().uncommitted == {0: 2.0}
    heartbeat.polled(10.0, {0: task_at(0), 1: task_at(0)}, ())
    assert heartbeat.activity().uncommitted == {0: 2.0}
    heartbeat.committed([0])
    assert heartbeat.activity().uncommitted == {}


def test_time_in_which_a_partition_loads_its_tables_does_not_count() -> None:
    heartbeat = Heartbeat(0.0)
    heartbeat.commit_due([0], 0.0)
    heartbeat.polled(4.0, {0: task_at(0)}, ())
    heartbeat.polled(604.0, {}, {0: None})
    heartbeat.polled(605.0, {0: task_at(0)}, ())
    assert heartbeat.activity().uncommitted == {0: 600.0}


def test_a_partition_that_went_elsewhere_is_not_waited_for() -> None:
    heartbeat = Heartbeat(0.0)
    heartbeat.commit_due([0], 0.0)
    heartbeat.polled(1.0, {}, ())
    assert heartbeat.activity().uncommitted == {}


def test_a_poll_and_each_handled_record_is_a_move(batch: Any) -> None:
    heartbeat, task = Heartbeat(0.0), task_at(0)
    positions = [heartbeat.activity().position]
    heartbeat.polled(1.0, {0: task}, ())
    positions.append(heartbeat.activity().position)
    records = batch("in", [(b"a", b"x"), (b"b", b"y")], first=7, partition=3)
    heartbeat.handles(records)
    assert heartbeat.activity().handling == "in[3]@7..8"
    task.position = 1
    positions.append(heartbeat.activity().position)
    assert len(set(positions)) == 3
    heartbeat.commit_due([3], 2.0)
    assert heartbeat.activity().handling == ""


class Rig:
    """A watchdog that is driven by hand, and what it has done."""

    def __init__(self, clock: Any, exit_after: float | None) -> None:
        self.clock, self.heartbeat = clock, Heartbeat(clock.monotonic())
        self.seconds: list[float] = []
        self.exits: list[int] = []
        self.detector = StallDetector(30.0, clock)
        self.watchdog = Watchdog(
            "g", self.detector, self.wait, self.seconds.append, exit_after, self.exits.append
        )

    def wait(self) -> Wait:
        return self.detector.wait(self.heartbeat, 0.0)

    def after(self, seconds: float) -> str:
        self.clock.sleep(seconds)
        self.watchdog.turn()
        return self.detector.reason(self.wait())


def test_a_stall_is_reported_once_with_the_stack_and_again_when_it_ends(
    clock: Any, logged: list[MutableMapping[str, Any]]
) -> None:
    rig = Rig(clock, None)
    assert rig.after(0.0) == ""
    assert rig.after(30.0) == ""
    assert "has not polled for 31 s, since 1970-01-12T13:46:40+00:00" in rig.after(1.0)
    rig.after(100.0)
    assert rig.seconds == [0.0, 30.0, 31.0, 131.0]
    (line,) = logged
    assert (line["event"], line["group"], line["log_level"]) == ("processor has stalled", "g", "error")
    assert "test_a_stall_is_reported_once" in line["stack"]
    rig.heartbeat.polled(clock.monotonic(), {}, ())
    assert rig.after(0.0) == ""
    assert logged[-1]["event"] == "processor makes progress again"
    assert rig.exits == []


def test_the_process_exits_after_the_time_that_was_set_and_not_before(clock: Any, logged: Any) -> None:
    rig = Rig(clock, 60.0)
    for seconds in (0.0, 31.0, 28.0):
        rig.after(seconds)
    assert rig.exits == []
    rig.after(1.0)
    assert rig.exits == [75]
    assert logged[-1]["event"] == "process exits"


def test_a_watchdog_ends_when_it_is_stopped(clock: Any) -> None:
    rig = Rig(clock, None)
    rig.watchdog.start()
    rig.watchdog.stop()
    assert "watchdog" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("changes", [{"stall_timeout": 0.0}, {"stall_exit": 29.0}])
def test_times_that_make_no_sense_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="stall_"):
        ProcessorSettings("i", **changes)  # type: ignore[arg-type] # all of them are numbers
