"""The wait of a task's records for its joined tables."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from streamtable.base.clock import Clock
from streamtable.base.types import RecordBatch
from streamtable.graph.group import Group
from streamtable.tables.joined import JoinedTable


class JoinWait:
    """Finds the records that have to wait for joined tables.

    Args:
        group: The graph, with a join that waits.
        joins: The joined tables, by name.
        clock: Wall time.
    """

    def __init__(self, group: Group[Any, Any], joins: Mapping[str, JoinedTable[Any]], clock: Clock) -> None:
        self._tables = [(joins[join.table.name], int(join.wait * 1000)) for join in group.joins if join.wait]
        self._inputs = {edge.stream.name for edge in group.inputs}
        self._clock = clock

    def first_held(self, records: RecordBatch, waited_to: int) -> int | None:
        """Return the index of the first record that has to wait; None if there is none.

        Args:
            records: Records of one topic.
            waited_to: Records up to and including this offset have already waited.
        """
        if records.topic not in self._inputs:
            return None
        limit = self.joined_until_ms()
        late = range(bisect_right(records.offsets, waited_to), len(records))
        return next((i for i in late if records.timestamp(i) > limit), None)

    def joined_until_ms(self) -> int:
        """Return the latest time of records that need not wait: joined tables have reached it, or the wait is over."""
        now = int(self._clock.now() * 1000)
        return min(max(table.time_ms, now - wait) for table, wait in self._tables)
