"""Streams whose records have no keys."""

from collections.abc import Sequence

from streamtable.base.ports import Decoded
from streamtable.errors import SerializationError


class NoKey:
    """A codec that replaces the codec of the keys, for a stream whose records have no keys, or keys that mean nothing.

    Each key is None. Programs that write the stream give None too, and the records are spread over its partitions.
    """

    def encode(self, value: None) -> bytes:  # noqa: ARG002 - of any key
        raise SerializationError("NoKey: the records of this stream have no keys: give None")

    def decode(self, data: bytes) -> None:  # noqa: ARG002 - of any key
        return None

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[None]:
        return Decoded([None] * len(data), {})

    def __repr__(self) -> str:
        return "NoKey()"
