"""Tables in memory, for tests of what stands in front of them."""

import pytest

from contracts.records import UserStatus
from servicekit_testing import MemoryTable


@pytest.fixture
def statuses() -> MemoryTable[UserStatus]:
    return MemoryTable()
