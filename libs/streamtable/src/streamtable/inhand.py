"""The file that says which records a process is handling; see `engine.inhand`."""

import mmap
from functools import cached_property
from pathlib import Path

import structlog

from streamtable.engine.inhand import NOT_NOTED, InHand, Suspects

log = structlog.get_logger()

_BYTES = 512  # a topic's name has 249 at most
_FIELDS = 4


class InHandFile:
    """A note in a file that is mapped into memory: a write is a copy of some bytes, and outlives the process.

    It does not outlive the machine, which is no matter: then no record was to blame.

    Args:
        path: The file. It is made where there is none, with its folder.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.truncate(_BYTES)
            self._map = mmap.mmap(file.fileno(), _BYTES)
        self.left = _parsed(self._map[:])
        self._taken = True
        self.release()

    def take(self, suspects: Suspects) -> None:
        line = (
            f"{suspects.topic} {suspects.partition} {suspects.first_offset} {suspects.last_offset}\n".encode()
        )
        self._map[: len(line)] = line
        self._taken = True

    def release(self) -> None:
        if self._taken:
            self._map[0] = 0
            self._taken = False


class _AtFirstUse:
    """The note at a path, made when it is first used: a processor that never ran leaves nothing on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _note(self) -> InHand:
        try:
            return InHandFile(self._path)
        except OSError as error:
            log.warning(
                "records that are being handled are not noted", path=str(self._path), reason=str(error)
            )
            return NOT_NOTED

    @property
    def left(self) -> Suspects | None:
        return self._note.left

    def take(self, suspects: Suspects) -> None:
        self._note.take(suspects)

    def release(self) -> None:
        self._note.release()


def in_hand_at(path: Path) -> InHand:
    """Return the note at this path; one that notes nothing where the disk does not take it."""
    return _AtFirstUse(path)


def _parsed(content: bytes) -> Suspects | None:
    """What was noted; None if nothing was, or if the process died while it wrote."""
    line, end, _ = content.partition(b"\n")
    fields = line.decode(errors="replace").split(" ")
    if content[0] == 0 or not end or len(fields) != _FIELDS or not all(map(str.isdecimal, fields[1:])):
        return None
    return Suspects(fields[0], *map(int, fields[1:]))
