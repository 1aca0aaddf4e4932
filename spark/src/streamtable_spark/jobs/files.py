"""Files and folders, wherever Spark's tables may lie: on a disk, HDFS, or an object store."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streamtable_spark.errors import OtherLake


class Files:
    """The operations of Hadoop's file systems that a lake needs besides its tables."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm  # noqa: SLF001 - Hadoop's file systems: Spark has no interface to them for Python
        self._new_array: Any = spark.sparkContext._gateway.new_array  # type: ignore[union-attr] # noqa: SLF001 - the same
        self._settings = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same

    def exists(self, path: str) -> bool:
        at, system = self._at(path)
        return bool(system.exists(at))

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none if there is no folder."""
        at, system = self._at(path)
        return sorted(each.getPath().getName() for each in system.listStatus(at)) if system.exists(at) else []

    def read(self, path: str) -> str:
        at, system = self._at(path)
        opened = system.open(at)
        try:
            return bytes(opened.readAllBytes()).decode()
        finally:
            opened.close()

    def write(self, path: str, text: str) -> None:
        """Create or replace a file atomically: readers see the old text or the new one, also after a crash."""
        at, system = self._at(path)
        beside = self._java.org.apache.hadoop.fs.Path(f"{path}.new")
        made = system.create(beside, True)
        try:
            made.write(bytearray(text.encode()))
        finally:
            made.close()
        rename = self._java.org.apache.hadoop.fs.Options.Rename
        options = self._new_array(rename, 1)
        options[0] = rename.OVERWRITE
        contexts = self._java.org.apache.hadoop.fs.FileContext  # the older one cannot rename over a file
        contexts.getFileContext(self._settings).rename(
            system.makeQualified(beside), system.makeQualified(at), options
        )

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content; does nothing if it does not exist."""
        at, system = self._at(path)
        system.delete(at, True)

    def move(self, path: str, to: str) -> None:
        """Rename a file or folder to a path that does not exist yet. Does nothing if another job has done it already.

        Raises:
            OtherLake: The file or folder cannot be renamed.
        """
        at, system = self._at(path)
        target, _ = self._at(to)
        if not system.exists(target) and not system.rename(at, target) and not system.exists(target):
            raise OtherLake(f"{path} cannot be renamed to {to}: look at who else writes there")

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._java.org.apache.hadoop.fs.Path(path)
        return at, at.getFileSystem(self._settings)


@dataclass(frozen=True)
class RemotePath:
    """A path that only Spark reaches, with as much of `pathlib.Path` as manifests and reports need.

    Attributes:
        url: The URL, of one of Hadoop's file systems.
        session: Returns the session; called when a file is first read or written.
    """

    url: str
    session: Callable[[], SparkSession]

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(f"{self.url}/{name}", self.session)

    def read_text(self) -> str:
        """Read a file. Raises `FileNotFoundError`."""
        files = Files(self.session())
        if not files.exists(self.url):
            raise FileNotFoundError(self.url)
        return files.read(self.url)


def write_whole(path: Path | RemotePath, text: str) -> None:
    """Create or replace a file and its folder, whole or not at all. Raises `OSError` if this machine cannot."""
    if isinstance(path, RemotePath):
        Files(path.session()).write(path.url, text)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def path_of(text: str, session: Callable[[], SparkSession]) -> Path | RemotePath:
    """Return the path that an argument names: of this machine, or a URL such as s3a://bucket/file."""
    return RemotePath(text.rstrip("/"), session) if "://" in text else Path(text)
