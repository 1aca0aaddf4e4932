"""A pytest plugin that comes with the library: the fixture `tester`.

It is a package of its own because pytest imports it at every start, in projects that do not test processors too, and
importing anything within `streamtable` imports all of it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamtable_testing import Tester


@pytest.fixture
def tester() -> Iterator["Tester"]:
    """Run groups without a broker in one test; see `streamtable_testing.Tester`."""
    from streamtable_testing import Tester  # noqa: PLC0415 - not before a test asks for it

    with Tester() as made:
        yield made
