"""Changes as rows of a table."""

import json
import operator
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any

from psycopg.types.json import Json

from streamtable.errors import ConfigurationError, Rejected
from streamtable_sinks.columns import in_json
from streamtable_sinks.postgres.types import keeping
from streamtable_sinks.target import Changes

MakeRow = Callable[[Any, Any], Mapping[str, Any]]
MakeKey = Mapping[str, Callable[[Any], Any]]
JSON_TYPES = ("json", "jsonb")
_VALUES_FAULT = (TypeError, ValueError, ArithmeticError, RecursionError)
"""A text that is no Unicode is a ValueError, for example, and arrays in a thousand others are a RecursionError."""

Values = tuple[Any, ...]
_KEY, _VALUE = operator.attrgetter("key"), operator.attrgetter("value")


@dataclass(frozen=True)
class CopiedRows:
    """The rows of a batch. They are made while they are sent, so that the server works meanwhile.

    Attributes:
        written: The rows to write, each with its values in the order of the columns. To be read once.
        of: The change of each.
        deleted: The rows to delete, by the values of their key columns.
    """

    written: Iterable[Values]
    of: Changes
    deleted: Sequence[Values] = ()


class RowMaker:
    """Makes rows of changes, of all columns at once.

    Args:
        key: Makes the value of each key column from a key; empty: rows are appended.
        columns: Makes a row of a key and a value; None: the fields of the value.
        types: The SQL types of the table's columns, which are all that a row may have.
        row_of: Makes a row of a value; None: a value is a row, or the column `value`. See `columns.row_maker`.
        key_row_of: Makes what `key` takes of a record's key; None: it is that key.
        exact: The columns that have the type of the source, so that their values need no check.
        whole_key: Whether the only function of `key` returns a key as it is, unless that is a tuple or a dict.
        deletes: Whether a change without a value deletes the row of its key, as of a table. Of a stream null is a value.

    Attributes:
        names: The columns of a row, those of the key first; none before the first rows.
    """

    def __init__(
        self,
        key: MakeKey,
        columns: MakeRow | None,
        types: Mapping[str, str],
        *,
        row_of: Callable[[Any], Mapping[str, Any]] | None = None,
        key_row_of: Callable[[Any], Any] | None = None,
        exact: Container[str] = (),
        whole_key: bool = False,
        deletes: bool = False,
    ) -> None:
        self._key, self._key_names = tuple(key.values()), tuple(key)
        self._columns, self._types = columns, types
        self._row_of, self._key_row_of = row_of, key_row_of
        self._exact, self._whole_key, self._deletes = exact, whole_key, deletes
        self.names: tuple[str, ...] = ()
        self._common: frozenset[str] = frozenset()  # of what makes a row, which may have key columns too
        self._lead = 0  # rows that had these columns, less batches that had others only
        self._take: Callable[[Mapping[str, Any]], Values] = lambda _: ()
        self._converts: Sequence[tuple[int, Callable[[Any], Any]]] = ()

    def rows(self, changes: Changes, *, deciding: bool = True) -> CopiedRows:
        """Return the rows of changes. Of several with the same key columns the last counts.

        Args:
            changes: The changes.
            deciding: Whether the columns that most of them have may become the columns of all rows.

        Raises:
            Exception: A change makes no row, here or when the rows are read; see `blamed`.
        """
        if not self._key:
            return CopiedRows(self._values(changes, deciding=deciding), changes)
        whole = self._whole_keys(changes)
        deleted = self._deletes and NoneType in set(map(type, map(_VALUE, changes)))
        if whole and not deleted and len(set(whole)) == len(whole):
            # The usual batch: no tuple is kept for a key beside its row.
            values = self._values(changes, deciding=deciding)
            return CopiedRows(map(operator.add, zip(whole, strict=True), values), changes)
        # With their types, as 1 and True are equal in Python.
        made = (map(make, self._records_keys(changes)) for make in self._key)
        keys = [(*key, *map(type, key)) for key in zip(*made, strict=True)]
        parts = operator.itemgetter(slice(len(self._key)))
        last = dict(zip(keys, changes, strict=True))
        if any(None in key for key in last):
            raise ValueError("a column of its key is null, and null is equal to no row's")
        written = {key: each for key, each in last.items() if not self._deletes or each.value is not None}
        kept = list(written.values())
        rows = map(operator.add, map(parts, written), self._values(kept, deciding=deciding))
        return CopiedRows(rows, kept, [parts(key) for key in last if key not in written])

    def blamed(self, changes: Changes, error: Exception) -> Exception:
        """Return the refusal of the first change that makes no row, with its offset.

        If all make rows, a value of one cannot be sent: a refusal without an offset. An error of another kind is returned as it is.
        """
        for change in changes:
            try:
                list(self.rows((change,), deciding=False).written)
            except Exception as why:  # noqa: BLE001 - the program's function may raise anything
                return Rejected(f"the row cannot be made: {type(why).__name__}: {why}", offset=change.offset)
        if isinstance(error, _VALUES_FAULT):
            return Rejected(f"a value cannot be sent to PostgreSQL: {type(error).__name__}: {error}")
        return error

    def _records_keys(self, changes: Changes) -> Sequence[Any]:
        keys = list(map(_KEY, changes))
        return keys if self._key_row_of is None else list(map(self._key_row_of, keys))

    def _whole_keys(self, changes: Changes) -> Sequence[Any]:
        """Return the values of the only key column, if they are the keys as they are; otherwise nothing."""
        if not self._whole_key:
            return ()
        keys = self._records_keys(changes)
        return () if any(issubclass(kind, tuple | dict | NoneType) for kind in set(map(type, keys))) else keys

    def _values(self, changes: Changes, *, deciding: bool) -> Iterable[Values]:
        """Return the values of the columns that are none of the key."""
        rows: Sequence[Any]
        if self._columns is not None:
            rows = [self._columns(change.key, change.value) for change in changes]
        elif self._row_of is not None:
            rows = [self._row_of(change.value) for change in changes]
        else:
            rows = list(map(_VALUE, changes))
            if any(kind is not dict for kind in set(map(type, rows))):
                rows = [each if isinstance(each, dict) else {"value": each} for each in rows]
        if rows:
            self._check(_kinds(rows), deciding=deciding)
        found = map(self._take, rows)
        return map(self._converted, found) if self._converts else found

    def _check(self, kinds: Mapping[frozenset[str], int], *, deciding: bool) -> None:
        """Check the columns of rows: the table has all of them, and most rows the same.

        Raises:
            ValueError: An odd row is among them.
            ConfigurationError: None of the first rows fits the table, although a function makes them.
        """
        lacking = [sorted(kind - self._types.keys()) for kind in kinds]
        if self._columns is not None and not self.names and all(lacking):
            # Not one row fits: more likely a mistake of the function than odd records.
            raise ConfigurationError(
                f"the table lacks the columns {lacking[0]} that columns= makes: add them"
            )
        if odd := next(filter(None, lacking), ()):
            raise ValueError(f"the table has no columns {odd}")
        if not self._key and frozenset() in kinds:
            raise ValueError("it has no columns")
        if deciding:
            self._decide(kinds)
        if self.names and (others := kinds.keys() - {self._common}):
            raise ValueError(f"it has the columns {sorted(others.pop())}, others have {sorted(self._common)}")

    def _decide(self, kinds: Mapping[frozenset[str], int]) -> None:
        """Take the columns that most rows have, here and before: an odd row may be the first, and alone in its batch."""
        count, width, kind = max((count, len(kind), kind) for kind, count in kinds.items())
        if not self.names or (kind != self._common and (count, width) > (self._lead, len(self._common))):
            self._name(kind)
        self._lead += kinds.get(self._common, -1)

    def _name(self, kind: frozenset[str]) -> None:
        others = tuple(sorted(kind.difference(self._key_names)))
        self.names, self._common, self._lead = self._key_names + others, kind, 0
        self._take = operator.itemgetter(*others) if others[1:] else lambda row: tuple(map(row.get, others))
        makes = enumerate(map(self._convert, others))
        self._converts = [(at, convert) for at, convert in makes if convert is not None]

    def _convert(self, name: str) -> Callable[[Any], Any] | None:
        """Return the function that a column's values pass through; None: they need none."""
        kind = self._types.get(name, "")
        if kind in JSON_TYPES:
            return partial(Json, dumps=_dumps)
        keeps = None if name in self._exact else keeping(kind)
        return None if keeps is None else partial(_kept, name, kind, keeps)

    def _converted(self, values: Values) -> Values:
        made = list(values)
        for at, convert in self._converts:
            made[at] = None if made[at] is None else convert(made[at])
        return tuple(made)


def _kept(name: str, kind: str, keeps: Callable[[Any], bool], value: Any) -> Any:
    if not keeps(value):
        raise ValueError(f"the column {name!r} of type {kind} would change {value!r:.100}")
    return value


def _kinds(rows: Sequence[Mapping[str, Any]]) -> Mapping[frozenset[str], int]:
    """Return how many rows have which columns; quickly if all have the same."""
    names = frozenset[str]().union(*rows)
    return Counter(map(frozenset, rows)) if set(map(len, rows)) - {len(names)} else {names: len(rows)}


def _text_of(value: Any) -> Any:
    """Return a value inside of an object or array that JSON has as a text."""
    if (found := in_json(value)) is value:
        raise TypeError(f"{type(value).__name__} is no value of JSON")
    return found


_dumps = partial(json.dumps, default=_text_of)
