"""The fast form of the tests, `pytest --fast`: what needs no server and takes no time. `make test-fast` runs it at each save.

Left out is what a marker says, and each test that took longer than `EXPENSIVE_SECONDS` when tests/budgets.toml was last written.
Tests that try many cases try fewer instead, and are left out only if that would take as long too.
"""

import tomllib
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import is_hypothesis_test, settings
from tests.costs import BUDGETS, ELSEWHERE, EXPENSIVE_SECONDS

FEWER: Final = 5
"""The factor by which examples and seconds of simulation are fewer than in `make test`."""


def left_out(item: pytest.Item, seconds: Mapping[str, float]) -> bool:
    """Whether the fast form goes without a test; `seconds` are those that each test that took long has taken."""
    if any(map(item.get_closest_marker, ELSEWHERE)):
        return True
    takes = seconds.get(item.nodeid, 0.0)
    return takes / FEWER > EXPENSIVE_SECONDS if tries_many(item) else takes > EXPENSIVE_SECONDS


def tries_many(item: pytest.Item) -> bool:
    """Whether it tries as many cases as it is asked to: with Hypothesis, or for as long as the fixture `seconds` says."""
    return is_hypothesis_test(_function(item)) or "seconds" in getattr(item, "fixturenames", ())


def with_fewer_examples(function: Any) -> None:
    """Let a test of Hypothesis try fewer examples, those that it has asked for by a number as well."""
    # A profile changes only tests without a number of their own. Hypothesis reads this attribute when the test runs.
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
        help="leave out tests with servers and those that take long, and try fewer examples",
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
