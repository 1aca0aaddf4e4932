"""Detects a processor that has stalled: its main thread does not move, or its work is never committed.

The main thread leaves its traces in a `Heartbeat`. What they mean is decided by pure functions with the time as an
argument. A thread of its own (`Watchdog`) asks them, because the main thread of a hung processor cannot.
"""

import os
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from streamtable.base.clock import Clock
from streamtable.base.crash_marker import NOT_NOTED, InHand, Suspects
from streamtable.base.types import RecordBatch
from streamtable.engine.basetask import BaseTask

log = structlog.get_logger()

EXIT_STALLED: Final = 75  # EX_TEMPFAIL: a supervisor should start the process again
_LOOK_SECONDS_MAX: Final = 1.0


@dataclass(frozen=True)
class Activity:
    """The activity of the main thread, as seen by another thread.

    Attributes:
        position: A value that changes whenever the main thread polls or handles another record.
        handling: The records that are being handled, in words; empty if there are none.
        uncommitted: Monotonic time since when a commit of a partition has been due or has failed, by partition.
    """

    position: Hashable
    handling: str
    uncommitted: Mapping[int, float]


@dataclass(frozen=True)
class Wait:
    """The longest time that an expected event has been outstanding.

    Attributes:
        seconds: The length of the wait.
        what: The missing progress, as the end of a sentence about the processor.
    """

    seconds: float
    what: str


def longest_wait(activity: Activity, moved_at: float, kafka_since: float | None, now: float) -> Wait:
    """Return the time that the processor has been without progress.

    Args:
        activity: The activity of the main thread.
        moved_at: Monotonic time when the main thread was first seen at its position.
        kafka_since: Monotonic time since when Kafka has answered without a gap; None: it does not. No member can commit
            without Kafka, so that time does not count.
        now: Monotonic time.
    """
    stuck = Wait(
        now - moved_at,
        f"has been in one call of a handler, with {activity.handling},"
        if activity.handling
        else "has not polled",
    )
    if kafka_since is None or not activity.uncommitted:
        return stuck
    since = max(min(activity.uncommitted.values()), kafka_since)
    partitions = ", ".join(map(str, sorted(activity.uncommitted)))
    return max(
        stuck,
        Wait(now - since, f"has work of partitions {partitions} that it could not commit"),
        key=lambda wait: wait.seconds,
    )


class Heartbeat:
    """The traces of the main thread, which alone writes them.

    Args:
        now: Monotonic time.
        in_hand: The file that records which records are being handled, for the next process.

    Attributes:
        polled_at: Monotonic time of the last poll.
    """

    def __init__(self, now: float, in_hand: InHand = NOT_NOTED) -> None:
        self._in_hand = in_hand
        self.polled_at = now
        self._polls = 0
        self._tasks: Mapping[int, BaseTask] = {}
        self._records: RecordBatch | None = None
        self._uncommitted: dict[int, float] = {}

    def polled(self, now: float, tasks: Mapping[int, BaseTask], recovering: Collection[int]) -> None:
        """Note a poll, the partitions with tasks and those that load their tables."""
        passed, self.polled_at = now - self.polled_at, now
        self._polls += 1
        self._tasks = tasks
        self._records = None
        self._in_hand.release()
        for partition in list(self._uncommitted):
            if partition in recovering:  # it loads its tables: that takes as long as it takes
                self._uncommitted[partition] += passed
            elif partition not in tasks:
                del self._uncommitted[partition]

    def handles(self, records: RecordBatch) -> None:
        """Note that these records are given to their task."""
        self._records = records
        self._in_hand.take(Suspects.of(records))

    def commit_due(self, partitions: Iterable[int], now: float) -> None:
        """Note that a commit of these partitions begins, or that their work was undone before it."""
        self._records = None
        self._in_hand.release()
        for partition in partitions:
            self._uncommitted.setdefault(partition, now)

    def committed(self, partitions: Iterable[int]) -> None:
        """Note that Kafka has committed the work of these partitions."""
        for partition in partitions:
            self._uncommitted.pop(partition, None)

    def activity(self) -> Activity:
        """Return the activity of the main thread. Any thread."""
        records = self._records
        tasks = list(self._tasks.values())  # in one go: the main thread adds tasks and takes them away
        handling = f"{records.place}@{records.first_offset}..{records.last_offset}" if records else ""
        position = (self._polls, *(task.position for task in tasks))
        return Activity(position, handling, dict(self._uncommitted))


class StallDetector:
    """Observes a heartbeat. May be used by any thread.

    Args:
        timeout: Seconds without progress after which a processor counts as stalled.
        clock: Wall and monotonic time.
    """

    def __init__(self, timeout: float, clock: Clock) -> None:
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._position: Hashable = None  # of the main thread
        self._moved_at = 0.0  # monotonic time when it was first seen there

    def wait(self, heartbeat: Heartbeat, kafka_since: float | None) -> Wait:
        """Return the time that the processor has been without progress."""
        now, activity = self._clock.monotonic(), heartbeat.activity()
        with self._lock:
            if activity.position != self._position:
                self._position, self._moved_at = activity.position, now
            return longest_wait(activity, self._moved_at, kafka_since, now)

    def reason(self, wait: Wait) -> str:
        """Return the reason why this is a stall, and its start; empty if it is none."""
        if wait.seconds <= self._timeout:
            return ""
        since = datetime.fromtimestamp(self._clock.now() - wait.seconds, UTC).isoformat(timespec="seconds")
        return f"stalled: the processor {wait.what} for {wait.seconds:.0f} s, since {since}"


@dataclass(eq=False)
class Watchdog:
    """Reports a stall of the thread that created it: logs its stack once, and may end the process.

    Args:
        group: The name of the group.
        detector: Finds the stall.
        look: Returns the time that the processor has been without progress; None when it has left the group.
        report: Takes the seconds, for a metric.
        exit_after: Seconds without progress after which the process exits; None: it never does.
        exit_process: Ends the process with an exit code, at once.
    """

    _group: str
    _detector: StallDetector
    _look: Callable[[], Wait | None]
    _report: Callable[[float], None]
    _exit_after: float | None
    _exit_process: Callable[[int], object] = os._exit
    _stalled: bool = False

    def __post_init__(self) -> None:
        self._watched = threading.get_ident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def turn(self) -> None:
        """Check once."""
        wait = self._look()
        if wait is None:
            return
        self._report(wait.seconds)
        reason = self._detector.reason(wait)
        if reason and not self._stalled:
            log.error("processor has stalled", group=self._group, reason=reason, stack=self._stack())
        elif self._stalled and not reason:
            log.info("processor makes progress again", group=self._group)
        self._stalled = bool(reason)
        if self._exit_after is not None and wait.seconds >= self._exit_after:
            log.critical("process exits", group=self._group, reason=reason, exit_code=EXIT_STALLED)
            with suppress(OSError, ValueError):  # the log's disk may be full
                sys.stderr.flush()
            self._exit_process(EXIT_STALLED)

    def _run(self) -> None:
        while not self._done.wait(_LOOK_SECONDS_MAX):
            self.turn()

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001 - the documented way to another thread's stack
        return "".join(traceback.format_stack(frame)) if frame is not None else "the thread has ended"
