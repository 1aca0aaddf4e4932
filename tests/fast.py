"""The fast form of the tests, `pytest --fast`: quick tests without a server. `make test-fast` is meant for every save.

It leaves out tests with certain markers, and tests that took longer than `EXPENSIVE_SECONDS` when tests/budgets.toml
was last written. Tests with many cases run fewer of them instead, and are left out only if that would take too long as
well.
"""

import tomllib
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import is_hypothesis_test, settings
from tests.costs import BUDGETS, ELSEWHERE, EXPENSIVE_SECONDS

FEWER: Final = 5
"""The divisor of the examples and the seconds of simulation, compared with `make test`."""


def left_out(item: pytest.Item, seconds: Mapping[str, float]) -> bool:
    """Return whether the fast form leaves out a test; `seconds` has the durations of slow tests."""
    if any(map(item.get_closest_marker, ELSEWHERE)):
        return True
    takes = seconds.get(item.nodeid, 0.0)
    return takes / FEWER > EXPENSIVE_SECONDS if tries_many(item) else takes > EXPENSIVE_SECONDS


def tries_many(item: pytest.Item) -> bool:
    """Return whether its number of cases is adjustable: by Hypothesis, or by the fixture `seconds`."""
    return is_hypothesis_test(_function(item)) or "seconds" in getattr(item, "fixturenames", ())


def with_fewer_examples(function: Any) -> None:
    """Reduce the examples of a Hypothesis test, also if it sets their number itself."""
    # A profile affects only tests that do not set a number. Hypothesis reads this attribute when the test runs.
    usual: settings = function._hypothesis_internal_use_settings or settings()
    fewer = settings(usual, max_examples=max(1, usual.max_examples // FEWER))
    function._hypothesis_internal_use_settings = fewer


def _function(item: pytest.Item) -> Any:
    function = getattr(item, "obj", None)
    return getattr(function, "__func__", function)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help="leave out tests with servers and slow tests, and try fewer examples",
    )


@pytest.hookimpl(trylast=True)  # when fixtures and folders have given their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--fast"):
        return
    seconds = tomllib.loads(BUDGETS.read_text())["seconds-of-tests"]
    out = [item for item in items if left_out(item, seconds)]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if not left_out(item, seconds)]
    for function in {function for item in items if is_hypothesis_test(function := _function(item))}:
        with_fewer_examples(function)
