"""A visit of every row of a group's table, requested and continued by records in `<group>-visits`.

The first record of a visit goes to each partition. The partition's owner handles some rows, and writes the next
record with its progress, in the same transaction as the changed rows: so a visit continues where it
was after any crash, and the records behind one another are its progress.
"""

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

from streamtable.base.ports import Codec
from streamtable.codec import Avro
from streamtable.errors import DeserializationError

ROWS_AT_ONCE = 1_000

VISIT_PROGRESS_SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "VisitProgress",
    "namespace": "streamtable",
    "doc": "A visit that was asked for, or how far it has come in a partition. The key of the record is its name.",
    "fields": [
        {"name": "run", "type": "string", "doc": "Distinguishes two runs of the same visit."},
        {"name": "argument", "type": "string", "doc": "What the handler is given."},
        {"name": "cursor", "type": "bytes", "doc": "Encoded key of the last row that was visited."},
        {"name": "visited", "type": "long", "doc": "Rows of this partition, so far."},
        {"name": "done", "type": "boolean", "doc": "No row of this partition is left."},
    ],
}
"""The schema of the values in `<group>-visits`. The library's own, so that it depends on no contracts."""


@cache
def visit_progress_codec() -> Codec[dict[str, Any]]:
    """Return the codec of the values in `<group>-visits`, made at first use: few groups have visits."""
    return Avro(VISIT_PROGRESS_SCHEMA)


@dataclass(frozen=True, slots=True)
class VisitProgress:
    """The value of a record in `<group>-visits`; its key is the visit's name.

    Attributes:
        run: Distinguishes two runs of the same visit.
        argument: The argument that the handler is called with.
        cursor: The encoded key of the last row that was visited; empty before the first.
        visited: The number of rows of this partition, so far.
        done: No row of this partition is left.
    """

    run: str
    argument: str = ""
    cursor: bytes = b""
    visited: int = 0
    done: bool = False

    def encode(self) -> bytes:
        """Return the value of the record. Raises `SerializationError` for a text that is not Unicode."""
        return visit_progress_codec().encode(asdict(self))

    @staticmethod
    def decode(value: bytes | None) -> "VisitProgress | None":
        """Return the progress that a record holds; None if it holds none."""
        if value is None:
            return None
        try:
            progress = VisitProgress(**visit_progress_codec().decode(value))
        except DeserializationError:
            return None
        return progress if progress.visited >= 0 else None

    def went_on(self, cursor: bytes, visited: int, *, done: bool) -> "VisitProgress":
        """Return the progress after `visited` more rows, the last of them at `cursor`."""
        return VisitProgress(self.run, self.argument, cursor, self.visited + visited, done)
