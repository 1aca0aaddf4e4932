"""A simulation of whole micro-batch processes that crash, freeze, lose answers and overlap, over Kafka and a store or
disks, in memory.

It runs production code, from the consumer to the store's driver; only the schedule is drawn from a seed. Wherever a
process calls Kafka or the store, or reaches a failpoint, others may run first, time may pass until it counts as dead,
or it may die. The handler acts at random. At the end, each input record was handled once, each batch has read what the
last committed one left, and the committed rows are those that were left last.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import orjson
import pytest
from prometheus_client import CollectorRegistry

from microbatch import Batch, BatchMetrics, InMemoryStore, MicroBatch, Rows, Send
from microbatch.buffer import Buffer
from microbatch.committed_state import document
from microbatch.embedded import EmbeddedTasks
from microbatch.partition_rows import CentralRows
from microbatch.stores.memory import MemoryDriver
from microbatch.stores.port import Found, WriteResult
from microbatch.task import Surroundings
from microbatch.tasks import BatchTasks
from streamtable import Json, Stream, String
from streamtable.base.types import Committed, TopicPartition
from streamtable.engine.adapted import AdaptedTask
from streamtable.engine.processor import GroupProcessor
from streamtable.engine.settings import ProcessorSettings
from streamtable.errors import Fenced, RetryLater
from streamtable.graph.custom_task import Written
from streamtable.observe import Metrics, SilentProgress
from streamtable.store.memory import MemoryStores
from streamtable_testing.clock import VirtualClock
from streamtable_testing.faults import Fault, Faults
from streamtable_testing.log import VirtualKafka
from streamtable_testing.tester import rows_of

if TYPE_CHECKING:
    from microbatch.task import BatchTask

EVENTS: Stream[str, Any] = Stream("events", String(), Json())
MORE: Stream[str, Any] = Stream("more", String(), Json())
SEEN: Stream[str, Any] = Stream("seen", String(), Json())
CHAIN: Stream[str, Any] = Stream("chain", String(), Json())
LAST: Rows[Any] = Rows("last", value=Json())
KEYS = "abcdef"
PARTITIONS = 2
STEPS = 350
CALLS_IN_DOUBT = {"records", "send-offsets", "commit", "abort"}
METRICS = Metrics.register(CollectorRegistry())
BATCH_METRICS = BatchMetrics.register(CollectorRegistry())
Plant = Callable[[pytest.MonkeyPatch], None]
Kind = Literal["central", "embedded"]


class Crash(BaseException):
    """Unwinds the stack of a process that was killed."""


class Life:
    """A process, from its start to its end."""

    def __init__(self, world: "World", instance: str, name: str) -> None:
        self.instance, self.name = instance, name
        self.dead = self.running = False
        self.frozen_until = 0.0
        standby = world.kind == "embedded" and world.random.random() < 0.3
        settings = ProcessorSettings(
            instance, commit_interval=0.001, poll_records=5, poll_timeout=0.01, standby=standby
        )
        reached = lambda name: world.meddle(self, name)  # noqa: E731
        around = Surroundings(world.graph, world.clock, reached, BATCH_METRICS)
        tasks: Any
        self.stores: Any
        if world.kind == "central":
            self.stores = MemoryStores()
            tasks = BatchTasks(around, Driver(world, self), deadline=1.0, attempt=0.5)
        else:
            self.stores = world.disk_of(instance)
            tasks = EmbeddedTasks(around)
        log = world.kafka.process(name)
        self.processor = GroupProcessor(
            world.graph,
            log,
            self.stores,
            settings,
            world.clock,
            METRICS,
            SilentProgress(),
            reached,
            tasks=tasks,
        )

    def die(self) -> None:
        """Crash the process: its further actions have no effect, and its bulk writes are lost."""
        if not self.dead and isinstance(self.stores, MemoryStores):
            self.stores.crash()  # once: another process may use the disk by now
        self.dead = True


class Driver:
    """One process's way to the store."""

    def __init__(self, world: "World", life: Life) -> None:
        self._world = world
        self._life = life
        self._driver = MemoryDriver(world.store.server, tenant=world.graph.name)

    def read(self, keys: Sequence[bytes], timeout: float) -> Found:
        self._world.meddle(self._life, "read")
        if self._world.chance(0.05):
            raise RetryLater("the store does not answer")
        return self._driver.read(keys, timeout)

    def write(self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float) -> WriteResult:
        world = self._world
        world.meddle(self._life, "write")
        if world.chance(0.1):  # in flight
            world.late.append(lambda: self._driver.write(rows, number, timeout))
            raise RetryLater("the store has not answered in time")
        some = {key: data for key, data in rows.items() if not world.chance(0.05)}
        written = self._driver.write(some, number, timeout)
        if world.chance(0.05):
            raise RetryLater("the store's answer is lost")
        world.meddle(self._life, "written")
        return WriteResult(dict.fromkeys(rows.keys() - some.keys(), "not answered"), written.refused)

    def flush(self, timeout: float) -> None: ...
    def close(self) -> None: ...


