"""Retention deletes what a group has read: that must never stop it, whatever kind of input it is. What it has not read must."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from tests.system.bench import Bench, Running, until

from localkafka.broker import Broker
from microbatch import Batch, BatchProcessor, MicroBatch, Send
from microbatch.stores.memory import MemoryDriver
from streamtable.base.deadletter import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TIMESTAMP, ORIGIN_TOPIC
from streamtable.base.partitioner import partition_for
from streamtable.base.topics import Stream, Table
from streamtable.base.types import TopicPartition
from streamtable.codec.plain import Long, String
from streamtable.errors import InputLost
from streamtable.graph.group import Changes, Group, Input, Loop, OnError, Persist, Visit
from streamtable.graph.visiting import VisitProgress

SHORT = {"retention.ms": "4000", "segment.ms": "1000"}
QUIET, BUSY = 0, 1
KEYS = {partition_for(key.encode(), 2): key for key in ("a", "b", "c", "d")}
MENDED_SECONDS = 6.0  # the client's position is set again when no record has come for 5 s


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


class World:
    """A group that reads everything that a group can, all of it kept for a moment only, from two partitions.

    Attributes:
        batches: Another group, which reads the same input in micro-batches.
        taken: The records that the other group has handled: partition and offset of each.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.rows: Table[str, int] = Table(bench.name("rows"), String(), Long())
        self.loop: Stream[str, str] = Stream(bench.name("g-loop"), String(), String())
        self.group: Group[str, int] = Group(
            bench.name("g"),
            Input(bench.stream(), self.count),
            Changes(self.rows, lambda ctx, _: ctx.set((ctx.value or 0) + 100)),
            Loop(self.loop, lambda ctx, _: ctx.set((ctx.value or 0) + 10)),
            Visit("all", lambda ctx, _: ctx.set((ctx.value or 0) + 1000)),
            Persist(Long()),
        )
        self.batches = MicroBatch(bench.name("b"), inputs=[bench.stream()], process=self.take, max_wait=0.05)
        self.taken: set[tuple[int, int]] = set()
        self._store = MemoryDriver(tenant=self.batches.name)
        short = dict.fromkeys(("in", "g-loop", "g-visits", "g-retry", "b-retry"), SHORT)
        bench.create(
            self.group, partitions=2, config={**short, "rows": SHORT | {"cleanup.policy": "compact,delete"}}
        )
        bench.create(self.batches, partitions=2, config=short)
        self._ups = 0

    def running(self, **given: Any) -> Running:
        """A processor with running tasks: records from now on are new to it."""
        running = self.bench.run(self.group, **given)
        until(
            lambda: running.error or set(running.processor.working) == {QUIET, BUSY},
            "the processor has running tasks",
        )
        return running

    def batching(self) -> Running:
        """A processor of micro-batches with running tasks."""
        processor = BatchProcessor(self.batches, self.bench.kafka, store=self._store, instance_id="i")
        running = Running(processor)
        until(
            lambda: running.error or set(processor.working) == {QUIET, BUSY},
            "the batch processor has running tasks",
        )
        return running

    def take(self, batch: Batch, _: Send) -> None:
        self.taken.update(
            (batch.partition, record.offset) for record in batch.of(self.group.inputs[0].stream)
        )

    def count(self, ctx: Any, event: str) -> None:
        ctx.set((ctx.value or 0) + 1)
        if event == "loop":
            ctx.loopback(self.loop, ctx.key, "again")

    def upstream(self, partition: int, *records: tuple[Any, ...]) -> None:
        """A transaction, as of a group that writes to the inputs of this one: topic, key, value, and perhaps headers."""
        self._ups += 1
        producer = self.bench.transaction(f"up{self._ups}")
        for topic, key, value, *headers in records:
            producer.produce(self.bench.name(topic), value, key.encode(), partition, headers=dict(*headers))
        producer.commit_transaction(60)

    def everything(self, partition: int) -> None:
        """Something for each input: 1 for the event, 1 for a retry, 10 from the loop, 100 for the change; by a visit 1000."""
        origin = {
            ORIGIN_TOPIC: self.bench.name("in").encode(),
            ORIGIN_PARTITION: str(partition).encode(),
            ORIGIN_OFFSET: b"0",
        }
        self.upstream(
            partition,
            ("in", KEYS[partition], b"loop"),
            ("rows", KEYS[partition], Long().encode(1)),
            ("g-retry", KEYS[partition], b"x", origin),
        )

    def visit(self, partition: int) -> None:
        self.upstream(partition, ("g-visits", "all", VisitProgress(f"run {self._ups}").encode()))

    def value(self, partition: int) -> int | None:
        found = [
            each for each in self.bench.read(self.group.table.name) if each.key == KEYS[partition].encode()
        ]
        return Long().decode(found[-1].value or b"") if found else None

    def expired(self, partition: int) -> bool:
        """Nothing is left in the partition of any input that ever had something."""
        places = [place for place in self.bench.places(self.group) if place.partition == partition]
        marks = self.bench.cluster.watermarks(places)
        read = [place for place in places if marks[place].high]
        return bool(read) and all(marks[place].low == marks[place].high for place in read)

    def lags(self) -> list[int]:
        """Return the lag of each input of both groups."""
        return [
            end - committed.get(place, 0)
            for group in (self.group, self.batches)
            for committed in [self.bench.committed(group)]
            for place, end in self.bench.ends(group).items()
        ]


