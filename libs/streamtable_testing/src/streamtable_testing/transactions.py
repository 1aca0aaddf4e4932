"""The transaction coordinator of the virtual Kafka: which producer may write under a transactional id.

As with the client's protocol (transactions before KIP-890's second version) a producer's epoch changes when it is
opened, and when the broker aborts a transaction that has outlived its time; a late request of the same epoch thus still
counts, also if it finds a later transaction than its own.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from streamtable.base.clock import Clock
from streamtable.errors import Fenced
from streamtable_testing.faults import Faults, LateEffects

if TYPE_CHECKING:
    from streamtable.base.types import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"


class MarkedPartition(Protocol):
    """A partition with records of a transaction. `topic.Partition` implements it."""

    def mark(self, transaction: "Transaction") -> None: ...


class PendingOffsets(Protocol):
    """The offsets of a group that a transaction would commit. `group.Offsets` implements it."""

    def end(self, transaction: "Transaction") -> None: ...


class Transaction:
    """A transaction: the records written in it, the partitions that lack its markers, and its outcome.

    Attributes:
        committed: None while it has not ended.
        partitions: The partitions with records of it and no marker yet.
        offsets: The pending offsets of groups.
    """

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        self.committed: bool | None = None
        self.partitions: dict[TopicPartition, MarkedPartition] = {}
        self.offsets: set[PendingOffsets] = set()

    def write_markers(self, late: Callable[[str], bool] = lambda _: False) -> bool:
        """Write the markers that are missing, except where `late(topic)`. Returns whether all are written."""
        for place, partition in list(self.partitions.items()):
            if not late(place.topic):
                partition.mark(self)
                del self.partitions[place]
        if self.offsets and not late(OFFSETS_TOPIC):
            for offsets in self.offsets:
                offsets.end(self)
            self.offsets = set()
        return not self.partitions and not self.offsets


class _Owner:
    """The current epoch and transaction of a transactional id."""

    epoch = 0
    last: Transaction | None = None

    @property
    def ongoing(self) -> Transaction | None:
        return self.last if self.last is not None and self.last.committed is None else None


class Transactions:
    """The transaction coordinator.

    Args:
        clock: The clock for the age of transactions.
        timeout: seconds after which a transaction is aborted and its producer fenced.
        faults: asked whether markers are late.
        late: takes the markers that are.
    """

    def __init__(self, clock: Clock, timeout: float, faults: Faults, late: LateEffects) -> None:
        self.timeout = timeout
        self._clock = clock
        self._faults = faults
        self._late = late
        self._owners: dict[str, _Owner] = {}

    def open(self, transactional_id: str) -> int:
        """Fence the previous producer with the id, abort its open transaction, and return the new epoch."""
        owner = self._owners.setdefault(transactional_id, _Owner())
        self._bump(transactional_id, owner)
        if owner.last is not None:
            owner.last.write_markers()
        return owner.epoch

    def ongoing(self, transactional_id: str, epoch: int) -> Transaction:
        """Return the transaction to write to, begun with its first request. Raises `Fenced`."""
        owner = self._owner(transactional_id, epoch)
        if (transaction := owner.ongoing) is None:
            if owner.last is not None:
                owner.last.write_markers()  # the coordinator lets a producer wait for them
            transaction = owner.last = Transaction(self._clock.monotonic())
        return transaction

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """Commit or abort the transaction, if one was begun. Raises `Fenced`."""
        transaction = self._owner(transactional_id, epoch).ongoing
        if transaction is not None:
            self._end(transactional_id, transaction, commit=commit)

    def expire(self) -> None:
        """Abort transactions that have timed out."""
        for transactional_id, owner in self._owners.items():
            begun = owner.ongoing
            if begun is not None and self._clock.monotonic() - begun.began_at >= self.timeout:
                self._bump(transactional_id, owner)

    def _bump(self, transactional_id: str, owner: _Owner) -> None:
        owner.epoch += 1
        if owner.ongoing is not None:
            self._end(transactional_id, owner.ongoing, commit=False)

    def _end(self, transactional_id: str, transaction: Transaction, *, commit: bool) -> None:
        transaction.committed = commit
        if not transaction.write_markers(lambda topic: self._faults.marker_late(transactional_id, topic)):
            self._late.add(transaction.write_markers)

    def _owner(self, transactional_id: str, epoch: int) -> _Owner:
        owner = self._owners[transactional_id]
        if owner.epoch != epoch:
            raise Fenced(
                "another process uses the same transactional id; give each process an instance id of its own, "
                "by STREAMTABLE_INSTANCE_ID or instance_id= of App.run (by default it is the host's name, numbered on each host) "
                f"({transactional_id!r}, epoch {epoch}, now {owner.epoch})"
            )
        return owner
