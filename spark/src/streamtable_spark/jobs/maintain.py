"""Keep a lake fast and small: compact small files, and delete versions that are past their retention.

No row is changed or deleted by that. It can be killed at any time: tables are as before or as after, for every job of this
folder and every reader of Delta. It can run beside the ETL where the storage lets one of two writers make a file, which S3
does not; on a local disk the jobs take turns.
"""

import argparse
import json
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.checkpoint import last_finished
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.formats import DeltaTables, ParquetTables, Reached, batch_of, undisturbed
from streamtable_spark.jobs.job_args import ended, kafka_argument
from streamtable_spark.jobs.lake import Lake, lake_folder
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.run_report import reported_run, run_report_arguments
from streamtable_spark.jobs.writer_lock import writer_lock
from streamtable_spark.session import Local, connect

STAGES = ("write small files together", "delete what has expired")
STEPS = ("merged", "decided", "in its place", "sources deleted", "compacted", "expired")
"""The steps after which a run calls `reached`, for each table; the first four with plain Parquet only."""
DAY_S: Final = 86_400
MB: Final = 1 << 20
NO_RENAME: Final = ("s3a://", "gs://")


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        keep_days: For how many days earlier versions can be read. Files that a run is writing, or that a reader has open, must
            be younger, so at least a day.
        file_mb: The target size of files in MB.
        dry_run: Change nothing, and report what would change.
    """

    keep_days: int = 7
    file_mb: int = 128
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.keep_days < 1:
            raise ConfigurationError(
                f"--keep {self.keep_days}: at least 1 day, or files would be deleted that another job reads or writes at this moment"
            )
        if self.file_mb < 1:
            raise ConfigurationError(f"--file-mb {self.file_mb}: at least 1")


class Maintenance(Protocol):
    """What is done to a table of one format."""

    def small(self, name: str) -> list[list[str]]:
        """Files that would be written together."""
        ...

    def compact(self, name: str) -> int:
        """Write them together. Returns how many files there are in their place."""
        ...

    def keep(self, name: str) -> None:
        """Have what is deleted from now on kept for so long."""
        ...

    def expired(self, name: str) -> list[str]:
        """Files that would be deleted."""
        ...

    def expire(self, name: str) -> None: ...


class OfDelta:
    """By Delta's own commands."""

    def __init__(self, tables: DeltaTables, settings: Settings) -> None:
        self._tables, self._settings = tables, settings

    def small(self, name: str) -> list[list[str]]:
        by_day: dict[str, list[dict[str, int]]] = defaultdict(list)
        # Delta goes through a day's files by their size, too.
        for file, size in sorted(self._tables.sizes(name).items(), key=lambda each: each[1]):
            if size < self._settings.file_mb * MB:
                by_day[file.rpartition("/")[0]].append({file: size})
        return [
            group
            for _, files in sorted(by_day.items())
            for group in together(files, self._settings.file_mb * MB)
        ]

    def compact(self, name: str) -> int:
        return self._tables.compact(name, self._settings.file_mb * MB)

    def keep(self, name: str) -> None:
        self._tables.keep(name, self._settings.keep_days)

    def expired(self, name: str) -> list[str]:
        return self._tables.expired(name, self._settings.keep_days)

    def expire(self, name: str) -> None:
        self._tables.expire(name, self._settings.keep_days)


class OfParquet:
    """By swaps, see `ParquetTables`. Only batches are touched that no run can write again."""

    def __init__(
        self, tables: ParquetTables, settings: Settings, finished: int, now: float, reached: Reached
    ) -> None:
        self._tables, self._settings, self._finished = tables, settings, finished
        self._before = now - settings.keep_days * DAY_S
        self._reached = reached

    def small(self, name: str) -> list[list[str]]:
        by_batch: dict[int, dict[str, int]] = defaultdict(dict)
        for file, size in self._tables.sizes(name).items():
            if file.startswith("batch=") and batch_of(file) <= self._finished:
                by_batch[batch_of(file)][file] = size
        return together([files for _, files in sorted(by_batch.items())], self._settings.file_mb * MB)

    def compact(self, name: str) -> int:
        self._tables.read(name)  # ends what an earlier run has begun
        groups = self.small(name)
        for files in groups:
            self._tables.merge(name, files, uuid.uuid4().hex, self._reached)
        return len(groups)

    def keep(self, name: str) -> None:
        """There are no earlier versions."""

    def expired(self, name: str) -> list[str]:
        return self._tables.expired(name, self._before)

    def expire(self, name: str) -> None:
        self._tables.expire(name, self._before)


