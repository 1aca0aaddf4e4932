"""What user code sees: `Context` for one record, `Batch` for consecutive ones.

Both are made once per partition and moved along, so a record costs no object. Keep no reference to them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from streamtable.errors import GraphError, StreamtableError
from streamtable.ports import Codec
from streamtable.table import PartitionTable
from streamtable.topics import Stream
from streamtable.types import Headers, RecordBatch

K = TypeVar("K")
E = TypeVar("E")
V = TypeVar("V")
OK = TypeVar("OK")
OV = TypeVar("OV")


class Emit(Protocol):
    """Queue an output record for the next commit. Refuses undeclared topics and records that are too large."""

    def __call__(
        self, stream: Stream[Any, Any], key: Any, value: Any, headers: Headers, timestamp_ms: int
    ) -> None: ...


class Rejected(StreamtableError):
    """Raised by `Context.fail`: the handler refuses the record."""


class _Scope(Generic[K, V]):
    """What a context and a batch have in common: where they stand, and where outputs go."""

    def __init__(self, table: PartitionTable[V] | None, emit: Emit) -> None:
        self._table = table
        self._emit = emit
        self._records: RecordBatch

    @property
    def topic(self) -> str:
        return self._records.topic

    @property
    def partition(self) -> int:
        return self._records.partition

    @property
    def _rows(self) -> PartitionTable[V]:
        if self._table is None:
            # Not the record's fault: with any other error `on_error` would give up record after record.
            raise GraphError("this group keeps no table: add Persist(codec) to its graph")
        return self._table

    def emit(
        self,
        stream: Stream[OK, OV],
        key: OK,
        value: OV | None,
        *,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> None:
        """Write a record to a declared output, in the same commit as everything else.

        Args:
            stream: one that the graph declares as `Output`.
            key: decides the partition.
            value: None writes a tombstone.
            headers: name and bytes, as they are.
            timestamp_ms: since 1970; 0: the time of the commit.

        Raises:
            Unencodable: it does not fit the schema, or is larger than Kafka accepts.
            GraphError: the stream is no declared output.
        """
        self._emit(stream, key, value, headers, timestamp_ms)

    def fail(self, reason: str) -> NoReturn:
        """Refuse the record; what happens then is the input's `on_error`."""
        raise Rejected(reason)


class Context(_Scope[K, V]):
    """One record, and the row of its key. Valid during the call of the handler only."""

    key: K

    def __init__(self, table: PartitionTable[V] | None, emit: Emit) -> None:
        super().__init__(table, emit)
        self._index = 0
        self._raw_key = b""

    @property
    def offset(self) -> int:
        return self._records.offsets[self._index]

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since 1970; -1 if the record has none."""
        return self._records.timestamp(self._index)

    @property
    def headers(self) -> Headers:
        return self._records.headers(self._index)

    @property
    def value(self) -> V | None:
        """The row of this key, as the handlers before have left it; None if there is none.

        A value that is changed in place must still be `set`, or the change is not written.
        """
        return self._rows.get(self._raw_key)

    def set(self, value: V) -> None:
        """Write the row of this key."""
        if value is None:
            raise TypeError("a row cannot be None: use ctx.delete()")
        self._rows.put(self._raw_key, value)

    def delete(self) -> None:
        """Remove the row of this key."""
        self._rows.delete(self._raw_key)

    def each(
        self,
        records: RecordBatch,
        keys: Sequence[K],
        events: Sequence[E],
        handler: Callable[["Context[K, V]", E], None],
    ) -> None:
        """Call the handler for record after record. After an exception, `index` tells which one it was."""
        self._records = records
        for index, (raw, key, event) in enumerate(zip(records.keys, keys, events, strict=True)):
            self._index = index
            self._raw_key = raw  # type: ignore[assignment] # records without a key never come here
            self.key = key
            handler(self, event)

    @property
    def index(self) -> int:
        """Of the record within its batch."""
        return self._index


class Batch(_Scope[K, V], Generic[K, E, V]):
    """Consecutive records of one partition, and the rows of the partition. Valid during the call only.

    Attributes:
        keys: decoded, one a record.
        events: decoded, one a record.
    """

    keys: Sequence[K]
    events: Sequence[E]

    def __init__(self, table: PartitionTable[V] | None, key_codec: Codec[K], emit: Emit) -> None:
        super().__init__(table, emit)
        self._key_codec = key_codec

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def offsets(self) -> Sequence[int]:
        return self._records.offsets

    @property
    def timestamps_ms(self) -> list[int]:
        return [self._records.timestamp(index) for index in range(len(self))]

    def headers(self, index: int) -> Headers:
        return self._records.headers(index)

    def get_many(self, keys: Iterable[K]) -> dict[K, V | None]:
        """Rows by key, None where there is none. Keys must belong to this partition, as those of the batch do."""
        keys = list(dict.fromkeys(keys))
        return dict(zip(keys, self._rows.get_many(map(self._key_codec.encode, keys)), strict=True))

    def put_many(self, rows: Mapping[K, V | None]) -> None:
        """Write rows; None deletes. Keys must belong to this partition."""
        table, encode = self._rows, self._key_codec.encode
        for key, row in rows.items():
            if row is None:
                table.delete(encode(key))
            else:
                table.put(encode(key), row)

    def whole(
        self,
        records: RecordBatch,
        keys: Sequence[K],
        events: Sequence[E],
        handler: Callable[["Batch[K, E, V]"], None],
    ) -> None:
        """Call the handler once for all the records."""
        self._records, self.keys, self.events = records, keys, events
        handler(self)