class World(Faults):
    """All there is in a run."""

    def __init__(self, seed: int, kind: Kind = "central") -> None:
        self.kind = kind
        self.random = Random(seed)
        self.calm = False
        self.clock = VirtualClock()
        self.kafka = VirtualKafka(self.clock, self, session_timeout=20.0)
        graph = MicroBatch(
            "sim",
            inputs=[EVENTS, MORE],
            process=self.process,
            outputs=[SEEN, CHAIN],
            rows=[LAST],
            max_records=self.random.choice((1, 3, 8)),
            max_wait=self.random.choice((0.0, 0.5)),
        )
        self.graph = graph if kind == "embedded" else graph.over_central_store()
        self.kafka.create_topics_of(self.graph, PARTITIONS)
        self.store = InMemoryStore(self.graph)
        self.late: list[Callable[[], object]] = []
        self.lives: dict[str, Life] = {}
        self.disks: dict[str, tuple[MemoryStores, list[Life]]] = {}
        self.numbers = count(1)
        self.sent: list[tuple[str, int]] = []
        self.emit(20)

    def chance(self, probability: float) -> bool:
        return not self.calm and self.random.random() < probability

    # ---- what the handler does -------------------------------------------------------------------------------------

    def process(self, batch: Batch, send: Send) -> None:
        rows = batch.rows(LAST)
        if self.chance(0.7):
            rows.get_many(record.key for record in batch.records)
        for record in batch.records:
            send(SEEN, record.key, record.value)
            if self.chance(0.1):
                send.flush()
        for key in {record.key: None for record in batch.records}:
            if self.chance(0.2):
                continue
            new = None if self.chance(0.2) else next(self.numbers)
            send(CHAIN, key, [rows.get(key), new])
            if self.chance(0.03):
                raise RetryLater("something outside does not answer")
            if new is None:
                rows.delete(key)
            else:
                rows.put(key, new)

    def emit(self, number: int) -> None:
        for _ in range(number):
            stream, key, value = (
                self.random.choice((EVENTS, MORE)),
                self.random.choice(KEYS),
                next(self.numbers),
            )
            self.kafka.append(stream.name, key.encode(), b"%d" % value)
            self.sent.append((key, value))

    # ---- what goes wrong -------------------------------------------------------------------------------------------

    def before(self, process: str, call: str) -> Fault | None:
        life = self.lives.get(process)
        if life is not None:
            self.meddle(life, call)
        if call in CALLS_IN_DOUBT and self.chance(0.04):
            return self.random.choice((Fault.REFUSED, Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.LATE))
        return Fault.REQUEST_LOST if self.chance(0.005) else None

    def marker_late(self, transactional_id: str, topic: str) -> bool:
        return self.chance(0.05)

    def meddle(self, life: Life, place: str) -> None:
        """Something else happens first."""
        if life.dead:
            raise Crash
        rare = 0.1 if place in {"fetch", "heartbeat", "watermarks", "topics"} else 1.0
        if self.chance(0.01 * rare):
            life.die()
            raise Crash
        if self.chance(0.02 * rare):
            self.clock.advance(self.random.choice((0.2, 3.0, 12.0, 25.0)))
        if self.chance(0.03 * rare) and self.late:
            self.late.pop(self.random.randrange(len(self.late)))()
        if not _within_a_loop():
            for _ in range(self.random.randint(1, 40) if self.chance(0.04 * rare) else 0):
                self.turn(self.random.choice(list(self.lives.values())))
                self.clock.advance(self.random.random())
        if life.dead:
            raise Crash

    # ---- turns -----------------------------------------------------------------------------------------------------

    def start(self, instance: str) -> None:
        name = f"{instance}/{self.kafka.unique()}"
        for before in self.lives.values():  # a supervisor restarts a process that is dead or seems dead
            if before.instance == instance and self.chance(0.7):
                before.die()
        life = self.lives[name] = Life(self, instance, name)
        if instance in self.disks:
            self.disks[instance][1].append(life)
        self._do(life, GroupProcessor.start)

    def disk_of(self, instance: str) -> MemoryStores:
        """The disk of the previous process, unless that may still be running, or the disk is lost."""
        disk, lives = self.disks.get(instance, (MemoryStores(self.clock.now), []))
        if not all(life.dead for life in lives) or self.chance(0.2):
            disk, lives = MemoryStores(self.clock.now), []
        self.disks[instance] = disk, lives
        return disk

    def turn(self, life: Life) -> None:
        if life.dead or life.running or self.clock.monotonic() < life.frozen_until:
            return
        if self.chance(0.005):
            life.frozen_until = self.clock.monotonic() + self.random.choice((1.0, 15.0, 40.0))
        if life.processor.member is None:
            self._do(life, GroupProcessor.start)
        elif self.calm or self.random.random() < 0.6:
            self._do(life, GroupProcessor.step)
        if (
            life.name in self.lives
            and life.processor.member is not None
            and (self.calm or self.random.random() < 0.5)
        ):
            self._do(life, lambda processor: processor.step_background(0))

    def _do(self, life: Life, what: Callable[[GroupProcessor], object]) -> None:
        life.running = True
        try:
            what(life.processor)
        except Crash:
            life.die()
        except RetryLater:
            pass  # at the start: retried later
        except Fenced:
            life.die()  # another process has its name now
        finally:
            life.running = False
        if life.dead:
            self.lives.pop(life.name, None)

    def run(self) -> None:
        for step in range(STEPS):
            draw = self.random.random()
            if draw < 0.02 or not self.lives:
                self.start(self.random.choice("xyz"))
            elif draw < 0.06:
                self.emit(self.random.randint(1, 6))
            elif draw < 0.07:
                self.kafka.deliver_late()
            elif draw < 0.08 and self.kind == "embedded":
                self.kafka.compact(self.graph.table.name)
            else:
                self.turn(self.random.choice(list(self.lives.values())))
            self.clock.advance(0.05)
            if step % 100 == 99 and self.late and self.chance(0.5):
                self.late.pop(0)()
        self.heal()

    def heal(self) -> None:
        self.calm = True
        self.kafka.deliver_late()
        for write in self.late:
            write()
        for life in self.lives.values():
            life.frozen_until = 0.0
        self.start("healthy")
        for _ in range(600):
            for life in list(self.lives.values()):
                self.turn(life)
            self.clock.advance(0.3)
            if self.done():
                return
        raise AssertionError("the processes do not finish their work")

    def done(self) -> bool:
        committed = self.kafka.committed(self.graph.name)
        for stream in (EVENTS, MORE):
            for partition in range(PARTITIONS):
                place = TopicPartition(stream.name, partition)
                found, offsets = self.kafka.partition(place), committed.get(place)
                if offsets is None or found is None or offsets.next_offset < found.high:
                    return False
        # What a dead process left open hides the records behind it, until Kafka aborts its transaction.
        outputs = (
            TopicPartition(each.name, number) for each in (SEEN, CHAIN) for number in range(PARTITIONS)
        )
        found_outputs = [self.kafka.partition(place) for place in outputs]
        return all(each is not None and each.stable_end == each.high for each in found_outputs)

    # ---- the check -------------------------------------------------------------------------------------------------

    def committed(self, stream: Stream[str, Any]) -> list[tuple[str, Any]]:
        found = (record for _, record in self.kafka.records(stream.name))
        return [((record.key() or b"").decode(), orjson.loads(record.value() or b"")) for record in found]

    def check(self) -> int:
        """Returns how many batches were committed, about."""
        seen = Counter(self.committed(SEEN))
        assert seen == Counter(self.sent), (
            f"lost: {Counter(self.sent) - seen}, doubled: {seen - Counter(self.sent)}"
        )
        last: dict[str, Any] = {}
        links = self.committed(CHAIN)
        for key, (before, after) in links:
            assert before == last.get(key), f"a batch has read {before} of {key}, left was {last.get(key)}"
            last[key] = after
        assert self.rows() == {key: value for key, value in last.items() if value is not None}
        return len(links)

    def rows(self) -> dict[str, Any]:
        if self.kind == "central":
            return self.store.rows(LAST, self.kafka.committed(self.graph.name))
        table = self.graph.table
        return LAST.of(rows_of(table, self.kafka.records(table.name)))


