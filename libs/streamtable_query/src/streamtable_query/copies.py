"""Rows of replicas of partitions, read while their thread writes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from streamtable.base.clock import Clock
from streamtable.base.ports import Store
from streamtable.errors import NotReady, RetryLater, StoreCorrupted
from streamtable.tables.indexed_rows import RowsOf
from streamtable.tables.replica import PartitionReplica, ReplicaState

_ANSWERING: Final = frozenset({ReplicaState.STALE, ReplicaState.CURRENT})
"""Before it was compared with its topic, a copy may be of an earlier topic of that name."""


@dataclass(frozen=True, slots=True)
class ReplicaRows:
    """The rows of a replica.

    Attributes:
        rows: The rows.
        offset: They hold everything below this offset in the table's topic.
        age_seconds: They hold everything that was committed this many seconds ago.
    """

    rows: Store | RowsOf
    offset: int
    age_seconds: float


@contextmanager
def reading(
    replica: PartitionReplica, stale_ok: float | None, clock: Clock, *, indexed: bool = False
) -> Iterator[ReplicaRows]:
    """Return the rows of a replica for a `with` block, at whose end they are known to have been its rows.

    Args:
        replica: The replica.
        stale_ok: The age in seconds up to which its rows are read; None: of any age.
        clock: The wall clock that dates the replica.
        indexed: Whether its store has an index of due rows beside them.

    Raises:
        NotReady: It is loading, too old, or was closed or discarded meanwhile.
    """
    name = f"the copy of partition {replica.partition} of {replica.place.topic!r}"
    store, offset = replica.store, replica.position  # before the rows, so that the rows are at least as new
    age = max(0.0, clock.now() - replica.current_at)
    if replica.state not in _ANSWERING:
        raise NotReady(f"{name} is loading: {replica.lag} offsets are left")
    if stale_ok is not None and age > stale_ok:
        raise NotReady(f"{name} is {age:.1f} s old, and at most {stale_ok:g} s are asked for")
    try:
        yield ReplicaRows(RowsOf(store) if indexed else store, offset, age)
    except (RetryLater, StoreCorrupted) as error:
        raise NotReady(f"{name} cannot be read: {error.message}") from error
    if replica.store is not store or not replica.complete:
        raise NotReady(f"{name} was discarded, and is loaded again")
