"""Views show what a replay of their topic gives, whatever happens to topic, disk and process."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from tests.simulation.views import Broken, ViewWorld

from streamtable.observe import Metrics
from streamtable.tables.position import TablePosition
from streamtable.tables.replica import PartitionReplica
from streamtable.views.read_your_writes import CommitWatcher
from streamtable.views.watch import Watches

SEEDS = 150
Plant = Callable[[pytest.MonkeyPatch], None]


def first_broken(seeds: int) -> str | None:
    metrics = Metrics.register(CollectorRegistry())
    for seed in range(seeds):
        world = ViewWorld(seed, metrics)
        try:
            world.run()
        except Broken as broken:
            return f"seed {seed}: {broken}; {world.trace}"
    return None


def test_no_schedule_makes_a_view_show_anything_but_its_topic() -> None:
    assert first_broken(SEEDS) is None


def position_raised_to_the_start_of_the_topic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("streamtable.tables.replica_set.behind_start", lambda *_: None)
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


@pytest.mark.parametrize(
    "plant",
    [
        position_raised_to_the_start_of_the_topic,
        watches_not_ended_when_a_copy_is_loaded_again,
        waiting_ends_one_position_early,
        waiting_ends_one_event_early,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_fault_that_is_planted_in_views_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert first_broken(SEEDS) is not None


def test_schedules_wait_for_events_that_come_and_for_some_that_do_not() -> None:
    metrics = Metrics.register(CollectorRegistry())
    worlds = [ViewWorld(seed, metrics) for seed in range(20)]
    for world in worlds:
        world.run()
    assert sum(world.waited for world in worlds) > 20
