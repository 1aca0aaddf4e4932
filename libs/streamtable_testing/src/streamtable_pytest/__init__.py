"""The library's pytest plugin: the fixture `tester`.

It is a separate package because pytest imports it at every start, even in projects that do not test processors, and
importing anything in `streamtable` imports all of it.
"""

from collections.abc import Iterator
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
