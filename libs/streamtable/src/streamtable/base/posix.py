"""Locks of files and limits of a process, also on Windows, which has other locks and no limits."""

import importlib
import os
from contextlib import suppress
from typing import Any

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
