"""The event time that a group must have committed and its handlers must have seen, computed independently from the log.

The stream time of an input is exact at each commit: the greatest event time below the committed offset. The watermark
is exact while no input can have been idle; otherwise it may be anywhere up to the bound of the other inputs, and if all may
have been idle, up to the greatest event time and the time that has passed since it was handled at the earliest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.simulation.jobs import LATE_BEFORE
from tests.simulation.oracle import Expected, Wrong
from tests.simulation.trace import Trace

from streamtable.base.event_time import NO_TIME
from streamtable.base.types import Committed, Headers, TopicPartition
from streamtable.engine.time.silence import observe_seconds
from streamtable.graph.group import EventTime
from streamtable.tables.position import TablePosition
from streamtable_testing.log import VirtualKafka


@dataclass(frozen=True, slots=True)
class EventTimeBounds:
    """The times a record's handler may have seen: the stream time, and the watermarks of the commits before and after."""

    stream_ms: int
    least_ms: int
    most_ms: int


class Silence:
    """The time since when each input partition may have been idle, as seen after each turn.

    Args:
        kafka: The broker.
        topics: The inputs.
        seconds: An input without records for so many seconds may be idle.
        believed: How many seconds a process may still consider it idle afterwards.
    """

    def __init__(self, kafka: VirtualKafka, topics: Sequence[str], seconds: float, believed: float) -> None:
        self._kafka = kafka
        self._topics = topics
        self._seconds = seconds
        self._believed = believed
        self._looked_at = kafka.clock.monotonic()
        self._ends: dict[
            TopicPartition, tuple[int, float]
        ] = {}  # the end, and the time of the last look before it
        self._idle_at: dict[TopicPartition, float] = {}

    def look(self) -> None:
        """Observe the ends of the inputs."""
        now = self._kafka.clock.monotonic()
        for topic in self._topics:
            for partition in self._kafka.topics[topic].partitions:
                end, since = self._ends.get(partition.place, (0, 0.0))
                if now - since >= self._seconds:
                    self._idle_at[partition.place] = now
                if end != partition.high:
                    self._ends[partition.place] = partition.high, self._looked_at
        self._looked_at = now

    def may_have_been(self, place: TopicPartition, since: float) -> bool:
        """Return whether a process may have considered the partition idle since then."""
        return self._idle_at.get(place, float("-inf")) + self._believed >= since


class TimeBooks:
    """The expected event time of one group.

    Args:
        kafka: The broker.
        trace: Gets an entry when the watermark is ahead of an input.
        event_time: The settings of the group.
        inputs: The topics that advance it.
        partitions: The number of partitions.
        carried: Whether the inputs carry watermarks, and thus never count as idle.
    """

    def __init__(
        self,
        kafka: VirtualKafka,
        trace: Trace,
        event_time: EventTime,
        inputs: Sequence[str],
        partitions: int,
        *,
        carried: bool = False,
    ) -> None:
        assert event_time.idle_after is not None
        self._kafka = kafka
        self._trace = trace
        self._inputs = inputs
        self._carried = carried
        self._idle_after = event_time.idle_after.total_seconds()
        # Observed that often, an idle input is believed to be idle for three times as long.
        self._silence = Silence(kafka, inputs, self._idle_after, 3 * observe_seconds(event_time))
        self._watermarks = [NO_TIME] * partitions
        self._committed_at = [kafka.clock.monotonic()] * partitions
        self._seen_at = list(self._committed_at)  # the last event was handled after this time
        self._greatest_ms = [NO_TIME] * partitions
        self._bounds_of: dict[tuple[str, int, int], EventTimeBounds] = {}

    def look(self) -> None:
        """After each turn."""
        self._silence.look()

    def committed(
        self, partition: int, offsets: Mapping[TopicPartition, Committed], expected: Expected
    ) -> None:
        """Check an observed commit. Raises `Wrong`.

        Args:
            partition: Its number.
            offsets: The present committed offsets.
            expected: The expected state for the inputs up to these offsets.
        """
        positions = {
            topic: TablePosition.decode(offsets[TopicPartition(topic, partition)].metadata)
            for topic in self._inputs
        }
        times = {topic: at.time if at is not None else None for topic, at in positions.items()}
        found = {each.watermark_ms if each is not None else None for each in times.values()}
        for topic, each in times.items():
            if each is None or each.stream_ms != expected.stream_ms[topic]:
                raise Wrong(
                    f"I8: stream time {each} of {topic}[{partition}], must be {expected.stream_ms[topic]}"
                )
        self._greatest_ms[partition] = max(expected.stream_ms.values())
        (watermark,) = found if len(found) == 1 else (None,)
        before, self._watermarks[partition] = self._watermarks[partition], watermark or NO_TIME
        least, most = self._bounds(partition, before, expected)
        if watermark is None or not least <= watermark <= most:
            raise Wrong(
                f"I8: watermark {sorted(map(str, found))} of {partition} after {before}: must be {least} to {most}"
            )
        if expected.timed:  # not before the bounds: the silence may have been before these events
            self._seen_at[partition] = self._committed_at[partition]
        self._committed_at[partition] = self._kafka.clock.monotonic()
        if watermark > min(expected.stream_ms.values()):
            self._trace.add("", "idle input", partition, watermark)
        for topic, offset, stream_ms in expected.timed:
            self._bounds_of[topic, partition, offset] = EventTimeBounds(stream_ms, before, watermark)
        expected.timed.clear()

    def _bounds(self, partition: int, before: int, expected: Expected) -> tuple[int, int]:
        """Return the least and the greatest watermark that may be committed now."""
        since = self._committed_at[partition]
        active = [
            expected.stream_ms[topic]
            for topic in self._inputs
            if self._carried or not self._silence.may_have_been(TopicPartition(topic, partition), since)
        ]
        least = max(before, min(expected.stream_ms.values()))
        if active:
            return least, max(before, min(active))
        greatest = max(expected.stream_ms.values())
        if greatest == NO_TIME:
            return least, before
        passed = self._kafka.clock.monotonic() - self._seen_at[partition]
        return least, max(before, greatest, greatest + int((passed - self._idle_after) * 1000))

    def check_late_before(self, topic: str, partition: int, offset: int, headers: Headers) -> None:
        """Check the `late_before` that a handler has seen with a committed record. Raises `Wrong`."""
        bounds = self._bounds_of.pop((topic, partition, offset), None)
        text = dict(headers).get(LATE_BEFORE)
        if bounds is None or text is None:
            return
        late_before = int(text)
        least, most = (max(bounds.stream_ms, each) for each in (bounds.least_ms, bounds.most_ms))
        if not least <= late_before <= most:
            raise Wrong(f"I8: {topic}[{partition}]@{offset} was late before {late_before}: {bounds}")

    def behind(self, partition: int, watermark_ms: int | None) -> bool:
        """Return whether the watermark has not passed all events of the partition although all inputs are idle for long."""
        return watermark_ms is None or watermark_ms < self._greatest_ms[partition]
