"""Rows that fall due and timers in the simulation: those that handlers set, and their expected effects.

By its number, each event sets one of these for a time after its timestamp: a row that is deleted when due, a row that
is kept for a while, a wall-clock or an event-time timer. Everything that fires is emitted with its source.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from zlib import crc32

from streamtable.base.topics import Stream
from streamtable.codec.plain import Bytes, Json, String
from streamtable.engine.due.chunks import entry_of
from streamtable.graph.due import Due
from streamtable.graph.group import OnError, Output
from streamtable.graph.state import State
from streamtable.graph.timer import Timer
from streamtable.handlers.context import Context
from streamtable.handlers.due_rows import DueRows

AHEAD_MS_MAX = 20_000
KEPT_MS = 4_000
_FAR_MS = 1 << 44  # records of wrong clocks come later
_LATE = -1
"""In place of the time of an event timer that has fired after a record that it had to precede."""
_ROW: Any = Json()
KINDS = ("waiting", "kept", "wall", "event")


class Planned(NamedTuple):
    """A row or timer to fire: its kind, the record that set it, and its due time."""

    kind: str
    source: int
    at_ms: int


def planned(source: int, event: int, timestamp_ms: int, *, event_time: bool) -> Planned:
    """Return the row or timer that a record sets."""
    kind = KINDS[event // 128 % (4 if event_time else 3)]
    start = timestamp_ms if 0 <= timestamp_ms < _FAR_MS else 0
    return Planned(kind, source, start + event % AHEAD_MS_MAX)


class DueHandlers:
    """The rows and timers that a job's handlers set and fire."""

    def __init__(self, name: str, *, event_time: bool) -> None:
        self.output = Stream[str, Any](f"{name}-due", String(), Json())
        self._event_time = event_time
        keep = timedelta(milliseconds=KEPT_MS)
        self.waiting = State[bytes, Any](
            "waiting", key=Bytes(), value=Json(), due=Due(_row_says, self._fire, "wall")
        )
        self.kept = State[bytes, Any](
            "kept", key=Bytes(), value=Json(), due=Due(_key_says, self._fire, "wall", keep, by_key=True)
        )
        self.wall = Timer[str, Any, Any]("tick", self._ring, Json(), clock="wall")
        self.event = Timer[str, Any, Any]("tock", self._ring, Json(), on_error=OnError.DEAD_LETTER)

    @property
    def edges(self) -> list[Any]:
        """Return their edges of the graph."""
        return [
            Output(self.output),
            self.waiting,
            self.kept,
            self.wall,
            *([self.event] if self._event_time else []),
        ]

    def set(self, ctx: Context[str, Any], source: int, event: int, *, exact: bool) -> None:
        """Set the row or timer of the record, which has changed the row of its key. `exact`: as no other record does."""
        kind, _, at_ms = what = planned(source, event, ctx.timestamp_ms, event_time=self._event_time)
        row = [ctx.key, *what]
        if kind == "event" and exact and at_ms <= ctx.watermark_ms:
            row.append(_sum_of(ctx.value))  # it fires before another record changes the row
        if kind == "waiting":
            ctx.table(self.waiting).put(source.to_bytes(8, "big"), row)
        elif kind == "kept":
            ctx.table(self.kept).put(entry_of(at_ms, source.to_bytes(8, "big")), row)
        else:
            ctx.timers.at(self.wall if kind == "wall" else self.event, at_ms, row, str(source))

    def _fire(self, due: DueRows[bytes, Any]) -> None:
        for _, _, row in due.rows:
            due.emit(self.output, row[0], row[1:])

    def _ring(self, ctx: Context[str, Any], row: Any) -> None:
        assert ctx.key == row[0]
        late = row[4:] not in ([], [_sum_of(ctx.value)])
        ctx.emit(self.output, ctx.key, [*row[1:3], _LATE if late else row[3]])


def _sum_of(row: Any) -> int:
    return crc32(repr(row).encode())


def _row_says(key: bytes, data: bytes) -> int:
    at_ms: int = _ROW.decode(data)[3]
    return at_ms


def _key_says(key: bytes, data: bytes) -> int:
    assert not data, "the key has all data"
    return int.from_bytes(key[:8], "big")


def local_rows(name: str, records: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Return the local rows that result from the changelog of a state whose rows fall due."""
    rows = {b"r" + key: value for key, value in records.items()}
    for key, value in records.items():
        if name == "waiting":
            at_ms = _row_says(key, value)
        elif name == "kept":
            at_ms = _key_says(key, b"")
        else:
            at_ms = int.from_bytes(value[:8], "big")
        rows[b"d" + entry_of(at_ms, key)] = b""
    return rows
