"""Replays history through a group's handlers with the real engine, and returns the rows of one partition.

    replay = Replay(ORDERS, partition=3, partitions=12, now=time.time())
    replay.feed("orders", records)
    replay.feed("payments", more)
    replay.finish()
    replay.rows["table"]

Records are handled in the order they are fed, across all inputs. Everything but the broker, the disk and the
clock is real, as in the `Tester`. Emitted records are dropped, as they are already in their topics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from streamtable.base.clock import Clock
from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.engine import ProcessorSettings
from streamtable.errors import ConfigurationError
from streamtable.graph.group import Group
from streamtable_testing.clock import VirtualClock
from streamtable_testing.consumer import VirtualGroupConsumer
from streamtable_testing.group import GroupCoordinator
from streamtable_testing.instance import Graves, Instance
from streamtable_testing.log import VirtualKafka, VirtualProcess
from streamtable_testing.topic import InMemoryMessage, Partition

# What the group's topics have refused is in its dead letters, so a replay refuses nothing: it does not know their limits.
_ANY_SIZE: Final = 1 << 40
_ANY_PARTITION: Final = 1 << 31
_FOREVER_SECONDS: Final = 1e12
_TICK_SECONDS: Final = 2e-6
_FED_MAX: Final = 5_000  # records between two commits
_QUIET_TURNS: Final = 3
_TURNS_MAX: Final = 1_000_000
TABLE: Final = "table"


class Replay:
    """One partition of a group, from its first record on.

    Args:
        group: The group.
        partition: Its number.
        partitions: The number of partitions of the group's topics.
        now: Seconds since 1970: the wall clock that handlers and the engine see. If the group has rows or timers that fall
            due by the wall clock, it follows the timestamps of the records up to there instead.

    Attributes:
        rows: The rows of each table that the group keeps: the group's own is `table`, others have their names.
    """

    def __init__(self, group: Group[Any, Any], *, partition: int, partitions: int, now: float) -> None:
        self.group = group
        self.partition = partition
        own = {f"{group.name}-{TABLE}": TABLE} if group.persist is not None else {}
        self._own = own | {group.named_topic(name): name for name in group.named_tables}
        self.rows: dict[str, dict[bytes, bytes]] = {name: {} for name in self._own.values()}
        by_wall_clock = any(state.due is not None and state.due.clock == "wall" for state in group.all_states)
        self._feed = _Feed(now, follow=by_wall_clock)
        clock = VirtualClock(0.0 if by_wall_clock else now)
        graves = Graves()
        self._kafka = _HistoryKafka(clock, graves, self._feed, partition)
        self._kafka.create_topics_of(group, partitions)
        read = {edge.table.name for edge in group.joins} | {edge.table.name for edge in group.lookups}
        for output in {edge.stream.name for edge in group.outputs} - read - {*group.input_topics}:
            self._kafka.accept_all(output)
        settings = ProcessorSettings(
            instance_id="replay",
            commit_interval=1e14,
            poll_timeout=_TICK_SECONDS,
            poll_records=_FED_MAX,
            by_hand=True,  # no call of history is made again
        )
        self._instance = Instance(group, self._kafka, graves, settings, group.custom_tasks)
        self._feed.instance = self._instance
        self._lookups = {edge.table.name for edge in group.lookups}
        self._inputs = set(group.input_topics)
        self._instance.start(disk=True)
        self._settle()

    def feed(self, topic: str, records: Sequence[InMemoryMessage], partition: int | None = None) -> None:
        """Add the next records of one topic: an input, the group's loop or retries, or a table that it joins or looks up.

        Args:
            topic: The topic, by the name that the group gives it.
            records: Consecutive records of one partition.
            partition: Their partition, if it is another one: of a table that is looked up.

        Raises:
            ConfigurationError: The group does not read this topic.
            HandlerFailed: A handler has failed, and its input has `OnError.STOP`.
        """
        if topic in self._lookups:
            self._settle()
            for record in records:
                at_ms = record.timestamp()[1]
                number = self.partition if partition is None else partition
                self._kafka.append(topic, record.key(), record.value(), partition=number, timestamp_ms=at_ms)
            self._settle()
        elif topic in self._inputs:
            self._feed.records.extend((topic, record) for record in records)
            if len(self._feed.records) >= _FED_MAX:
                self._settle()
        else:
            raise ConfigurationError(f"group {self.group.name!r} does not read {topic!r}")

    def finish(self, watermarks_ms: Mapping[str, int] = MappingProxyType({})) -> None:
        """Handle the remaining records, and the rows and timers that are due.

        Args:
            watermarks_ms: Advance to these watermarks, by input: the group's, which can be ahead of its records' since
                idle inputs do not hold them back.
        """
        self._settle()
        clock = getattr(self._task, "event_clock", None)
        if watermarks_ms and clock is not None:
            clock.raise_to(watermarks_ms)
            self._settle()

    def times(self) -> dict[str, tuple[int, int]]:
        """Return the event time that each input has reached, and the watermark; nothing if the group follows none."""
        clock = getattr(self._task, "event_clock", None)
        return {} if clock is None else {topic: tuple(each) for topic, each in clock.times().items()}

    def close(self) -> None:
        """End without a commit."""
        if self._instance.processor is not None:
            self._instance.kill()

    # ---- inside ----------------------------------------------------------------------------------------------------

    @property
    def _task(self) -> Any:
        processor = self._instance.processor
        assert processor is not None, "it has not ended"
        assert processor.member is not None, "it has started"
        return processor.member.assignment.tasks.get(self.partition)

    def _settle(self) -> None:
        """Run the group until it has handled everything, and commit."""
        quiet = 0
        for _ in range(_TURNS_MAX):
            before = self._picture()
            self._instance.turn()
            if self._feed.read_all:
                self._instance.commit()
                self._drain()
            task = self._task
            held = task is not None and task.due and task.due.holds(self.group.input_topics[0])
            busy = task is None or task.dirty or held or not self._feed.read_all
            if busy or before != self._picture():
                quiet = 0
            elif (quiet := quiet + 1) == _QUIET_TURNS:
                self._feed.records.clear()
                self._feed.cursor = 0
                return
        raise AssertionError(
            f"{self.group!r} is still running after {_TURNS_MAX} turns over the same records"
        )

    def _picture(self) -> object:
        return self._instance.progress, self._feed.cursor, self._feed.handed

    def _drain(self) -> None:
        """Apply the rows that were committed, and drop the emitted records."""
        for name, topic in self._kafka.topics.items():
            if name in self._lookups:
                continue
            part = topic.partitions[self.partition]
            if (table := self._own.get(name)) is not None:
                rows = self.rows[table]
                for record in part.committed():
                    if (value := record.value()) is None:
                        rows.pop(record.key() or b"", None)
                    else:
                        rows[record.key() or b""] = value
            for each in topic.partitions:
                if each.records:
                    each.delete_before(each.high)


class _Feed:
    """The records of all inputs in order, with the position of the reader.

    Attributes:
        records: The records that may be requested again, with their topics.
        cursor: The index of the next record.
        handed: The number of records that were returned, counting repetitions.
    """

    def __init__(self, now: float, *, follow: bool) -> None:
        self.records: list[tuple[str, InMemoryMessage]] = []
        self.cursor = 0
        self.handed = 0
        self.now = now
        self.follow = follow
        self.instance: Instance | None = None

    @property
    def read_all(self) -> bool:
        return self.cursor >= len(self.records)


class _HistoryConsumer(VirtualGroupConsumer):
    """A consumer that returns the fed records; one poll may return several batches of one topic."""

    feed: _Feed
    clock: VirtualClock
    partition: int

    def seek(self, place: TopicPartition, offset: int) -> None:
        super().seek(place, offset)
        self.feed.cursor = 0

    def _fetch(self, max_records: int) -> list[RecordBatch]:
        feed, batches = self.feed, list[RecordBatch]()
        topic, run = "", list[InMemoryMessage]()
        while feed.cursor < len(feed.records) and max_records:
            found, record = feed.records[feed.cursor]
            place = TopicPartition(found, self.partition)
            next_offset = self._next.get(place)
            if next_offset is not None and record.offset() < next_offset:
                feed.cursor += 1  # already handled before the rewind
                continue
            if next_offset is None or place in self._paused or not self._is_time(record, after=bool(run)):
                break  # later records must not overtake it
            if found != topic and run:
                batches.append(RecordBatch(topic, self.partition, run))
                run = []
            topic = found
            run.append(record)
            self._next[place] = record.offset() + 1
            feed.cursor += 1
            feed.handed += 1
            max_records -= 1
        if run:
            batches.append(RecordBatch(topic, self.partition, run))
        return batches

    def _is_time(self, record: InMemoryMessage, *, after: bool) -> bool:
        """Return whether a clock that follows the records has reached this time; it stops at the first due time.

        `after`: earlier records are still to be handled, and may set timers.
        """
        if not self.feed.follow:
            return True
        seconds = min(record.timestamp()[1] / 1000, self.feed.now)
        ahead = seconds - self.clock.now()
        if ahead <= 0:
            return True
        if after:
            return False
        assert self.feed.instance is not None, "set at construction"
        processor = self.feed.instance.processor
        assert processor is not None, "it is polling"
        assert processor.member is not None, "the same"
        task = processor.member.assignment.tasks.get(self.partition)
        due = None if task is None or task.due is None else task.due.wakes_at
        if due is not None and due < seconds:
            self.clock.advance(max(0.0, due - self.clock.now()) + _TICK_SECONDS)
            return False
        self.clock.advance(ahead)
        return True


class _AnyNumber(int):
    """The number of partitions of an output: no partition is too great for it. Watermarks go to as many as there are."""

    def __le__(self, other: object) -> bool:  # `partition >= number`
        return False


class _Any(list[Partition]):
    """The partitions of an output: each number is one of them."""

    def __len__(self) -> int:
        return _ANY_PARTITION

    def __getitem__(self, number: Any) -> Any:
        return super().__getitem__(number % super().__len__())


class _HistoryKafka(VirtualKafka):
    """A Kafka without the records of a group's inputs, whose members get one partition."""

    def __init__(self, clock: Clock, graves: Graves, feed: _Feed, partition: int) -> None:
        super().__init__(
            clock, graves, session_timeout=_FOREVER_SECONDS, transaction_timeout=_FOREVER_SECONDS
        )
        self.feed, self.partition_read = feed, partition

    def create_topic(self, name: str, partitions: int = 1, **options: Any) -> None:
        super().create_topic(name, partitions, **{**options, "max_message_bytes": _ANY_SIZE})

    def accept_all(self, output: str) -> None:
        """Take records for any partition of a topic: its real number is not known, and the records are dropped."""
        topic = self.topics[output]
        number = _AnyNumber(len(topic.partitions))
        topic.info, topic.partitions = replace(topic.info, partitions=number), _Any(topic.partitions)

    def process(self, name: str) -> VirtualProcess:
        return _HistoryProcess(self, name)

    def group(self, name: str) -> GroupCoordinator:
        coordinator = super().group(name)
        coordinator.only = frozenset({self.partition_read})
        return coordinator


class _HistoryProcess(VirtualProcess):
    kafka: _HistoryKafka

    def group_consumer(self, group: str, instance_id: str) -> VirtualGroupConsumer:
        kafka = self.kafka
        member_id = f"{instance_id}-{kafka.unique()}"
        made = _HistoryConsumer(member_id, kafka.group(group), kafka.partition, self._wire(), kafka.clock)
        made.feed, made.partition = kafka.feed, kafka.partition_read
        assert isinstance(kafka.clock, VirtualClock), "given so"
        made.clock = kafka.clock
        return made
