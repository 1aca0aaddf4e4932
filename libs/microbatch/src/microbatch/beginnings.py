"""Refuses a group's first start over inputs whose first records were deleted and would never be counted."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamtable.errors import InputLost
from streamtable.types import Committed

if TYPE_CHECKING:
    from microbatch.graph import MicroBatch


class Beginnings:
    """Refuses a first start over inputs whose beginning is gone.

    Args:
        group: the graph. One that keeps no rows counts nothing. Inputs with `start="latest"` are not meant to be read from their beginning; nor is the retry
            topic, whose records are dead letters that were sent again.
    """

    def __init__(self, group: "MicroBatch") -> None:
        self._inputs = [edge.stream.name for edge in group.inputs if group.rows and edge.start == "earliest"]
        self._new: dict[int, list[str]] = {}

    def note(self, partition: int, committed: Mapping[str, Committed | None]) -> None:
        """Note which inputs of a partition the group has never committed an offset for."""
        self._new[partition] = [topic for topic in self._inputs if committed.get(topic) is None]

    def check(self, partition: int, next_offsets: Mapping[str, int]) -> None:
        """Raise `InputLost` if one of these inputs does not begin at offset 0 any more."""
        for topic in self._new.pop(partition, []):
            offset = next_offsets[topic]
            if offset > 0:
                raise InputLost(
                    f"the group begins at offset 0, but the topic begins at {offset}: records were deleted (retention) "
                    "before they were processed. Set the group's offset to accept the loss",
                    topic=topic,
                    partition=partition,
                    offset=0,
                )
