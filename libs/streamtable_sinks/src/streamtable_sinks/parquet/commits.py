"""The log of commits of a partition: numbered objects, each created only if absent.

An entry has the whole state after it: epoch, position, and the data file that it commits, if any. Only one process can create the
entry with the next number, so the log is a compare-and-swap, and reading its last entry is reading the state. When small files
are merged, an entry names all files that count from then on.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
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
        return next(map(self._read, self._newest(after)), None)

    def append(self, entry: CommitEntry) -> bool:
        """Create an entry unless its number is taken. Returns whether it was created. Raises `RetryLater`."""
        path = self._path(entry.number)
        data = orjson.dumps({name: each for name, each in vars(entry).items() if name != "number"})
        try:
            asked(lambda: obstore.put(self._store, path, data, mode="create", use_multipart=False))
        except AlreadyExistsError:
            return False
        return True

    def state(self) -> tuple[CommitEntry, Sequence[str]]:
        """Return the last entry, and the files that count, in their order. Raises `RetryLater`."""
        later: list[CommitEntry] = []
        for each in self._newest(0):
            later.append(self._read(each))
            if later[-1].files is not None:
                break
        files = [file for entry in reversed(later) for file in (*(entry.files or ()), entry.file)]
        return later[0] if later else CommitEntry(), [file for file in files if file is not None]

    def replaced(self, files: Container[str], before: datetime) -> Iterator[str]:
        """Yield those of some files that had counted, and have not counted since before a time.

        Args:
            files: The files to look for.
            before: The time.
        """
        merged: set[str] | None = None
        for each in self._newest(0):
            entry = self._read(each)
            if merged is not None:
                named = [*(entry.files or ()), *([entry.file] if entry.file else ())]
                yield from (file for file in named if file in files and file not in merged)
            elif entry.files is not None and each["last_modified"] < before:
                merged = set(entry.files)

    def _newest(self, after: int) -> "Sequence[ObjectMeta]":
        """Return the entries with higher numbers than `after`, the newest first."""
        offset = self._path(after) if after else None
        pages = asked(lambda: list(obstore.list(self._store, self._folder, offset=offset)))
        return sorted((each for page in pages for each in page), key=lambda each: each["path"], reverse=True)

    def _read(self, there: "ObjectMeta") -> CommitEntry:
        data = asked(lambda: bytes(obstore.get(self._store, there["path"]).bytes()))
        return CommitEntry(number=int(Path(there["path"]).stem), **orjson.loads(data))

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:012}.json"


def asked(request: Any) -> Any:
    """Send a request. Raises `AlreadyExistsError`, `RetryLater`, or `ConfigurationError` if a retry cannot help."""
    try:
        return request()
    except AlreadyExistsError:
        raise
    except BaseError as error:
        message = f"the object store: {type(error).__name__}: {str(error).splitlines()[0][:500]}"
        kind = ConfigurationError if type(error).__name__ in _NO_RETRY else RetryLater
        raise kind(message) from error
