"""Aggregates: the row of a key as a fold over its events, for groups, streams, windows, sessions and tables.

Each aggregate is one class. A group folds with `add` alone; sessions that become one need `merge` too. A grouped table takes
rows away with `subtract`; for a `Ranked` aggregate, which cannot subtract, it keeps the rows in order instead.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar, Generic, TypeVar

from streamtable.base.arithmetic import alone, greatest, least, minus, numbers_only, plus
from streamtable.base.mapped import mapped
from streamtable.errors import GraphError
from streamtable.graph.edge import checked_function
from streamtable.handlers.aggregate_rows import AggregateRows

E_contra = TypeVar("E_contra", contravariant=True)
V = TypeVar("V")
N = TypeVar("N", int, float)


class Aggregate(ABC, Generic[E_contra, V]):
    """A fold over the events of a key. Derive your own from it: `initial` and `add` are enough for groups and streams.

    A method that returns None deletes the row. `add`, `merge` and `subtract` may change the row that they get in place.
    """

    def initial(self) -> V:
        """Return the initial row; the first event is added to it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no initial() row: it is needed to add a first event, and to subtract "
            "an event that was never added"
        )

    def first(self, event: E_contra) -> V | None:
        """Return the row after the first event; by default the event is added to `initial()`."""
        return self.add(self.initial(), event)

    @abstractmethod
    def add(self, row: V, event: E_contra) -> V | None:
        """Return the row after another event."""

    def after(self, row: V | None, event: E_contra) -> V | None:
        """Return the row after an event, which is the first one if there is no row."""
        return self.first(event) if row is None else self.add(row, event)

    def merge(self, row: V, later: V) -> V | None:
        """Return the row of two sessions that have become one, of the earlier and of the later one."""
        raise NotImplementedError(f"{type(self).__name__} has no merge()")

    def subtract(self, row: V, event: E_contra) -> V | None:
        """Return the row without an event that was added: of a grouped table, a row that has changed or is gone."""
        raise NotImplementedError(f"{type(self).__name__} has no subtract()")

    @property
    def meaning(self) -> str:
        """The meaning of the rows, for a table of a flow: it is recorded, and a flow with another one does not start.

        By default, it is the name of the class in lower case. Add the arguments that change what a row holds.
        """
        return type(self).__name__.lower()

    @property
    def merges(self) -> bool:
        """Whether rows can be merged."""
        return type(self).merge is not Aggregate.merge

    @property
    def subtracts(self) -> bool:
        """Whether events can be subtracted."""
        return type(self).subtract is not Aggregate.subtract

    def fold(self, rows: AggregateRows[V], keys: Sequence[bytes], events: Sequence[E_contra]) -> None:
        """Apply `events[i]` to the row of `keys[i]`, in order. An exception undoes the batch.

        Override it where a whole batch can be folded faster than by `first` and `add`, with the same result.
        """
        _fold(self.first, self.add, rows, keys, events)


def _fold(
    first: Callable[[E_contra], V | None],
    add: Callable[[V, E_contra], V | None],
    rows: AggregateRows[V],
    keys: Sequence[bytes],
    events: Sequence[E_contra],
) -> None:
    now = rows.changing(keys)
    for key, event in zip(keys, events, strict=True):
        row = now[key]
        now[key] = first(event) if row is None else add(row, event)


@dataclass(frozen=True)
class Count(Aggregate[Any, int]):
    """Counts the events of each key."""

    def initial(self) -> int:
        return 0

    def add(self, row: int, event: Any) -> int:  # noqa: ARG002 - counted, whatever it is
        return row + 1

    def merge(self, row: int, later: int) -> int:
        return row + later

    def subtract(self, row: int, event: Any) -> int:  # noqa: ARG002 - the same
        return row - 1

    def fold(self, rows: AggregateRows[int], keys: Sequence[bytes], events: Sequence[Any]) -> None:  # noqa: ARG002 - only keys count
        counts = rows.changing(keys)
        for key in keys:
            counts[key] = (counts[key] or 0) + 1


@dataclass(frozen=True)
class Last(Aggregate[V, V]):
    """Keeps the event of each key that has arrived last: a stream as a table. Of sessions that become one, it keeps the later one's.

    It does not look at event time. It cannot subtract: an earlier event is not in its row, and the rows of a grouped table
    come in no order.
    """

    def first(self, event: V) -> V:
        return event

    def add(self, row: V, event: V) -> V:  # noqa: ARG002 - replaced
        return event

    def merge(self, row: V, later: V) -> V:  # noqa: ARG002 - the same
        return later

    def fold(self, rows: AggregateRows[V], keys: Sequence[bytes], events: Sequence[V]) -> None:
        rows.changing(keys).update(zip(keys, events, strict=True))


