"""What a `Capture` keeps beside its rows: the positions of deleted rows, and rows that wait for the values of their old key."""

from collections.abc import Sequence
from typing import Any

import msgspec

from streamtable import Bytes, Decoded, Due, DueRows, OnError, State, decode_each
from streamtable.errors import DeserializationError, SerializationError
from streamtable_capture.positions import Position

Note = dict[str, Any]


class JsonNotes:
    """The codec of notes: JSON, in which columns are as in the rows of the table."""

    def encode(self, value: Note) -> bytes:
        try:
            return msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise SerializationError(f"the columns of a row cannot be written as JSON: {error}") from error

    def decode(self, data: bytes) -> Note:
        try:
            return msgspec.json.decode(data, type=Note)
        except msgspec.MsgspecError as error:
            raise DeserializationError(f"no note of a Capture: {error}") from error

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[Note]:
        return decode_each(self.decode, data)

    def __repr__(self) -> str:
        return "JsonNotes()"


def key_of_move(raw_key: bytes, position: Position | None) -> bytes:
    """Return the key of a note about a row that has got this key by the change at this position; None: there is no such note."""
    return msgspec.json.encode(position) + b" " + raw_key


def _until(_key: bytes, note: bytes) -> int:
    until: int = msgspec.json.decode(note)["until"]
    return until


def _forget(_rows: DueRows[bytes, Note]) -> None:
    """The engine deletes what was due."""


def _give_up(rows: DueRows[bytes, Note]) -> None:
    for _, _, row in rows.rows:
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