def _within_a_loop() -> bool:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def simulate(seed: int, kind: Kind = "central") -> int:
    world = World(seed, kind)
    try:
        world.run()
        return world.check()
    finally:
        for life in world.lives.values():
            life.die()
            with suppress(BaseException):
                life.processor.close()


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize(
    "block", [*range(3), *(pytest.param(block, marks=pytest.mark.faults_long) for block in range(3, 6))]
)
def test_each_record_counts_once_and_each_batch_reads_what_the_last_one_left(block: int, kind: Kind) -> None:
    links = sum(simulate(seed, kind) for seed in range(block * 10, block * 10 + 10))
    assert links > 10 * 15  # something was committed


@pytest.mark.faults_long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", get_args(Kind))
def test_each_record_counts_once_in_new_schedules_too(kind: Kind) -> None:
    end = time.monotonic() + float(os.environ.get("FAULTS_SECONDS", "120")) / 4
    for seed in count(int(os.environ.get("FAULTS_SEED", "20260")) * 1_000_000):
        try:
            simulate(seed, kind)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        if time.monotonic() > end:
            break


# ---- plausible bugs that must be found -----------------------------------------------------------------------------


def store_after_the_commit(patch: pytest.MonkeyPatch) -> None:
    write, applied = CentralRows.write, CentralRows.applied

    def described(self: CentralRows, writes: Any, committed: Any) -> Written:
        ledger = self._next_ledger(writes)
        state = ledger.committed_state if ledger is not None else None
        return Written(document(state, committed), ahead=False)

    def written_then_applied(self: CentralRows, writes: Any) -> bool:
        write(self, writes, {})
        return applied(self, writes)

    patch.setattr(CentralRows, "write", described)
    patch.setattr(CentralRows, "applied", written_then_applied)


