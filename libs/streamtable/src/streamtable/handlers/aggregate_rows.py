"""The rows that an aggregate folds into."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

V = TypeVar("V")


class AggregateRows(Protocol[V]):
    """The rows of a table by encoded key, as an aggregate sees them. See `tables.working_table.WorkingTable`."""

    def changing(self, keys: Iterable[bytes]) -> dict[bytes, V | None]:
        """Return rows by key, these loaded (None where there is none) and marked as changed.

        Raises:
            WrongPartition: A key belongs to another partition than the records.
        """
