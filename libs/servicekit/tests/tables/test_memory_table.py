from collections.abc import Mapping

import pytest

from servicekit.tables.protocol import age_seconds
from servicekit_testing import MemoryPosition, MemoryTable
from streamtable.errors import NotReady


class TwoPartitions(MemoryTable[int]):
    def position(self) -> Mapping[int, MemoryPosition]:
        return {0: MemoryPosition(0.5), 1: MemoryPosition(7.0)}


def test_a_table_is_as_old_as_its_oldest_partition() -> None:
    assert age_seconds(TwoPartitions()) == 7.0


def test_a_table_that_is_being_loaded_has_no_age() -> None:
    table = TwoPartitions()
    table.ready = False
    with pytest.raises(NotReady):
        age_seconds(table)
