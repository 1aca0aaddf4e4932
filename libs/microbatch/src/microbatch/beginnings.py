"""Refuses a group's first start over inputs whose first records were deleted and would never be counted."""

from collections.abc import Mapping

from microbatch.declaration import DeclaredBatch
from streamtable.base.types import Committed
from streamtable.errors import InputLost


class Beginnings:
    """Refuses a group's first start over inputs whose first records were deleted.

    Args:
        group: The graph. A group without rows is not checked, as it counts nothing; nor are inputs with
            `start="latest"` and the retry topic.
    """

    def __init__(self, group: DeclaredBatch) -> None:
        self._inputs = [edge.stream.name for edge in group.inputs if group.rows and edge.start == "earliest"]
        self._new: dict[int, list[str]] = {}

    def note(self, partition: int, committed: Mapping[str, Committed | None]) -> None:
        """Record the inputs of a partition without a committed offset."""
        self._new[partition] = [topic for topic in self._inputs if committed.get(topic) is None]

    def check(self, partition: int, next_offsets: Mapping[str, int]) -> None:
        """Raise `InputLost` if one of these inputs no longer begins at offset 0."""
        for topic in self._new.pop(partition, []):
            offset = next_offsets[topic]
            if offset > 0:
                raise InputLost(
                    f"the group begins at offset 0, but the topic begins at {offset}: records were deleted (retention) "
                    "before they were processed. Set the group's offset to accept the loss"
                ).at(topic, partition, 0)
