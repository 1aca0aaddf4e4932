"""Tables in memory, for tests of what stands in front of them."""

import pytest

from contracts.records import Reach
from servicekit_testing import MemoryTable


@pytest.fixture
def reaches() -> MemoryTable[Reach]:
    return MemoryTable()
