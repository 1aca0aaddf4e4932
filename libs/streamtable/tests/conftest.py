"""Doubles of the log and factories, for tests about the order of steps and about errors that no broker can be made to
give. Whatever a broker can show is tested on a real one, in tests/system.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from streamtable.base.ports import Membership, RebalanceListener, TopicInfo
from streamtable.base.topics import Stream
from streamtable.base.types import Committed, Headers, RecordBatch, TopicPartition, Watermarks
from streamtable.codec.plain import Long, String
from streamtable.engine.basetask import Recovered, Work
from streamtable.engine.calls.careful import CarefulMode
from streamtable.engine.recovery.declared import kept_tables
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.task import Task
from streamtable.graph.group import Group, Input, Persist
from streamtable.graph.topic_check import required_topics
from streamtable.store.memory import MemoryStores
from streamtable.tables.kept import InputRecord, TopicState
from streamtable.tables.position import TablePosition
from streamtable.tables.recovery import RecoveryPlan


@dataclass
class Record:
    """A message as the Kafka client delivers it."""

    key_: bytes | None
    value_: bytes | None
    offset_: int = 0
    headers_: Headers | None = None
    timestamp_: int = 1_000

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def offset(self) -> int:
        return self.offset_

    def headers(self) -> Headers | None:
        return self.headers_

    def timestamp(self) -> tuple[int, int]:
        return (1, self.timestamp_)


class HandClock:
    """A clock that moves only when it is advanced, or when a thread sleeps."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0
        self.slept = 0.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.seconds += seconds


def batch_of(
    topic: str, rows: Sequence[tuple[bytes | None, bytes | None]], *, first: int = 0, partition: int = 0
) -> RecordBatch:
    records = [Record(key, value, first + number) for number, (key, value) in enumerate(rows)]
    return RecordBatch(topic, partition, records)


def info(name: str, **changes: Any) -> TopicInfo:
    made = TopicInfo(
        name,
        partitions=1,
        topic_id="id-1",
        compacted=name.endswith("-table"),
        delete_retention_ms=86_400_000,
        max_message_bytes=1_048_588,
    )
    return replace(made, **changes)


def infos(group: Group[Any, Any], **changes: Any) -> dict[str, TopicInfo]:
    """The topics of a group, `changes` made to all of them."""
    tables = {"compacted": True}
    return {
        name: info(name, **(tables if name in group.tables else {}), **changes)
        for name in required_topics(group)
    }


@dataclass
class Steps:
    """The calls of the doubles that share this object, in order, and the errors that further calls raise."""

    taken: list[str] = field(default_factory=list)
    errors: dict[str, list[Exception | None]] = field(default_factory=dict)

    def __call__(self, step: str) -> None:
        self.taken.append(step)
        waiting = self.errors.get(step)
        if waiting and (error := waiting.pop(0)) is not None:
            raise error

    def fail(self, step: str, *errors: Exception | None) -> None:
        """The next calls of this step raise these (None: that one succeeds)."""
        self.errors.setdefault(step, []).extend(errors)


