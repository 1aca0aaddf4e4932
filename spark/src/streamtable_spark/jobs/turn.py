"""Jobs that write to the same lake on a disk take turns: there Delta keeps only the commits of one process apart.

Elsewhere the storage decides, see docs/how-to/run-the-etl.md.
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
def turn(lake: str) -> Iterator[None]:
    """Within, no other job of this machine writes to the lake. Waits, and says so, while one does; a killed one does not.

    Args:
        lake: see `lake_folder`; of one that is not on a disk, nothing is waited for.

    Raises:
        OtherLake: it is no folder, or one that cannot be written.
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
        raise OtherLake(f"{folder} cannot be written: {error}") from error
