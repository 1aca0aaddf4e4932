"""A visit of every row of a group's table: asked for, and carried on, by records in `<group>-visits`.

The first record of a visit goes to each partition. The partition's owner handles some rows, and writes the next
record with how far it has come, in the same transaction as what the rows have become: so a visit goes on where it
was after any crash, and the records behind one another are its progress.
"""

from dataclasses import asdict, dataclass

import orjson

ROWS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class VisitProgress:
    """The value of a record in `<group>-visits`; its key is the visit's name.

    Attributes:
        run: tells apart two runs of the same visit.
        argument: handed to the handler.
        cursor: the encoded key of the row visited last, in hexadecimal; "" before the first.
        visited: rows of this partition, so far.
        done: there are no more.
    """

    run: str
    argument: str = ""
    cursor: str = ""
    visited: int = 0
    done: bool = False

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @staticmethod
    def decode(value: bytes | None) -> "VisitProgress | None":
        """None for anything but what `encode` made."""
        try:
            match orjson.loads(value or b""):
                case {
                    "run": str(run),
                    "argument": str(argument),
                    "cursor": str(cursor),
                    "visited": int(visited),
                    "done": bool(done),
                }:
                    return VisitProgress(run, argument, bytes.fromhex(cursor).hex(), visited, done)
        except ValueError:  # orjson's errors are ValueErrors
            return None
        return None

    def went_on(self, cursor: bytes, visited: int, *, done: bool) -> "VisitProgress":
        """After `visited` more rows, the last of them at `cursor`."""
        return VisitProgress(self.run, self.argument, cursor.hex(), self.visited + visited, done)
