"""A due row as a record, for a dead letter."""

from collections.abc import Sequence
from typing import Any


class DueMessage:
    """Stands for a record where a due row is handled. It has no offset, since the row is in no record of its own."""

    def __init__(self, key: bytes, data: bytes | None, time_ms: int) -> None:
        self._key = key
        self._data = data
        self._time_ms = time_ms

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._data

    def offset(self) -> int:
        return -1

    def headers(self) -> Sequence[Any]:
        return ()

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time_ms
