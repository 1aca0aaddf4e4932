"""Rows of a central store within a batch: read on demand, changed in memory, written when the batch ends."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from microbatch.stores.port import LONGEST_KEY, FieldValue, Row, VersionedFields
from microbatch.stores.versions import ABSENT, NOTHING, Head, Ledger, Version, replace
from streamtable.base.ports import Codec
from streamtable.base.topics import legal_name
from streamtable.errors import (
    DeserializationError,
    GraphError,
    SerializationError,
    StateLost,
    StreamtableError,
)

V = TypeVar("V")


@dataclass(frozen=True)
class Rows(Generic[V]):
    """A kind of rows in the store, by text keys.

    A key belongs to the partition whose batch wrote it first. Derive the keys of rows from the key of the record
    (`author`, `author/3`), because a row of another partition is an error.

    Args:
        name: The name of the kind, which is part of the keys in the store.
        value: The codec of the rows. A program whose codec would misread the rows that are there stops at its start, with
            `StateMeaningChanged`; one with a kind that lacks records which a version without it has handled, with `StateLost`.
        fields: Returns the search fields of a row, for stores that can search. After an edit, a row has them once it is put again.
    """

    name: str
    value: Codec[V]
    fields: Callable[[V], Mapping[str, FieldValue]] | None = None

    def __post_init__(self) -> None:
        legal_name(self.name, "kind of rows")

    def of(self, table: Mapping[str, bytes]) -> dict[str, V]:
        """Return the rows of this kind in a micro-batch's own table, by key: `TOTALS.of(tester.table(ADD))`."""
        prefix = f"{self.name}/"
        return {
            key.removeprefix(prefix): self.value.decode(data)
            for key, data in table.items()
            if key.startswith(prefix)
        }

    def key(self, key: str) -> bytes:
        """Return the key in the store. Raises `SerializationError` if it is too long or no text."""
        try:
            found = f"{self.name}/{key}".encode()
        except UnicodeEncodeError as error:
            raise SerializationError(f"the key {key!r} of rows {self.name!r} is not valid Unicode") from error
        if len(found) > LONGEST_KEY:
            raise SerializationError(
                f"a key of rows {self.name!r} has {len(found)} bytes, {LONGEST_KEY} are allowed: {key[:40]!r}..."
            )
        return found


class ReadRows(Protocol):
    """The source of rows: a central store, or the partition's local one."""

    def get_many(self, keys: Iterable[bytes]) -> Mapping[bytes, Row]:
        """Return the rows of those keys that have one."""


class StoredRows:
    """The rows that one batch has read or changed.

    Args:
        store: The store of the tenant, or of the partition.
        partition: The partition of the batch.
        ledger: Decides which versions are valid; None: rows are plain, without versions.
        expire: Whether rows have a time to live, which begins again with each write.

    Attributes:
        expire: The same.
        failure: The store's error; the batch fails with it even if `process` catches it.
    """

    def __init__(
        self, store: ReadRows, partition: int, ledger: Ledger | None, *, expire: bool = False
    ) -> None:
        self.partition = partition
        self.expire = expire
        self.failure: StreamtableError | None = None
        self._store = store
        self._ledger = ledger
        self._known: dict[bytes, Version] = {}

    def read(self, keys: Iterable[bytes]) -> None:
        """Read the rows of these keys that are not known yet, in one round trip."""
        missing = [key for key in keys if key not in self._known]
        if not missing:
            return
        try:
            found = self._store.get_many(missing)
            for key in missing:
                row = found.get(key)
                if self._ledger is None:
                    self._known[key] = Version(NOTHING, row.data) if row else ABSENT
                else:
                    head = Head.of(row.data) if row is not None else None
                    if head is not None and head.partition != self.partition:
                        raise GraphError(
                            f"row {key[:100]!r} belongs to partition {head.partition}, and a batch of partition "
                            f"{self.partition} uses it: the keys of rows must be derived from the keys of records"
                        )
                    self._known[key] = self._ledger.read(row)
        except StreamtableError as error:
            self.failure = error
            raise

    def known(self, key: bytes) -> Version:
        return self._known[key]

    def holds(self, key: bytes, data: bytes | None) -> bool:
        """Return whether the store is known to have this value for the key; None: no value."""
        known = self._known.get(key)
        return known is not None and known.value == data


