"""The interface of a central store: rows of bytes, each with the number of the write that made it.

A `Driver`, one per kind of server, makes a single attempt in one round trip. `RemoteStore` retries on top of it until a
deadline. `microbatch.stores.versions` gives the numbers their meaning.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from streamtable.errors import ConfigurationError

LARGEST_NUMBER = (1 << 63) - 1
LONGEST_KEY = 4096
OWN = b"\0"
"""The prefix of the keys of the library's own rows: ledgers and the records of sweeps. They never have a time to live:
without its ledger, a group stops. No other row has such a key.
"""
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,100}")


FieldValue = str | int | float | bool | Sequence[str]


class Row(NamedTuple):
    """The row that a store holds for a key.

    Attributes:
        number: The number of the write that made it; 0 for rows that are written without numbers.
        data: The data, opaque to the store.
    """

    number: int
    data: bytes


class VersionedFields(NamedTuple):
    """The search fields of a row, stored beside its opaque data. None: a version without a value.

    Both versions of a cell are given, because either may be the committed one when a search finds the row.

    Attributes:
        now: The fields of the version that is written.
        before: The fields of the version that it replaces.
    """

    now: Mapping[str, FieldValue] | None
    before: Mapping[str, FieldValue] | None


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one attempt to read.

    Attributes:
        rows: The rows by key. A key that is in neither mapping has no row.
        failed: The keys without an answer, with the reason.
    """

    rows: Mapping[bytes, Row]
    failed: Mapping[bytes, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of one attempt to write. A key that is in neither is written, on the required number of servers.

    Attributes:
        failed: The keys whose outcome is unknown, with the reason.
        refused: The keys whose row has a higher number. Some stores silently keep the newer row and do not report it.
    """

    failed: Mapping[bytes, str] = field(default_factory=dict)
    refused: frozenset[bytes] = frozenset()


class Driver(Protocol):
    """A client of one server that makes single attempts. It is called by one thread at a time, with one batch at most.

    All methods raise `RetryLater` if the server did not answer at all, so that the outcome of every key is unknown.
    They raise `ConfigurationError` if a retry cannot help: a missing index, missing rights, a row of another kind.

    A driver whose rows expire has an attribute `ttl`, the seconds that a row lives after its last write; None: it stays.
    """

    def read(self, keys: Sequence[bytes], timeout: float) -> Found:
        """Read the rows of distinct keys, including every acknowledged write. One round trip."""

    def write(self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float) -> WriteResult:
        """Set rows; None deletes. One round trip, but not atomic over the keys.

        A row with a higher number stays. One with the same number is replaced, as this is a retry of the same write. A
        deleted key rejects (or ignores) lower numbers for the time of `forgets_after`.

        Args:
            rows: The data by key.
            number: The number of the write, 1 to 2**63 - 1; None: without condition, the last write to arrive wins.
            timeout: The timeout of the attempt in seconds.
        """

    def flush(self, timeout: float) -> None:
        """Make written rows visible to searches, if the store needs that."""

    def close(self) -> None: ...


@runtime_checkable
class SearchDriver(Driver, Protocol):
    """A driver whose server can find rows by their fields."""

    def write_found_by(
        self,
        rows: Mapping[bytes, bytes | None],
        number: int | None,
        timeout: float,
        fields: Mapping[bytes, VersionedFields],
    ) -> WriteResult:
        """Write rows like `write`, with the search fields of those in `fields`; searches see them after the next refresh."""


class Severity(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class StoreFinding(NamedTuple):
    """A result of the examination of a store.

    Attributes:
        subject: The examined part of the store.
        fact: The result of the examination.
        advice: The action to take; empty if none is needed.
    """

    level: Severity
    subject: str
    fact: str
    advice: str = ""


ok, warning, problem = (partial(StoreFinding, level) for level in Severity)
"""Make a finding of one severity each."""


class Step(NamedTuple):
    """A part that `create` creates.

    Attributes:
        what: The kind of part: index, keyspace or table.
        name: Its name.
        settings: The settings it is created with.
    """

    what: str
    name: str
    settings: str


class Deletion(NamedTuple):
    """A row whose last written version is a deletion.

    Attributes:
        number: The number of the write.
        partition: The partition of its key.
    """

    key: bytes
    number: int
    partition: int


class Admin(Protocol):
    """Creates and examines the table or index of the rows. Its methods raise the errors of `Driver`."""

    driver: Driver

    def plan(self) -> Sequence[Step]:
        """Return the parts that `create` would create; empty if all exist."""

    def create(self) -> None:
        """Create the missing parts. Existing parts are not changed."""

    def examine(self) -> Iterator[StoreFinding]:
        """Check whether acknowledged rows are safe. Changes nothing."""


@runtime_checkable
class SweepDriver(Driver, Protocol):
    """A driver of a store where deleted rows stay until a sweep removes them."""

    def deletions(self, timeout: float) -> Iterator[Sequence[Deletion]]:
        """Yield the tenant's deletions in pages of about 1,000, some possibly twice. `timeout` is for each page."""

    def forget(self, deletions: Sequence[Deletion], timeout: float) -> int:
        """Remove those rows whose number is unchanged, each atomically. Returns how many were removed."""


def tenant_name(name: str) -> str:
    """Return the name if it is valid: 1 to 100 letters, digits, dots, hyphens and underscores.

    The name may not contain the separator between tenant and key, so rows of different tenants never collide.
    """
    if not _TENANT.fullmatch(name):
        raise ConfigurationError(
            f"tenant {name[:200]!r}: 1 to 100 letters, digits, dots, hyphens and underscores are required"
        )
    return name
