"""Locks of files, limits and memory of a process, also on Windows, which has other locks and no limits."""

import ctypes
import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_COLLECT_AFTER = 100_000  # objects
_LOCKED_BYTE = 1 << 30
"""Windows locks bytes, which others then cannot read: one far behind the text of a lock file."""


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _resource = _module("fcntl"), _module("resource")


def lock_file(descriptor: int) -> None:
    """Lock an open file for this process, until the file is closed. Raises `BlockingIOError` if another process has it."""
    if _fcntl is not None:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        return
    msvcrt = importlib.import_module("msvcrt")
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(error.errno, error.strerror) from error
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def limit(name: str) -> tuple[int, int] | None:
    """Return the soft and the hard limit, such as `RLIMIT_NOFILE`; None where it does not exist or is unlimited."""
    if _resource is None:
        return None
    soft, hard = _resource.getrlimit(getattr(_resource, name))
    return None if soft == _resource.RLIM_INFINITY else (soft, hard)


def raise_limit(name: str) -> None:
    """Raise a soft limit to the hard one, where that is possible."""
    if found := limit(name):
        with suppress(
            ValueError, OSError
        ):  # some systems refuse what they call unlimited; then the limit stays
            _resource.setrlimit(getattr(_resource, name), (found[1], found[1]))


def trim_heap() -> None:
    """Return free memory to the system. glibc keeps what imports have left, 13 of 80 MB; other C libraries do not."""
    library = None if sys.platform == "win32" else ctypes.CDLL(None)
    trim = getattr(library, "malloc_trim", None)
    if trim is not None:
        trim(0)


class _Relaxed:
    """Counts the blocks that have relaxed the garbage collector; the last one to end restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._before = (0, 0, 0)

    def enter(self) -> None:
        with self._lock:
            if not self._blocks:
                self._before = gc.get_threshold()
                gc.set_threshold(_COLLECT_AFTER, 20, 100)
            self._blocks += 1

    def leave(self) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                gc.set_threshold(*self._before)


_RELAXED = _Relaxed()  # the collector is the process's, too


@contextmanager
def relaxed_gc() -> Iterator[None]:
    """Run Python's cyclic garbage collector less often within the block.

    Records and rows are plenty and hold no cycles, but each look walks over them: a seventh of the time of a processor
    with many keys.
    """
    _RELAXED.enter()
    try:
        yield
    finally:
        _RELAXED.leave()
