"""Copies of tables that stand still until Kafka has deleted tombstones that they have not read: deleted rows do not come back."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from streamtable import Context, Group, Input, Long, Lookup, Persist, Stream, String, Table
from streamtable.observe import Metrics
from streamtable.store.memory import MemoryStores
from streamtable.views.updater import ViewUpdater
from streamtable.views.view import View
from streamtable_testing.clock import VirtualClock
from streamtable_testing.log import VirtualKafka
from streamtable_testing.tester import Tester

EVENTS = Stream[str, str]("events", String(), String())
TABLE = Table("t", String(), Long())
ONE = Long().encode(1)
HOUR = 3600
DAY = 24 * HOUR


@pytest.mark.parametrize("restarted", [False, True])
def test_a_view_that_stands_still_while_it_loads_keeps_no_deleted_rows(*, restarted: bool) -> None:
    clock = VirtualClock()
    kafka, stores = VirtualKafka(clock), MemoryStores(clock.now)
    kafka.create_topic("t", 1, compacted=True, delete_retention_ms=DAY * 1000)

    def opened() -> tuple[ViewUpdater, View[str, int]]:
        updater = ViewUpdater(kafka, stores, clock, Metrics.register(CollectorRegistry()), "v")
        found = View(TABLE, updater)
        updater.open()
        return updater, found

    def step(updater: ViewUpdater, times: int) -> None:
        for _ in range(times):
            updater.step(0)
            clock.advance(1)

    kafka.append("t", b"gone", ONE)
    if restarted:
        updater, view = opened()
        step(updater, 3)
        assert view.get("gone") == 1
        updater.close()
        clock.advance(20 * HOUR)
    for number in range(15_000):
        kafka.append("t", b"k%d" % number, ONE)
    kafka.append("t", b"gone", None)
    for number in range(15_000):
        kafka.append("t", b"l%d" % number, ONE)
    updater, view = opened()
    step(updater, 1)  # the first 10,000 records
    kafka.compact("t")
    clock.advance(DAY + 60)
    kafka.compact("t")  # deletes the tombstone
    step(updater, 10)
    assert view.ready
    assert view.get("gone") is None
    updater.close()


def test_a_task_that_stands_still_while_it_loads_its_table_keeps_no_deleted_rows() -> None:
    seen: list[Any] = []

    def handle(ctx: Context[str, int], event: str) -> None:
        if event == "look":
            seen.append(ctx.value)
        elif event == "delete":
            ctx.delete()
        else:
            ctx.set(1)

    group = Group("g", Input(EVENTS, handle), Persist(Long()))
    with Tester(work_on_request=True) as tester:
        tester.run(group)
        for events in (
            [("gone", "set")],
            [(f"k{number}", "set") for number in range(15_000)],
            [("gone", "delete")],
            [(f"l{number}", "set") for number in range(15_000)],
        ):
            tester.emit_many(EVENTS, events)
            tester.work()
        tester.stop(group)
        tester.work()
        tester.start(group, disk=False)
        instance = tester._instances["g"][0]
        processor: Any = instance.processor
        while not (restores := processor.member.assignment.restores) or not any(
            replica.position for replica in restores[0].replicas.values()
        ):
            instance.turn()
        tester.kafka.compact("g-table")
        for _ in range(DAY // 30 + 10):  # the leader of the changelog does not answer for a day
            tester.clock.advance(30)
            processor.step()
        tester.kafka.compact("g-table")
        tester.work()
        tester.emit(EVENTS, "gone", "look")
        tester.work()
    assert seen == [None]


@pytest.mark.parametrize("kept_ms", [0, 100, 1000])
def test_a_topic_that_keeps_tombstones_for_less_than_it_takes_to_ask_kafka_is_loaded_once(
    kept_ms: int,
) -> None:
    group = Group(
        "g", Input(EVENTS, lambda ctx, _: None if ctx.lookup(TABLE, "a") else ctx.fail("")), Lookup(TABLE)
    )
    with Tester() as tester:
        tester.kafka.create_topic("t", 1, compacted=True, delete_retention_ms=kept_ms)
        tester.kafka.append("t", b"a", ONE)
        view = tester.view(TABLE)
        tester.run(group)
        loads = view._replicas.loads
        for number in range(20):
            tester.advance(1.1)
            assert view.get("a") == 1
            tester.emit(EVENTS, "k", str(number))
        assert view._replicas.loads == loads
