"""The diagnosis of a window that does not close: the watermark of the group, and the input that holds it back."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from streamtable.base.event_time import NO_TIME, InputTime
from streamtable.tables.position import TablePosition
from streamtable_admin.findings import Finding, ok, warning
from streamtable_admin.offsets import PartitionOffsets

BEHIND_MS = 5 * 60 * 1000
"""A watermark that is further behind the clock is worth a look."""


@dataclass(frozen=True, slots=True)
class HeldInput:
    """An input of a partition, with its event time.

    Attributes:
        topic: The input.
        time: The event time that was committed with its offset.
        lag: The number of its records that have not been handled yet.
    """

    topic: str
    time: InputTime
    lag: int

    @property
    def waits_for(self) -> int | None:
        """The number of the task that has come least far of those that write the input and are not idle; None: there is none."""
        waited = [number for number in range(len(self.time.producers_ms)) if number not in self.time.idle]
        return min(waited, key=self.time.producers_ms.__getitem__, default=None)

    @property
    def silent(self) -> bool:
        """Whether nothing is to be waited for: it has had no event, all are behind the watermark, or its writers are idle."""
        time = self.time
        passed = time.stream_ms == NO_TIME or time.stream_ms < time.watermark_ms
        return not self.lag and (passed if not time.producers_ms else self.waits_for is None)

    def reason(self) -> str:
        """Return the reason why the event time of the input has not advanced."""
        producers, number = self.time.producers_ms, self.waits_for
        if producers and number is None:
            return f"the {len(producers)} tasks that write it are idle"
        if number is not None:
            least = producers[number]
            said = "has not written its watermark yet" if least == NO_TIME else f"stands at {moment(least)}"
            return f"of the {len(producers)} tasks that write it, task {number} {said}"
        if self.lag:
            return f"{self.lag} of its records are not handled yet"
        if self.time.stream_ms == NO_TIME:
            return "it has had no record"
        return f"it has been silent since {moment(self.time.stream_ms)}"


@dataclass(frozen=True, slots=True)
class EventTimeOf:
    """The event time of one partition of a group.

    Attributes:
        partition: Its number.
        inputs: The inputs that advance it.
    """

    partition: int
    inputs: tuple[HeldInput, ...]

    @property
    def watermark_ms(self) -> int:
        """The watermark; `NO_TIME` if there is none yet. A group with stages has its last stage's watermark."""
        return min(each.time.watermark_ms for each in self.inputs)

    @property
    def silent(self) -> bool:
        """Whether nothing holds the watermark back: all inputs are silent, and it advances as time passes."""
        return all(each.silent for each in self.inputs)

    @property
    def holding(self) -> HeldInput:
        """The input that holds the watermark back: the least of those that are not idle."""
        # What counts as idle is behind the watermark, which has gone on without it.
        active = [
            each
            for each in self.inputs
            if each.time.stream_ms >= each.time.watermark_ms
            and (each.waits_for is not None or not each.time.producers_ms)
        ]
        least = min(active or self.inputs, key=lambda each: each.time.stream_ms)
        if least.waits_for != self.partition:
            return least
        # It may wait for this task itself, which then waits for another of its inputs.
        others = [
            each
            for each in active
            if not each.time.producers_ms and each.time.stream_ms == each.time.watermark_ms
        ]
        return others[0] if others else least


def event_times(offsets: Iterable[PartitionOffsets]) -> list[EventTimeOf]:
    """Return the event time of each partition, as it was committed; empty if the group does not follow it."""
    found: dict[int, list[HeldInput]] = {}
    for each in offsets:
        position = None if each.committed is None else TablePosition.decode(each.committed.metadata)
        if position is not None and position.time is not None:
            held = HeldInput(each.place.topic, position.time, each.lag or 0)
            found.setdefault(each.place.partition, []).append(held)
    return [EventTimeOf(partition, tuple(inputs)) for partition, inputs in sorted(found.items())]


def watermark_findings(subject: str, times: Iterable[EventTimeOf], now_ms: int) -> Iterator[Finding]:
    """Yield the lag of the watermarks behind the clock, and for those far behind the input that holds them back.

    Args:
        subject: The subject of the findings.
        times: The event time of each partition.
        now_ms: The wall clock.
    """
    behind = {each.partition: each for each in times}
    if not behind:
        return
    far: Mapping[int, EventTimeOf] = {
        partition: each
        for partition, each in behind.items()
        if now_ms - each.watermark_ms > BEHIND_MS and not each.silent
    }
    for partition, each in far.items():
        at, holding = each.watermark_ms, each.holding
        stands = "has no watermark yet" if at == NO_TIME else f"has the watermark {moment(at)}"
        fact = f"partition {partition} {stands}: {holding.topic} holds it back, {holding.reason()}"
        yield warning(subject, fact, _advice(holding))
    if far:
        return
    followed = [each.watermark_ms for each in behind.values() if not each.silent]
    if not followed:
        yield ok(subject, "its inputs are silent, and its watermarks advance as time passes")
    else:
        seconds = max(0, now_ms - min(followed)) / 1000
        yield ok(subject, f"its watermarks are at most {seconds:.0f} s behind the clock")


def _advice(holding: HeldInput) -> str:
    if holding.time.producers_ms:
        return "see the group that writes it: whether it runs, and what holds back that partition of it"
    if holding.lag:
        return "windows close when these are handled: see the lag"
    return "windows close when it has a later record or counts as idle (EventTime.idle_after, while a process runs)"


def moment(time_ms: int) -> str:
    """Return an event time as text, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
