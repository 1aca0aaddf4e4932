"""The positions of sinks in the summaries of a table's snapshots.

Each snapshot that a sink commits has the positions of all partitions of all sinks of the table, so the last one tells
everything. Snapshots of other writers have none; their ancestors do.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

import orjson
from pyiceberg.table.metadata import TableMetadata

from streamtable_sinks.iceberg.commit import BRANCH
from streamtable_sinks.target import SinkPartition, TargetPosition

_PREFIX: Final = "streamtable.sink."


class SnapshotPositions:
    """All positions after a snapshot.

    Args:
        properties: The properties of the summary that keep them.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    @classmethod
    def of(cls, metadata: TableMetadata) -> "SnapshotPositions":
        """Return those of the table as it is: of the last snapshot that has any, from the current one back."""
        snapshots = {each.snapshot_id: each for each in metadata.snapshots}
        current = metadata.snapshot_by_name(BRANCH)
        while current is not None:
            summary = current.summary.additional_properties if current.summary is not None else {}
            if found := {name: value for name, value in summary.items() if name.startswith(_PREFIX)}:
                return cls(found)
            current = snapshots.get(current.parent_snapshot_id or -1)
        return cls({})

    def __getitem__(self, place: SinkPartition) -> TargetPosition:
        found = self._properties.get(_name(place))
        return TargetPosition() if found is None else TargetPosition(**orjson.loads(found))

    def changed(self, place: SinkPartition, to: TargetPosition) -> dict[str, str]:
        """Return the properties of the next snapshot, which moves one partition."""
        return {**self._properties, _name(place): orjson.dumps(asdict(to)).decode()}


def _name(place: SinkPartition) -> str:
    return f"{_PREFIX}{place.sink}/{place.topic}/{place.partition}"
