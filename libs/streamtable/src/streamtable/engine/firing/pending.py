"""Counts the rows of a state table that have not fallen due: open windows, pending timers. A little of it at a time."""

from streamtable.engine.due.index import DueIndex


class PendingRows:
    """Counts the committed entries of an index in passes, each of many steps, so that no step scans all of them.

    Args:
        index: The entries of one partition of a state table.

    Attributes:
        rows: The number of rows as of the last pass; during the first pass, the number counted so far.
    """

    def __init__(self, index: DueIndex) -> None:
        self.rows = 0
        self._index = index
        self._next = b""
        self._counted = 0
        self._passes = 0

    def step(self, limit: int) -> int:
        """Count at most `limit` further entries. Returns `rows`. Called by one thread, also while another changes the rows.

        Raises:
            StoreCorrupted: The store is damaged.
        """
        with self._index.unfired_from(self._next) as found:
            for local, rows in found:
                self._counted += rows
                limit -= rows
                self._next = local + b"\0"
                if limit <= 0:
                    break
            else:
                self.rows, self._counted, self._next = self._counted, 0, b""
                self._passes += 1
        if not self._passes:
            self.rows = self._counted
        return self.rows
