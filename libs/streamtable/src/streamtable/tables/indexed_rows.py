"""The rows of a local store that holds an index of them too, such as the times when they fall due."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamtable.base.ports import Store

ROW, AFTER_ROWS = b"r", b"s"  # what the local keys of rows begin with, and the first that are behind them


class RowsOf:
    """The rows of a store that also holds an index; implements `ports.CommittedRows`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, key: bytes) -> bytes | None:
        return self._store.get(ROW + key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._store.get_many([ROW + key for key in keys])

    @contextmanager
    def scan(
        self, start: bytes | None = None, end: bytes | None = None
    ) -> Iterator[Iterator[tuple[bytes, bytes]]]:
        first, after = ROW + (start or b""), AFTER_ROWS if end is None else ROW + end
        with self._store.scan(first, after) as rows:
            yield ((key[1:], data) for key, data in rows)

    def ranges(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        found = self._store.ranges([(ROW + start, ROW + end) for start, end in bounds])
        return [[(key[1:], data) for key, data in rows] for rows in found]

    def rows_in(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        found = self._store.rows_in([(ROW + start, ROW + end) for start, end in bounds])
        return [(key[1:], data) for key, data in found]
