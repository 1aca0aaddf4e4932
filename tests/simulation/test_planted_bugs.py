"""The simulation finds planted bugs; each breaks one rule of the engine."""

from collections.abc import Mapping
from functools import cache
from itertools import count

import pytest
from prometheus_client import CollectorRegistry
from tests.simulation import bugs, seeds
from tests.simulation.run import Totals, first_broken, run_seed

from streamtable.observe import Metrics

SECONDS_MAX = 90.0
BEGIN_AT: Mapping[str, int] = seeds.read()["planted"]


@pytest.mark.parametrize("name", BEGIN_AT)
def test_a_planted_bug_is_found(name: str) -> None:
    plant: bugs.Plant = getattr(bugs, name)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = first_broken(count(BEGIN_AT[name]), SECONDS_MAX, Totals())
    assert found, "the bug was not found"
    assert is_sound(found.seed)


@cache
def is_sound(seed: int) -> bool:
    """Whether a schedule breaks no promise without a planted bug; once for all bugs that it finds, as it is always the same."""
    return run_seed(seed, Metrics.register(CollectorRegistry())).broken is None


def test_every_bug_that_can_be_planted_is_looked_for() -> None:
    assert seeds.plants_of(bugs) == BEGIN_AT.keys()
