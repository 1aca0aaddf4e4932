"""Crash marker: the offsets in flight, written outside the process.

Some records end the process instead of raising: a decoder in C that crashes, a handler that uses up the memory. Nothing
can be caught or logged then, and the next process dies of the same record. So the place of the records that are being
handled is noted outside the process, and read by the next one: it logs the place, and begins with commits of one record,
so that each death leaves fewer records in question, and in the end one, which is the next one of its partition.
"""

import mmap
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import structlog

from streamtable.base.folders import make_private
from streamtable.base.types import RecordBatch

log = structlog.get_logger()

_BYTES = 512  # a topic's name has 249 at most
_FIELDS = 4


@dataclass(frozen=True, slots=True)
class Suspects:
    """Consecutive records of a partition. One of them may have crashed the process that handled them."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int

    @classmethod
    def of(cls, records: RecordBatch) -> "Suspects":
        return cls(records.topic, records.partition, records.first_offset, records.last_offset)


class InHand:
    """A note of the records being handled. This one notes nothing, for processors without a disk of their own."""

    @property
    def left(self) -> Suspects | None:
        """The records that the previous process was handling when it died; None if it ended in order."""
        return None

    def take(self, suspects: Suspects) -> None:
        """Note that these records are about to be handled."""

    def release(self) -> None:
        """Note that no records are being handled."""


NOT_NOTED = InHand()


class InHandFile(InHand):
    """A note in a memory-mapped file: writing it copies a few bytes, which survive the process.

    It does not outlive the machine, which is no matter: then no record was to blame. The file and its folder are made
    when the first records are handled; where the disk does not take them, nothing is noted, and the log says so.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map: mmap.mmap | bytearray | None = None
        self._taken: bool | None = None  # None: the file has not been looked at

    @cached_property
    def left(self) -> Suspects | None:
        found = None
        with suppress(OSError):  # there is none, or `take` is going to report the fault
            found = _parsed(self._path.read_bytes())
        if self._taken is None:
            self._taken = found is not None
        return found

    def take(self, suspects: Suspects) -> None:
        line = (
            f"{suspects.topic} {suspects.partition} {suspects.first_offset} {suspects.last_offset}\n".encode()
        )
        note = self._note()
        note[: len(line)] = line
        self._taken = True

    def release(self) -> None:
        if self._taken or (self._taken is None and self.left is not None):
            self._note()[0] = 0
            self._taken = False

    def _note(self) -> mmap.mmap | bytearray:
        if self._map is None:
            try:
                make_private(self._path.parent)
                with self._path.open("a+b") as file:
                    file.truncate(_BYTES)
                    self._map = mmap.mmap(file.fileno(), _BYTES)
            except OSError as error:
                log.warning("cannot note the records being handled", path=str(self._path), reason=str(error))
                self._map = bytearray(_BYTES)
        return self._map


def _parsed(content: bytes) -> Suspects | None:
    """Return the noted records; None if there are none, or if the process died while it wrote."""
    line, end, _ = content.partition(b"\n")
    fields = line.decode(errors="replace").split(" ")
    if not end or content[0] == 0 or len(fields) != _FIELDS or not all(map(str.isdecimal, fields[1:])):
        return None
    return Suspects(fields[0], *map(int, fields[1:]))
