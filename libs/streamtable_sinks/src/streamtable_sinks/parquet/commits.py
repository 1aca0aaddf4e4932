"""The log of commits of a partition: numbered objects, each created only if absent.

An entry has the whole state after it: epoch, position, and the data file that it commits, if any. Only one process can create the
entry with the next number, so the log is a compare-and-swap, and reading its last entry is reading the state. When small files
are merged, an entry names all files that count from then on.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import obstore
import orjson
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from streamtable.errors import ConfigurationError, RetryLater
from streamtable_sinks.target import SinkPartition, TargetPosition

if TYPE_CHECKING:
    from obstore import ObjectMeta

FOLDER: Final = "_commits"
_DIGITS: Final = 12
_NO_RETRY: Final = (
    "PermissionDeniedError", "UnauthenticatedError", "InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError",
)  # fmt: skip


@dataclass(frozen=True)
class CommitEntry(TargetPosition):
    """An entry of the log.

    Attributes:
        number: The number of the entry; 0: there is none yet.
        position: The next offset that the target lacks; None if it was never set.
        file: The path of the data file that this entry commits; None if it has none.
        files: All files that count from here on, in their order, in place of those of earlier entries; None: they still count.
    """

    number: int = 0
    file: str | None = None
    files: Sequence[str] | None = None

    def next(self, **changed: Any) -> "CommitEntry":
        """Return the entry that follows, which commits no file and merges none unless it is given."""
        return replace(self, **{"number": self.number + 1, "file": None, "files": None, **changed})

    def encode(self) -> bytes:
        return orjson.dumps({name: value for name, value in vars(self).items() if name != "number"})


@dataclass(frozen=True)
class LogState:
    """The content of a log: its last entry, and the files that count, in their order."""

    last: CommitEntry
    files: Sequence[str]


class CommitLog:
    """The log of one partition.

    Args:
        store: The object store.
        place: The partition.
    """

    def __init__(self, store: ObjectStore, place: SinkPartition) -> None:
        self._store = store
        self._folder = f"{FOLDER}/{place.sink}/{place.topic}/{place.partition:05}"

    def last(self, after: int = 0) -> CommitEntry | None:
        """Return the last entry whose number is higher than `after`; None if there is none. Raises `RetryLater`."""
        names = list(self._names(after))
        return self._read(max(names)) if names else None

    def append(self, entry: CommitEntry) -> bool:
        """Create an entry unless its number is taken. Returns whether it was created. Raises `RetryLater`."""
        put, path, data = obstore.put, self._path(entry.number), entry.encode()
        try:
            asked(lambda: put(self._store, path, data, mode="create", use_multipart=False))
        except AlreadyExistsError:
            return False
        return True

    def state(self) -> "LogState":
        """Return the last entry, and the files that count. Raises `RetryLater`."""
        later: list[CommitEntry] = []
        for name in sorted(self._names(0), reverse=True):
            later.append(self._read(name))
            if later[-1].files is not None:
                break
        files = [file for entry in reversed(later) for file in (*(entry.files or ()), entry.file)]
        return LogState(later[0] if later else CommitEntry(), [file for file in files if file is not None])

    def replaced(self, files: Container[str], before: datetime) -> Iterator[str]:
        """Yield those of some files that had counted, and have not counted since before a time.

        Args:
            files: The files to look for.
            before: The time.
        """
        merged: set[str] | None = None
        for each in sorted(self._objects(0), key=lambda found: found["path"], reverse=True):
            entry = self._read(each["path"])
            if merged is not None:
                named = [*(entry.files or ()), *([entry.file] if entry.file else ())]
                yield from (file for file in named if file in files and file not in merged)
            elif entry.files is not None and each["last_modified"] < before:
                merged = set(entry.files)

    def _names(self, after: int) -> Iterator[str]:
        return (each["path"] for each in self._objects(after))

    def _objects(self, after: int) -> "Iterator[ObjectMeta]":
        offset = self._path(after) if after else None
        for page in asked(lambda: list(obstore.list(self._store, self._folder, offset=offset))):
            yield from page

    def _read(self, path: str) -> CommitEntry:
        data = asked(lambda: bytes(obstore.get(self._store, path).bytes()))
        number = int(path.rpartition("/")[2].removesuffix(".json"))
        return CommitEntry(number=number, **orjson.loads(data))

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:0{_DIGITS}}.json"


def asked(request: Any) -> Any:
    """Send a request. Raises `AlreadyExistsError`, `RetryLater`, or `ConfigurationError` if a retry cannot help."""
    try:
        return request()
    except AlreadyExistsError:
        raise
    except BaseError as error:
        message = f"the object store: {type(error).__name__}: {str(error).splitlines()[0][:500]}"
        if type(error).__name__ in _NO_RETRY:
            raise ConfigurationError(message) from error
        raise RetryLater(message) from error
