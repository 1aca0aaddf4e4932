"""A partition of another group's table, as far as this group has followed it (after the tables of Kafka Streams).

A joined table is an input like the others: its records come through the group's consumer and count as applied when
the group has committed their offsets. So a handler sees exactly the same rows again after an aborted commit.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar

from streamtable.base.message import latest
from streamtable.base.ports import Codec, Store
from streamtable.base.types import RecordBatch
from streamtable.errors import DeserializationError
from streamtable.tables.row_cache import RowCache

J = TypeVar("J")


class Missing:
    """The type of `MISSING`: nothing was written for a key."""


MISSING = Missing()


class JoinedTable(RowCache[J]):
    """The rows of one partition by encoded key: uncommitted changes over a store. One thread.

    Args:
        name: The name of the table.
        store: The committed rows. The table never writes to it; the commit writes the rows that `changes` has returned.
        codec: The codec of the rows.
        cache_bytes: About how much memory decoded rows may take.
        timed: Whether to record the event time that the table has reached.
        time_ms: The time that the store has reached.

    Attributes:
        time_ms: The highest timestamp that came, if `timed`.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        codec: Codec[J],
        cache_bytes: int,
        *,
        timed: bool = False,
        time_ms: int = -1,
    ) -> None:
        super().__init__(cache_bytes)
        self.name = name
        self.store = store
        self.time_ms = self._committed_ms = time_ms
        self._timed = timed
        self._codec = codec
        self._new: dict[bytes, bytes | None] = {}
        self._new_bytes = 0  # encoded
        self._unread: set[bytes] = set()
        self._unread_to = 0

    def apply(self, records: RecordBatch) -> None:
        """Apply records of the table's topic; of those with the same key the last one counts."""
        new = latest(records)
        self._new.update(new)
        self._new_bytes += sum(len(key) + len(value or b"") for key, value in new.items())
        for key in new:
            self._rows.pop(key, None)
        if self._timed:
            self.time_ms = max(self.time_ms, *map(records.timestamp, range(len(records))))

    def put(self, key: bytes, data: bytes | None, row: J | None, timestamp_ms: int) -> None:
        """Apply one record that is decoded already."""
        self._new[key] = data
        self._new_bytes += len(key) + len(data or b"")
        if key not in self._rows:
            self._count(key, data, row)
        self._rows[key] = row
        self.time_ms = max(self.time_ms, timestamp_ms)

    def expect(self, keys: Iterable[bytes], end: int) -> None:
        """Expect a record of each of these rows before an offset. `missed` returns the rows for which none has come."""
        self._unread, self._unread_to = set(keys), end

    def missed(self, next_offset: int, most: int) -> list[bytes]:
        """Return rows that were deleted without a record that was left to read, once the table is read up to here."""
        if not self._unread or next_offset < self._unread_to:
            return []
        return list(islice((key for key in self._unread if key not in self._new), most))

    @property
    def whole(self) -> bool:
        """Whether its rows, with the changes since the last commit, are all that the topic had when it was loaded."""
        return self._unread <= self._new.keys()

    def decode_again(self, keys: Iterable[bytes]) -> None:
        """Drop the decoded rows of these keys: a handler that was undone may have changed them in place."""
        for key in keys:
            self._rows.pop(key, None)

    def take_back(self, key: bytes, before: bytes | Missing | None) -> None:
        """Undo a `put`. `before` is the value that `uncommitted` returned for the key then."""
        if isinstance(before, Missing):
            self._new.pop(key, None)
        else:
            self._new[key] = before
        self._rows.pop(key, None)

    def uncommitted(self, key: bytes) -> "bytes | Missing | None":
        """Return the value written for the key since the last commit; `MISSING` if there was none."""
        return self._new.get(key, MISSING)

    @property
    def changed_bytes(self) -> int:
        """About how many bytes the next commit will write to the store."""
        return self._new_bytes

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """Return the changes since the last commit, in the order of the keys."""
        return sorted(self._new.items())

    def committed(self) -> None:
        """Forget the changes, which are in the store now, and drop the oldest decoded rows that exceed the memory limit."""
        self._unread -= self._new.keys()
        self._new, self._new_bytes = {}, 0
        self._committed_ms = self.time_ms
        self._make_room()

    def forget(self) -> None:
        """Drop the changes since the last commit, and all decoded rows: a handler may have changed values in place."""
        self._new, self._new_bytes = {}, 0
        self._rows = {}
        self.time_ms = self._committed_ms

    def _load(self, key: bytes) -> J | None:
        data = self._new[key] if key in self._new else self.store.get(key)
        row: J | None = None
        if data is not None:
            try:
                row = self._codec.decode(data)
            except DeserializationError as error:
                raise DeserializationError(
                    f"the row of the joined table {self.name!r} for key {key!r} cannot be decoded: {error.message}"
                ) from error
        self._count(key, data, row)
        self._rows[key] = row
        return row


Joined = Mapping[str, JoinedTable[Any]]
"""The joined tables of a partition, by name of the table."""
