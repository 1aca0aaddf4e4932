"""Restricts a task to the keys of its own partition: no view and no lookup would find a row written elsewhere."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streamtable.errors import WrongPartition
from streamtable.handlers.aggregate_rows import AggregateRows


@dataclass(frozen=True)
class OwnKeys:
    """Decides which keys belong to a partition of a table.

    Args:
        group: The group that keeps the table.
        table: The table.
        partition: The partition of the task.
        partitions: The number of partitions of the table.
        hash_key: The hash of an encoded key that views use to find a row; see `hash_of_rows`.
    """

    group: str
    table: str
    partition: int
    partitions: int
    hash_key: Callable[[bytes], int]

    def refuse_others(self, keys: Iterable[bytes], accepted: frozenset[bytes]) -> None:
        """Check keys whose rows are about to be read or written.

        Args:
            keys: The encoded keys.
            accepted: Keys that belong here independently of the partitioner: the keys of the records being handled.
                Another producer may have partitioned the input in its own way.

        Raises:
            WrongPartition: The row of a key is in another partition of the table.
        """
        for key in keys:
            if key in accepted:
                continue
            home = self.hash_key(key) % self.partitions
            if home != self.partition:
                raise WrongPartition(key, home, group=self.group, topic=self.table, partition=self.partition)


class OwnRows:
    """The rows that an aggregate may change: rows whose keys belong to the partition.

    Args:
        rows: The rows of the partition.
        keys: The encoded keys of the records.
        own_keys: Refuses the keys of other partitions.
    """

    def __init__(self, rows: AggregateRows[Any], keys: Sequence[bytes], own_keys: OwnKeys) -> None:
        self._rows = rows
        self._keys = keys
        self._own_keys = own_keys

    def changing(self, keys: Iterable[bytes]) -> dict[bytes, Any]:
        """See `aggregate.Rows`. Raises `WrongPartition`."""
        if keys is not self._keys:  # the built-in aggregates pass the very keys that they got
            keys = list(keys)
            self._own_keys.refuse_others(keys, frozenset(self._keys))
        return self._rows.changing(keys)