def token_kept_after_an_abort(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AdaptedTask, "must_recover", property(lambda _: False, lambda *_: None), raising=False)


def no_proof(patch: pytest.MonkeyPatch) -> None:
    init = AdaptedTask.__init__

    def unproved(self: AdaptedTask, group: Any, recovered: Any, task: Any, clock: Any) -> None:
        init(self, group, recovered, task, clock)
        rows = cast("CentralRows", cast("BatchTask", self.task)._rows)
        self.uncommitted = rows.unproved = recovered.plan.uncommitted
        if not self.uncommitted and rows._ledger is not None:
            rows._write_ledger(rows._ledger)

    patch.setattr(AdaptedTask, "__init__", unproved)


def ledger_before_the_proof(patch: pytest.MonkeyPatch) -> None:
    init = AdaptedTask.__init__

    def early(self: AdaptedTask, *given: Any) -> None:
        init(self, *given)
        rows = cast("CentralRows", cast("BatchTask", self.task)._rows)
        if rows._ledger is not None:
            rows._write_ledger(rows._ledger)

    patch.setattr(AdaptedTask, "__init__", early)


def standing_of_before_the_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CentralRows, "_next_ledger", lambda self, _: self._ledger)


def offsets_of_all_that_is_buffered(patch: pytest.MonkeyPatch) -> None:
    offsets = AdaptedTask.offsets

    def too_far(self: AdaptedTask, work: Any, position: Any) -> dict[TopicPartition, Committed]:
        found = offsets(self, work, position)
        ends = cast("BatchTask", self.task)._buffer.next_offsets
        return {p: c._replace(next_offset=max(c.next_offset, ends[p.topic])) for p, c in found.items()}

    patch.setattr(AdaptedTask, "offsets", too_far)


