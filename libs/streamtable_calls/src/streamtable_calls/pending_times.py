"""The event times of pending rows, so that the watermark that is passed on stays behind the oldest of them."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from streamtable import StateTable
from streamtable.handlers.timers import payload_of
from streamtable_calls.pending import OWN, PendingCall

_SPARE = 1000


class PendingTimes:
    """The event times of the pending rows of a partition. All rows are read when it is first asked, and after a rewind.

    Args:
        rows: The rows.
    """

    def __init__(self, rows: StateTable[bytes, bytes]) -> None:
        self._rows = rows
        # With rows that are gone, up to the first that is not.
        self._heap: list[tuple[int, bytes]] | None = None
        self._entries_max = 0  # then those that are gone are dropped, if the oldest one stays for long
        self._known: set[bytes] = set()

    def oldest_ms(self, changed: Iterable[bytes]) -> int | None:
        """Return the least event time of a pending row, in milliseconds since 1970; None: there is none.

        Args:
            changed: The keys of all rows that were written since the last commit. It must be asked before each commit.
        """
        if self._heap is None or len(self._heap) > self._entries_max:
            self._heap = [
                (time_ms, row_key)
                for row_key, data in self._rows.raw.scan(None, None)
                if (time_ms := _time_of(row_key, data))
            ]
            heapify(self._heap)
            self._entries_max = 2 * len(self._heap) + _SPARE
            self._known = {row_key for _, row_key in self._heap}
        for row_key in changed:
            if row_key not in self._known and (time_ms := _time_of(row_key, self._rows.raw.get(row_key))):
                heappush(self._heap, (time_ms, row_key))
                self._known.add(row_key)
        while self._heap and self._rows.raw.get(self._heap[0][1]) is None:
            self._known.discard(heappop(self._heap)[1])
        return self._heap[0][0] if self._heap else None

    def forget(self) -> None:
        """Read all rows again: they are as they were at the last commit."""
        self._heap = None


def _time_of(row_key: bytes, data: bytes | None) -> int:
    """Return the event time of a row; 0: it has none."""
    return 0 if data is None or row_key.startswith(OWN) else PendingCall.decode(payload_of(data)).made_ms
