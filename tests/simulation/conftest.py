"""Options and fixtures of the simulation: `--seed`, its duration, and a summary at the end of the session."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.fast import FEWER
from tests.simulation.run import Totals

_PROPERTY = "simulation"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="run this schedule of the simulation only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--seed`, deselect all tests of the simulation but the one that runs this schedule."""
    if config.getoption("--seed", default=None) is not None:
        others = [i for i in items if __name__.rpartition(".")[0] in i.nodeid.replace("/", ".")]
        others = [i for i in others if "only_seed" not in getattr(i, "fixturenames", ())]
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=others)


@pytest.fixture
def only_seed(request: pytest.FixtureRequest) -> int | None:
    """The requested seed."""
    seed: int | None = request.config.getoption("--seed", default=None)
    return seed


@pytest.fixture
def first_seed() -> int:
    """Return the first seed, which SIMULATION_SEED overrides."""
    return int(os.environ.get("SIMULATION_SEED", "1"))


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    """Return how many seconds schedules run: SIMULATION_SECONDS, and less in the fast form."""
    usual = float(os.environ.get("SIMULATION_SECONDS", "5"))
    return usual / FEWER if request.config.getoption("--fast", default=False) else usual


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[Totals, int], None]:
    """A function that adds a line to the summary: the totals and the first seed."""

    def record(totals: Totals, first: int) -> None:
        # As a property, because under xdist the summary is written by another process.
        record_property(_PROPERTY, f"{totals}, seeds {first}-{first + totals.schedules - 1}")

    return record


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found]
    lines = [
        value
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == _PROPERTY
    ]
    for line in dict.fromkeys(lines):  # setup and teardown report it too
        terminalreporter.write_line(f"simulation: {line}")
