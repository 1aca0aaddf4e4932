"""Truncations of a table: its rows are in all partitions, and the record that says so is in one.

The record has no key, so it is in any partition. Its handler sends a note to each partition, in the same commit. The note is kept
there: changes that come later, and were made before the truncation, change nothing. Then a visit deletes the rows that are there.
All of it is committed as any other change, exactly once.
"""

import json
from collections.abc import Sequence
from itertools import count
from typing import Any, Generic, TypeVar

from streamtable import Bytes, Codec, Context, Decoded, State, Stream, String, Visit
from streamtable.errors import DeserializationError, SerializationError
from streamtable.graph.visiting import VisitProgress
from streamtable_capture.captured import Captured
from streamtable_capture.notes import MOVES, JsonNotes, Note
from streamtable_capture.positions import Position, beyond
from streamtable_capture.rows import OneByOne

K = TypeVar("K")

VISIT = "clear"
_ONE_ROW = b""
CLEARED: State[bytes, Note] = State("cleared", key=Bytes(), value=JsonNotes())
"""One row in each partition: the position of the last truncation."""


class KeysOrNone(Generic[K]):
    """The codec of keys that may be missing: None is written as no bytes at all.

    Args:
        keys: The codec of the others.
    """

    def __init__(self, keys: Codec[K]) -> None:
        self._keys = keys

    def encode(self, value: K | None) -> bytes:
        return b"" if value is None else self._keys.encode(value)

    def decode(self, data: bytes) -> K | None:
        return self._keys.decode(data) if data else None

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[K | None]:
        found = self._keys.decode_many([each or None for each in data])
        return Decoded(list(found.values), found.poison)

    def __repr__(self) -> str:
        return repr(self._keys)


class _Progress(OneByOne[VisitProgress]):
    """The codec of records in `<group>-visits`."""

    def encode(self, value: VisitProgress) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> VisitProgress:
        found = VisitProgress.decode(data)
        if found is None:
            raise DeserializationError("it is no progress of a visit")
        return found


class Truncations:
    """Clears the table of a group.

    Args:
        group: The name of the group.
        loop: The stream of its loop, keyed by `KeysOrNone`.
    """

    def __init__(self, group: str, loop: Stream[Any, Note]) -> None:
        self._loop = loop
        self.visits: Stream[str, VisitProgress] = Stream(f"{group}-visits", String(), _Progress())

    def spread(self, ctx: Context[Any, Any], position: Position) -> None:
        """Send a note to each partition. The handler does not know how many there are: the first that is refused ends them."""
        note = {"cleared": position}
        for partition in count():
            try:
                ctx.emit_many(self._loop, (), [note], raw_keys=[b""], partitions=[partition])
            except SerializationError:
                if not partition:
                    raise
                return

    def arrived(self, ctx: Context[Any, Any], position: Position) -> None:
        """Keep a note, forget the rows that wait for values of old keys, and start the visit of this partition."""
        last = self.last(ctx)
        if last is not None and not beyond(position, last):
            return  # the connector has repeated it
        ctx.table(CLEARED).put(_ONE_ROW, {"position": position})
        moves = ctx.table(MOVES)
        for key, waiting in list(moves.range()):
            if "known" in waiting and beyond(position, waiting["position"]):
                moves.delete(key)
        run = VisitProgress(f"truncated-{json.dumps(position)}")
        ctx.emit_many(self.visits, [VISIT], [run], partitions=[ctx.partition])

    def last(self, ctx: Context[Any, Any]) -> Position | None:
        """Return the position of the last truncation that this partition knows of; None if there was none."""
        row = ctx.table(CLEARED).get(_ONE_ROW)
        return None if row is None else row["position"]

    def visit(self) -> Visit[Any, Captured[Any]]:
        """Return the visit that deletes the rows of before."""

        def clear(ctx: Context[Any, Captured[Any]], _: str) -> None:
            row, last = ctx.value, self.last(ctx)
            if row is not None and last is not None and (row.position is None or beyond(last, row.position)):
                ctx.delete()

        return Visit(VISIT, clear)
