"""Reads the files and rows that a sink has committed."""

from io import BytesIO
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import ObjectStore

from streamtable.errors import ConfigurationError
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
    return [file for place in committed_places(store, sink) for file in CommitLog(store, place).state()[1]]


def committed_places(store: ObjectStore, sink: str | None) -> list[SinkPartition]:
    """Return the partitions that have a log. Arguments and errors as in `committed_files`."""
    prefix = f"{FOLDER}/{sink}" if sink else FOLDER
    pages = asked(lambda: list(obstore.list(store, prefix)))
    logs = sorted({each["path"].rpartition("/")[0] for page in pages for each in page})
    parts = [log.split("/")[-3:] for log in logs]
    return [SinkPartition(name, topic, "", int(partition)) for name, topic, partition in parts]


def read_rows(where: str | Path | ObjectStore, *, sink: str | None = None) -> pa.Table:
    """Return the rows of all committed files. Arguments and errors as in `committed_files`.

    Files that were written before the program got another column have null in it; numbers have the widest type of all files.

    Raises:
        ConfigurationError: No type of a column keeps the values of all files.
    """
    store = store_at(where)
    tables = [read_file(store, path) for path in committed_files(where, sink=sink)]
    try:
        made = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
        for each in {field for table in tables for field in table.schema}:
            if _lost(each.type, other := made.schema.field(each.name).type):
                raise pa.ArrowTypeError(f"column {each.name!r} is {each.type} in one, and would be {other}")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConfigurationError(f"no type has all values, read committed_files singly: {error}") from error
    return made


def _lost(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether a type loses values of another one: Arrow makes floats of decimals, and bytes of texts."""
    if pa.types.is_struct(one):
        return any(_lost(each.type, other.field(each.name).type) for each in one)
    if pa.types.is_map(one):
        return _lost(one.item_type, other.item_type)
    if pa.types.is_list(one) or pa.types.is_large_list(one):
        return _lost(one.value_type, other.value_type)
    texts = (pa.types.is_string, pa.types.is_large_string)
    return (pa.types.is_decimal(one) and not pa.types.is_decimal(other)) or (
        any(is_text(one) for is_text in texts) and not any(is_text(other) for is_text in texts)
    )


def read_file(store: ObjectStore, path: str) -> pa.Table:
    """Return the rows of a file. Raises `RetryLater`."""
    return pq.read_table(BytesIO(asked(lambda: bytes(obstore.get(store, path).bytes()))))
