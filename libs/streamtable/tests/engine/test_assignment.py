from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from streamtable.base.clock import SystemClock
from streamtable.base.types import NextOffset, RecordBatch, TopicPartition
from streamtable.engine.assignment import Assignment
from streamtable.engine.recovery.restore import Restore, Stage
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.task import Task
from streamtable.errors import StateLost, StoreCorrupted
from streamtable.graph.group import Group
from streamtable.store.memory import MemoryStores
from streamtable.tables.position import LocalPosition
from streamtable.tables.recovery import Load, RecoveryPlan
from streamtable.tables.replica import PartitionReplica


class Restores:
    """Notes the calls to the restorer, and lets the test decide when a recovery is done."""

    def __init__(self, stores: MemoryStores, topics: Any) -> None:
        self.stores = stores
        self.topics = topics
        self.begun: list[Restore] = []
        self.cancelled: list[Restore] = []
        self.left: list[int] = []
        self.standby = SimpleNamespace(left=self.left.append)

    def begin(self, partition: int, stores: Any = None, damage: Any = None) -> Restore:
        assert damage is None
        replicas = {table: self.replica(table, partition, store) for table, store in (stores or {}).items()}
        self.begun.append(Restore(partition, replicas))
        return self.begun[-1]

    def replica(self, table: str, partition: int, store: Any = None) -> PartitionReplica:
        return PartitionReplica(self.stores, table, partition, SystemClock(), store=store)

    def cancel(self, restore: Restore) -> None:
        self.cancelled.append(restore)

    def finish(self) -> None:
        for restore in self.begun:
            if restore.stage is Stage.ASKING:
                table = "counted-table"
                if table not in restore.replicas:
                    restore.replicas[table] = self.replica(table, restore.partition)
                restore.topics = self.topics
                restore.loads = {table: Load()}
                offsets = {"events": NextOffset(0), "counted-retry": NextOffset(0)}
                restore.plan = RecoveryPlan(offsets, uncommitted=False)
                restore.stage = Stage.READY


SETTINGS = ProcessorSettings("here", cache_bytes=1_000)


@pytest.fixture
def restores(stores: MemoryStores, counted: Group[str, int], topic_infos: Callable[..., Any]) -> Restores:
    return Restores(stores, topic_infos(counted, partitions=3))


@pytest.fixture
def assignment(counted: Group[str, int], restores: Any, steps: Any, clock: Any) -> Assignment:
    return Assignment(counted, restores, lambda: steps("commit"), SETTINGS, clock, steps, {})


def both(*partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for p in partitions for topic in ("events", "counted-retry")]


def at_work(assignment: Assignment, restores: Restores, *partitions: int) -> None:
    assignment.assigned(both(*partitions))
    restores.finish()
    assignment.start_ready()


def test_a_partition_recovers_when_all_of_its_inputs_are_here(
    assignment: Assignment, restores: Restores
) -> None:
    assignment.assigned([TopicPartition("events", 0), TopicPartition("events", 1)])
    assert restores.begun == []
    assignment.assigned([TopicPartition("counted-retry", 1)])
    assert [restore.partition for restore in restores.begun] == [1]


def test_tasks_start_as_their_recovery_ends_and_share_the_memory(
    assignment: Assignment, restores: Restores
) -> None:
    assignment.assigned(both(0, 1))
    assert assignment.start_ready() == []
    restores.finish()
    started = assignment.start_ready()
    assert [task.partition for task in started] == [0, 1]
    tables = [task.tables.own for task in started if isinstance(task, Task)]
    assert [table.cache_bytes for table in tables if table] == [500, 500]
    assert assignment.recovering == {}


def test_a_recovery_that_failed_raises_its_reason(assignment: Assignment, restores: Restores) -> None:
    assignment.assigned(both(0))
    restores.begun[0].stage = Stage.FAILED
    restores.begun[0].failure = StateLost("no offsets")
    with pytest.raises(StateLost):
        assignment.start_ready()


def test_revoked_partitions_are_committed_before_their_stores_are_closed(
    assignment: Assignment, restores: Restores, stores: MemoryStores, steps: Any
) -> None:
    at_work(assignment, restores, 0, 1)
    assignment.revoked(both(0))
    assert steps.taken == ["assigned", "revoked", "commit"]
    assert list(assignment.tasks) == [1]
    stores.open("counted-table", 0)  # no task holds it


def test_nothing_is_committed_when_what_is_revoked_never_worked(
    assignment: Assignment, restores: Restores, steps: Any
) -> None:
    at_work(assignment, restores, 1)
    assignment.assigned(both(0))
    assignment.revoked(both(0))
    assert "commit" not in steps.taken
    assert restores.cancelled == [restores.begun[1]]


def test_lost_partitions_are_dropped_without_a_commit_and_not_noted_as_current(
    assignment: Assignment, restores: Restores, stores: MemoryStores, steps: Any
) -> None:
    at_work(assignment, restores, 0)
    assignment.lost(both(0))
    assert steps.taken == ["assigned", "lost"]
    assert stores.open("counted-table", 0).checkpoint() is None


def test_an_idle_partition_is_noted_as_current_when_it_leaves(
    assignment: Assignment, restores: Restores, stores: MemoryStores, clock: Any
) -> None:
    at_work(assignment, restores, 0)
    clock.sleep(100)
    assignment.revoked(both(0))
    checkpoint = stores.open("counted-table", 0).checkpoint()
    assert LocalPosition.decode(checkpoint or b"").current_at == clock.now()


def test_a_partition_whose_store_is_damaged_can_be_given_away(
    assignment: Assignment, restores: Restores, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work(assignment, restores, 0)
    store = assignment.tasks[0].stores["counted-table"]

    def fail(*_: Any) -> None:
        raise StoreCorrupted("bit flip")

    monkeypatch.setattr(store, "write", fail)
    assignment.revoked(both(0))
    assert assignment.tasks == {}
    restores.stores.open("counted-table", 0)  # it was closed


def test_uncommitted_work_is_not_said_to_be_in_the_store(
    assignment: Assignment, restores: Restores, stores: MemoryStores, batch: Callable[..., RecordBatch]
) -> None:
    at_work(assignment, restores, 0)
    assignment.tasks[0].process(batch("events", [(b"a", b"x")]))
    assignment.revoked(both(0))  # the commit here does nothing, as after one that was refused
    assert stores.open("counted-table", 0).checkpoint() is None


def test_recovering_again_keeps_the_open_store_and_forgets_the_task(
    assignment: Assignment, restores: Restores
) -> None:
    at_work(assignment, restores, 0)
    task = assignment.tasks[0]
    assignment.recover_again(assignment.tasks.values())
    assert (assignment.tasks, restores.begun[1].stores) == ({}, task.stores)
    restores.finish()
    assert assignment.start_ready()[0] is not task


def test_a_partition_whose_inputs_come_one_after_the_other_starts_over(
    assignment: Assignment, restores: Restores
) -> None:
    at_work(assignment, restores, 0)
    assignment.revoked([TopicPartition("counted-retry", 0)])
    assert assignment.tasks == {}
    assignment.assigned([TopicPartition("counted-retry", 0)])
    assert len(restores.begun) == 2


def test_closing_closes_what_is_still_open(
    assignment: Assignment, restores: Restores, stores: MemoryStores
) -> None:
    at_work(assignment, restores, 0)
    assignment.assigned(both(1))
    assignment.close()
    assert (assignment.tasks, assignment.restores) == ({}, {})
    assert restores.cancelled == [restores.begun[1]]
    stores.open("counted-table", 0)
