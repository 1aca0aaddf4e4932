"""The stateful steps: folds of whole batches into the rows of a state table."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from types import NoneType
from typing import Any, TypeVar

from streamtable.base.arithmetic import numbers_only
from streamtable.base.decoding import codec_name, row_codec
from streamtable.base.mapped import mapped
from streamtable.base.ports import Codec, Decoded
from streamtable.base.topics import check_kind
from streamtable.errors import DeserializationError, SerializationError
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.flow.plan.nodes import Step
from streamtable.graph.aggregate import (
    Aggregate,
    Collect,
    Last,
    Max,
    Min,
    OfNumbers,
    TopK,
    check_sums,
    itself,
)
from streamtable.graph.state import State
from streamtable.handlers.aggregate_rows import AggregateRows

V = TypeVar("V")

_UNCHANGEABLE = (int, float, str, bytes, bool, NoneType)
_ADD, _SUBTRACT = b"+", b"-"


# ---- of the changes of a table --------------------------------------------------------------------------------------------


class Retractable:
    """The codec of the changes that a grouped table sends: a row that is removed, or a row that is added.

    Args:
        rows: The codec of the rows.
    """

    def __init__(self, rows: Codec[Any]) -> None:
        self._rows = rows

    def encode(self, value: tuple[bool, Any]) -> bytes:
        added, row = value
        if row is None:
            raise SerializationError("a row that is added or taken away cannot be None")
        return (_ADD if added else _SUBTRACT) + self._rows.encode(row)

    def decode(self, data: bytes) -> tuple[bool, Any]:
        if data[:1] not in {_ADD, _SUBTRACT}:
            raise DeserializationError(f"a change of a grouped table begins with {data[:1]!r}, not + or -")
        return data[:1] == _ADD, self._rows.decode(data[1:])

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[tuple[bool, Any]]:
        rows = self._rows.decode_many([None if item is None else item[1:] for item in data])
        poison = dict(rows.poison)
        values: list[tuple[bool, Any] | None] = []
        for index, item in enumerate(data):
            if item is not None and item[:1] not in {_ADD, _SUBTRACT}:
                poison[index] = DeserializationError(f"a change of a grouped table begins with {item[:1]!r}")
            good = item is not None and index not in poison
            values.append((item[:1] == _ADD, rows.values[index]) if good and item is not None else None)
        return Decoded(values, poison)

    def __repr__(self) -> str:
        return f"Retractable({codec_name(self._rows)})"


@dataclass(frozen=True)
class Retracting(Aggregate[tuple[bool, Any], Any]):
    """An aggregate of the rows of a grouped table: its events are changes as `Retractable` encodes them.

    Args:
        rows: The aggregate of the rows.
    """

    rows: Aggregate[Any, Any]

    @property
    def meaning(self) -> str:
        return f"{self.rows.meaning} of rows"

    def first(self, event: tuple[bool, Any]) -> Any:
        added, row = event
        return self.rows.first(row) if added else self.rows.subtract(self.rows.initial(), row)

    def add(self, row: Any, event: tuple[bool, Any]) -> Any:
        added, changed = event
        return self.rows.add(row, changed) if added else self.rows.subtract(row, changed)


# ---- numbers of records ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keeping(ABC):
    """The step that folds records into a table.

    Args:
        state: The table.
    """

    state: State[Any, Any]

    @abstractmethod
    def step(self, scope: Scope, records: Columns) -> Columns:
        """Fold the records. Returns the changes of rows."""

    def leaf(self, scope: Scope, records: Columns) -> None:
        """Fold the records, where nothing follows."""
        self.step(scope, records)

    def copies(self, rows: Iterable[Any]) -> list[Any]:
        """Return copies of rows, as a fold may change rows in place."""
        # Not by `copied`: most rows cannot be changed, and need no call.
        encode, decode = self.state.value.encode, self.state.value.decode
        return [row if isinstance(row, _UNCHANGEABLE) else decode(encode(row)) for row in rows]


Function = Callable[..., Any]
Take = Callable[[Columns], Columns]
"""Replaces the values of records with numbers, and drops the records that have none."""


def numbers(of: Function, *, beside: bool) -> Take:
    """Replace each value by its number, or by its number and itself."""

    def take(records: Columns) -> Columns:
        found, records = _numbered(mapped(of, records.values), records)
        return records.with_values(list(zip(found, records.values, strict=True)) if beside else found)

    return take


def with_rank(by: Function) -> Take:
    """Drop the records that a rank is not taken from."""
    return lambda records: _numbered(mapped(by, records.values), records)[1]


def numbers_of_rows(of: Function) -> Take:
    """Replace each row that is added or taken away by its number."""

    def take(records: Columns) -> Columns:
        found, records = _numbered([of(row) for _, row in records.values], records)
        pairs = zip(records.values, found, strict=True)
        return records.with_values([(added, number) for (added, _), number in pairs])

    return take


def _numbered(found: Iterable[Any], records: Columns) -> tuple[Sequence[Any], Columns]:
    """Return the numbers that are not None, and their records."""
    there, indexes = numbers_only(found, range(len(records)))
    return there, records if len(there) == len(records) else records.at(indexes)


def taken(aggregate: Aggregate[Any, V], *, beside: bool = False) -> tuple[Take | None, Aggregate[Any, V]]:
    """Return how to take the numbers of records, if the aggregate is of numbers, and the aggregate of the numbers.

    Records whose number is None are skipped before anything else is done with them.

    Args:
        aggregate: The aggregate of the records.
        beside: Keep the values of the records beside their numbers.
    """
    if isinstance(aggregate, Retracting) and isinstance(aggregate.rows, OfNumbers):
        return numbers_of_rows(aggregate.rows.of), Retracting(replace(aggregate.rows, of=itself))
    if not isinstance(aggregate, OfNumbers):
        return with_rank(aggregate.by) if isinstance(aggregate, TopK) else None, aggregate
    return numbers(aggregate.of, beside=beside), replace(aggregate, of=itemgetter(0) if beside else itself)


def as_read(name: str, aggregate: Aggregate[Any, V], codec: Codec[Any]) -> Aggregate[Any, V]:
    """Return the aggregate of values as the codec of the rows reads them: a tuple is a list at once, and not only after a restart.

    Raises:
        GraphError: The codec rounds sums.
    """
    check_kind(aggregate, f"fold({name!r})", Aggregate)
    check_sums(f"{aggregate.meaning} {name!r}", aggregate, codec)
    if row_codec(codec) is codec or not isinstance(aggregate, Collect | Max | Min):
        return aggregate
    of = aggregate.of
    if isinstance(aggregate, Collect):
        return replace(aggregate, of=lambda event: copied(codec, [of(event)])[0])
    return replace(aggregate, of=lambda event: copied(codec, of(event)))


def taking(take: Take | None, keep: Keeping) -> tuple[Step, Step]:
    """Return the steps that first take the numbers of their records."""
    if take is None:
        return keep.step, keep.leaf

    def before(step: Step) -> Step:
        return lambda scope, records: step(scope, take(records))

    return before(keep.step), before(keep.leaf)


# ---- steps ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeepRows(Keeping):
    """The step that folds whole batches into rows, each record into the row of its key or of what it is placed in."""

    @abstractmethod
    def fold(self, scope: Scope, rows: AggregateRows[Any], records: Columns) -> None:
        """Fold the records into the rows of their keys, in order."""

    def placed(self, scope: Scope, records: Columns) -> Columns:  # noqa: ARG002 - of windows
        """Return the records by the keys of their rows."""
        return records

    def leaf(self, scope: Scope, records: Columns) -> None:
        records = self.placed(scope, records)
        self.fold(scope, scope.table(self.state).raw, records)

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Fold the records. Returns one change for each row, in the order of their last records."""
        records = self.placed(scope, records)
        keys = records.encoded_keys
        last_of = dict(zip(keys, range(len(keys)), strict=True))
        rows = scope.table(self.state).raw.changing(keys)
        before = dict(zip(last_of, self.copies(map(rows.__getitem__, last_of)), strict=True))
        self.fold(scope, _Changing(rows), records)
        changes = records.without_headers().at(sorted(last_of.values()))
        changed = changes.encoded_keys
        news = self.copies(map(rows.__getitem__, changed))
        return changes.with_values(news, [before[key] for key in changed])


