"""A lock for the jobs that write to one lake on a local disk: there Delta isolates only the commits of one process.

On other storage the storage itself decides, see docs/how-to/run-the-etl.md.
"""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

from streamtable_spark.errors import OtherLake

WRITING: Final = "_writing.lock"


@contextmanager
def writer_lock(lake: str) -> Iterator[None]:
    """Hold the lock of a lake: no other job on this machine writes to it meanwhile.

    Waits while another job holds the lock, and says so on standard error. The lock of a killed job is released.

    Args:
        lake: The folder of the lake; see `lake_folder`. One that is not on a local disk is not locked.

    Raises:
        OtherLake: The path is not a folder, or it cannot be written.
    """
    place = urlsplit(lake)
    if place.scheme not in ("", "file"):
        yield
        return
    with _opened(Path(place.path if place.scheme else lake)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another job writes to {lake}: waiting until it has ended", file=sys.stderr)  # noqa: T201 - a command line
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _opened(folder: Path) -> IO[bytes]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / WRITING).open("ab")
    except OSError as error:
        why = "it is a file: name a folder" if folder.is_file() else error
        raise OtherLake(f"{folder} cannot be written: {why}") from error
