"""`Join(wait=)`: which records wait for a joined table, and that each wait has an end. A member over doubles of the log."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from streamtable.base.failpoint import no_failpoint
from streamtable.base.topics import Stream, Table
from streamtable.base.types import Committed, NextOffset, RecordBatch, TopicPartition, Watermarks
from streamtable.codec.plain import Long, String
from streamtable.engine.member import Member
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.waiting.holding import Holding
from streamtable.engine.watch.metrics import EngineMetrics
from streamtable.graph.group import Changes, Group, Input, Join
from streamtable.handlers.context import Context
from streamtable.observe import Metrics, SilentProgress
from streamtable.store.memory import MemoryStores
from streamtable.tables.position import TablePosition

EVENTS = TopicPartition("events", 0)
USERS, CITIES = Table("users", String(), Long()), Table("cities", String(), Long())
SECOND = 1_000


class Rig:
    """A member whose handler notes what it is joined with. Times are milliseconds after the start."""

    def __init__(self, doubles: dict[str, Any], *edges: Any) -> None:
        self.consumer, self.clock, self.record = doubles["consumer"], doubles["clock"], doubles["record"]
        self.steps, self._doubles = doubles["steps"], doubles
        self.seen: list[Any] = []
        stream = Stream("events", String(), String())
        self.group: Group[str, Any] = Group("g", Input(stream, self.look), *edges)
        cluster = doubles["make_cluster"](doubles["topic_infos"](self.group))
        for topic in self.group.input_topics:
            place = TopicPartition(topic, 0)
            cluster.committed[place] = Committed(NextOffset(0), TablePosition(0, exact=True).encode())
            cluster.marks[place] = Watermarks(0, 100 if topic == "events" else 0)
        self.member = Member(
            self.group, self, cluster, cluster.infos, doubles["stores"],  # type: ignore[arg-type] # a double
            ProcessorSettings("i", commit_interval=1e6), self.clock,
            EngineMetrics(self.group, Metrics.register(CollectorRegistry()), SilentProgress()), no_failpoint,
        )  # fmt: skip
        self.began_ms = int(self.clock.now() * 1000)
        self.consumer.listener.assigned([TopicPartition(topic, 0) for topic in self.group.input_topics])
        self.recover()

    def transactional_producer(self, *_: Any) -> Any:
        return self._doubles["make_outbox"](self.steps)

    def group_consumer(self, *_: Any) -> Any:
        return self.consumer

    def table_reader(self, *_: Any) -> Any:
        return self._doubles["reader"]

    def look(self, ctx: Context[str, Any], event: str) -> None:
        self.seen.append((event, ctx.join(USERS)))

    def recover(self) -> None:
        for _ in range(3):
            self.member.restorer.step(0)
        self.member.step()
        self.consumer.seeks.clear()

    def step(self, *batches: tuple[str, int, list[int]]) -> None:
        """Poll records of these times: topic, first offset, milliseconds."""
        made = [
            RecordBatch(
                topic,
                0,
                [
                    self.record(b"a", Long().encode(first + n) if topic != "events" else b"e%d" % (first + n),
                                first + n, None, self.began_ms + at)
                    for n, at in enumerate(times)
                ],
            )
            for topic, first, times in batches
        ]  # fmt: skip
        self.consumer.batches.append(made)
        self.member.step()

    def held(self) -> bool:
        return EVENTS in self.consumer.paused


@pytest.fixture
def rig(
    consumer: Any, reader: Any, stores: MemoryStores, clock: Any, record: Any, steps: Any, make_outbox: Any,
    make_cluster: Any, topic_infos: Any,
) -> Iterator[Callable[..., Rig]]:  # fmt: skip
    doubles = {
        "consumer": consumer, "reader": reader, "stores": stores, "clock": clock, "record": record,
        "steps": steps, "make_outbox": make_outbox, "make_cluster": make_cluster, "topic_infos": topic_infos,
    }  # fmt: skip
    made: list[Rig] = []

    def make(*edges: Any) -> Rig:
        made.append(Rig(doubles, *edges))
        return made[-1]

    yield make
    for each in made:
        each.member.close()


MakeRig = Callable[..., Rig]


def test_a_record_waits_until_the_table_has_come_to_its_time(rig: MakeRig) -> None:
    found = rig(Join(USERS, wait=5))
    found.clock.sleep(1)
    found.step(("events", 0, [-1, 900, 950]))
    assert (found.seen, found.held()) == ([("e0", None)], True)
    assert found.consumer.seeks == [(EVENTS, 1)]
    found.step(("users", 0, [899]))
    found.step()
    assert found.held()
    found.step(("users", 1, [920]))
    found.step()
    assert not found.held()
    found.step(("events", 1, [900, 950]))
    assert found.seen == [("e0", None), ("e1", 1)]
    assert found.held()


def test_a_record_waits_for_so_long_at_most(rig: MakeRig) -> None:
    found = rig(Join(USERS, wait=5))
    found.clock.sleep(1)
    found.step(("events", 0, [900]))
    found.clock.sleep(4.8)
    found.step()
    assert found.held()
    found.clock.sleep(0.11)
    found.step()
    found.step(("events", 0, [900]))
    assert (found.seen, found.held()) == ([("e0", None)], False)


def test_records_of_long_ago_do_not_wait(rig: MakeRig) -> None:
    found = rig(Join(USERS, wait=5))
    found.clock.sleep(100)
    found.step(("events", 0, [-100 * SECOND, 10 * SECOND, 94 * SECOND]))
    assert (len(found.seen), found.held()) == (3, False)


def test_a_record_of_a_time_to_come_does_not_wait_for_that_time(rig: MakeRig) -> None:
    """A sender's clock is wrong by an hour: everything behind its records would stand still as long."""
    found = rig(Join(USERS, wait=5))
    found.clock.sleep(1)
    late = [3600 * SECOND, 900, 3601 * SECOND]
    found.step(("events", 0, late))
    assert (found.seen, found.held()) == ([], True)
    found.clock.sleep(5.1)
    found.step()
    found.step(("events", 0, late))
    assert ([event for event, _ in found.seen], found.held()) == (["e0", "e1", "e2"], False)