def itself(event: Any) -> Any:
    """Return the event."""
    return event


@dataclass(frozen=True)
class OfNumbers(Aggregate[E_contra, V]):
    """An aggregate of a number, or another value, that `of` takes from each event. An event is skipped where it is None."""

    of: Callable[[E_contra], Any]

    def __post_init__(self) -> None:
        checked_function(self.of, f"of= of {type(self).__name__}")

    def first(self, event: E_contra) -> V:
        return self.start(self.of(event))

    def add(self, row: V, event: E_contra) -> V:
        return self.combine(row, self.of(event))

    def start(self, number: Any) -> V:
        """Return the row of one number."""
        made: V = number
        return made

    @staticmethod
    @abstractmethod
    def combine(row: V, number: Any, /) -> V:
        """Return the row with another number; the same in whatever order the numbers come."""

    def merge(self, row: V, later: V) -> V:
        return self.combine(row, later)

    def fold(self, rows: AggregateRows[V], keys: Sequence[bytes], events: Sequence[E_contra]) -> None:
        numbers: Sequence[Any] = events
        if self.of is not itself:
            numbers, keys = numbers_only(mapped(self.of, events), keys)
        _fold(self.start, self.combine, rows, keys, numbers)


class Sum(OfNumbers[E_contra, N]):
    """Sums a number of each event: `Sum(lambda sale: sale["cents"])`. None is skipped; with NaN the sum is NaN."""

    start = staticmethod(alone)
    combine = staticmethod(plus)

    def initial(self) -> N:
        return 0

    def subtract(self, row: N, event: E_contra) -> N:
        made: N = minus(row, self.of(event))
        return made


class Ranked(Aggregate[E_contra, V]):
    """An aggregate of the first few of its events in an order: it cannot subtract, as the next one is not in its row.

    Attributes:
        most: The number of events that a row is made of, at most.
        descending: Whether the greatest come first.
    """

    most: int
    descending: ClassVar[bool]

    @abstractmethod
    def rank(self, event: E_contra) -> Any:
        """Return the value that events are ordered by."""

    @abstractmethod
    def merge(self, row: V, later: V) -> V: ...


class _Extreme(OfNumbers[E_contra, V], Ranked[E_contra, V]):
    most = 1

    def rank(self, event: E_contra) -> Any:
        return self.of(event)


class Min(_Extreme[E_contra, V]):
    """Keeps the least of the values that `of` takes from the events. None is skipped; NaN is greater than any number."""

    combine = staticmethod(least)
    descending = False


class Max(_Extreme[E_contra, V]):
    """Keeps the greatest of the values that `of` takes from the events. None is skipped; NaN is greater than any number."""

    combine = staticmethod(greatest)
    descending = True


@dataclass(frozen=True)
class TopK(Ranked[V, list[V]]):
    """Keeps the `most` events with the greatest values of `by`, as a list, the greatest first; of equal ones the one that has
    arrived earlier. An event where it is None is skipped, as if it had not come; NaN is greater than any number.

    The rows of a grouped table do not arrive in an order: of equal ones, it chooses the same from the same rows, whatever has come first.

    Args:
        most: The maximum number of events in a row.
        by: Takes from an event the value to compare.
    """

    most: int
    by: Callable[[V], Any]

    descending = True

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"TopK({self.most}): a row has at least one event")

    @property
    def meaning(self) -> str:
        return f"top {self.most}"

    def rank(self, event: V) -> Any:
        return self.by(event)

    def initial(self) -> list[V]:
        return []

    def first(self, event: V) -> list[V] | None:
        return None if self.by(event) is None else [event]

    def add(self, row: list[V], event: V) -> list[V]:
        return row if self.by(event) is None else self.merge(row, [event])

    def merge(self, row: list[V], later: list[V]) -> list[V]:
        return sorted([*row, *later], key=self._order, reverse=True)[: self.most]

    def _order(self, event: V) -> tuple[bool, Any]:
        value = self.by(event)
        return value != value, value  # noqa: PLR0124 - NaN


