"""A commit of a snapshot that is tried once. The only module that uses private names of pyiceberg.

pyiceberg's own commit repeats one that was refused on whatever the table has then. That would carry the positions of a sink past
a comparison that has not been made with it. So pyiceberg makes the snapshot, and it is committed here.
"""
# ruff: noqa: SLF001 - there is no public way to commit without the repetition

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID

BRANCH: Final = "main"


def write_files(table: Table, rows: pa.Table) -> Sequence[DataFile]:
    """Write rows to data files, by the partitioning of the table. They do not count before they are committed."""
    return list(_dataframe_to_data_files(table.metadata, rows, table.io))


def committed(table: Table, properties: dict[str, str], files: Iterable[DataFile]) -> bool:
    """Commit a snapshot that appends files, unless the table has another snapshot than the loaded one.

    Args:
        table: The table. It has the last snapshot afterwards, whichever that is.
        properties: The properties in the summary of the snapshot.
        files: The data files.

    Returns:
        Whether the snapshot was committed.
    """
    snapshot = table.transaction()._append_snapshot_producer(properties, BRANCH)
    for file in files:
        snapshot.append_data_file(file)
    updates, requirements = snapshot._commit()  # with the requirement that its parent is the last snapshot
    try:
        table._do_commit(updates, (*requirements, AssertTableUUID(uuid=table.metadata.table_uuid)))
    except CommitFailedException:
        table.refresh()
        if table.snapshot_by_id(snapshot.snapshot_id) is not None:
            return True  # a client below has repeated a request whose answer was lost
        snapshot._clean_all_uncommitted()
        return False
    return True