def buffer_kept_at_a_rewind(patch: pytest.MonkeyPatch) -> None:
    def begun_only(self: Buffer, next_offsets: Any) -> None:
        self.next_offsets = self.next_offsets or dict(next_offsets)

    patch.setattr(Buffer, "clear", begun_only)


def numbers_not_given_to_the_store(patch: pytest.MonkeyPatch) -> None:
    write = MemoryDriver.write
    patch.setattr(
        MemoryDriver,
        "write",
        lambda self, rows, number, timeout: _forced(self, write, rows, number, timeout),
    )


def _forced(self: MemoryDriver, write: Any, rows: Any, number: int | None, timeout: float) -> WriteResult:
    with self._server.lock:
        for key in rows:
            self._server.rows.pop((self._tenant, key), None)
    written: WriteResult = write(self, rows, number, timeout)
    return written


def ledger_row_read_before_the_offsets(patch: pytest.MonkeyPatch) -> None:
    found: dict[Any, Any] = {}
    opened = BatchTasks._opened

    def stale(self: BatchTasks, partition: int, committed_state: Any, row: Any) -> Any:
        before, found[id(self), partition] = found.get((id(self), partition)), row
        return opened(self, partition, committed_state, before or row)

    patch.setattr(BatchTasks, "_opened", stale)


PLANTS: list[Plant] = [
    store_after_the_commit,
    token_kept_after_an_abort,
    no_proof,
    ledger_before_the_proof,
    standing_of_before_the_batch,
    offsets_of_all_that_is_buffered,
    buffer_kept_at_a_rewind,
    numbers_not_given_to_the_store,
    ledger_row_read_before_the_offsets,
]


def rows_stored_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    def early(self: AdaptedTask, work: Any) -> None:
        self._write_rows(work.changes, self.changelog_position, self.committed_offsets)

    patch.setattr(AdaptedTask, "write_ahead", early)


def position_of_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    offsets = AdaptedTask.offsets

    def behind(self: AdaptedTask, work: Any, position: Any) -> dict[TopicPartition, Committed]:
        return offsets(self, work, replace(position, changelog=self.changelog_position))

    patch.setattr(AdaptedTask, "offsets", behind)


def rows_left_out_of_the_changelog(patch: pytest.MonkeyPatch) -> None:
    work = AdaptedTask.work

    def stored_only(self: AdaptedTask) -> Any:
        found = work(self)
        self._write_rows(found.changes, self.changelog_position, self.committed_offsets)
        return replace(found, changes=[])

    patch.setattr(AdaptedTask, "work", stored_only)


def deletions_left_out_of_the_changelog(patch: pytest.MonkeyPatch) -> None:
    work = AdaptedTask.work

    def without(self: AdaptedTask) -> Any:
        found = work(self)
        return replace(found, changes=[(key, data) for key, data in found.changes if data is not None])

    patch.setattr(AdaptedTask, "work", without)


EMBEDDED_PLANTS: list[Plant] = [
    rows_stored_before_the_commit,
    position_of_before_the_commit,
    rows_left_out_of_the_changelog,
    deletions_left_out_of_the_changelog,
    offsets_of_all_that_is_buffered,
    buffer_kept_at_a_rewind,
]
ALL_PLANTS: list[tuple[Plant, Kind]] = [
    *((plant, "central") for plant in PLANTS),
    *((plant, "embedded") for plant in EMBEDDED_PLANTS),
]


@pytest.mark.parametrize(
    ("plant", "kind"), ALL_PLANTS, ids=[f"{kind}-{plant.__name__}" for plant, kind in ALL_PLANTS]
)
def test_a_planted_bug_is_found(plant: Plant, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def fails(seed: int) -> bool:
        try:
            simulate(seed, kind)
        except Exception:  # noqa: BLE001 - whichever way it shows
            return True
        return False

    assert any(fails(seed) for seed in range(100))
