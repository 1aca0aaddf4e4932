"""Reads the files and rows that a sink has committed."""

from io import BytesIO
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import ObjectStore

from streamtable_sinks.parquet.commits import FOLDER, CommitLog, asked
from streamtable_sinks.parquet.target import store_at
from streamtable_sinks.target import SinkPartition


def committed_files(where: str | Path | ObjectStore, *, sink: str | None = None) -> list[str]:
    """Return the paths, below `where`, of all data files that are committed: partition by partition, in the order of commits.

    Files that are not among them were left by a process that died before it committed them.

    Args:
        where: As given to `Parquet`.
        sink: Only the files of this sink.

    Raises:
        RetryLater: The object store does not answer.
    """
    store = store_at(where)
    prefix = f"{FOLDER}/{sink}" if sink else FOLDER
    pages = asked(lambda: list(obstore.list(store, prefix)))
    logs = sorted({each["path"].rpartition("/")[0] for page in pages for each in page})
    found = []
    for log in logs:
        *_, name, topic, partition = log.split("/")
        entries = CommitLog(store, SinkPartition(name, topic, "", int(partition))).entries()
        found += [entry.file for entry in entries if entry.file is not None]
    return found


def read_rows(where: str | Path | ObjectStore, *, sink: str | None = None) -> pa.Table:
    """Return the rows of all committed files. Arguments and errors as in `committed_files`."""
    store = store_at(where)
    tables = [
        pq.read_table(BytesIO(asked(lambda path=path: bytes(obstore.get(store, path).bytes()))))
        for path in committed_files(where, sink=sink)
    ]
    return pa.concat_tables(tables) if tables else pa.table({})
