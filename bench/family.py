"""A process together with its descendants: Spark's driver is Python, and its work is done by Java."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from bench.measure import Program

_LOOK_SECONDS = 0.1
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
# Indexes of fields in /proc/<pid>/stat after the name, which may contain spaces: see proc(5).
_PARENT, _TIMES, _BYTES, _PAGES = 1, slice(11, 15), 20, 21


class Share(NamedTuple):
    """The CPU and memory of one process, or of several together.

    Attributes:
        parent: The id of the parent process.
        cpu: The CPU seconds, its own and its ended children's.
        rss_mb: The present resident memory; shared pages count for each process.
        virtual: The bytes of its address space.
    """

    parent: int
    cpu: float
    rss_mb: float
    virtual: int = 0


class FamilyProgram(Program):
    """A program whose CPU and peak memory include all its child processes, sampled every 100 ms."""

    _next_look = 0.0

    def _measure(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        found = together(self.pid, processes())
        self._cpu = max(self._cpu, found.cpu)
        self.rss_mb = max(self.rss_mb, found.rss_mb)


def together(pid: int, known: Mapping[int, Share]) -> Share:
    """A process and its descendants as one; nothing if it has ended."""
    family = {pid} & known.keys()
    added = set(family)
    while added:
        added = {each for each, share in known.items() if share.parent in added} - family
        family |= added
    found = [known[each] for each in family]
    return Share(
        0, sum(each.cpu for each in found), sum(each.rss_mb for each in found if _has_own(each, known))
    )


def _has_own(share: Share, known: Mapping[int, Share]) -> bool:
    """Return whether a process has memory of its own: between fork and exec it has its parent's, including Java's heap."""
    parent = known.get(share.parent)
    return parent is None or not share.virtual or share.virtual != parent.virtual


def processes(folders: Iterable[Path] | None = None) -> dict[int, Share]:
    """Return all present processes, by their ids."""
    found = {}
    for folder in Path("/proc").iterdir() if folders is None else folders:
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue  # ended meanwhile
            words = text.rpartition(")")[2].split()
            cpu = sum(map(int, words[_TIMES])) / _TICK
            rss_mb, virtual = int(words[_PAGES]) * _PAGE_MB, int(words[_BYTES])
            found[int(folder.name)] = Share(int(words[_PARENT]), cpu, rss_mb, virtual)
    return found
