"""A small disk that can be filled completely."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

BALLAST: Final = "ballast"
_BLOCK: Final = bytes(64 << 10)


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A small file system in memory. Only root can mount it: see `pytest_collection_modifyitems`."""
    with tempfile.TemporaryDirectory(prefix="streamtable-faults-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> None:
    """Use up all space with the file `BALLAST`."""
    with (disk / BALLAST).open("wb", buffering=0) as ballast:
        while os.statvfs(disk).f_bavail:
            ballast.write(_BLOCK[: os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize])
