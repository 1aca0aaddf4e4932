"""The library's pytest plugin: the fixture `tester`, and its summary in the report of a test that fails.

It is a separate package because pytest imports it at every start, even in projects that do not test processors, and
importing anything in `streamtable` imports all of it.
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamtable_testing import Tester


@pytest.fixture
def tester() -> Iterator["Tester"]:
    """Run groups without a broker in one test; see `streamtable_testing.Tester`."""
    from streamtable_testing import Tester  # noqa: PLC0415 - only if a test uses it

    with Tester() as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the summary of the tester to the report of a test that has failed."""
    report = yield
    tester: Tester | None = getattr(item, "funcargs", {}).get("tester")
    if call.when == "call" and report.failed and tester is not None and (summary := tester.summary()):
        report.sections.append(("Tester", summary))
    return report
