"""The values that handlers of `Changes` were given last for each row: the group's named table `handled`.

The copy of a joined table cannot tell: when it is loaded again, compaction may have dropped the row that was handled
last, and a row whose handler refused it is in the copy nevertheless.
"""

from hashlib import blake2b
from itertools import islice
from typing import Any

import structlog

from streamtable.base.ports import Store
from streamtable.engine.named.byte_table import NamedTable
from streamtable.errors import DeserializationError, SerializationError
from streamtable.graph.group import Changes
from streamtable.tables.joined import MISSING, Joined, Missing
from streamtable.tables.working_table import refuse_if_larger

log = structlog.get_logger()

_ROWS_AT_ONCE = 5_000
_BYTES_AT_ONCE = 2 * 1024 * 1024
_SEPARATOR = b"\0"  # no name of a topic contains it
_DONE = b"\1"
_COPYING = b"\0"  # and the key that was copied last
_REFUSED = b"\0"  # and the key of the row whose deletion was refused


class HandledRows(NamedTable):
    """The last handled values of one partition, by table and key.

    Under the name alone: the progress of copying the rows that a new group takes as known. Behind a zero byte: the rows
    whose deletion the handler has refused.

    Args:
        store: The committed rows.
        bytes_max: The maximum size of a record of its topic.
    """

    def __init__(self, store: Store, bytes_max: int) -> None:
        super().__init__(store)
        self._bytes_max = bytes_max

    def last(self, edge: Changes[Any, Any, Any], key: bytes) -> Any:
        """Return the value that the handler was given last for this row; None if there was none or it was deleted.

        Raises:
            DeserializationError: It cannot be decoded any more. It existed, so it is not given as None.
        """
        data = self.get(_row(edge.table.name, key))
        try:
            return None if data is None else edge.table.value.decode(data)
        except DeserializationError as error:
            raise DeserializationError(
                f"the old row of {edge.table.name!r} for key {key!r}, as it was handled last, cannot be decoded: {error.message}"
            ) from error

    def handled(self, table: str, key: bytes, data: bytes | None) -> None:
        """Note that the handler was given this value. Raises `SerializationError` if it does not fit the topic."""
        row = _row(table, key)
        what = f"the row of {table!r} for key {key[:100]!r} in the topic of handled rows (<group>-handled)"
        refuse_if_larger(len(row) + len(data or b""), self._bytes_max, what)
        self.put(row, data)

    def uncommitted(self, table: str, key: bytes) -> "bytes | Missing | None":
        """Return the value that was handled last since the last commit; `MISSING` if none was."""
        return self._new.get(_row(table, key), MISSING)

    def take_back(self, table: str, key: bytes, before: "bytes | Missing | None") -> None:
        """Undo `handled`. `before` is the value that `uncommitted` returned for the row then."""
        if isinstance(before, Missing):
            self._new.pop(_row(table, key), None)
        else:
            self._new[_row(table, key)] = before

    def refused(self, table: str, key: bytes) -> None:
        """Note that the deletion of this row was refused, so that `unread` does not find it each time the copy is loaded."""
        row = _row(table, key)
        if (data := self.get(row)) is not None:
            self.put(_REFUSED + row, _digest(data))

    # ---- rows that are taken as known ------------------------------------------------------------------------------

    def complete(self, table: str) -> bool:
        """Whether all rows that existed when the group began with this table have been copied."""
        return self.get(table.encode()) == _DONE

    def copy_some(self, edge: Changes[Any, Any, Any], joins: Joined) -> None:
        """Copy the next rows of the joined table, before any change of it is handled."""
        table = edge.table.name
        mark = self.get(table.encode())
        start = None if mark is None else mark[1:] + b"\0"
        size = 0
        copied = mark[1:] if mark else b""
        with joins[table].store.scan(start) as rows:
            for key, data in islice(rows, _ROWS_AT_ONCE):
                copied = key
                self._take_as_known(edge, key, data)
                size += len(key) + len(data)
                if size > _BYTES_AT_ONCE:
                    break
            else:
                if next(rows, None) is None:
                    self.put(table.encode(), _DONE)
                    return
        self.put(table.encode(), _COPYING + copied)

    def _take_as_known(self, edge: Changes[Any, Any, Any], key: bytes, data: bytes) -> None:
        try:
            edge.table.value.decode(data)
            self.handled(edge.table.name, key, data)
        except (DeserializationError, SerializationError) as error:
            log.warning(
                "row of a joined table cannot be decoded or kept and is treated as missing",
                table=edge.table.name,
                key=repr(key),
                error=str(error),
            )


def unread(handled: Store, copy: Store, table: str) -> dict[bytes, bytes]:
    """Return the handled rows that a copy lacks, which was loaded from the whole topic below the committed offset.

    Compaction has removed them for a record that the group has not read yet. If this was a deletion, it may be gone too.
    """
    begin = _row(table, b"")
    with handled.scan(begin, table.encode() + b"\1") as rows:
        found = {row[len(begin) :]: data for row, data in rows if copy.get(row[len(begin) :]) is None}
    return {key: data for key, data in found.items() if handled.get(_REFUSED + begin + key) != _digest(data)}


def _row(table: str, key: bytes) -> bytes:
    return table.encode() + _SEPARATOR + key


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
