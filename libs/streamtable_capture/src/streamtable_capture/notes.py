"""The notes that a `Capture` keeps beside its rows: positions of deleted rows, and rows that wait for the values of their old key."""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from streamtable import Bytes, Due, DueRows, OnError, State
from streamtable.errors import DeserializationError
from streamtable_capture.captured import encoded
from streamtable_capture.positions import Position
from streamtable_capture.rows import UNREADABLE, OneByOne

Note = dict[str, Any]
_LATE_MS: Final = 3_600_000


class JsonNotes(OneByOne[Note]):
    """The codec of notes: JSON, in which columns are as in the rows of the table."""

    def encode(self, value: Note) -> bytes:
        return encoded(value)

    def decode(self, data: bytes) -> Note:
        try:
            return msgspec.json.decode(data, type=Note)
        except UNREADABLE as error:
            raise DeserializationError(f"no note of a Capture: {error}") from error

    def __repr__(self) -> str:
        return "JsonNotes()"


def key_of_move(raw_key: bytes, position: Position | None) -> bytes:
    """Return the key of a note about a row that has got this key by the change at this position; None: there is no such note."""
    return msgspec.json.encode(position) + b" " + raw_key


def _until(_key: bytes, note: bytes) -> int:
    until: int = msgspec.json.decode(note)["until"]
    return until


def _over(rows: DueRows[bytes, Note]) -> Iterator[Note]:
    """Yield the notes whose time is over; the engine has deleted them.

    A note of an old change, read from a topic with a history, was due as soon as it was written. It gets its time from now on.
    """
    for (_, key, note), due_ms in zip(rows.rows, rows.times_ms, strict=True):
        kept_ms = note.pop("kept", 0)
        if kept_ms and rows.watermark_ms - due_ms > _LATE_MS:
            rows.table(rows.state).put(key, {**note, "until": rows.watermark_ms + kept_ms})
        else:
            yield note


def _forget(rows: DueRows[bytes, Note]) -> None:
    deque(_over(rows), maxlen=0)


def _give_up(rows: DueRows[bytes, Note]) -> None:
    for row in _over(rows):
        if "missing" in row:
            names = ", ".join(map(repr, row["missing"]))
            rows.fail(
                f"a row of table {row['table']!r} has waited for {names} of its old key, whose deletion has not come: the topic was "
                f"compacted. Take a new snapshot, and set ALTER TABLE {row['table']} REPLICA IDENTITY FULL"
            )


DELETED: State[bytes, Note] = State(
    "deleted", key=Bytes(), value=JsonNotes(), due=Due(_until, _forget, clock="wall")
)
"""By key: the position of the deletion of its row (`position`), or of the change that waits (`pending`: the move it waits for);
and whether the tombstone that comes next is of a deletion that was dropped (`tombstone`)."""
MOVES: State[bytes, Note] = State(
    "moves",
    key=Bytes(),
    value=JsonNotes(),
    due=Due(_until, _give_up, clock="wall", on_error=OnError.DEAD_LETTER),
)
"""By position and new key of a change of the primary key: the values of the old key (`row`), if they came first; or what waits
for them (`known`, `missing`, `position`), with the next key to pass them on to (`next`); or that nothing does (`done`)."""
