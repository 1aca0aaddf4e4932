"""Changes as rows of a table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from psycopg.types.json import Json

from streamtable.errors import Rejected
from streamtable_sinks.target import Change

MakeRow = Callable[[Any, Any], Mapping[str, Any]]
MakeKey = Mapping[str, Callable[[Any], Any]]
_JSON_TYPES = ("json", "jsonb")


Values = tuple[Any, ...]


@dataclass(frozen=True)
class Rows:
    """The rows of a batch.

    Attributes:
        written: The rows to write, each with its values in the order of the columns.
        written_offsets: The offset of each.
        deleted: The rows to delete, by the values of their key columns.
        deleted_offsets: The offset of each.
    """

    written: Sequence[Values]
    written_offsets: Sequence[int]
    deleted: Sequence[Values] = ()
    deleted_offsets: Sequence[int] = ()


class RowMaker:
    """Makes rows of changes.

    Args:
        key: Makes the value of each key column from a key; empty: rows are appended.
        columns: Makes a row of a key and a value; None: the fields of the value.
        types: The SQL types of the table's columns.

    Attributes:
        names: The columns of a row: those of the first.
    """

    def __init__(self, key: MakeKey, columns: MakeRow | None, types: Mapping[str, str]) -> None:
        self._key = tuple(key.items())
        self._columns = columns
        self._types = types
        self.names: tuple[str, ...] = ()
        self._take: Callable[[Mapping[str, Any]], Values] = lambda _: ()
        self._structured: Sequence[int] = ()

    def rows(self, changes: Sequence[Change]) -> Rows:
        """Return the rows of changes. Of several with the same key columns the last counts.

        Raises:
            Rejected: A change makes no row; with its offset.
        """
        offsets = [change.offset for change in changes]
        if not self._key:
            return Rows([self._values(change, {}) for change in changes], offsets)
        last: dict[Values, tuple[int, Values | None]] = {}
        for change in changes:
            key = self._key_of(change)
            values = None if change.value is None else self._values(change, key)
            last[tuple(key.values())] = change.offset, values
        written = [(offset, values) for offset, values in last.values() if values is not None]
        deleted = [(offset, key) for key, (offset, values) in last.items() if values is None]
        return Rows(
            [values for _, values in written],
            [offset for offset, _ in written],
            [key for _, key in deleted],
            [offset for offset, _ in deleted],
        )

    def _key_of(self, change: Change) -> dict[str, Any]:
        try:
            return {name: make(change.key) for name, make in self._key}
        except Exception as error:
            raise _unmade(change, error) from error

    def _values(self, change: Change, key: Mapping[str, Any]) -> Values:
        try:
            if self._columns is not None:
                row = self._columns(change.key, change.value)
            else:
                row = change.value if isinstance(change.value, Mapping) else {"value": change.value}
            if key:
                row = {**row, **key}
            if len(row) != len(self.names):
                self._name(row, change)
            values = self._take(row)
        except Rejected:
            raise
        except Exception as error:
            raise _unmade(change, error) from error
        return self._wrapped(values) if self._structured else values

    def _name(self, row: Mapping[str, Any], change: Change) -> None:
        if self.names:
            message = f"the row has the columns {sorted(row)}, and others have {sorted(self.names)}"
            raise Rejected(message, offset=change.offset)
        self.names = tuple(row)
        take = itemgetter(*self.names)
        self._take = take if len(self.names) > 1 else lambda found: (take(found),)
        self._structured = [at for at, name in enumerate(self.names) if self._types.get(name) in _JSON_TYPES]

    def _wrapped(self, values: Values) -> Values:
        made = list(values)
        for at in self._structured:
            made[at] = None if made[at] is None else Json(made[at])
        return tuple(made)


def _unmade(change: Change, error: Exception) -> Rejected:
    return Rejected(f"the row cannot be made: {type(error).__name__}: {error}", offset=change.offset)
