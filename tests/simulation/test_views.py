"""Views show the replayed topic, whatever happens to topic, disk and process."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count, takewhile

import pytest
from prometheus_client import CollectorRegistry
from tests.simulation.views import Broken, ViewWorld

from streamtable.base.types import RecordBatch
from streamtable.observe import Metrics
from streamtable.tables.position import TablePosition
from streamtable.tables.recovery import Load, plan_replica, why_discard
from streamtable.tables.replica import PartitionReplica
from streamtable.views.read_your_writes import CommitWatcher
from streamtable.views.watch import Watches

SEEDS = 150
Plant = Callable[[pytest.MonkeyPatch], None]


def first_broken(seeds: Iterable[int]) -> str | None:
    metrics = Metrics.register(CollectorRegistry())
    for seed in seeds:
        world = ViewWorld(seed, metrics)
        try:
            world.run()
        except Broken as broken:
            return f"seed {seed}: {broken}; {world.trace}"
    return None


def test_no_schedule_makes_a_view_show_anything_but_its_topic() -> None:
    assert first_broken(range(SEEDS)) is None


@pytest.mark.faults_long
@pytest.mark.timeout(0)
def test_no_new_schedule_makes_a_view_show_anything_but_its_topic() -> None:
    first = int(os.environ.get("FAULTS_SEED", "20260")) * 1_000_000
    end = time.monotonic() + float(os.environ.get("FAULTS_SECONDS", "120")) / 4
    assert first_broken(takewhile(lambda _: time.monotonic() < end, count(first))) is None


def position_raised_to_the_start_of_the_topic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "streamtable.tables.replica_set.plan_replica",
        lambda log, local, now: Load(why_discard(log, local, now)),
    )
    patch.setattr(PartitionReplica, "behind_start", lambda *_: None)


def watches_not_ended_when_a_copy_is_loaded_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Watches, "reloaded", lambda *_: None)


def waiting_ends_one_position_early(patch: pytest.MonkeyPatch) -> None:
    class Early(TablePosition):
        @staticmethod
        def decode(metadata: str) -> TablePosition | None:
            found = TablePosition.decode(metadata)
            return found and replace(found, changelog=max(0, found.changelog - 1))

    patch.setattr("streamtable.views.view.TablePosition", Early)


def waiting_ends_one_event_early(patch: pytest.MonkeyPatch) -> None:
    wait = CommitWatcher.wait
    patch.setattr(
        CommitWatcher, "wait", lambda self, group, place, offset, s: wait(self, group, place, offset - 1, s)
    )


def age_of_a_copy_ignored(patch: pytest.MonkeyPatch) -> None:
    """Deleted keys come back from a replica that is older than the tombstones."""
    patch.setattr(
        "streamtable.tables.replica_set.plan_replica", lambda log, local, _: plan_replica(log, local, 0.0)
    )
    patch.setattr(PartitionReplica, "outlived", lambda *_: None)


def deletions_lost_while_a_copy_loads(patch: pytest.MonkeyPatch) -> None:
    apply = PartitionReplica._apply

    def apply_without_deletions(self: PartitionReplica, records: RecordBatch) -> None:
        if not self.complete:
            self._expand = lambda _, rows: [(key, value) for key, value in rows if value is not None]
        apply(self, records)
        self._expand = None

    patch.setattr(PartitionReplica, "_apply", apply_without_deletions)


def whole_one_record_early(patch: pytest.MonkeyPatch) -> None:
    observe = PartitionReplica.observe_end
    patch.setattr(
        PartitionReplica, "observe_end", lambda self, at, low, end: observe(self, at, low, max(0, end - 1))
    )


@pytest.mark.parametrize(
    "plant",
    [
        age_of_a_copy_ignored,
        deletions_lost_while_a_copy_loads,
        whole_one_record_early,
        position_raised_to_the_start_of_the_topic,
        watches_not_ended_when_a_copy_is_loaded_again,
        waiting_ends_one_position_early,
        waiting_ends_one_event_early,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_fault_that_is_planted_in_views_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert first_broken(range(SEEDS)) is not None


def test_schedules_wait_for_events_that_come_and_for_some_that_do_not() -> None:
    metrics = Metrics.register(CollectorRegistry())
    worlds = [ViewWorld(seed, metrics) for seed in range(20)]
    for world in worlds:
        world.run()
    assert sum(world.waited for world in worlds) > 20
