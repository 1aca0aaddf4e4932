"""Keep a lake fast and small: compact small files, and delete versions that are past their retention.

It uses Delta's own commands, and changes or deletes no row. It can be killed at any time: every reader sees tables before or
after the change. It can run beside the ETL where the storage lets one of two writers make a file, which S3
does not; on a local disk the jobs take turns.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.formats import DeltaTables, Reached, undisturbed
from streamtable_spark.jobs.job_args import ended, job_parser, session_of
from streamtable_spark.jobs.lake import Lake, delta_tables
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.run_report import reported_run
from streamtable_spark.jobs.writer_lock import writer_lock

STAGES = ("write small files together", "delete expired files")
STEPS = ("compacted", "expired")
"""The steps after which a run calls `reached`, for each table."""
MB: Final = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        keep_days: For how many days earlier versions can be read. Files that a run is writing, or that a reader has open, must
            be younger, so at least a day.
        file_mb: The target size of files in MB.
        dry_run: Change nothing, and report the files that would change.
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


def small_files(tables: DeltaTables, name: str, size: int) -> list[str]:
    """Return the files of a table that are smaller than this, of the days that have several of them.

    Delta does not merge files that would be too large together.
    """
    by_day: dict[str, list[str]] = defaultdict(list)
    for file, own in tables.sizes(name).items():
        if own < size:
            by_day[file.rpartition("/")[0]].append(file)
    return sorted(file for files in by_day.values() if len(files) > 1 for file in files)


def maintain(
    lake: Lake, settings: Settings, progress: Progress, reached: Reached = lambda _: None
) -> dict[str, dict[str, Any]]:
    """Compact and expire files, table by table.

    Args:
        lake: An existing lake.
        settings: The settings of the run.
        progress: Receives the progress of the run; see `STAGES`.
        reached: Called after each step, one of `STEPS`; see `Reached`.

    Returns:
        For each table that changes: the number of files that were `compacted`, of files that these were merged `into`, and of
        files that have `expired`; for a dry run the files to `compact` (some may stay as they are) and to `expire`.

    Raises:
        ConfigurationError: There is no lake, or it has no Delta tables.
        RetryLater: Another job keeps changing the same tables.
    """
    tables, size = delta_tables(lake), settings.file_mb * MB
    names = [name for name in lake.names() if tables.exists(name)]
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name in names:
        progress.stage(STAGES[0], table=name)
        if settings.dry_run:
            if small := undisturbed(partial(small_files, tables, name, size)):
                found[name]["compact"] = small
            continue
        compacted, into = undisturbed(partial(tables.compact, name, size))
        if compacted:
            found[name] |= {"compacted": compacted, "into": into}
            reached("compacted")
    for name in names:
        if not settings.dry_run:
            undisturbed(partial(tables.keep, name, settings.keep_days))
        expired = undisturbed(partial(tables.expired, name, settings.keep_days))
        progress.stage(STAGES[1], table=name, files=len(expired))
        if expired and settings.dry_run:
            found[name]["expire"] = expired
        elif expired:
            undisturbed(partial(tables.expire, name, settings.keep_days))
            found[name]["expired"] = len(expired)
            reached("expired")
    progress.done()
    return {name: changes for name, changes in found.items() if changes}


def work(argv: Sequence[str], reached: Reached = lambda _: None) -> int:
    """Run the job with these arguments, and return its exit status; see `maintain` for `reached`."""
    about = "Compact small files and delete expired versions."
    parser = job_parser("maintain", about, kafka=False, lake="folder of the lake")
    parser.add_argument(
        "--keep", type=int, default=7, metavar="DAYS", help="how long earlier versions can be read (7)"
    )
    parser.add_argument("--file-mb", type=int, default=128, metavar="MB", help="target size of files (128)")
    parser.add_argument("--dry-run", action="store_true", help="only print which files would change")
    found = parser.parse_args(argv)
    settings = Settings(found.keep, found.file_mb, found.dry_run)
    spark = session_of(found)()
    writing = nullcontext() if settings.dry_run else writer_lock(found.lake)
    with writing, reported_run(found, STAGES) as progress:
        changes = maintain(Lake(spark, found.lake), settings, progress, reached)
    print(json.dumps(changes))  # noqa: T201 - what the program answers
    return 0


if __name__ == "__main__":
    sys.exit(ended(work, sys.argv[1:]))