class BatchRows(Generic[V]):
    """The rows of one kind, within a batch. Later reads see its changes, which are written when the batch ends."""

    def __init__(self, rows: Rows[V], stored: StoredRows) -> None:
        self._rows = rows
        self._stored = stored
        self._values: dict[str, V | None] = {}
        self._changed: dict[str, None] = {}
        self._raw: dict[str, bytes] = {}  # the keys in the store

    def get(self, key: str) -> V | None:
        """Return a row, or None. An unread row takes a round trip: read many with `get_many` first."""
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, V]:
        """Return the rows of those keys that have one. One round trip for those that were not read yet.

        A value that is changed in place is written only if it is put again.

        Raises:
            RetryLater: The store has not answered in time. Do not catch it: the batch is undone and retried.
        """
        requested = list(dict.fromkeys(keys))
        unknown = [key for key in requested if key not in self._values]
        if unknown:
            self._stored.read([self._key(key) for key in unknown])
            for key in unknown:
                self._values[key] = self._decoded(self._stored.known(self._raw[key]).value)
        values = ((key, self._values[key]) for key in requested)
        return {key: value for key, value in values if value is not None}

    def put(self, key: str, value: V) -> None:
        self.put_many({key: value})

    def put_many(self, rows: Mapping[str, V]) -> None:
        """Write rows. Raises `SerializationError` for a key that is too long; values are checked when the batch ends."""
        self._change(rows)

    def delete(self, key: str) -> None:
        self.delete_many((key,))

    def delete_many(self, keys: Iterable[str]) -> None:
        self._change(dict.fromkeys(keys))

    def _change(self, rows: Mapping[str, V | None]) -> None:
        for key in rows:
            self._key(key)
        self._values.update(rows)
        self._changed.update(dict.fromkeys(rows))

    def changes(self) -> dict[bytes, tuple[bytes | None, Mapping[str, FieldValue] | None]]:
        """Return the encoded changes by store key, with their search fields. Raises `SerializationError`."""
        found: dict[bytes, tuple[bytes | None, Mapping[str, FieldValue] | None]] = {}
        for key in self._changed:
            value, fields = self._values[key], self._rows.fields
            encoded = None if value is None else self._rows.value.encode(value)
            found[self._raw[key]] = encoded, None if value is None or fields is None else fields(value)
        return found

    def found_by(self, data: bytes | None) -> Mapping[str, FieldValue] | None:
        """Return the search fields of an encoded value."""
        value = self._decoded(data)
        return None if value is None or self._rows.fields is None else self._rows.fields(value)

    @property
    def searched(self) -> bool:
        return self._rows.fields is not None

    def _key(self, key: str) -> bytes:
        raw = self._raw.get(key)
        if raw is None:
            raw = self._raw[key] = self._rows.key(key)
        return raw

    def _decoded(self, data: bytes | None) -> V | None:
        if data is None:
            return None
        try:
            return self._rows.value.decode(data)
        except DeserializationError as error:
            raise StateLost(
                f"a row of {self._rows.name!r} cannot be decoded: {error.message}. Another program wrote it, or the codec "
                "can no longer read older rows"
            ) from error


@dataclass(frozen=True)
class BatchWrites:
    """The rows that a batch writes to the store. `number` is None for plain rows."""

    rows: Mapping[bytes, bytes | None]
    number: int | None
    fields: Mapping[bytes, VersionedFields]


NO_WRITES = BatchWrites({}, None, {})


def written(kinds: Iterable[BatchRows[Any]], stored: StoredRows, ledger: Ledger | None) -> BatchWrites:
    """Return the rows to write for these changes. Rows that were put without a read are read first, in one round trip.

    Raises:
        SerializationError: A value does not fit its schema.
        RetryLater: The store does not answer.
    """
    found: dict[bytes, bytes | None] = {}
    fields: dict[bytes, VersionedFields] = {}
    changes = [(kind, kind.changes()) for kind in kinds]
    if ledger is not None:
        stored.read([key for _, changed in changes for key in changed])
    write_id = ledger.next_write_id if ledger is not None else NOTHING
    for kind, changed in changes:
        for key, (data, found_by) in changed.items():
            if ledger is None:
                found[key], before = data, None
            else:
                was = stored.known(key)
                # Written again for its time to live, and for the fields, which an earlier program may have made otherwise.
                again = stored.expire or kind.searched
                cell = replace(was, write_id, data, stored.partition)
                if cell is None or (was.value == data and not again):
                    continue
                found[key], before = cell.encode(), was.value
            if kind.searched:
                fields[key] = VersionedFields(found_by, kind.found_by(before))
    return BatchWrites(found, None if ledger is None else write_id.number, fields)
