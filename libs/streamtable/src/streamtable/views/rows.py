"""Decodes the rows of a view. Lists skip and count the rows that cannot be decoded."""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

import structlog

from streamtable.base.topics import Table
from streamtable.errors import DeserializationError, UnreadableRow
from streamtable.observe import Metrics

K = TypeVar("K")
V = TypeVar("V")
log = structlog.get_logger()

_LOGGED_MAX = 1_000
OnUnreadable = Callable[[UnreadableRow], object]
"""Called with the error of each skipped row. An error that it raises is raised to the reader."""


class RowList(list[tuple[K, V]]):
    """Rows of a table as a list.

    Attributes:
        unreadable: The number of rows that were skipped because they cannot be decoded.
    """

    unreadable: int = 0


@dataclass(eq=False, repr=False)
class RowIterator(Iterator[tuple[K, V]]):
    """Rows of a table, one after the other.

    Attributes:
        unreadable: The number of rows skipped so far because they cannot be decoded.
    """

    _encoded: Iterable[tuple[bytes, bytes]]
    _decode: Callable[[bytes, bytes], tuple[K, V]]
    _found: OnUnreadable
    unreadable: int = 0

    def __post_init__(self) -> None:
        self._rows = self._decoded()

    def _decoded(self) -> Generator[tuple[K, V], None, None]:
        for key, value in self._encoded:
            try:
                row = self._decode(key, value)
            except UnreadableRow as error:
                self.unreadable += 1
                self._found(error)
            else:
                yield row

    def __next__(self) -> tuple[K, V]:
        return next(self._rows)

    def taken(self, limit: int | None = None) -> RowList[K, V]:
        """Return the next rows as a list, at most `limit` of them, and close it."""
        rows: RowList[K, V] = RowList(islice(self, limit))
        rows.unreadable = self.unreadable
        self.close()
        return rows

    def close(self) -> None:
        """Release the store, which otherwise happens when the iterator is collected."""
        self._rows.close()


class RowReader(Generic[K, V]):
    """Decodes rows of one view. Any thread.

    Args:
        table: The table, for its codecs.
        partition: The partition of an encoded key.
        metrics: Counts unreadable rows.
        view: The name of the view, on the metric and in the log.

    Attributes:
        table: The table.
        unreadable: The number of times that a row could not be decoded; the same row counts each time that it is read.
    """

    def __init__(
        self, table: Table[K, V], partition: Callable[[bytes], int], metrics: Metrics, view: str
    ) -> None:
        self.unreadable = 0
        self.table = table
        self._partition = partition
        self._metrics = metrics
        self._view = view
        self._logged: OrderedDict[bytes, None] = OrderedDict()
        self._lock = Lock()

    def row(self, key: bytes, data: bytes) -> tuple[K, V]:
        """Return key and value. Raises `UnreadableRow`, which is counted."""
        return self.key(key, data), self.value(key, data)

    def key(self, key: bytes, data: bytes | None, position: int | None = None) -> K:
        """Return the key of a row. Raises `UnreadableRow`, which is counted."""
        try:
            return self.table.key.decode(key)
        except DeserializationError as error:
            raise self._found(key, data, position, error) from error

    def value(self, key: bytes, data: bytes, position: int | None = None) -> V:
        """Return the value of a row. Raises `UnreadableRow`, which is counted.

        Args:
            key: encoded.
            data: encoded.
            position: An offset that the row's record lies before, if one is known.
        """
        try:
            return self.table.value.decode(data)
        except DeserializationError as error:
            raise self._found(key, data, position, error) from error

    def _found(
        self, key: bytes, data: bytes | None, position: int | None, cause: DeserializationError
    ) -> UnreadableRow:
        partition = self._partition(key)
        error = UnreadableRow(
            cause.message, key=key, topic=self.table.name, partition=partition, position=position
        )
        self._metrics.view_unreadable.labels(self._view, self.table.name, str(partition)).inc()
        with self._lock:
            self.unreadable += 1
            first = key not in self._logged
            self._logged[key] = None
            if len(self._logged) > _LOGGED_MAX:
                self._logged.popitem(last=False)
        if first:
            log.warning(
                "unreadable row skipped",
                view=self._view,
                table=self.table.name,
                partition=partition,
                key=repr(key[:100]),
                bytes=len(data or b""),
                reason=cause.message,
            )
        return error
