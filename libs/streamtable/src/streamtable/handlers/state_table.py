"""The rows of a state table, as handlers read and write them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from streamtable.base.keys import encoded_keys, prefix_span, spans_of
from streamtable.base.ports import Codec

K = TypeVar("K")
V = TypeVar("V")
V_contra = TypeVar("V_contra", contravariant=True)


class DeclaredState(Protocol[K, V]):
    """A state table as a graph declares it. `graph.state.State` implements it."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> Codec[K]: ...
    @property
    def value(self) -> Codec[V]: ...


class StateRows(Protocol[V]):
    """The rows of a state table by encoded key. `tables.ordered_table.OrderedTable` implements it."""

    def get(self, key: bytes) -> V | None: ...
    def get_many(self, keys: Iterable[bytes]) -> list[V | None]: ...
    def changing(self, keys: Iterable[bytes]) -> dict[bytes, V | None]: ...
    def put(self, key: bytes, value: V | None) -> None:
        """Write a row; None deletes it."""

    def replace(self, gone: Collection[bytes], made: Mapping[bytes, V], new: Collection[bytes]) -> None: ...
    def ranges(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, V]]]: ...
    def scan(
        self, start: bytes | None, end: bytes | None, *, at_once: int = ...
    ) -> Iterator[tuple[bytes, V]]: ...
    @property
    def log(self) -> "ExpiringLog[V]":
        """The same rows, for a step that appends rows, remembers them itself, and lets them expire."""


class ExpiringLog(Protocol[V_contra]):
    """The rows of a state table as a log: appended, hardly read again, and gone once they were due.

    The step remembers what it needs of them, in `notes`. `tables.ordered_table.OrderedTable` implements it.
    """

    @property
    def notes(self) -> dict[bytes, Any]:
        """The cache where a step keeps its knowledge of the rows, under keys of its own. A rollback of rows empties it."""

    @property
    def commits(self) -> int:
        """The number of commits so far."""

    @property
    def cache_bytes(self) -> int:
        """About how much memory may be taken for rows, beside those that have changed since the last commit."""

    def append(self, keys: Sequence[bytes], rows: Sequence[V_contra], due_ms: Sequence[int]) -> None:
        """Write rows with new keys; see `OrderedTable.append`."""

    def stored(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return the encoded rows of several ranges, without those that were appended since the last commit."""

    def gone_before_ms(self) -> int:
        """Return a lower bound of all due times: rows that were due earlier have been deleted."""

    def last_due_ms(self) -> int | None:
        """Return the due time of the last row, committed or not; None: there are no rows."""


class StateTable(Generic[K, V]):
    """The rows of a state table in one partition, with the changes of earlier records.

    Args:
        state: The state.
        rows: Its rows by encoded key.

    Attributes:
        raw: The rows by encoded key, for code that works on many rows at once: `raw.changing(keys)` returns a dict
            where the rows of these keys can be replaced.
        late: The number of records since the last commit that came too late for their rows, as for a closed window.
        offered: The number of records since the last commit that could have been late: those given to windows and joins.
    """

    def __init__(self, state: DeclaredState[K, V], rows: StateRows[V]) -> None:
        self.state = state
        self.raw = rows
        self.late = self.offered = 0
        self._encode = state.key.encode

    def get(self, key: K) -> V | None:
        """Return the row of a key; None if there is none.

        A value that is changed in place must still be `put`, or the change is not written.
        """
        return self.raw.get(self._encode(key))

    def get_many(self, keys: Iterable[K]) -> dict[K, V | None]:
        """Return the rows of several keys, None where there is none. Equal keys are refused as by `View.get_many`."""
        encoded = encoded_keys(self.state.key, keys)
        return dict(zip(encoded, self.raw.get_many(encoded.values()), strict=True))

    def put(self, key: K, row: V) -> None:
        """Write the row of a key."""
        if row is None:
            raise TypeError("a row cannot be None: use delete()")
        self.raw.put(self._encode(key), row)

    def delete(self, key: K) -> None:
        """Remove the row of a key."""
        self.raw.put(self._encode(key), None)

    def range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """Iterate over the rows with start <= key < end in the order of their keys.

        Without bounds, rows whose keys have no order, as in Avro and JSON, are in the order of their encoded keys. Rows may be
        written meanwhile; whether the rows beyond the current one are seen as they were before is not defined.

        Args:
            start: The first key; None: from the beginning.
            end: The key behind the last one; None: to the end.

        Raises:
            GraphError: The keys have no order, as with Avro and JSON.
        """
        spans = spans_of(self.state.key, start, end, self.state.name)
        return (row for span in spans for row in self._decoded(*span))

    def prefix(self, key: K) -> Iterator[tuple[K, V]]:
        """Iterate over the rows whose encoded keys begin with the encoded key, in the order of their encoded keys.

        Raises:
            GraphError: No other key can begin with it, as with Avro and JSON.
        """
        return self._decoded(*prefix_span(self.state.key, key, self.state.name))

    def work_on(self, rows: StateRows[V]) -> None:
        """Read and write these rows from now on."""
        self.raw = rows

    def _decoded(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[K, V]]:
        decode = self.state.key.decode
        return ((decode(key), row) for key, row in self.raw.scan(start, end))
