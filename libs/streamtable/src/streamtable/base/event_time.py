"""Event times as columns: the times of consecutive records, and which of the records are late.

Times are milliseconds since 1970; `NO_TIME` stands for none.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate, compress
from typing import Any, NamedTuple

NO_TIME = -1
"""No event time: nothing has been read yet, or the record has none."""

_Choose = Callable[[Sequence[Any]], list[Any]]


class InputTime(NamedTuple):
    """The event time that a task has reached, committed with the offset of one of its inputs.

    Attributes:
        stream_ms: The stream time of this input: the greatest event time seen in it.
        watermark_ms: The watermark of the task, in the stage of this input.
        producers_ms: The watermark of each producing task, for an input that carries watermarks; the least of those that
            are not idle is `stream_ms`.
        idle: The numbers of the producing tasks that are idle.
    """

    stream_ms: int = NO_TIME
    watermark_ms: int = NO_TIME
    producers_ms: tuple[int, ...] = ()
    idle: frozenset[int] = frozenset()


class EventTimes:
    """The event times of consecutive records of one input, and the watermarks that decide which are late.

    Args:
        event_ms: The event time of each record; `NO_TIME` for those that are not handled.
        seen_ms: The time that each record advances the stream time of its input to, if not its event time.
        stream_ms: The stream time of the input before these records.
        closed_ms: The watermark before these records of the steps that follow them first.
        others_ms: The least stream time of the other inputs that are not idle; None if there are none.
        watermark_ms: The watermark of the task before these records.

    Attributes:
        event_ms: The event time of each record.
        seen_ms: The time that each record advances the stream time of its input to.
    """

    def __init__(
        self,
        event_ms: Sequence[int],
        stream_ms: int,
        others_ms: int | None,
        watermark_ms: int,
        *,
        seen_ms: Sequence[int] | None = None,
        closed_ms: int | None = None,
    ) -> None:
        self.event_ms = event_ms
        self.seen_ms = event_ms if seen_ms is None else seen_ms
        self._stream_ms = stream_ms
        self._closed_ms = watermark_ms if closed_ms is None else closed_ms
        self._others_ms = others_ms
        self._watermark_ms = watermark_ms
        self._whole: tuple[EventTimes, _Choose] | None = None

    @cached_property
    def late_before_ms(self) -> Sequence[int]:
        """For each record: the greater of its input's stream time, including it, and the watermark before the batch."""
        if self._whole is not None:
            whole, choose = self._whole
            return choose(whole.late_before_ms)
        return running_max(self.seen_ms, max(self._stream_ms, self._closed_ms))

    @cached_property
    def watermarks_ms(self) -> Sequence[int]:
        """For each record: the watermark before it was handled."""
        if self._whole is not None:
            whole, choose = self._whole
            return choose(whole.watermarks_ms)
        watermark, others = self._watermark_ms, self._others_ms
        if not self.event_ms or (others is not None and others <= watermark):
            return [watermark] * len(self.event_ms)
        before = [self._stream_ms, *running_max(self.seen_ms[:-1], self._stream_ms)]
        if others is None:
            return running_max(before, watermark)
        return [max(watermark, min(others, stream)) for stream in before]

    @classmethod
    def given(
        cls, event_ms: Sequence[int], late_before_ms: Sequence[int], watermarks_ms: Sequence[int]
    ) -> "EventTimes":
        """Return the times of records that carry their own watermarks, as in a stream with watermarks."""
        made = cls(event_ms, NO_TIME, None, NO_TIME)
        # In place of what the cached properties would work out.
        vars(made).update(late_before_ms=late_before_ms, watermarks_ms=watermarks_ms)
        return made

    def part(self, start: int, stop: int) -> "EventTimes":
        """Return the times of the records from index `start` up to, not including, `stop`."""
        return self._chosen(lambda column: list(column[start:stop]))

    def only(self, keep: Sequence[bool]) -> "EventTimes":
        """Return the times of the records whose index is true in `keep`."""
        return self._chosen(lambda column: list(compress(column, keep)))

    def _chosen(self, choose: _Choose) -> "EventTimes":
        # What a record means follows from all records before it, also from those that are not chosen.
        event_ms, others_ms, watermark_ms = choose(self.event_ms), self._others_ms, self._watermark_ms
        seen_ms = None if self.seen_ms is self.event_ms else choose(self.seen_ms)
        made = EventTimes(
            event_ms, self._stream_ms, others_ms, watermark_ms, seen_ms=seen_ms, closed_ms=self._closed_ms
        )
        made._whole = self, choose
        return made


def running_max(times: Sequence[int], floor: int) -> Sequence[int]:
    """Return the greatest of `floor` and all times so far, for each time."""
    if not times or (times[0] >= floor and times == sorted(times)):
        return times  # the usual order, found at a tenth of the general cost
    return list(accumulate(times, max, initial=floor))[1:]
