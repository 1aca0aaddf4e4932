"""The file that names the records a process is handling; see `engine.inhand`."""

import mmap
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import structlog

from streamtable.engine.inhand import Suspects
from streamtable.folders import make_private

log = structlog.get_logger()

_BYTES = 512  # a topic's name has 249 at most
_FIELDS = 4


class InHandFile:
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
        with suppress(OSError):  # there is none, or `take` is going to say what is wrong
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
                log.warning(
                    "cannot record which records are being handled", path=str(self._path), reason=str(error)
                )
                self._map = bytearray(_BYTES)
        return self._map


def _parsed(content: bytes) -> Suspects | None:
    """Return the noted records; None if there are none, or if the process died while it wrote."""
    line, end, _ = content.partition(b"\n")
    fields = line.decode(errors="replace").split(" ")
    if not end or content[0] == 0 or len(fields) != _FIELDS or not all(map(str.isdecimal, fields[1:])):
        return None
    return Suspects(fields[0], *map(int, fields[1:]))