def together(folders: Iterable[Mapping[str, int]], size: int) -> list[list[str]]:
    """Divide files into groups that become one file each: whole folders that stand side by side, as many as fit.

    Args:
        folders: The size of each file in bytes, in the order of the folders.
        size: The maximum size of a group in bytes.

    Returns:
        The groups of more than one file.
    """
    groups: list[list[str]] = [[]]
    left = size
    for files in folders:
        if sum(files.values()) > left:
            groups.append([])
            left = size
        groups[-1] += files
        left -= sum(files.values())
    return [group for group in groups if len(group) > 1]


def maintain(
    lake: Lake,
    settings: Settings,
    progress: Progress,
    now: Callable[[], float] = time.time,
    reached: Reached = lambda _: None,
) -> dict[str, dict[str, Any]]:
    """Compact and expire files, table by table.

    Args:
        lake: An existing lake.
        settings: The settings of the run.
        progress: Receives the progress of the run; see `STAGES`.
        now: The time, in seconds since 1970.
        reached: Called after each step, one of `STEPS`; see `Reached`.

    Returns:
        By table, of those that change: how many files were `compacted` `into` how many, and how many have `expired`; of a
        dry run the files that it would `compact` and `expire`.

    Raises:
        ConfigurationError: There is no lake, or its files cannot be renamed.
        RetryLater: Another job keeps changing the same tables.
    """
    work, names = _work_on(lake, settings, now(), reached)
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name in names:
        small = undisturbed(partial(work.small, name))
        files = sum(map(len, small))
        progress.stage(STAGES[0], table=name, files=files)
        if small and settings.dry_run:
            found[name]["compact"] = sorted(file for group in small for file in group)
        elif small:
            into = undisturbed(partial(work.compact, name))
            found[name] |= {"compacted": files, "into": into}
            reached("compacted")
    for name in names:
        if not settings.dry_run:
            undisturbed(partial(work.keep, name))
        expired = undisturbed(partial(work.expired, name))
        progress.stage(STAGES[1], table=name, files=len(expired))
        if expired and settings.dry_run:
            found[name]["expire"] = expired
        elif expired:
            undisturbed(partial(work.expire, name))
            found[name]["expired"] = len(expired)
            reached("expired")
    progress.done()
    return {name: changes for name, changes in found.items() if changes}


def _work_on(lake: Lake, settings: Settings, now: float, reached: Reached) -> tuple[Maintenance, list[str]]:
    origin = lake.origin()
    if origin is None:
        raise ConfigurationError(f"there is no lake at {lake.folder}: `etl` makes one")
    tables = lake.tables(origin)
    names = [name for name in lake.names() if tables.exists(name)]
    if isinstance(tables, DeltaTables):
        return OfDelta(tables, settings), names
    check_renames(lake.folder)
    finished = last_finished(Files(lake.spark), lake.checkpoint)
    return OfParquet(tables, settings, finished, now, reached), names


def check_renames(folder: str) -> None:
    """Raise `ConfigurationError` if files there cannot be given another name in one step."""
    if folder.startswith(NO_RENAME):
        raise ConfigurationError(
            f"{folder}: plain Parquet is compacted by renaming, which an object store cannot do in one step; make a lake "
            "of Delta tables there"
        )


def work(argv: Sequence[str], reached: Reached = lambda _: None) -> int:
    """The job as a program; see `maintain` for `reached`."""
    parser = argparse.ArgumentParser(
        prog="maintain", description="Compact small files and delete expired versions.", allow_abbrev=False
    )
    kafka_argument(parser, required=False)
    run_report_arguments(parser)
    parser.add_argument("--lake", required=True, metavar="FOLDER")
    parser.add_argument(
        "--keep", type=int, default=7, metavar="DAYS", help="how long earlier versions can be read (7)"
    )
    parser.add_argument("--file-mb", type=int, default=128, metavar="MB", help="target size of files (128)")
    parser.add_argument("--dry-run", action="store_true", help="only print which files would change")
    parser.add_argument("--cores", type=int, default=2, help="threads, where Spark runs in this process (2)")
    parser.add_argument("--memory", default="1g", help="heap of Spark, where it runs in this process (1g)")
    found = parser.parse_args(argv)
    folder, settings = lake_folder(found.lake), Settings(found.keep, found.file_mb, found.dry_run)
    spark = connect("maintain", Local(cores=found.cores, memory=found.memory))
    writing = nullcontext() if settings.dry_run else writer_lock(folder)
    with writing, reported_run(found, "maintain", STAGES, lake=folder) as progress:
        changes = maintain(Lake(spark, folder), settings, progress, reached=reached)
    print(json.dumps(changes))  # noqa: T201 - what the program answers
    return 0


if __name__ == "__main__":
    sys.exit(ended(work, sys.argv[1:]))
