"""Parquet files as a target: a data file, then an entry in the log of commits."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from streamtable import Avro
from streamtable.errors import ConfigurationError, RetryLater
from streamtable_sinks.arrow.rows import ArrowRows, MakeColumns
from streamtable_sinks.parquet.commits import CommitEntry, CommitLog, asked
from streamtable_sinks.target import Changes, SinkPartition, SinkSource, TakenPartition, TargetOfOneSink

_TRIES: Final = 5


def store_at(where: str | Path | ObjectStore) -> ObjectStore:
    """Return the store of a folder, or of a URL such as `s3://bucket/folder`. Raises `ConfigurationError`."""
    if not isinstance(where, str | Path):
        return where
    try:
        return from_url(where) if isinstance(where, str) and "://" in where else LocalStore(where, mkdir=True)
    except (BaseError, ValueError) as error:
        raise ConfigurationError(f"not a folder or the URL of an object store: {where}: {error}") from error


def data_folder(place: SinkPartition) -> str:
    """Return the folder of a partition's data files, which sinks of the same topic share."""
    return f"{place.topic}-{place.partition:05}"


class Parquet(TargetOfOneSink):
    """Parquet files in a folder, or in S3, Google Cloud Storage or Azure.

        Sink("events-out", ORDERS, Parquet("s3://lake/orders"), max_records=500_000, max_bytes=256 << 20, max_wait=60)

    A batch is a data file. It counts once the log of commits names it, so read the files of `committed_files`, or their rows
    with `read_rows`: these have each record once. Besides the fields of the value a row has `_partition`, `_offset` and
    `_timestamp` of its record; of a table it has the change, with `_deleted` and the columns of the key.

    Args:
        where: A folder, the URL of one in an object store, whose settings and credentials come from the environment, or a store
            of obstore, such as `S3Store("lake", prefix="orders", endpoint=...)`.
        key: The names of the columns of the key, of a table: one, or one for each part of the key.
        columns: Makes the columns of a row, without the key's, from a record's key and value. Needs `schema`.
        schema: The schema of these columns, of Arrow or Avro. Default: from the codec.
        compression: The compression of the files.
    """

    def __init__(
        self,
        where: str | Path | ObjectStore,
        *,
        key: Sequence[str] = (),
        columns: MakeColumns | None = None,
        schema: pa.Schema | Avro[Any] | None = None,
        compression: str = "zstd",
    ) -> None:
        self._store = store_at(where)
        self._rows = ArrowRows(key, columns, schema)
        self._compression = compression
        self._last: dict[SinkPartition, CommitEntry] = {}

    def open(self, source: SinkSource) -> None:
        self._rows.open(source)

    def take(self, place: SinkPartition, owner: str) -> TakenPartition:
        log = CommitLog(self._store, place)
        for _ in range(_TRIES):
            before = log.last() or CommitEntry(topic_id=place.topic_id)
            taken = before.next(epoch=before.epoch + 1, owner=owner)
            if log.append(taken):
                self._last[place] = taken
                known = before.topic_id if before.number else ""
                return TakenPartition(taken.epoch, taken.position, known, before.owner)
        raise RetryLater("another process writes the log of commits at the same time")

    def write(self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Changes) -> None:
        log, last, file = CommitLog(self._store, place), self._last[place], None
        for attempt in range(_TRIES):
            last = self._last[place] = log.last(last.number) or last
            last.check(epoch, start)
            if attempt == 0 and changes:
                file = self._write_file(place, changes)
            topic_id = place.topic_id if start is None else last.topic_id
            entry = last.next(position=end, topic_id=topic_id, file=file)
            if log.append(entry):
                self._last[place] = entry
                return
            # Another owner has written, which the comparison finds, or small files were merged, which changes no position.
        raise RetryLater("other processes write the log of commits at the same time")

    def __repr__(self) -> str:
        return f"Parquet({self._store!r})"

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _write_file(self, place: SinkPartition, changes: Changes) -> str:
        table = self._rows.table(place.partition, changes)
        buffer = BytesIO()
        pq.write_table(table, buffer, compression=self._compression)
        first, last = changes[0].offset, changes[-1].offset
        path = f"{data_folder(place)}/{first:020}-{last:020}-{uuid4().hex[:8]}.parquet"
        try:
            asked(lambda: obstore.put(self._store, path, buffer.getvalue(), mode="create"))
        except AlreadyExistsError as error:
            raise RetryLater(f"there is a file {path} already") from error
        return path
