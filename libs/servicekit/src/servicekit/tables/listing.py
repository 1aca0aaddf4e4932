"""A page of a table, with the number of rows left out because they cannot be decoded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from servicekit.tables.protocol import UserTable
from streamtable.errors import GraphError, UnreadableRow

V = TypeVar("V")


class NoPrefixes(ValueError):
    """A prefix was asked for, and no encoded key of the table begins with another one, as with JSON and Avro."""


@contextmanager
def prefixes() -> Iterator[None]:
    """Raise `NoPrefixes` in the place of a table's error of its declaration: it is the caller who can ask otherwise."""
    try:
        yield
    except GraphError:
        raise NoPrefixes("the keys of this table have no prefixes: ask without one") from None


@dataclass(frozen=True, slots=True)
class Listing(Generic[V]):
    """Rows in key order.

    Attributes:
        rows: The readable rows.
        more: Whether there are further rows after them.
        unreadable: The number of rows left out, from the start of the page to its last row, and on the last page to the
            end of the table. The numbers of all pages add up to that of the table.
    """

    rows: list[tuple[str, V]]
    more: bool
    unreadable: int


def listing(table: UserTable[V], prefix: str | None, after: str | None, limit: int) -> Listing[V]:
    """Read one page of at most `limit` rows, at least 1. Raises `NotReady` and `NoPrefixes`."""
    left_out = 0

    def count(_: UnreadableRow) -> None:
        nonlocal left_out
        left_out += 1

    rows: list[tuple[str, V]] = []
    unreadable = 0
    with prefixes():
        found = table.iterate(prefix or None, after, on_unreadable=count)
    for row in found:
        if len(rows) == limit:
            return Listing(rows, more=True, unreadable=unreadable)
        rows.append(row)
        unreadable = left_out
    return Listing(rows, more=False, unreadable=left_out)


class LeftOut:
    """The keys of unreadable rows, in key order, of tables that are read side by side.

    Attributes:
        count: The number of distinct keys passed so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._ahead: set[bytes] = set()

    def found(self, error: UnreadableRow) -> None:
        """Record that a row was left out of one of the tables."""
        self._ahead.add(error.key)

    def passes(self, key: str) -> bool:
        """Record that all tables have reached this key. Returns whether one of them has left its row out."""
        if not self._ahead:
            return False
        encoded = key.encode()
        passed = {each for each in self._ahead if each <= encoded}
        self._ahead -= passed
        self.count += len(passed)
        return encoded in passed

    def end(self) -> None:
        """Record that all tables have reached their end."""
        self.count += len(self._ahead)
        self._ahead.clear()
