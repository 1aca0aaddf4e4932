"""Windows in views: the partition of a key's rows, and which of them overlap a range of time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from streamtable.base.ports import WindowedKeys
from streamtable.base.topics import Table
from streamtable.errors import DeserializationError, GraphError

END_MS = (1 << 63) - 1
"""Behind all windows."""
_NEGATIVE = b"\x80"
"""The first byte of a negative number of 8 bytes is at least this. A windowed key ends with the start of the window."""


@dataclass(frozen=True)
class WindowRange:
    """The windows of one key that overlap a range of time.

    Attributes:
        keys: The codec of the table's keys.
        since_ms: The beginning of the range, in milliseconds since 1970.
        until_ms: Its end, exclusive.
        start: The first encoded key.
        end: The encoded key behind the last.
    """

    keys: WindowedKeys[Any]
    since_ms: int
    until_ms: int
    start: bytes
    end: bytes

    @classmethod
    def of(cls, table: Table[Any, Any], key: object, since_ms: int, until_ms: int) -> Self:
        """Return the range of a key.

        Raises:
            GraphError: The table has no windows.
            TypeError: A time is not a whole number, such as a `datetime`.
        """
        keys = table.key
        if not isinstance(keys, WindowedKeys):
            raise GraphError(f"the table {table.name!r} has no windows: its keys are of {keys!r}")
        for time in (since_ms, until_ms):
            if not isinstance(time, int):
                raise TypeError(
                    f"a range of windows begins and ends at milliseconds since 1970, not at {time!r}; of a datetime that is "
                    "int(when.timestamp() * 1000)"
                )
        since_ms, until_ms = (min(max(-END_MS, time), END_MS) for time in (since_ms, until_ms))
        return cls(keys, since_ms, until_ms, *keys.bounds(key, since_ms, until_ms))

    def of_key(self, rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return the rows in the range among these, in the order of the windows."""
        inner = self.keys.inner(self.start)
        # The bytes of a longer key may begin with this key's and look like a time behind it.
        found = [each for each in rows if self.keys.inner(each[0]) == inner and self._overlaps(each[0])]
        # A start before 1970 comes last in the order of bytes.
        found.sort(key=lambda each: each[0][-8:] < _NEGATIVE)
        return found

    def _overlaps(self, data: bytes) -> bool:
        try:
            return self.keys.overlaps(data, self.since_ms, self.until_ms)
        except DeserializationError:  # such a row is skipped, and counted, where it is decoded
            return True
