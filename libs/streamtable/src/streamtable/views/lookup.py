"""Full tables for handlers: views with a cache, as a handler may ask for a row with every record."""

import threading
from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

from streamtable.base.topics import Table
from streamtable.views.updater import ViewUpdater
from streamtable.views.view import View

K = TypeVar("K")
V = TypeVar("V")

_KEPT_BYTES_MAX = 32 << 20
_ROW_OVERHEAD_BYTES = 150  # of a dict entry and two bytes objects in CPython


class LookupTable(View[K, V]):
    """A view for one thread that reads single rows again and again.

    Rows are kept encoded: a change of a value by one handler must not be visible to the next. A row is kept only if
    nothing has changed while it was read; a change that arrives takes it away.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._kept: dict[bytes, bytes | None] = {}
        self._kept_bytes = 0
        self._kept_of = 0  # the loads of the copies that the rows are of
        self._changes = 0
        self._keeping = threading.Lock()
        super().__init__(*args, **kwargs)

    def _get(self, key: bytes) -> V | None:
        self._whole()
        if self._kept_of != self._replicas.loads:
            self._forget()
        value = self._kept[key] if key in self._kept else self._read_and_keep(key)
        return None if value is None else self._reader.value(key, value)

    def _read_and_keep(self, data: bytes) -> bytes | None:
        loads, changes = self._replicas.loads, self._changes
        value = self._read(data)
        with self._keeping:
            if (loads, changes) == (self._kept_of, self._changes):
                self._drop(data)  # another row of this key, which another thread has kept meanwhile
                self._kept[data] = value
                self._kept_bytes += _size(data, value)
                if self._kept_bytes > _KEPT_BYTES_MAX:
                    for oldest in list(islice(self._kept, len(self._kept) // 4 + 1)):
                        self._drop(oldest)
        return value

    def _drop(self, key: bytes) -> None:
        if key in self._kept:
            self._kept_bytes -= _size(key, self._kept.pop(key))

    def _forget(self) -> None:
        with self._keeping:
            self._kept, self._kept_bytes, self._kept_of = {}, 0, self._replicas.loads

    def _changed(self, partition: int, rows: Mapping[bytes, bytes | None], offset: int) -> None:
        with self._keeping:
            self._changes += 1
            for key in rows:
                self._drop(key)
        super()._changed(partition, rows, offset)


def _size(key: bytes, value: bytes | None) -> int:
    return _ROW_OVERHEAD_BYTES + len(key) + len(value or b"")


class LookupTables(ViewUpdater):
    """The tables that a group looks up, kept current in the processor's background thread."""

    _lookups: Mapping[str, LookupTable[Any, Any]] = MappingProxyType({})

    def follow(self, tables: Iterable[Table[Any, Any]]) -> Mapping[str, LookupTable[Any, Any]]:
        """Follow these tables, unless they are followed already. Returns them by name."""
        if not self._lookups:
            self._lookups = {table.name: LookupTable(table, self) for table in tables}
            self.open()
        return self._lookups
