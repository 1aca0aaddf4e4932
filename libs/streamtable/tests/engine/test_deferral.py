"""Deferred work: what a handler puts off until the commit, on a member over doubles of the log."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from streamtable.base.failpoint import no_failpoint
from streamtable.base.topics import Stream
from streamtable.base.types import Committed, NextOffset, RecordBatch, TopicPartition, Watermarks
from streamtable.codec.plain import Long, String
from streamtable.engine.calls.deferral import DEFERRED_MAX, Deferral, Deferrals, results
from streamtable.engine.member import Member
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.watch.metrics import EngineMetrics
from streamtable.errors import GraphError, HandlerFailed, RetryLater, RewindNeeded, StoreCorrupted
from streamtable.graph.group import Group, Input, OnError, Output, Persist, Visit
from streamtable.graph.visiting import VisitProgress
from streamtable.handlers.context import Context
from streamtable.observe import Metrics, SilentProgress
from streamtable.store.memory import MemoryStores
from streamtable.tables.position import TablePosition

EVENTS = Stream("events", String(), String())
OUT = Stream("out", String(), String())


async def echo(event: str) -> str:
    await asyncio.sleep(0)
    if event.startswith("bad"):
        raise ValueError(event)
    return event


def deferral(work: Awaitable[Any]) -> Deferral:
    return Deferral(work, lambda *_: None, RecordBatch("t", 0, []), 0, b"", None, OnError.STOP)


def test_results_come_in_the_order_of_the_records_whichever_is_done_first() -> None:
    async def slow(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    waiting = [deferral(slow(seconds)) for seconds in (0.02, 0.0, 0.01)]
    assert asyncio.run(results(waiting, 5)) == [0.02, 0.0, 0.01]


def test_an_error_and_a_time_out_are_the_results_of_their_own_work_only() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    found = asyncio.run(results([deferral(echo("bad")), deferral(never()), deferral(echo("good"))], 0.05))
    assert [type(each) for each in found] == [ValueError, TimeoutError, str]
    assert "longer than 0.05 s" in str(found[1])


def test_at_most_a_hundred_run_at_a_time() -> None:
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    asyncio.run(results([deferral(work()) for _ in range(350)], 5))
    assert most == 100


def test_work_that_is_undone_is_closed_without_a_warning() -> None:
    deferrals = Deferrals()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deferrals.add(echo("x"), lambda *_: None, RecordBatch("t", 0, []), 0, b"", None)
        deferrals.forget()
        deferrals.finishing = True
        with pytest.raises(GraphError, match="may not defer again"):
            deferrals.add(echo("x"), lambda *_: None, RecordBatch("t", 0, []), 0, b"", None)
    assert deferrals.take() == []


class Rig:
    """A member of a group whose handler defers each event, and counts it when the result is there."""

    def __init__(self, doubles: dict[str, Any], **settings: Any) -> None:
        self.consumer, self.cluster, self.stores = doubles["consumer"], doubles["cluster"], doubles["stores"]
        self.clock, self.steps, self.batch = doubles["clock"], doubles["steps"], doubles["batch"]
        self._doubles = doubles
        self.outboxes: list[Any] = []
        self.work: Callable[[str], Awaitable[str]] = echo
        self.handled: list[str] = []
        self.then: Callable[[Context[str, int], str], None] = self.count
        self.group: Group[str, int] = doubles["group"](self)
        metrics = Metrics.register(CollectorRegistry())
        self.member = Member(
            self.group, self, self.cluster, self.cluster.infos, self.stores,  # type: ignore[arg-type] # a double
            ProcessorSettings("i", commit_interval=1.0, **settings), self.clock,
            EngineMetrics(self.group, metrics, SilentProgress()), no_failpoint,
        )  # fmt: skip
        self.places = [TopicPartition(topic, 0) for topic in self.group.input_topics]
        self.consumer.listener.assigned(self.places)
        for _ in range(3):
            self.member.restorer.step(0)
        self.member.step()
        self.consumer.seeks.clear()

    def transactional_producer(
        self, transactional_id: str | None, batch_bytes: int, transaction_seconds: float
    ) -> Any:
        self.outboxes.append(self._doubles["make_outbox"](self.steps))
        return self.outboxes[-1]

    def group_consumer(self, group: str, instance_id: str) -> Any:
        return self.consumer

    def table_reader(self, name: str) -> Any:
        return self._doubles["reader"]

    def handle(self, ctx: Context[str, int], event: str) -> None:
        self.handled.append(event)
        ctx.defer(self.work(event), self.then)

    def count(self, ctx: Context[str, int], event: str) -> None:
        if event == "refuse":
            ctx.fail("not this")
        ctx.set((ctx.value or 0) + 1)
        ctx.emit(OUT, ctx.key, event)

    def deliver(self, *events: str, topic: str = "events", first: int = 0) -> None:
        rows = [(event[-1:].encode(), event.encode()) for event in events]
        self.consumer.batches.append([self.batch(topic, rows, first=first)])

    def turn(self, *, commit: bool = True) -> None:
        if commit:
            self.clock.sleep(1.1)
        self.member.step()

    @property
    def rows(self) -> dict[str, int]:
        with self.member.assignment.tasks[0].stores["g-table"].scan() as rows:
            return {key.decode(): Long().decode(value) for key, value in rows}

    @property
    def emitted(self) -> list[bytes]:
        return [p["value"] for outbox in self.outboxes for p in outbox.produced if p["topic"] == "out"]

    @property
    def letters(self) -> list[bytes]:
        return [p["value"] for o in self.outboxes for p in o.produced if p["topic"] == "g-dead-letters"]


@pytest.fixture
def make_rig(
    consumer: Any, reader: Any, stores: MemoryStores, clock: Any, batch: Any, steps: Any, make_outbox: Any,
    make_cluster: Any, topic_infos: Any,
) -> Iterator[Callable[..., Rig]]:  # fmt: skip
    rigs: list[Rig] = []

    def make(on_error: OnError = OnError.STOP, *, visit: Any = None, **settings: Any) -> Rig:
        def group(rig: Rig) -> Group[str, int]:
            edges = [Visit("v", visit)] if visit else []
            return Group(
                "g", Input(EVENTS, rig.handle, on_error=on_error), Output(OUT), Persist(Long()), *edges
            )

        def nothing(*_: Any) -> None:
            """Only the topics of this graph are asked for."""

        probe: Any = type("Probe", (), {"handle": nothing})
        cluster = make_cluster(topic_infos(group(probe)))
        for topic in group(probe).input_topics:
            place = TopicPartition(topic, 0)
            cluster.committed[place] = Committed(NextOffset(0), TablePosition(0, exact=True).encode())
            cluster.marks[place] = Watermarks(0, 100_000)
        rigs.append(
            Rig(
                {
                    "group": group, "consumer": consumer, "reader": reader, "stores": stores, "clock": clock,
                    "batch": batch, "steps": steps, "make_outbox": make_outbox, "cluster": cluster,
                },
                **settings,
            )
        )  # fmt: skip
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.member.close()


MakeRig = Callable[..., Rig]


def test_deferred_work_is_done_in_the_commit_and_its_results_are_handled_in_order(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.deliver("1a", "2b", "3a")
    rig.turn(commit=False)
    assert rig.emitted == []
    rig.turn()
    assert rig.emitted == [b"1a", b"2b", b"3a"]
    assert rig.rows == {"a": 2, "b": 1}


def test_a_client_that_handlers_share_lives_in_one_event_loop(make_rig: MakeRig) -> None:
    rig = make_rig()
    loops: set[int] = set()

    async def note(event: str) -> str:
        loops.add(id(asyncio.get_running_loop()))
        return event

    rig.work = note
    for number in range(3):
        rig.deliver("1a", first=number)
        rig.turn()
    assert (len(loops), rig.rows) == (1, {"a": 3})


@pytest.mark.parametrize("bad", ["bad", "refuse"])
def test_what_fails_with_stop_ends_the_process_with_the_place_of_the_record(
    bad: str, make_rig: MakeRig
) -> None:
    rig = make_rig()
    rig.deliver("1a", bad)
    rig.turn()
    rig.turn(commit=False)
    rig.deliver("1a", bad)
    with pytest.raises(HandlerFailed, match=r"\(events\[0\]@1\)"):
        rig.turn()
    assert rig.rows == {"a": 1}
    rig.member.abandon()


@pytest.mark.parametrize("on_error", [OnError.DEAD_LETTER, OnError.SKIP])
def test_all_that_has_failed_is_left_out_after_one_replay_and_without_a_pause(
    on_error: OnError, make_rig: MakeRig
) -> None:
    rig = make_rig(on_error)
    events = ["1a", *(f"bad{number}" for number in range(20)), "2a"]
    rig.deliver(*events)
    slept = rig.clock.slept + 1.1
    rig.turn()
    assert rig.clock.slept == pytest.approx(slept)
    assert rig.consumer.seeks[:1] == [] or rig.emitted == []
    rig.turn(commit=False)
    rig.deliver(*events)
    rig.turn()
    assert rig.emitted == [b"1a", b"2a"]
    expected = [event.encode() for event in events[1:-1]] if on_error is OnError.DEAD_LETTER else []
    assert rig.letters == expected


def test_a_result_whose_handling_fails_is_left_out_after_a_replay(make_rig: MakeRig) -> None:
    rig = make_rig(OnError.DEAD_LETTER)
    events = ["1a", "refuse", "2a"]
    for _ in range(3):
        rig.deliver(*events)
        rig.turn()
        rig.turn(commit=False)
    assert (rig.letters, rig.emitted, rig.rows) == ([b"refuse"], [b"1a", b"2a"], {"a": 2})


def test_work_that_takes_too_long_has_failed(make_rig: MakeRig) -> None:
    rig = make_rig(OnError.DEAD_LETTER, defer_timeout=0.05)

    async def hang(event: str) -> str:
        if event == "hang":
            await asyncio.Event().wait()
        return event

    rig.work = hang
    for _ in range(2):
        rig.deliver("1a", "hang")
        rig.turn()
        rig.turn(commit=False)
    assert (rig.letters, rig.emitted) == ([b"hang"], [b"1a"])


def test_work_that_is_cancelled_has_failed(make_rig: MakeRig) -> None:
    async def cancelled(event: str) -> str:
        raise asyncio.CancelledError

    rig = make_rig(OnError.DEAD_LETTER)
    rig.work = cancelled
    for _ in range(2):
        rig.deliver("1a")
        rig.turn()
        rig.turn(commit=False)
    assert rig.letters == [b"1a"]


def test_an_outside_that_does_not_answer_is_asked_again_after_a_pause(make_rig: MakeRig) -> None:
    answers: list[Exception | None] = [RetryLater("away"), None]

    async def ask(event: str) -> str:
        if (error := answers.pop(0)) is not None:
            raise error
        return event

    rig = make_rig()
    rig.work = ask
    rig.deliver("1a")
    slept = rig.clock.slept + 1.1
    rig.turn()
    assert rig.clock.slept > slept
    rig.turn(commit=False)
    rig.deliver("1a")
    rig.turn()
    assert rig.rows == {"a": 1}


def test_a_result_that_defers_again_is_a_mistake_of_the_graph(make_rig: MakeRig) -> None:
    rig = make_rig(OnError.SKIP)
    rig.then = lambda ctx, result: ctx.defer(echo(result), lambda *_: None)
    rig.deliver("1a")
    with pytest.raises(GraphError, match="await both in one coroutine"):
        rig.turn()
    rig.member.abandon()


def test_a_thousand_that_wait_force_a_commit(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.deliver(*["1a"] * (DEFERRED_MAX - 1))
    rig.turn(commit=False)
    assert rig.emitted == []
    rig.deliver("1a", first=DEFERRED_MAX - 1)
    rig.turn(commit=False)
    assert rig.rows == {"a": DEFERRED_MAX}


def test_no_more_than_a_thousand_wait_within_one_batch(make_rig: MakeRig) -> None:
    rig = make_rig()
    waiting: list[int] = []

    async def note(event: str) -> str:
        task: Any = rig.member.assignment.tasks[0]
        waiting.append(task._dispatcher.deferrals.taken)
        return event

    rig.work = note
    rig.deliver(*["1a"] * 3 * DEFERRED_MAX, "1b")
    rig.turn(commit=False)
    assert (max(waiting), rig.rows) == (DEFERRED_MAX, {"a": 3 * DEFERRED_MAX})
    rig.turn()
    assert rig.rows["b"] == 1


def test_many_results_whose_handling_fails_are_found_in_few_replays(make_rig: MakeRig) -> None:
    rig = make_rig(OnError.DEAD_LETTER)

    def refuse_some(ctx: Context[str, int], event: str) -> None:
        if event.startswith("bad"):
            ctx.fail("not this")
        rig.count(ctx, event)

    rig.then = refuse_some
    events = [f"bad{number % 10}" if number % 3 else f"ok{number % 10}" for number in range(300)]
    while len(rig.emitted) < 100:
        rig.deliver(*events)
        rig.turn()
        rig.turn(commit=False)
        assert len(rig.handled) < 20 * len(events), "it goes round in circles"
    assert len(rig.letters) == 200
    assert sum(rig.rows.values()) == 100


def test_a_store_that_is_found_damaged_by_a_result_is_loaded_again(make_rig: MakeRig) -> None:
    rig = make_rig()
    damaged = True

    def touch(ctx: Context[str, int], event: str) -> None:
        if damaged:
            raise StoreCorrupted("bit flip").at("g-table", 0)
        rig.count(ctx, event)

    rig.then = touch
    rig.deliver("1a")
    rig.turn()
    assert rig.member.assignment.restores.keys() == {0}
    damaged = False
    for _ in range(3):
        rig.member.restorer.step(0)
        rig.turn(commit=False)
    rig.deliver("1a")
    rig.turn()
    assert rig.rows == {"a": 1}


@pytest.mark.parametrize("how", ["lost", "abandon", "rewind"])
def test_work_that_is_never_awaited_leaves_no_warning(how: str, make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.deliver("1a", "2a")
    rig.turn(commit=False)
    if how == "lost":
        rig.consumer.listener.lost(rig.places)
    elif how == "abandon":
        rig.member.abandon()
    else:
        rig.steps.fail("flush", RewindNeeded("x"))
        rig.turn()
    rig.member.close()


def test_a_visits_deferred_result_is_handled_at_the_row_that_was_visited(make_rig: MakeRig) -> None:
    def visit(ctx: Context[str, int], argument: str) -> None:
        ctx.defer(echo(argument), lambda ctx, result: ctx.set((ctx.value or 0) + len(result)))

    rig = make_rig(visit=visit)
    rig.deliver("1a", "2b")
    rig.turn()
    value = VisitProgress("run", "1234567890").encode()
    rig.consumer.batches.append([rig.batch("g-visits", [(b"v", value)])])
    rig.turn()
    assert rig.rows == {"a": 11, "b": 11}
