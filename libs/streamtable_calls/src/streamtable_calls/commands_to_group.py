"""Commands to the group that has made a call, as records of its retry topic: so they are part of its commits.

The key of the record is the key of the call's row, its partition the partition of the row.
"""

from enum import StrEnum
from typing import Final

from streamtable.base.deadletter import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC, OutputRecord
from streamtable.base.types import RecordBatch
from streamtable.graph.companion import CALLS

COMMAND: Final = "streamtable-call-command"


class CallCommand(StrEnum):
    """A change of a pending call that a group is asked for."""

    RETRY_NOW = "retry-now"
    DROP = "drop"


def command_record(group: str, command: CallCommand, partition: int, row_key: bytes) -> OutputRecord:
    """Return the record that asks a group to do something with a pending call.

    Args:
        group: The name of the group.
        command: The command.
        partition: The partition of the call's row.
        row_key: The key of its row.
    """
    headers = [
        (ORIGIN_TOPIC, f"{group}-{CALLS}".encode()),
        (ORIGIN_PARTITION, b"%d" % partition),
        (ORIGIN_OFFSET, b"-1"),
        (COMMAND, command.encode()),
    ]
    return OutputRecord(f"{group}-retry", row_key, None, headers, partition=partition)


def command_of(record: RecordBatch) -> CallCommand | None:
    """Return the command of a record; None: it has none. Raises `ValueError` for an unknown one."""
    found = dict(record.headers(0)).get(COMMAND)
    return None if found is None else CallCommand(found.decode())
