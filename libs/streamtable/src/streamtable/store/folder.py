"""The folder of a store on disk: which process owns it, and which table and partition it holds."""

import errno
import json
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from streamtable.base.folders import make_private
from streamtable.base.posix import limit, lock_file
from streamtable.errors import StoreBroken, StoreCorrupted, StoreInUse

FORMAT = 2
"""The version of the rows' layout. A folder of another format is deleted and loaded again."""
_READ_TOO = 1
"""A former version whose folders can be used as they are: they have an entry for each row that falls due, and no chunks."""


FILES_MIN = 7
"""The number of files that a store has open at least: locks, folders, logs and the list of its table files."""


class Folder:
    """The folder of one partition, locked until it is released.

    The lock is the kernel's, on the file `owner`: it ends with the process, however that ends. The file's text (pid
    and host) is for people only. RocksDB has a lock of its own, but cannot tell who holds it.

    Args:
        path: The folder, created if it is missing.
        spare: The process that holds the folder is not asked to release it.

    Raises:
        StoreInUse: Another process holds the lock; the message says which.
        StoreBroken: The folder cannot be made or written.
    """

    def __init__(self, path: Path, *, spare: bool = False) -> None:
        self.path = path
        self.rows = path / "rows"
        self._identity = path / "store.json"
        self._owner = path / "owner"
        self._release_requested = path / "release-requested"
        try:
            make_private(path)
            self._lock = self._claim(spare=spare)
        except OSError as error:
            raise broken(path, error) from error

    def _claim(self, *, spare: bool) -> int:
        while True:
            lock = os.open(self._owner, os.O_RDWR | os.O_CREAT, 0o644)  # not inherited (PEP 446)
            try:
                lock_file(lock)
                # If the file was deleted meanwhile (by `destroy`), our lock would be on a removed file: retry.
                if self._owner.exists() and os.fstat(lock).st_ino == self._owner.stat().st_ino:
                    os.ftruncate(lock, 0)
                    os.write(lock, f"pid {os.getpid()} on {socket.gethostname()}".encode())
                    self._release_requested.unlink(missing_ok=True)
                    return lock
            except BlockingIOError as error:
                holder = os.read(lock, 300).decode(errors="replace") or "a process that is just starting"
                os.close(lock)
                if not spare:
                    self._release_requested.touch()
                raise StoreInUse(
                    f"{self.path} is held by {holder}: a folder serves one process at a time. Stop that one, or give each "
                    "process a folder of its own (App(state_dir=) or App(name=) with the number of the web worker, "
                    "STREAMTABLE_STATE_DIR), or keep the view in one process, which the others ask"
                ) from error
            except OSError:
                os.close(lock)
                raise
            os.close(lock)

    @property
    def release_requested(self) -> bool:
        """Whether another process has failed to claim the folder since this one did."""
        return self._release_requested.exists()

    def identify(self, table: str, partition: int) -> bool:
        """Check that the rows are of this table and partition, or record it in a new folder.

        Returns:
            Whether there are rows already.

        Raises:
            StoreCorrupted: The rows are of another table, of another format, or of unknown origin.
        """
        mine: dict[str, object] = {"format": FORMAT, "table": table, "partition": partition}
        try:
            if not self.rows.exists():
                self._note(mine)
                return False
            found = json.loads(self._identity.read_text())
            if found == {**mine, "format": _READ_TOO}:
                self._note(found := mine)
        except (FileNotFoundError, ValueError) as error:
            raise StoreCorrupted(
                f"{self.path} has rows, but {self._identity.name} does not say whose"
            ) from error
        except OSError as error:
            raise broken(self.path, error) from error
        if found != mine:
            raise StoreCorrupted(f"{self.path} should hold {mine}, but {self._identity.name} says {found}")
        return True

    def _note(self, identity: dict[str, object]) -> None:
        draft = self._identity.with_suffix(".new")
        draft.write_text(json.dumps(identity))
        draft.replace(self._identity)

    def clear(self) -> None:
        """Delete everything in the folder but the lock file.

        The identity of the rows is deleted first, so `identify` rejects a half-cleared folder.
        """
        try:
            self._identity.unlink(missing_ok=True)
            if self.rows.exists():
                shutil.rmtree(self.rows)
        except OSError as error:
            raise broken(self.path, error) from error

    def release(self, *, remove: bool = False) -> None:
        """Release the lock; with `remove`, remove the empty folder too."""
        if remove:
            with suppress(OSError):  # the folder stays if it has other files
                self._release_requested.unlink(missing_ok=True)
                self._owner.unlink()
                self.path.rmdir()
        with suppress(OSError, TypeError):  # Windows takes no open file here
            os.utime(self._lock)  # the start of the time that the folder is unused
        os.close(self._lock)


def too_many_files(path: Path) -> StoreBroken:
    """Return the error for a process that may open no more files."""
    soft, hard = limit("RLIMIT_NOFILE") or ("unlimited", "unlimited")
    return StoreBroken(
        f"{path} cannot be opened: this process has as many open files as its limit allows (soft {soft}, hard {hard}), and each "
        f"table takes {FILES_MIN} or more for each partition: raise the limit (ulimit -Hn, LimitNOFILE of systemd, --ulimit "
        "nofile of Docker), or run more processes with fewer partitions each"
    )


def broken(path: Path, error: OSError) -> StoreBroken:
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return too_many_files(path)
    return StoreBroken(
        f"{path} cannot be used: {error.strerror or error}; check space, permissions and the disk"
    )
