"""A partition of a group's table while it is being worked on: decoded rows over a store.

Reads go to the rows in memory first, then to the store. Changed rows stay decoded until the commit encodes each of
them once, however often it changed. Nothing reaches the store before the commit.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Generic, TypeVar

from streamtable.errors import Fatal, PoisonRecord, Unencodable
from streamtable.ports import Codec, Store

V = TypeVar("V")

# What a dict entry, a bytes key and a small value cost in CPython beside the payload itself.
_ROW_OVERHEAD_BYTES = 150


class PartitionTable(Generic[V]):
    """Rows of one partition by encoded key. One thread.

    Args:
        store: the committed rows. The table never writes to it; the commit does, with what `changes` returned.
        codec: of the rows.
        cache_bytes: about how much memory decoded rows may take between two commits.
    """

    def __init__(self, store: Store, codec: Codec[V], cache_bytes: int) -> None:
        self.store = store
        self._codec = codec
        self.cache_bytes = cache_bytes
        self._rows: dict[bytes, V | None] = {}  # None: known not to exist
        self._changed: set[bytes] = set()
        self._row_bytes = 64.0  # running mean of an encoded row and its key

    def get(self, key: bytes) -> V | None:
        try:
            return self._rows[key]
        except KeyError:
            return self._load(key)

    def get_many(self, keys: Iterable[bytes]) -> list[V | None]:
        """Rows in the order of the keys."""
        keys = list(keys)
        rows = self._rows
        for key in [key for key in keys if key not in rows]:
            self._load(key)
        return list(map(rows.__getitem__, keys))

    def put(self, key: bytes, value: V) -> None:
        self._rows[key] = value
        self._changed.add(key)

    def put_many(self, rows: Mapping[bytes, V]) -> None:
        self._rows.update(rows)
        self._changed.update(rows)

    def delete(self, key: bytes) -> None:
        self._rows[key] = None
        self._changed.add(key)

    @property
    def changed_bytes(self) -> int:
        """About how many bytes the next commit will write."""
        return int(len(self._changed) * self._row_bytes)

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """The changed rows, encoded; None for a deleted one.

        Raises:
            Unencodable: a row does not fit its schema.
        """
        rows, encode = self._rows, self._codec.encode
        encoded = [(key, None if (row := rows[key]) is None else encode(row)) for key in self._changed]
        if encoded:
            total = sum(len(key) + len(value or b"") for key, value in encoded)
            self._row_bytes = 0.5 * self._row_bytes + 0.5 * total / len(encoded)
        return encoded

    def encoded_size(self, key: bytes) -> int:
        """Bytes of one changed row as Kafka will carry it. Raises `Unencodable`."""
        row = self._rows.get(key)
        return len(key) + (0 if row is None else len(self._codec.encode(row)))

    @contextmanager
    def checked(self, bytes_max: int) -> Iterator[None]:
        """Within, each changed row is encoded at once: the record that makes it too large is found by its error.

        Raises:
            Unencodable: at the end of the block; the table must then be told to forget.
        """
        before, self._changed = self._changed, set()
        yield
        for key in self._changed:
            refuse_if_larger(self.encoded_size(key), bytes_max, "a row of the table")
        before |= self._changed
        self._changed = before

    def committed(self) -> None:
        """The changes are in the store now. Drops the oldest rows that memory has no room for."""
        self._changed = set()
        room = int(self.cache_bytes / (self._row_bytes + _ROW_OVERHEAD_BYTES))
        if len(self._rows) > room:
            # A quarter at once: a dict that loses a few of its first entries again and again is scanned each time.
            for key in list(islice(self._rows, len(self._rows) - room * 3 // 4)):
                del self._rows[key]

    def forget(self) -> None:
        """Drop all rows in memory, also the clean ones: a handler may have changed values in place."""
        self._rows = {}
        self._changed = set()

    def _load(self, key: bytes) -> V | None:
        data = self.store.get(key)
        row: V | None = None
        if data is not None:
            try:
                row = self._codec.decode(data)
            except PoisonRecord as error:
                # Not the disk's fault, which checksums would have shown: the changelog holds the same bytes, so
                # loading it again would never end.
                raise Fatal(
                    f"the table's row for key {key!r} cannot be decoded: {error.message}; was it written with another "
                    "codec or by another program?"
                ) from error
        self._rows[key] = row
        return row


def refuse_if_larger(size: int, limit: int, what: str) -> None:
    """Raise `Unencodable` if something would not fit into a Kafka record."""
    if size > limit:
        raise Unencodable(f"{what} has {size:,} bytes, more than the {limit:,} that its topic accepts")