class OutboxDouble:
    """Records the calls it gets; the changelog's offsets count up by one for each record and commit."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.produced: list[dict[str, Any]] = []
        self.offsets: dict[TopicPartition, Committed] = {}
        self.ends: dict[TopicPartition, int] = {}
        self._tracked: dict[TopicPartition, int] = {}
        self.closed = False

    def open(self, timeout: float) -> None:
        self.steps("open")

    def begin(self) -> None:
        self.steps("begin")

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int = -1,
        headers: Headers = (),
        timestamp_ms: int = 0,
        tracked: bool = False,
        refused: Any = None,
    ) -> None:
        self.steps(f"produce {topic}")
        place = TopicPartition(topic, partition)
        offset = self.ends.get(place, 0)
        self.ends[place] = offset + 1
        if tracked:
            self._tracked[place] = offset
        self.produced.append(
            {"topic": topic, "key": key, "value": value, "partition": partition, "headers": headers}
        )

    def produce_records(self, records: Any) -> None:
        for topic, key, value, headers, timestamp_ms, partition in records:
            self.produce(topic, key, value, partition=partition, headers=headers, timestamp_ms=timestamp_ms)

    def produce_rows(self, topic: str, partition: int, rows: Any, last_headers: Any = ()) -> None:
        *most, (last_key, last_value) = rows
        for key, value in most:
            self.produce(topic, key, value, partition=partition)
        self.produce(topic, last_key, last_value, partition=partition, tracked=True)

    def flush(self, timeout: float) -> Mapping[TopicPartition, int]:
        self.steps("flush")
        tracked, self._tracked = self._tracked, {}
        return tracked

    def send_offsets(self, offsets: Mapping[TopicPartition, Committed], membership: Membership) -> None:
        self.steps("send offsets")
        self.offsets.update(offsets)

    def commit(self, timeout: float) -> None:
        self.steps("commit")

    def abort(self, timeout: float) -> None:
        self.steps("abort")

    def close(self) -> None:
        self.steps("close outbox")
        self.closed = True


@dataclass
class Joined:
    member_id: str = "member-1"


class ConsumerDouble:
    """Hands out what a test puts into `batches`, and remembers seeks, pauses and commits."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.batches: list[list[RecordBatch]] = []
        self.paused: set[TopicPartition] = set()
        self.seeks: list[tuple[TopicPartition, int]] = []
        self.committed: dict[TopicPartition, Committed] = {}
        self.ends: dict[TopicPartition, int] = {}  # read to there since the last look
        self.listener: RebalanceListener

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self.listener = listener

    def poll(self, max_records: int, timeout: float) -> list[RecordBatch]:
        return self.batches.pop(0) if self.batches else []

    def passed(self) -> Mapping[TopicPartition, int]:
        passed, self.ends = self.ends, {}
        return passed

    def end(self, place: TopicPartition) -> int:
        return 0

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self.paused.update(places)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        self.paused.difference_update(places)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.seeks.append((place, offset))

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        self.steps("commit offsets")
        self.committed.update(offsets)

    def membership(self) -> Membership:
        return Joined()

    def close(self) -> None:
        self.steps("close consumer")