@dataclass(frozen=True)
class Keep(KeepRows):
    """The step that folds records into a state table, by their keys.

    Args:
        state: The table.
        aggregate: The aggregate that makes rows.
    """

    aggregate: Aggregate[Any, Any]

    def fold(self, scope: Scope, rows: AggregateRows[Any], records: Columns) -> None:  # noqa: ARG002 - it needs no more
        self.aggregate.fold(rows, records.encoded_keys, records.values)

    def copies(self, rows: Iterable[Any]) -> list[Any]:
        # `Last` changes no row in place.
        return list(rows) if isinstance(self.aggregate, Last) else super().copies(rows)


def changed_rows(
    records: Columns, key: Codec[Any], changes: Iterable[tuple[int, bytes, Any, Any]]
) -> Columns:
    """Return changes of rows in the order of the records that have made them.

    Args:
        records: The records.
        key: The codec of the keys of the rows.
        changes: The index of a record, the encoded key of a row, and the row before and after.
    """
    in_order = sorted(changes, key=lambda change: change[:2])
    indexes, keys, olds, news = map(list, zip(*in_order, strict=True)) if in_order else ([], [], [], [])
    return records.without_headers().at(indexes).by(key, keys).with_values(news, olds)


@dataclass(frozen=True)
class _Changing:
    """Rows that are marked as changed already."""

    rows: dict[bytes, Any]

    def changing(self, _: Iterable[bytes]) -> dict[bytes, Any]:
        return self.rows


def copied(codec: Codec[Any], value: Any) -> Any:
    """Return a copy of a value, or the value itself if it cannot be changed in place."""
    return value if isinstance(value, _UNCHANGEABLE) else codec.decode(codec.encode(value))