def test_of_several_joins_the_slowest_is_waited_for(rig: MakeRig) -> None:
    found = rig(Join(USERS, wait=5), Join(CITIES, wait=2))
    found.clock.sleep(1)
    found.step(("events", 0, [900]), ("users", 0, [950]))
    found.step()
    assert found.held()
    found.step(("cities", 0, [950]))
    found.step()
    assert not found.held()


def test_a_join_that_does_not_wait_is_not_waited_for(rig: MakeRig) -> None:
    found = rig(Join(USERS), Join(CITIES, wait=5))
    found.clock.sleep(1)
    found.step(("cities", 0, [950]), ("events", 0, [900]))
    assert (found.seen, found.held()) == ([("e0", None)], False)


def test_a_table_that_was_loaded_to_the_committed_offset_only_has_not_come_to_now(rig: MakeRig) -> None:
    found = rig(Changes(USERS, lambda ctx, _: None), Join(USERS, wait=5))
    found.step(("events", 0, [-1_000]))
    assert found.held()
    found.clock.sleep(4.1)
    found.step()
    assert not found.held()


def test_after_a_rewind_a_record_waits_for_the_rows_that_went_back_too(rig: MakeRig) -> None:
    found = rig(Join(USERS, wait=5))
    found.clock.sleep(1)
    found.step(("users", 0, [950]))
    (task,) = found.member.assignment.tasks.values()
    found.member._seek(task)
    found.step(("events", 0, [900]))
    assert (found.seen, found.held()) == ([], True)
    found.step(("users", 0, [950]))
    found.step()
    found.step(("events", 0, [900]))
    assert found.seen == [("e0", 0)]


def test_a_partition_that_is_started_again_while_it_is_held_loses_no_record(rig: MakeRig) -> None:
    """It is resumed at its committed offset: what comes then must not be taken for polled before the pause."""
    found = rig(Join(USERS, wait=5))
    found.clock.sleep(1)
    found.step(("events", 0, [900]))
    assert found.held()
    found.member.assignment.recover_again(list(found.member.assignment.tasks.values()))
    for _ in range(3):
        found.member.restorer.step(0)
    found.step()
    assert not found.held()
    found.step(("events", 0, [900]))
    assert found.seen == [("e0", None)]


def test_what_was_polled_beyond_a_held_record_is_read_again(rig: MakeRig) -> None:
    found = rig(Join(USERS, wait=5))
    found.clock.sleep(1)
    found.step(("events", 0, [900, 901]), ("events", 2, [902]))
    assert found.seen == []
    (task,) = found.member.assignment.tasks.values()
    assert task.next_offsets["events"] == 0
    assert found.consumer.seeks == [(EVENTS, 0)]


@pytest.mark.parametrize("first", ["join", "timers"])
def test_a_partition_that_waits_for_a_join_and_for_timers_is_read_again_when_both_have_come(
    consumer: Any, clock: Any, record: Any, first: str
) -> None:
    """If it is resumed for one, its records are polled and dropped as those that still wait for the other."""
    coming = {"join", "timers"}
    joined = SimpleNamespace(
        first_held=lambda *_: 1, joined_until_ms=lambda: -1 if "join" in coming else int(clock.now() * 1000)
    )
    timers = type("Due", (), {"holds": lambda *_: "timers" in coming})()
    task: Any = SimpleNamespace(partition=0, join_wait=joined, due=timers)
    holding = Holding(consumer, clock)
    before = holding.hold_back(
        task, RecordBatch("events", 0, [record(b"k", b"v", at, None) for at in (0, 1)])
    )
    assert len(holding.hold_back_for_timers(task, before)) == 0
    assert consumer.seeks == [(EVENTS, 1), (EVENTS, 0)]
    coming.remove(first)
    holding.resume({0: task})
    assert EVENTS in consumer.paused
    coming.clear()
    holding.resume({0: task})
    assert EVENTS not in consumer.paused
