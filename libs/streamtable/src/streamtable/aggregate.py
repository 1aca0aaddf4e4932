"""Built-in aggregates: they fold whole batches into the rows of a table, without a call for each record."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from streamtable.arithmetic import greatest, least, numbers_only, plus

E_contra = TypeVar("E_contra", contravariant=True)
V = TypeVar("V")
N = TypeVar("N", int, float)


class AggregateRows(Protocol[V]):
    """The rows of a table by encoded key, as an aggregate sees them. See `tables.working_table.WorkingTable`."""

    def changing(self, keys: Iterable[bytes]) -> dict[bytes, V | None]:
        """Return rows by key, these loaded (None where there is none) and marked as changed.

        Raises:
            WrongPartition: A key belongs to another partition than the records.
        """
        ...


class Aggregate(ABC, Generic[E_contra, V]):
    """A fold over the events of a key."""

    @abstractmethod
    def fold(self, rows: AggregateRows[V], keys: Sequence[bytes], events: Sequence[E_contra]) -> None:
        """Apply `events[i]` to the row of `keys[i]`, in order. An exception undoes the batch."""


@dataclass(frozen=True)
class Count(Aggregate[Any, int]):
    """Counts the events of each key."""

    def fold(self, rows: AggregateRows[int], keys: Sequence[bytes], events: Sequence[Any]) -> None:  # noqa: ARG002 - only keys count
        counts = rows.changing(keys)
        for key in keys:
            counts[key] = (counts[key] or 0) + 1


@dataclass(frozen=True)
class Last(Aggregate[V, V]):
    """Keeps the last event of each key: a stream as a table."""

    def fold(self, rows: AggregateRows[V], keys: Sequence[bytes], events: Sequence[V]) -> None:
        rows.changing(keys).update(zip(keys, events, strict=True))


@dataclass(frozen=True)
class _Reduce(Aggregate[E_contra, N]):
    """Combines the number that `of` takes from each event with the row."""

    of: Callable[[E_contra], N | None]

    @abstractmethod
    def combine(self, row: Any, number: Any) -> Any: ...

    def fold(self, rows: AggregateRows[N], keys: Sequence[bytes], events: Sequence[E_contra]) -> None:
        numbers, keys = numbers_only(map(self.of, events), keys)
        combine, now = self.combine, rows.changing(keys)
        for key, number in zip(keys, numbers, strict=True):
            row = now[key]
            now[key] = number if row is None else combine(row, number)


class Sum(_Reduce[E_contra, N]):
    """Sums a number of each event: `Sum(lambda sale: sale["cents"])`. None is left out; with NaN the sum is NaN."""

    def combine(self, row: Any, number: Any) -> Any:
        return plus(row, number)


class Min(_Reduce[E_contra, N]):
    """Keeps the least of a number of each event. None is left out; NaN is greater than any number."""

    def combine(self, row: Any, number: Any) -> Any:
        return least(row, number)


class Max(_Reduce[E_contra, N]):
    """Keeps the greatest of a number of each event. None is left out; NaN is greater than any number."""

    def combine(self, row: Any, number: Any) -> Any:
        return greatest(row, number)
