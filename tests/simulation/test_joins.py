"""Joins in the simulation: their output follows the definition despite all faults, and planted bugs are found."""

import os
from collections.abc import Mapping
from functools import cache
from itertools import count
from random import Random

import pytest
from prometheus_client import CollectorRegistry
from tests.simulation import join_bugs, seeds
from tests.simulation.run import Totals, first_broken, run_seed
from tests.simulation.shape import JOINS, Shape, draw_join
from tests.simulation.test_schedules import Tell

from streamtable.observe import Metrics

SECONDS = 2.0
SECONDS_MAX = 90.0
BEGIN_AT: Mapping[str, int] = seeds.read()["joins"]


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    return Metrics.register(CollectorRegistry())


def test_no_schedule_breaks_a_promise_of_a_join(first_seed: int, seconds: float, tell: Tell) -> None:
    totals = Totals()
    broken = first_broken(count(first_seed), min(seconds, SECONDS), totals, draw_join)
    tell(totals, first_seed)
    if broken is not None:
        pytest.fail(broken.report(), pytrace=False)


def test_a_schedule_whose_rewind_read_a_damaged_store_loads_it_again() -> None:
    """A commit found the damage and was undone, which read the store again, and the process stopped."""
    assert is_sound(300037)


@pytest.mark.faults_long("it runs for as long as all other schedules do")
@pytest.mark.timeout(0)
def test_no_schedule_breaks_a_promise_of_a_join_for_as_long_as_it_is_run(tell: Tell) -> None:
    totals = Totals()
    first = int(os.environ.get("FAULTS_SEED", "20260")) * 1_000_000
    broken = first_broken(count(first), float(os.environ.get("FAULTS_SECONDS", "120")), totals, draw_join)
    tell(totals, first)
    if broken is not None:
        pytest.fail(broken.report(), pytrace=False)


@pytest.mark.parametrize("name", BEGIN_AT)
def test_a_bug_planted_in_a_join_is_found(name: str) -> None:
    plant: join_bugs.Plant = getattr(join_bugs, name)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = first_broken(count(BEGIN_AT[name]), SECONDS_MAX, Totals(), draw_join)
    assert found, "the bug was not found"
    assert is_sound(found.seed)


@cache
def is_sound(seed: int) -> bool:
    """Whether a schedule breaks no promise without a planted bug; once for all bugs that it finds, as it is always the same."""
    return run_seed(seed, Metrics.register(CollectorRegistry()), drawn=draw_join).broken is None


def test_every_bug_that_can_be_planted_in_a_join_is_looked_for() -> None:
    assert seeds.plants_of(join_bugs) == BEGIN_AT.keys()


def test_a_schedule_of_a_join_is_the_same_in_each_run(metrics: Metrics) -> None:
    first = run_seed(3, metrics, drawn=draw_join)
    assert run_seed(3, metrics, drawn=draw_join).trace.digest() == first.trace.digest()


def test_every_kind_of_join_is_drawn() -> None:
    drawn: list[Shape] = [draw_join(Random(seed)) for seed in range(1, 60)]
    assert {shape.join.kind for shape in drawn if shape.join is not None} == set(JOINS)
