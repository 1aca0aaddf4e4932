"""Topics with a meaning: a `Stream` of events, a `Table` of latest values by key."""

import re
from dataclasses import dataclass
from typing import Generic, TypeVar

from streamtable.errors import GraphError
from streamtable.ports import Codec

K = TypeVar("K")
V = TypeVar("V")

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule


def legal_name(name: str, what: str) -> str:
    """Return the name if Kafka accepts it as a topic's. Raises `GraphError` with the rule if not."""
    if name in {".", ".."} or not _LEGAL.fullmatch(name):
        raise GraphError(
            f"{what} {name!r} cannot be a topic name: use 1 to 249 of the characters a-z A-Z 0-9 . _ - "
            "and neither '.' nor '..'"
        )
    return name


@dataclass(frozen=True)
class Stream(Generic[K, V]):
    """A topic of events. The key decides the partition: murmur2 of its bytes, as in Java.

    Args:
        name: of the topic.
        key: codec of the keys.
        value: codec of the events.
    """

    name: str
    key: Codec[K]
    value: Codec[V]

    def __post_init__(self) -> None:
        legal_name(self.name, "stream")


@dataclass(frozen=True)
class Table(Generic[K, V]):
    """A compacted topic: the last value of each key counts, a null value deletes the key.

    Args:
        name: of the topic; a group's own is `<group>-table`, as in Goka.
        key: codec of the keys.
        value: codec of the rows.
    """

    name: str
    key: Codec[K]
    value: Codec[V]

    def __post_init__(self) -> None:
        legal_name(self.name, "table")