@dataclass(frozen=True)
class Mean(OfNumbers[E_contra, dict[str, Any]]):
    """Keeps the mean of a number of each event: a row has `mean`, and `sum` and `count`, which it is made of. None is skipped.

    Args:
        of: Takes the number from an event.
    """

    def start(self, number: float) -> dict[str, Any]:
        return _mean(alone(number), 1)

    @staticmethod
    def combine(row: dict[str, Any], number: float, /) -> dict[str, Any]:
        return _mean(plus(row["sum"], number), row["count"] + 1)

    def merge(self, row: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
        return _mean(plus(row["sum"], later["sum"]), row["count"] + later["count"])

    def subtract(self, row: dict[str, Any], event: E_contra) -> dict[str, Any] | None:
        count = row["count"] - 1
        if not count:
            return None
        if not isfinite(row["sum"]):
            raise ValueError(
                "a mean with NaN or infinity cannot lose a row of its group: leave such rows out by filter()"
            )
        return _mean(minus(row["sum"], self.of(event)), count)


def check_sums(what: str, aggregate: object, codec: object) -> None:
    """Check that sums are as they were when they are read again. Raises `GraphError`."""
    schema = getattr(getattr(codec, "schema", None), "canonical", "")  # of Avro
    if isinstance(aggregate, Sum | Mean) and '"float"' in schema:
        raise GraphError(
            f"{what}: a restart would round the sums in {codec!r} to 32 bits: give a schema with double in the place of float"
        )


def _mean(total: float, count: int) -> dict[str, Any]:
    return {"mean": total / count, "sum": total, "count": count}


@dataclass(frozen=True)
class Collect(Aggregate[E_contra, list[V]]):
    """Collects what `of` takes from each event, in their order. The row grows with each event of its key.

    Args:
        of: Takes from an event the part that is kept.
    """

    of: Callable[[E_contra], V]

    def initial(self) -> list[V]:
        return []

    def add(self, row: list[V], event: E_contra) -> list[V]:
        row.append(self.of(event))
        return row

    def merge(self, row: list[V], later: list[V]) -> list[V]:
        return [*row, *later]

    def subtract(self, row: list[V], event: E_contra) -> list[V]:
        gone = self.of(event)
        text, at = repr(gone), row.index(gone) if gone in row else None
        if at is None or repr(row[at]) != text:  # NaN equals nothing, not even itself, and 1 equals True
            texts = [repr(each) for each in row]
            at = texts.index(text) if at is None or text in texts else at
        row.pop(at)
        return row


@dataclass(frozen=True)
class Folded(Aggregate[E_contra, V]):
    """An aggregate of plain functions. See the methods of `Aggregate`; those that are None are missing."""

    adder: Callable[[V, E_contra], V | None]
    start: Callable[[], V] | None = None
    starter: Callable[[E_contra], V] | None = None
    merger: Callable[[V, V], V | None] | None = None
    subtractor: Callable[[V, E_contra], V | None] | None = None
    meaning: str = "aggregate"

    def initial(self) -> V:
        return super().initial() if self.start is None else self.start()

    def first(self, event: E_contra) -> V | None:
        return super().first(event) if self.starter is None else self.starter(event)

    def add(self, row: V, event: E_contra) -> V | None:
        return self.adder(row, event)

    def merge(self, row: V, later: V) -> V | None:
        return super().merge(row, later) if self.merger is None else self.merger(row, later)

    def subtract(self, row: V, event: E_contra) -> V | None:
        return super().subtract(row, event) if self.subtractor is None else self.subtractor(row, event)

    @property
    def merges(self) -> bool:
        return self.merger is not None

    @property
    def subtracts(self) -> bool:
        return self.subtractor is not None

    def fold(self, rows: AggregateRows[V], keys: Sequence[bytes], events: Sequence[E_contra]) -> None:
        _fold(self.starter or self.first, self.adder, rows, keys, events)


def reduced(
    combine: Callable[[V, V], V | None],
    copy: Callable[[V], V],
    remove: Callable[[V, V], V | None] | None = None,
) -> Folded[V, V]:
    """Return the aggregate that combines the events of each key to one of the same type.

    Args:
        combine: Called with the row and an event; for sessions, with the rows of two that are merged.
        copy: Makes the first row of the first event, which `combine` may then change in place.
        remove: Called with the row and an event that is subtracted.
    """
    return Folded(combine, starter=copy, merger=combine, subtractor=remove, meaning="reduce")
