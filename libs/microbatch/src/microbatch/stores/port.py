"""The interface of a central store: rows of bytes, each with the number of the write that made it.

Below is a `Driver`, one for each kind of server: a single attempt, in one round trip. Above is `RemoteStore`, which
repeats what failed until a deadline. The meaning of the numbers is given by `microbatch.stores.versions`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from streamtable.errors import ConfigurationError

LARGEST_NUMBER = (1 << 63) - 1
LONGEST_KEY = 4096
OWN = b"\0"
"""The prefix of the keys of the library's own rows: ledgers, the notes of sweeps. They never have a time to live: a group
whose ledger is gone is stopped. No other row has such a key."""
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,100}")


FieldValue = str | int | float | bool | Sequence[str]


class Row(NamedTuple):
    """The row that a store holds for a key.

    Attributes:
        number: The number of the write that made it; 0 where rows are written without numbers.
        data: opaque to the store.
    """

    number: int
    data: bytes


class VersionedFields(NamedTuple):
    """The fields that searches find a row by, beside its opaque data. None: a version without a value.

    Both versions of a cell are given, as either may be the one that counts when a search finds it.

    Attributes:
        now: fields of the version that is written.
        before: fields of the version that it replaces.
    """

    now: Mapping[str, FieldValue] | None
    before: Mapping[str, FieldValue] | None


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one attempt to read.

    Attributes:
        rows: the keys that have one. A key in neither has none.
        failed: keys that were not answered, and why.
    """

    rows: Mapping[bytes, Row]
    failed: Mapping[bytes, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of one attempt to write; a key in neither is written, on as many servers as required.

    Attributes:
        failed: keys of which it is not known that they are written, and why.
        refused: keys whose row has a higher number. Stores that silently keep the newer row never say so.
    """

    failed: Mapping[bytes, str] = field(default_factory=dict)
    refused: frozenset[bytes] = frozenset()


class Driver(Protocol):
    """A client of one server that makes one attempt. Never called by two threads at once, nor with more than a batch.

    All methods raise `RetryLater` when the server as a whole did not answer: then nothing is known of any key. They
    raise `ConfigurationError` when asking again cannot help: no index, no right, a row of another kind.
    """

    def read(self, keys: Sequence[bytes], timeout: float) -> Found:
        """Read rows of distinct keys, as of after every acknowledged write. One round trip."""
        ...

    def write(self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float) -> WriteResult:
        """Set rows; None deletes. One round trip, but not atomic over the keys.

        A row of a higher number stays. One of the same number is replaced: it is the same write once more. A deleted
        key keeps refusing (or ignoring) lower numbers for as long as `forgets_after` says.

        Args:
            rows: data by key.
            number: 1 to 2**63 - 1; None: without condition, the last one to arrive wins.
            timeout: The timeout of the attempt in seconds.
        """
        ...

    def flush(self, timeout: float) -> None:
        """Make written rows visible to searches, where a store needs that."""
        ...

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
        """Write rows as `write` does; those that `fields` names are found by them after the next refresh."""
        ...


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


class Step(NamedTuple):
    """Something that `create` creates.

    Attributes:
        what: an index, a keyspace, a table.
        name: and
        settings: The settings with which it is created.
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
        ...

    def create(self) -> None:
        """Create the missing parts. Existing parts are not changed."""
        ...

    def examine(self) -> Iterator[StoreFinding]:
        """Examine whether acknowledged rows are safe. It changes nothing."""
        ...


@runtime_checkable
class SweepDriver(Driver, Protocol):
    """A driver of a store in which deleted rows stay until a sweep removes them."""

    def deletions(self, timeout: float) -> Iterator[Sequence[Deletion]]:
        """Yield all of the tenant's deletions in pages of about 1,000; some may come twice. `timeout` is for each page."""
        ...

    def forget(self, deletions: Sequence[Deletion], timeout: float) -> int:
        """Remove those rows whose number is still the same, each in one step. Returns their number."""
        ...


def tenant_name(name: str) -> str:
    """Return the name if it is valid: 1 to 100 letters, digits, dots, hyphens and underscores.

    Rows of different tenants never meet, so none of them may hold what separates it from the key.
    """
    if not _TENANT.fullmatch(name):
        raise ConfigurationError(
            f"tenant {name[:200]!r}: 1 to 100 letters, digits, dots, hyphens and underscores are required"
        )
    return name
