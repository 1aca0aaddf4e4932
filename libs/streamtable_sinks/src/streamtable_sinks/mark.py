"""The metadata that a sink commits with each offset in Kafka: how the offset relates to the target's position.

Kafka's offset may be ahead of the target's position: behind records that went to the dead letters, which the target never sees,
and behind transaction markers. So the position is recorded beside it. The record also tells a first start, and an offset that
a tool has set, from one that a sink has committed.
"""

from collections.abc import Mapping
from contextlib import suppress
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


def position_of(committed: Committed | None, topic: str) -> Position:
    """Return the target's position at the commit of an offset. None: there is no offset."""
    if committed is None:
        return Unknown.NEW
    with suppress(ValueError):
        match orjson.loads(committed.metadata):
            case {"sink": {**positions}}:
                found: Any = positions.get(topic)
                return found if isinstance(found, int) else Unknown(found)
    return Unknown.RESET


def document(positions: Mapping[str, Position]) -> Mapping[str, Any]:
    """Return the JSON that is committed with the offsets of a partition, from the target's position in each topic."""
    return {"sink": {topic: getattr(each, "value", each) for topic, each in positions.items()}}
