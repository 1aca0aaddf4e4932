"""The metadata that a sink commits with each offset in Kafka: how the offset relates to the target's position.

Kafka's offset may be ahead of the target's position: behind records that went to the dead letters, which the target never sees,
and behind transaction markers. So the position is recorded beside it. The record also tells a first start, and an offset that
a tool has set, from one that a sink has committed.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson

from streamtable.base.types import Committed


class Unknown(Enum):
    """Why the position of the target is not known."""

    NEW = "new"
    """Kafka has no offset: the target's position counts if it has one."""
    RESET = "reset"
    """A tool has set the offset, and the target has to follow it."""


Position = int | Unknown


@dataclass(frozen=True)
class PositionMark:
    """The record that is committed with the offset of a topic.

    Attributes:
        position: The target's position at the commit.
    """

    position: Position

    @classmethod
    def of(cls, committed: Committed | None, topic: str) -> "PositionMark":
        """Return the mark of a committed offset. None: there is no offset."""
        if committed is None:
            return cls(Unknown.NEW)
        with suppress(ValueError):
            match orjson.loads(committed.metadata):
                case {"sink": {**positions}}:
                    found: Any = positions.get(topic)
                    return cls(found if isinstance(found, int) else Unknown(found))
        return cls(Unknown.RESET)


def document(marks: Mapping[str, PositionMark]) -> Mapping[str, Any]:
    """Return the JSON that is committed with the offsets of a partition."""
    return {"sink": {topic: getattr(mark.position, "value", mark.position) for topic, mark in marks.items()}}
