"""The stateful steps: folds of whole batches into the rows of a state table."""

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from streamtable.arithmetic import numbers_only
from streamtable.errors import DeserializationError, SerializationError
from streamtable.flow.columns import Columns, Scope
from streamtable.flow.nodes import Step
from streamtable.ports import Codec, Decoded
from streamtable.state import State, codec_name

Function = Callable[..., Any]
Rows = MutableMapping[bytes, Any]
Fold = Callable[[Rows, Sequence[bytes], Sequence[Any]], None]
"""Applies values to the rows of their keys, in order. All these keys are in the mapping; None: no row."""

_UNCHANGEABLE = (int, float, str, bytes, bool)
_ADD, _SUBTRACT = b"+", b"-"


# ---- of records ---------------------------------------------------------------------------------------------------------


def count(rows: Rows, keys: Sequence[bytes], values: Sequence[Any]) -> None:  # noqa: ARG001 - only keys count
    for key in keys:
        rows[key] = (rows[key] or 0) + 1


def total(rows: Rows, keys: Sequence[bytes], values: Sequence[Any]) -> None:
    """Sum up the values, which are numbers: as `combined(plus)`, without a call for each record."""
    for key, number in zip(keys, values, strict=True):
        row = rows[key]
        made = number if row is None else row + number
        rows[key] = made if made == made else nan  # noqa: PLR0124 - NaN alone differs from itself


def combined(combine: Function, number_of: Function | None = None) -> Fold:
    """Combine the values, which are numbers, or the number that `number_of` takes from each value, with the row."""

    def fold(rows: Rows, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        for key, number in zip(keys, values if number_of is None else map(number_of, values), strict=True):
            row = rows[key]
            rows[key] = number if row is None else combine(row, number)

    return fold


def reduce(combine: Function, codec: Codec[Any]) -> Fold:
    """Combine the values of each key. The first value is copied: `combine` may change the row in place."""

    def fold(rows: Rows, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            row = rows[key]
            rows[key] = copied(codec, value) if row is None else combine(row, value)

    return fold


def aggregate(initial: Function, add_: Function) -> Fold:
    def fold(rows: Rows, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            row = rows[key]
            rows[key] = add_(initial() if row is None else row, value)

    return fold


def last(rows: Rows, keys: Sequence[bytes], values: Sequence[Any]) -> None:
    """Keep the last value of each key. It changes no row in place."""
    rows.update(zip(keys, values, strict=True))


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
            raise DeserializationError(
                f"a change of a grouped table begins with {data[:1]!r} instead of '+' or '-'"
            )
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


def count_rows(rows: Rows, keys: Sequence[bytes], values: Sequence[Any]) -> None:
    for key, (added, _) in zip(keys, values, strict=True):
        rows[key] = (rows[key] or 0) + (1 if added else -1)


def aggregate_rows(initial: Function, add_: Function, subtract: Function) -> Fold:
    def fold(rows: Rows, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        for key, (added, value) in zip(keys, values, strict=True):
            row = rows[key]
            rows[key] = (add_ if added else subtract)(initial() if row is None else row, value)

    return fold


# ---- numbers of records ----------------------------------------------------------------------------------------------------


Take = Callable[[Columns], Columns]
"""Replaces the values of records by numbers, and leaves out the records that have none."""


def numbers(of: Function) -> Take:
    """Replace each value by its number."""

    def take(records: Columns) -> Columns:
        found, indexes = numbers_only(map(of, records.values), range(len(records)))
        return (records if len(found) == len(records) else records.at(indexes)).with_values(found)

    return take


def numbers_beside(of: Function) -> Take:
    """Replace each value by its number and itself."""

    def take(records: Columns) -> Columns:
        found, indexes = numbers_only(map(of, records.values), range(len(records)))
        records = records if len(found) == len(records) else records.at(indexes)
        return records.with_values(list(zip(found, records.values, strict=True)))

    return take


def numbers_of_rows(of: Function) -> Take:
    """Replace each row that is added or taken away by its number."""

    def take(records: Columns) -> Columns:
        found, indexes = numbers_only([of(row) for _, row in records.values], range(len(records)))
        records = records if len(found) == len(records) else records.at(indexes)
        return records.with_values(
            [(added, number) for (added, _), number in zip(records.values, found, strict=True)]
        )

    return take


def taking(take: Take | None, kept: tuple[Step, Step]) -> tuple[Step, Step]:
    """Return the steps that first take the numbers of their records."""
    if take is None:
        return kept

    def before(step: Step) -> Step:
        return lambda scope, records: step(scope, take(records))

    step, leaf = kept
    return before(step), before(leaf)


# ---- steps ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keep:
    """The step that folds records into a state table, by their keys.

    Args:
        state: The table.
        fold: The fold.
    """

    state: State[Any, Any]
    fold: Fold

    def leaf(self, scope: Scope, records: Columns) -> None:
        """Fold the records, where nothing follows."""
        keys = records.raw_keys
        assert keys is not None, "the builder refuses state after changed keys"
        self.fold(scope.table(self.state).raw.changing(keys), keys, records.values)

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Fold the records. Returns one change for each key, in the order of their last records."""
        return changes_of(scope, self.state, self.fold, records)


def changes_of(scope: Scope, state: State[Any, Any], fold: Fold, records: Columns) -> Columns:
    """Fold records into a table. Returns one change for each key, in the order of their last records."""
    keys = records.raw_keys
    assert keys is not None, "the builder refuses state after changed keys"
    last_of = dict(zip(keys, range(len(keys)), strict=True))
    rows = scope.table(state).raw.changing(keys)
    olds = map(rows.__getitem__, last_of)
    before = dict(zip(last_of, olds if fold is last else kept_apart(state, olds), strict=True))
    fold(rows, keys, records.values)
    changes = records.without_headers().at(sorted(last_of.values()))
    changed = changes.raw_keys or ()
    return changes.with_values([rows[key] for key in changed], [before[key] for key in changed])


def kept_apart(state: State[Any, Any], rows: Iterable[Any]) -> list[Any]:
    """Return copies of the rows, as a fold may change rows in place."""
    encode, decode = state.value.encode, state.value.decode
    return [row if row is None or isinstance(row, _UNCHANGEABLE) else decode(encode(row)) for row in rows]


def copied(codec: Codec[Any], value: Any) -> Any:
    """Return a copy of a value, or the value itself if it cannot be changed in place."""
    return value if isinstance(value, _UNCHANGEABLE) else codec.decode(codec.encode(value))


def keep_step(state: State[Any, Any], fold: Fold) -> tuple[Step, Step]:
    """Return the step of a stateful node, and the step for a node that no other follows."""
    keep = Keep(state, fold)
    return keep.step, keep.leaf
