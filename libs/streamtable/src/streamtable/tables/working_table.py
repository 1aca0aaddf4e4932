"""A partition of a group's table in a task: decoded rows over a store.

Reads go to the rows in memory first, then to the store. Changed rows stay decoded until the commit encodes each of
them once, however often it changed. Nothing reaches the store before the commit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from streamtable.base.ports import Codec, CommittedRows
from streamtable.errors import DeserializationError, Fatal, SerializationError
from streamtable.tables.row_cache import RowCache

V = TypeVar("V")


class WorkingTable(RowCache[V]):
    """The rows of one partition by encoded key. One thread.

    Args:
        store: The committed rows. The table never writes to it; the commit does, with what `changes` returned.
        codec: The codec of the rows.
        cache_bytes: About how much memory decoded rows may take, beside those that have changed since the last commit.
    """

    def __init__(self, store: CommittedRows, codec: Codec[V], cache_bytes: int) -> None:
        super().__init__(cache_bytes)
        self.store = store
        self._codec = codec
        self._changed: set[bytes] = set()
        self._row_bytes = 64.0  # running mean of an encoded row that has changed, and its key

    def get_many(self, keys: Iterable[bytes]) -> list[V | None]:
        """Return rows in the order of the keys."""
        keys = list(keys)
        if self._crowded:  # evicted now, as all of these rows must then be in memory together
            self._make_room()
        rows = self._rows
        self._load_all([key for key in keys if key not in rows])
        return list(map(rows.__getitem__, keys))

    def changing(self, keys: Iterable[bytes]) -> dict[bytes, V | None]:
        """Return all cached rows, these loaded (None: there is none) and marked as changed, to be changed in place."""
        changed = keys if isinstance(keys, set) else set(keys)
        if self._crowded:
            self._make_room()
        self._load_all(changed.difference(self._rows))
        self._changed |= changed
        return self._rows

    def put(self, key: bytes, value: V | None) -> None:
        """Write a row; None deletes it."""
        self._rows[key] = value
        self._changed.add(key)

    @property
    def changed_bytes(self) -> int:
        """About how many bytes the next commit will write."""
        return int(len(self._changed) * self._row_bytes)

    @property
    def changed_memory(self) -> int:
        """About how many bytes of memory the rows take that have changed since the last commit."""
        return self._sizes.memory_of_rows(len(self._changed))

    def changes(
        self, bytes_max: int, encoded: Mapping[bytes, bytes | None] | None = None
    ) -> list[tuple[bytes, bytes | None]]:
        """Return the changed rows in the order of their keys, encoded; None for a deleted one.

        Args:
            bytes_max: The most that an encoded row and its key may have.
            encoded: Rows that are encoded already.

        Raises:
            SerializationError: A row does not fit its schema, or has more bytes than `bytes_max`.
        """
        if not self._changed:
            return []
        encode = self._codec.encode
        keys = sorted(self._changed)  # sorted writes cost RocksDB half the time
        if encoded:
            values = [encoded[key] if key in encoded else self.encoded(key) for key in keys]
        else:
            values = [None if row is None else encode(row) for row in map(self._rows.__getitem__, keys)]
        key_sizes, value_sizes = list(map(len, keys)), [len(value or b"") for value in values]
        if max(key_sizes) + max(value_sizes) > bytes_max:  # perhaps: if they are of one row
            largest = max(map(sum, zip(key_sizes, value_sizes, strict=True)))
            refuse_if_larger(largest, bytes_max, "a row of the table")
        mean = (sum(key_sizes) + sum(value_sizes)) / len(keys)
        self._row_bytes = 0.5 * self._row_bytes + 0.5 * mean
        middle = len(keys) // 2
        self._sizes.sample(keys[middle], value_sizes[middle], self._rows[keys[middle]])
        self._sizes.settle(len(self._rows), len(keys), mean)
        return list(zip(keys, values, strict=True))

    def keys_after(self, after: bytes | None, limit: int) -> tuple[list[bytes], bytes, bool]:
        """Return the keys of the next rows in order, uncommitted ones included.

        Args:
            after: Begin behind this key; None: at the first.
            limit: The maximum number of rows that are read from the store.

        Returns:
            Their keys; the key to continue after; whether there are no more.
        """
        with self.store.scan(None if after is None else after + b"\0") as rows:
            stored = [key for key, _ in islice(rows, limit)]
        done = len(stored) < limit
        found = set(stored).union(
            key for key in self._changed if (after is None or key > after) and (done or key <= stored[-1])
        )
        keys = sorted(key for key in found if self._rows.get(key, True) is not None)
        last = keys[-1:] if done else stored[-1:]
        return keys, last[0] if last else after or b"", done

    def is_changed(self, key: bytes) -> bool:
        """Return whether the row was changed since the last commit."""
        return key in self._changed

    def encoded(self, key: bytes) -> bytes | None:
        """Return a changed row as the commit writes it. Raises `SerializationError`."""
        row = self._rows.get(key)
        return None if row is None else self._codec.encode(row)

    def restore(self, key: bytes, data: bytes | None, *, changed: bool) -> None:
        """Put a row back as it was before a record; its value may have been changed in place.

        Args:
            key: The row's encoded key.
            data: The encoded row; None if it was deleted. Not looked at if it was not changed.
            changed: Whether it had been changed since the last commit; else the store has it.
        """
        if changed:
            self._rows[key] = None if data is None else self._codec.decode(data)
            self._changed.add(key)
        else:
            self._rows.pop(key, None)
            self._changed.discard(key)

    def committed(self) -> None:
        """Forget the changes, which are in the store now, and drop the oldest rows that exceed the memory limit."""
        self._changed = set()
        self._make_room()

    def forget(self) -> None:
        """Drop all cached rows, also unchanged ones: a handler may have changed values in place."""
        self._rows = {}
        self._changed = set()

    def _load(self, key: bytes) -> V | None:
        data = self.store.get(key)
        row = None if data is None else self._decoded(key, data)
        self._count(key, data, row)
        self._rows[key] = row
        return row

    def _load_all(self, keys: Collection[bytes]) -> None:
        """Load rows that are not in the cache, read and decoded together."""
        if not keys:
            return
        keys = list(keys)
        found = []
        for key, data in zip(keys, self.store.get_many(keys), strict=True):
            if data is None:
                self._rows[key] = None
                self._count(key, None, None)
            else:
                found.append((key, data))
        if found:
            self._keep(found)

    def _keep(self, found: Sequence[tuple[bytes, bytes]]) -> None:
        """Decode rows of the store together, and keep them in the cache."""
        decoded = self._codec.decode_many([data for _, data in found])
        if decoded.poison:
            self._decoded(*found[min(decoded.poison)])  # raises
        for (key, data), row in zip(found, decoded.values, strict=True):
            self._rows[key] = row
            self._count(key, data, row)

    def _decoded(self, key: bytes, data: bytes) -> V:
        try:
            return self._codec.decode(data)
        except DeserializationError as error:
            # Not the disk's fault, which checksums would have shown: the changelog holds the same bytes, so
            # loading it again would never end.
            raise Fatal(
                f"the table's row for key {key!r} cannot be decoded: {error.message}; was it written with another codec or by another program?"
            ) from error


def refuse_if_larger(size: int, limit: int, what: str) -> None:
    """Raise `SerializationError` if a record would be larger than its topic accepts."""
    if size > limit:
        raise SerializationError(f"{what} has {size:,} bytes, more than the {limit:,} that its topic accepts")
