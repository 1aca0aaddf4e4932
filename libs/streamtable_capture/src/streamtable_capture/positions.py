"""Positions of changes in their source: which of two changes of a row came later.

PostgreSQL's is the LSN of the change's own log record. Changes of one row come in the order of these: a transaction can
write a row only after the one that wrote it before has ended.
"""

import re
from typing import Any

from streamtable.errors import DeserializationError
from streamtable_capture.change import DatabaseChange

Position = int | list[Any]
"""An LSN; or of a binlog: the server, the time in milliseconds, and the numbers that order its changes. JSON can hold it."""

_NUMBER = re.compile(r"(\d+)$")
_OTHER = re.compile(r"server |\d+-\d+$")
"""The servers of positions without a GTID, and of MariaDB's GTIDs."""
_GTID = re.compile(r"^(?P<server>\d+-\d+(?=-)|[^:,]+(?::[A-Za-z_][^:,]*)?(?=:))[:-](?P<number>\d+)$")
"""MariaDB's `domain-server-number`; MySQL's `server:number`, or `server:tag:number`, as each tag counts by itself."""


def position_of(change: DatabaseChange[Any]) -> Position | None:
    """Return the position of a change; None if its source has none that can be compared.

    A snapshot ends where the stream begins: the first change after it has the position that the rows of the snapshot have. So
    a row of a snapshot counts as just before its position.

    Raises:
        DeserializationError: Its GTID does not name one transaction, as a set of them does.
    """
    source, read = change.source, change.op == "r"
    if source.lsn is not None:
        return source.lsn - read
    row = -1 if read else source.row or 0
    number = _NUMBER.search(source.file or "")
    file = int(number[1]) if number else 0
    if source.gtid:
        if (found := _GTID.match(source.gtid)) is None:
            raise DeserializationError(
                f"the GTID {source.gtid!r} of table {source.qualified_table!r} names no single transaction, so its change has no order"
            )
        # The number of the transaction orders its server's binlog also after another server has taken over the files.
        return [found["server"], source.ts_ms, int(found["number"]), source.pos or 0, row, file]
    if number and source.pos is not None:
        return [f"server {source.server_id}", source.ts_ms, file, source.pos, row]
    return None


def beyond(new: Position, old: Position) -> bool | None:
    """Return whether a change came after another one; None if their positions cannot be compared.

    Changes of two servers, as before and after a failover, are compared by their times. A row of a snapshot has the time when its
    table was read, which may be later than that of changes after the snapshot's position: it is compared by the binlog's files.

    The members of a MySQL group write GTIDs of one server, with numbers from blocks that do not follow the order of the changes. So a
    lower number with a later time may be of a later change, or of a repeat if a clock was set back: these cannot be compared.
    """
    if isinstance(new, int) or isinstance(old, int):
        return new > old if isinstance(new, int) and isinstance(old, int) else None
    if new[0] == old[0] and len(new) == len(old):
        numbered = -1 not in {new[4], old[4]} and not _OTHER.match(new[0])
        return None if numbered and new[2] < old[2] and new[1] > old[1] else bool(new[2:] > old[2:])
    if -1 in {new[4], old[4]}:
        # A row of a snapshot has neither the server nor the transaction. After a failover the files begin again: a change that was
        # made after the row was read is later whatever its file.
        return _in_files(new) > _in_files(old) or (new[4] != -1 and new[1] > old[1])
    return None if new[1] == old[1] else bool(new[1] > old[1])


def _in_files(position: list[Any]) -> tuple[int, int, int]:
    """Return the place of a change of a binlog in its files."""
    _, _, number, pos, row, *file = position
    return file[0] if file else number, pos, row


def later_of(one: Position | None, other: Position | None) -> Position | None:
    """Return the later of two positions: either may be missing; the first one if they cannot be compared."""
    if one is None or other is None:
        return other if one is None else one
    return other if beyond(other, one) else one
