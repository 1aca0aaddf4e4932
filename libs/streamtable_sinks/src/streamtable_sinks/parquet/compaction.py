"""Small files merged to larger ones, while the sink writes and readers read."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import ObjectStore

from streamtable.errors import RetryLater
from streamtable.observe import Progress, SilentProgress
from streamtable_sinks.parquet.commits import CommitLog, asked
from streamtable_sinks.parquet.reader import committed_places, read_file
from streamtable_sinks.parquet.target import data_folder, store_at
from streamtable_sinks.target import SinkPartition

if TYPE_CHECKING:
    from obstore import ObjectMeta

MIB: Final = 1 << 20
_TRIES: Final = 20


@dataclass(frozen=True)
class CompactionLimits:
    """The limits of a compaction: which files are merged, and when their parts are deleted.

    Attributes:
        small: Files of fewer bytes are merged.
        target: The bytes that a merged file has at most, as the sum of its parts.
        keep: How long the parts of a merged file stay, for readers that have listed them before.
    """

    small: int = 16 * MIB
    target: int = 256 * MIB
    keep: timedelta = timedelta(hours=24)


@dataclass(frozen=True)
class Compacted:
    """The result for one partition of a sink.

    Attributes:
        merged: How many files were merged.
        into: How many files they are now.
        deleted: How many files were deleted, which earlier compactions had merged.
    """

    place: SinkPartition
    merged: int
    into: int
    deleted: int


def compact(
    where: str | Path | ObjectStore,
    now: datetime,
    *,
    sink: str | None = None,
    limits: CompactionLimits | None = None,
    progress: Progress | None = None,
) -> Iterator[Compacted]:
    """Merge the small files of each partition that follow one another, and yield what was done.

    Readers of commits see each record once at any time: the merged file and the end of its parts are one entry of the log. It may
    run beside the sink, and beside itself. If it is killed, it leaves a file that does not count.

    Args:
        where: As given to `Parquet`.
        now: The time, with its zone.
        sink: Only the files of this sink.
        limits: Which files are merged, and when their parts are deleted.
        progress: Shows the files that were read, by partition.

    Raises:
        RetryLater: The object store does not answer, or the log changes all the time. What was merged stays merged.
    """
    store, limits, progress = store_at(where), limits or CompactionLimits(), progress or SilentProgress()
    for place in committed_places(store, sink):
        one = _Compaction(store, place, limits, progress)
        merged = one.run()
        yield Compacted(place, sum(map(len, merged)), len(merged), one.delete_replaced(now - limits.keep))


class _Compaction:
    """The compaction of one partition."""

    def __init__(
        self, store: ObjectStore, place: SinkPartition, limits: CompactionLimits, progress: Progress
    ) -> None:
        self._store, self._limits, self._progress = store, limits, progress
        self._log, self._folder = CommitLog(store, place), data_folder(place)

    def run(self) -> Sequence[Sequence[str]]:
        """Merge the small files. Returns the groups of files that were merged."""
        groups = self._groups(self._log.state()[1])
        total, done = sum(map(len, groups)), 0
        merged: list[Sequence[str]] = []
        try:
            for group in groups:
                self._progress.update(self._folder, done, total)
                merged += [parts for parts, path in self._merged(group) if self._replace(parts, path)]
                done += len(group)
        finally:
            self._progress.end(self._folder)
        return merged

    def delete_replaced(self, before: datetime) -> int:
        """Delete files whose place a merged one has taken before a time. Returns how many there were."""
        idle = {path for path, each in self._there().items() if each["last_modified"] < before}
        idle -= set(self._log.state()[1])
        # Of these, some may never have counted: their process may be frozen, and still commit them.
        replaced = set(self._log.replaced(idle, before)) if idle else set()
        for file in sorted(replaced):
            asked(lambda file=file: obstore.delete(self._store, file))
        return len(replaced)

    def _groups(self, files: Sequence[str]) -> Sequence[Sequence[str]]:
        """Return small files that follow one another, and fit into one."""
        sizes = {path: each["size"] for path, each in self._there().items()}
        groups: list[list[str]] = [[]]
        size = 0
        for file in files:
            small = sizes.get(file, self._limits.small) < self._limits.small
            if not small or size + sizes[file] > self._limits.target:
                groups.append([])
                size = 0
            if small:
                groups[-1].append(file)
                size += sizes[file]
        return [group for group in groups if len(group) > 1]

    def _there(self) -> "Mapping[str, ObjectMeta]":
        pages = asked(lambda: list(obstore.list(self._store, self._folder)))
        return {each["path"]: each for page in pages for each in page}

    def _merged(self, group: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
        """Write the rows of files to larger ones, one for each schema that several in turn have; they do not count yet."""
        tables = ((part, read_file(self._store, part)) for part in group)
        for _, run in groupby(tables, key=lambda each: each[1].schema):
            parts, path = self._written(run)
            if path is not None:
                yield parts, path

    def _written(self, run: Iterator[tuple[str, pa.Table]]) -> tuple[Sequence[str], str | None]:
        """Write a file of several. Returns the parts, and the path of the file; None if there is one part only."""
        part, table = next(run)
        parts = [part]
        with tempfile.TemporaryFile() as file:
            with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:
                writer.write_table(table)
                for part, table in run:
                    parts.append(part)
                    writer.write_table(table)
            if len(parts) == 1:
                return parts, None
            first, last = (Path(each).stem.split("-") for each in (parts[0], parts[-1]))
            path = f"{self._folder}/{first[0]}-{last[1]}-{uuid4().hex[:8]}.parquet"
            file.seek(0)
            asked(lambda: obstore.put(self._store, path, file))
        return parts, path

    def _replace(self, group: Sequence[str], merged: str) -> bool:
        """Let the merged file count in place of a group. Returns False if another compaction was quicker."""
        for _ in range(_TRIES):
            last, there = self._log.state()
            if merged in there:
                return True  # a client below has repeated a request whose answer was lost
            at = next((at for at, file in enumerate(there) if file == group[0]), None)
            if at is None or list(there[at : at + len(group)]) != list(group):
                asked(lambda: obstore.delete(self._store, merged))
                return False
            files = [*there[:at], merged, *there[at + len(group) :]]
            if self._log.append(last.next(files=files)):
                return True
        raise RetryLater("other processes write the log of commits at the same time")
