"""The keys of pending changes, which are emitted at a time: the key of the row, then the time."""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from streamtable.base.decoding import ItemCodec
from streamtable.base.ports import Codec
from streamtable.errors import DeserializationError
from streamtable.flow.windows.keys import START

K = TypeVar("K")


class Pending(NamedTuple, Generic[K]):
    """The key of a pending change.

    Attributes:
        key: The key of the row.
        at_ms: The event time of its emission.
    """

    key: K
    at_ms: int


@dataclass(frozen=True, repr=False, eq=False)
class PendingKey(ItemCodec[Pending[K]]):
    """A codec of the keys of pending changes: the bytes of the row's key, then the time as 8 bytes, big-endian.

    Args:
        key: The codec of the keys of the rows.
    """

    key: Codec[K]

    def encode(self, value: Pending[K]) -> bytes:
        return self.key.encode(value.key) + START.pack(value.at_ms)

    def decode(self, data: bytes) -> Pending[K]:
        at_ms = emitted_at(data, b"")
        if at_ms is None:
            raise DeserializationError(f"the key of a pending change has {len(data)} bytes, at least 8")
        return Pending(self.key.decode(data[: -START.size]), at_ms)


def emitted_at(key: bytes, _: bytes) -> int | None:
    """Return when a pending change is emitted, from its encoded key; None: it is not the key of a pending change."""
    return int(START.unpack_from(key, len(key) - START.size)[0]) if len(key) >= START.size else None
