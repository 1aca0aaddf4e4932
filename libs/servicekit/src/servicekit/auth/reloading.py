"""Files that are read again when they change: keys, signing keys and certificates are renewed without a restart."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final, Generic, TypeVar

import structlog

from servicekit.auth.authentication import Authenticator, Caller, Unauthenticated

log = structlog.get_logger()
LOOK_SECONDS: Final = 1.0
WITHOUT_FILE_SECONDS: Final = 60.0
"""The time for which credentials stay valid whose file is missing or invalid: a file may be written in several steps."""
T = TypeVar("T")
_Stamp = tuple[tuple[int, int, int, int] | None, ...]


class ReloadedFiles(Generic[T]):
    """The content of files that may be replaced at any time. Any thread.

    A change has been seen once the files were read: a file that becomes readable after it was put in place, and the second
    one of a pair, are found at the next look. Content that cannot be used is logged, and the previous one stays.

    Args:
        what: The content, for the log: "credentials".
        paths: The files.
        read: Reads the files. Raises `ValueError` or an `OSError` with a text that does not quote the content.
        clock: A monotonic clock, in seconds.

    Raises:
        OSError: A file cannot be read.
        ValueError: The content cannot be used.
    """

    def __init__(
        self,
        what: str,
        paths: Sequence[Path],
        read: Callable[[], T],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._paths = tuple(paths)
        self._read = read
        self._clock = clock
        self._stamp = self._stamps()
        self._problem: str | None = None
        self._problem_since = 0.0
        self.content = read()

    def look(self) -> bool:
        """Read the files if they have changed. Returns whether there is new content."""
        stamp = self._stamps()
        if stamp == self._stamp and self._problem is None:
            return False
        try:
            content = self._read()
        except (OSError, ValueError) as error:
            self._fail(str(error))
            return False
        self._stamp, self._problem, self.content = stamp, None, content
        log.info("files reloaded", content=self._what, paths=self._names)
        return True

    @property
    def failing_seconds(self) -> float:
        """The time for which the files have been missing or invalid; 0 if they are not."""
        return 0.0 if self._problem is None else self._clock() - self._problem_since

    def _fail(self, reason: str) -> None:
        if self._problem is None:
            self._problem_since = self._clock()
        if self._problem != reason:
            shown = f"{reason}: the previous content stays in use"
            log.warning("files not reloaded", content=self._what, paths=self._names, reason=shown)
        self._problem = reason

    def _stamps(self) -> _Stamp:
        return tuple(map(_stamp, self._paths))

    @property
    def _names(self) -> list[str]:
        return list(map(str, self._paths))


class Reloading:
    """Authenticates by the content of a file, at most a second old. Any thread.

    While the file is missing or invalid, the previous credentials stay valid for a minute, so that a partially written file
    does not lock out all callers; after that none is valid.

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
        self._file = ReloadedFiles("credentials", [path], lambda: read(path.read_bytes()), clock)
        self._clock = clock
        self._lock = Lock()
        self._look_at = clock() + LOOK_SECONDS

    def authenticate(self, token: str) -> Caller:
        if self._clock() >= self._look_at:
            with self._lock:
                if self._clock() >= self._look_at:
                    self._file.look()
                    self._look_at = self._clock() + LOOK_SECONDS
        if self._file.failing_seconds > WITHOUT_FILE_SECONDS:
            raise Unauthenticated(given=True)
        return self._file.content.authenticate(token)


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    # The time of the last change of the inode too: a file whose mode changes becomes readable.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