@pytest.fixture
def world(bench: Bench) -> World:
    return World(bench)


def test_a_group_whose_inputs_are_quiet_for_longer_than_their_retention_goes_on_and_starts_again(
    world: World,
) -> None:
    running, batching = world.running(), world.batching()
    for partition in (QUIET, BUSY):
        world.everything(partition)
    until(_going(running, lambda: world.value(QUIET) == world.value(BUSY) == 112), "all is counted", 20)
    world.visit(QUIET)
    until(_going(running, lambda: world.value(QUIET) == 1112), "all is visited")
    until(_going(running, lambda: not any(world.lags())), "idle groups have no lag", 10)
    began = time.monotonic()
    busy = 0

    def quiet_is_over() -> bool:
        nonlocal busy
        world.everything(BUSY)
        busy += 1
        return world.expired(QUIET) and time.monotonic() - began > MENDED_SECONDS

    until(_going(running, _going(batching, quiet_is_over)), "the quiet partition is empty", 30)
    until(_going(running, lambda: world.value(BUSY) == 112 * (busy + 1)), "the busy partition is counted")
    until(_going(batching, lambda: not any(world.lags())), "the batches are through")
    running.stop()
    batching.stop()
    taken = len(world.taken)
    assert taken == busy + 2  # each transaction has one record for it
    until(lambda: world.expired(BUSY), "the busy partition is empty too", 30)
    # A restart finds nothing to refuse, and continues where it stopped.
    with world.running(state="lost") as again, world.batching() as batching:
        world.everything(QUIET)
        until(_going(again, lambda: world.value(QUIET) == 1224), "it goes on")
        until(_going(batching, lambda: len(world.taken) == taken + 1), "the batches go on")
    assert world.value(BUSY) == 112 * (busy + 1)


def test_what_expires_right_after_a_group_was_stopped_is_not_missed(world: World) -> None:
    """The transaction's marker comes a moment after its records, when the processor is stopping."""
    with world.running() as running:
        world.everything(QUIET)
        until(_going(running, lambda: world.value(QUIET) == 112), "all is counted", 20)
    world.upstream(BUSY, ("in", KEYS[BUSY], b"x"), ("rows", KEYS[BUSY], Long().encode(1)))
    until(lambda: world.expired(QUIET), "the quiet partition is empty", 30)
    committed = world.bench.committed(world.group)
    low = world.bench.cluster.watermarks(world.bench.places(world.group))
    assert all(committed.get(place, 0) >= low[place].low for place in low if place.partition == QUIET)


def test_unread_records_that_expire_are_refused_at_the_next_start(world: World, admin: AdminClient) -> None:
    world.bench.work_off(world.group)
    place = TopicPartition(world.bench.name("in"), BUSY)
    world.bench.send(place.topic, (KEYS[BUSY], "x"), (KEYS[BUSY], "x"), partition=BUSY)
    until(lambda: _deleted(admin, place, 1), "a record is gone unread")
    error = world.bench.run(world.group).failure()
    assert isinstance(error, InputLost)
    assert (error.topic, error.partition, error.offset) == (*place, 0)


def test_the_dead_letter_of_a_record_older_than_the_retention_outlives_it(bench: Bench) -> None:
    def refuse(ctx: Any, _: str) -> None:
        ctx.fail("as ordered")

    group: Group[str, int] = Group(
        bench.name("g"), Input(bench.stream(), refuse, on_error=OnError.DEAD_LETTER)
    )
    hour = {"retention.ms": "3600000", "segment.ms": "1000"}
    bench.create(group, partitions=2, config={"g-dead-letters": hour})
    long_ago_ms = int(time.time() * 1000) - 2 * 3_600_000
    bench.send(bench.name("in"), ("a", "x"), timestamp_ms=long_ago_ms)
    bench.work_off(group)
    # As old as the event: what deletes these would delete a letter with the event's timestamp too. Two, as the broker
    # may be between the two partitions when the first one is seen to be gone.
    control = TopicPartition(group.dead_letters, 1)
    for count in (1, 2):
        bench.send(control.topic, ("control", "x"), partition=control.partition, timestamp_ms=long_ago_ms)
        until(lambda: bench.cluster.watermarks([control])[control].low == count, "retention has passed", 30)  # noqa: B023
    (letter,) = bench.letters(group)
    assert (letter.key, letter.value) == (b"a", b"x")
    assert letter.headers[ORIGIN_TIMESTAMP] == b"%d" % long_ago_ms


def _going(running: Running, done: Callable[[], bool]) -> Callable[[], bool]:
    """The condition, as long as nothing has stopped the processor."""

    def asked() -> bool:
        if running.error is not None:
            raise running.error
        return done()

    return asked


def _deleted(admin: AdminClient, place: TopicPartition, before: int) -> bool:
    for future in admin.delete_records([Partition(*place, before)]).values():
        future.result(10)
    return True
