"""Credentials in a file that is read again when it changes, so that keys are rotated without a restart."""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

import structlog

from servicekit.auth.authentication import Authenticator, Caller

log = structlog.get_logger()
LOOK_SECONDS: Final = 1.0
_Stamp = tuple[int, int, int]


class Reloading:
    """Authenticates by the content of a file, at most a second old. Any thread.

    Invalid content is logged, and the previous content stays in use: a partially written file must neither lock out all
    callers nor admit any.

    Args:
        path: The file.
        read: Makes an authenticator from the content. Raises `ValueError` with a text that does not quote the content.
        clock: A monotonic clock, in seconds.

    Raises:
        OSError: The file cannot be read.
        ValueError: Its content cannot be used.
    """

    def __init__(
        self, path: Path, read: Callable[[bytes], Authenticator], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._read = read
        self._clock = clock
        self._lock = Lock()
        self._stamp: _Stamp | None = _stamp(path)
        self._current = read(path.read_bytes())
        self._look_at = clock() + LOOK_SECONDS

    def authenticate(self, token: str) -> Caller:
        if self._clock() >= self._look_at:
            self._look()
        return self._current.authenticate(token)

    def _look(self) -> None:
        with self._lock:
            if self._clock() < self._look_at:
                return
            self._look_at = self._clock() + LOOK_SECONDS
            stamp = _stamp(self._path)
            if stamp is None or stamp == self._stamp:
                return  # a missing file is being replaced by a new one
            self._stamp = stamp
            try:
                self._current = self._read(self._path.read_bytes())
            except (OSError, ValueError) as error:
                reason = f"{error}: the credentials before stay valid"
                log.warning("credentials cannot be read", path=str(self._path), reason=reason)
            else:
                log.info("credentials are read again", path=str(self._path))


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