class ClusterDouble:
    """Answers from what a test has put in."""

    def __init__(self, topics: Mapping[str, TopicInfo]) -> None:
        self.infos = dict(topics)
        self.marks: dict[TopicPartition, Watermarks] = {}
        self.stable: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, Committed] = {}
        self.errors: list[Exception] = []
        self.asked: list[str] = []
        self.deleted: dict[TopicPartition, int] = {}
        self.delete_error: Exception | None = None
        self.members: list[str] = []
        self.offsets_of_groups: dict[str, dict[TopicPartition, Committed]] = {}

    def group_names(self) -> set[str]:
        return set(self.offsets_of_groups)

    def group_members(self, group: str) -> list[str]:
        return self.members

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        if self.delete_error is not None:
            raise self.delete_error
        self.deleted |= before

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        self.asked.append("topics")
        return {name: self.infos[name] for name in names if name in self.infos}

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, str]:
        return {name: self.infos[name].topic_id for name in names if name in self.infos}

    def watermarks(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        self.asked.append("watermarks")
        return {place: self.marks.get(place, Watermarks(0, 0)) for place in places}

    def stable_ends(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.asked.append("stable ends")
        return {place: self.stable.get(place, mark.high) for place, mark in self.watermarks(places).items()}

    def offsets_partition(self, group: str) -> TopicPartition | None:
        return TopicPartition("__consumer_offsets", len(group))

    @property
    def servers(self) -> str:
        return "kafka:9092"

    def stable_offsets(
        self, group: str, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        self.asked.append("offsets")
        if self.errors:
            raise self.errors.pop(0)
        committed = self.offsets_of_groups.get(group, self.committed)
        return {place: committed.get(place) for place in places}

    def close(self) -> None:
        """Nothing is open."""


class ReaderDouble:
    """Reads logs that a test keeps as lists of records."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, list[Record]] = {}
        self.ends: dict[TopicPartition, int] = {}  # where a log has markers behind its last record
        self.positions: dict[TopicPartition, int] = {}
        self.errors: list[Exception] = []
        self.during_poll: Callable[[], None] = lambda: None
        self.closed = False

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        assert not starts.keys() & self.positions.keys()
        self.positions.update(starts)

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            del self.positions[place]

    def poll(self, max_records: int, timeout: float) -> list[RecordBatch]:
        if self.errors:
            raise self.errors.pop(0)
        batches = []
        for place, position in self.positions.items():
            found = [r for r in self.logs.get(place, ()) if r.offset_ >= position][:max_records]
            if found:
                batches.append(RecordBatch(*place, found))
                self.positions[place] = found[-1].offset_ + 1
            else:
                self.positions[place] = max(position, self.ends.get(place, 0))
        self.during_poll()
        return batches

    def position(self, place: TopicPartition) -> int:
        return self.positions[place]

    def close(self) -> None:
        self.closed = True


COUNTED: Group[str, int] = Group(
    "counted", Input(Stream("events", String(), String()), lambda ctx, _: ctx.set((ctx.value or 0) + 1)),
    Persist(Long()),
)  # fmt: skip


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def stores() -> MemoryStores:
    return MemoryStores()


@pytest.fixture
def counted() -> Group[str, int]:
    """A group that counts the events of each key."""
    return COUNTED


@pytest.fixture
def record() -> type[Record]:
    return Record


@pytest.fixture
def batch() -> Callable[..., RecordBatch]:
    """`batch(topic, [(key, value), ...], first=0, partition=0)`."""
    return batch_of


@pytest.fixture
def topic_info() -> Callable[..., TopicInfo]:
    """`topic_info(name, partitions=..., ...)`."""
    return info


@pytest.fixture
def topic_infos() -> Callable[..., dict[str, TopicInfo]]:
    """`topic_infos(group, ...)`: all topics of a group."""
    return infos


@pytest.fixture
def metadata_of() -> Callable[..., str]:
    """`metadata_of(group, topic, changelog)`: the metadata that a group commits with the offset of an input."""

    def make(group: Group[Any, Any], topic: str, changelog: int) -> str:
        nothing = dict.fromkeys(group.input_topics, InputRecord(0, committed=False, record=None))
        topics = {name: TopicState(each.topic_id) for name, each in infos(group).items()}
        record = kept_tables(group).continued(0, nothing, topics)[topic]
        return TablePosition(changelog, exact=True, record=record).encode()

    return make


def commit_task(task: Task) -> Work:
    """Commit what a task has done, as Kafka would: each changed row is a record."""
    work = task.work()
    named = {name: at + len(work.named.get(name, ())) for name, at in task.named_positions.items()}
    position = TablePosition(task.changelog_position + len(work.changes), exact=True, tables=named)
    task.committed(work, position)
    return work


@pytest.fixture
def make_task(stores: MemoryStores, clock: HandClock) -> Callable[..., Task]:
    """`make_task(group, ...)`: a task for partition 0 over stores in memory, at offset 0; `store`: of its own table."""

    def make(group: Group[Any, Any], **changes: Any) -> Task:
        own = group.table.name if group.persist else ""
        given = {own: changes["store"]} if "store" in changes else {}
        joined = [join.table.name for join in group.joins]
        names = [*joined, *group.tables]
        next_offsets = changes.get("next_offsets", dict.fromkeys(group.input_topics, 0))
        positions = dict.fromkeys(names, 0) | {name: next_offsets[name] for name in joined}
        recovered = Recovered(
            changes.get("partition", 0),
            changes.get("topics") or infos(group),
            {name: given.get(name) or stores.open(name, 0) for name in names},
            positions | {own: changes.get("changelog_position", 0)},
            RecoveryPlan(next_offsets, changes.get("uncommitted", False)),
        )
        settings = ProcessorSettings("here", cache_bytes=1 << 20, around=changes.get("around"))
        task = Task(group, recovered, settings, clock, changes.get("lookups", {}), CarefulMode())
        while task.preparing and not task.uncommitted:
            commit_task(task)
        return task

    return make


@pytest.fixture
def outbox(steps: Steps) -> OutboxDouble:
    return OutboxDouble(steps)


@pytest.fixture
def consumer(steps: Steps) -> ConsumerDouble:
    return ConsumerDouble(steps)


@pytest.fixture
def reader() -> ReaderDouble:
    return ReaderDouble()


@pytest.fixture
def make_cluster() -> type[ClusterDouble]:
    return ClusterDouble


@pytest.fixture
def make_outbox() -> type[OutboxDouble]:
    return OutboxDouble
