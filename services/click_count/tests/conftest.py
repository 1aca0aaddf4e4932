"""A table of counts in memory, for tests of what stands in front of it."""

import pytest

from servicekit_testing import MemoryTable


@pytest.fixture
def counts() -> MemoryTable[int]:
    return MemoryTable()
