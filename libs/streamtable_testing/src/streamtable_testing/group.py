"""The group coordinator of the virtual Kafka: members, their partitions, and the offsets that they commit.

It follows the consumer protocol (KIP-848) with the range assignor: a change of the members changes the target
assignment. Members learn from heartbeats which partitions to release, and a partition is assigned to its new owner once
the previous one has released it, has left, or has not sent a heartbeat for the session timeout.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamtable.base.clock import Clock
from streamtable.base.types import Committed, TopicPartition
from streamtable.errors import Migrated, TransactionPending
from streamtable_testing.transactions import Transaction

Places = frozenset[TopicPartition]

# Below `offset.metadata.max.bytes`, whose default is 4,096 and which counts characters.
_METADATA_CHARS_MAX = 4_095


@dataclass(frozen=True, slots=True)
class VirtualMembership:
    """The member that commits offsets, as of its last heartbeat. `member_id` is empty outside of the group."""

    group: str
    member_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Heard:
    """The coordinator's answer to a heartbeat: the partitions to release, or, after that, the new ones."""

    epoch: int
    revoke: Places = frozenset()
    assign: Places = frozenset()


@dataclass
class _Member:
    topics: Sequence[str]
    epoch: int
    heard_at: float
    owned: Places = field(default_factory=frozenset)


class Offsets:
    """The committed offsets of a group, and those pending in transactions."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Committed] = {}
        self._pending: dict[Transaction, dict[TopicPartition, Committed]] = {}

    @staticmethod
    def refused(offsets: Mapping[TopicPartition, Committed]) -> str:
        """Return why a broker does not take offsets; "" if it does."""
        for (topic, partition), each in offsets.items():
            if (size := len(each.metadata)) > _METADATA_CHARS_MAX:
                return f"the metadata of the offset of {topic}-{partition} have {size:,} characters, and Kafka takes {_METADATA_CHARS_MAX:,}"
        return ""

    def add(self, transaction: Transaction, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Add offsets that are pending until the transaction has ended."""
        self._pending.setdefault(transaction, {}).update(offsets)
        transaction.offsets.add(self)

    def end(self, transaction: Transaction) -> None:
        pending = self._pending.pop(transaction)
        if transaction.committed:
            self.committed.update(pending)

    def stable(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """Return the committed offsets. Raises `TransactionPending` while one is pending."""
        found = {place: self.committed.get(place) for place in places}
        for pending in self._pending.values():
            for place in found.keys() & pending.keys():
                raise TransactionPending("the committed offset is pending in a transaction", found).at(*place)
        return found

    def forget(self, topic: str | None = None) -> None:
        """Delete offsets, as when a topic is deleted or when all offsets expire."""
        for place in [p for p in self.committed if topic in {None, p.topic}]:
            del self.committed[place]


class GroupCoordinator:
    """A consumer group.

    Args:
        name: The name of the group.
        clock: The clock for heartbeats.
        session_timeout: The seconds without a heartbeat after which a member is removed.
        partitions: Returns the number of partitions of a topic; 0 if it does not exist.

    Attributes:
        only: The only partitions that are assigned; None: all.
    """

    only: frozenset[int] | None = None

    def __init__(
        self, name: str, clock: Clock, session_timeout: float, partitions: Callable[[str], int]
    ) -> None:
        self.name = name
        self.offsets = Offsets()
        self._clock = clock
        self._session_timeout = session_timeout
        self._partitions = partitions
        self._members: dict[str, _Member] = {}
        self._target: dict[str, Places] = {}
        self._dealt: object = None  # the members and numbers of partitions of the current assignment
        self._epoch = 0

    @property
    def members(self) -> Mapping[str, Places]:
        """The assigned partitions by member id."""
        return {member_id: member.owned for member_id, member in self._members.items()}

    def join(self, member_id: str, topics: Sequence[str]) -> None:
        """Join the group. Joining again with the same id ends the previous session."""
        self._members.pop(member_id, None)
        self._members[member_id] = _Member(topics, 0, self._clock.monotonic())

    def leave(self, member_id: str) -> None:
        self._members.pop(member_id, None)

    def expire(self) -> None:
        """Remove members whose session has timed out."""
        now = self._clock.monotonic()
        for member_id, member in list(self._members.items()):
            if now - member.heard_at >= self._session_timeout:
                del self._members[member_id]

    def heartbeat(self, member_id: str, epoch: int, owned: Places) -> Heard:
        """Handle the heartbeat of a member that owns these partitions. Raises `Migrated` if it was removed."""
        self.check(VirtualMembership(self.name, member_id, epoch), older=True)
        self._aim()
        member, target = self._members[member_id], self._target.get(member_id, frozenset())
        member.heard_at = self._clock.monotonic()
        if owned - target:
            return Heard(member.epoch, revoke=owned - target)
        others = frozenset().union(*(m.owned for m in self._members.values() if m is not member))
        # Partitions that it was assigned but does not know of yet stay its own; all others are released now.
        member.owned = target - others
        member.epoch = self._epoch
        return Heard(member.epoch, assign=member.owned - owned)

    def check(self, membership: VirtualMembership, *, older: bool = False) -> None:
        """Reject a client that is not a member, or whose member epoch is stale. Raises `Migrated`.

        Args:
            membership: The membership of the client.
            older: Whether an earlier epoch is accepted, because the response to a heartbeat may have been lost.
        """
        member = self._members.get(membership.member_id)
        if member is None or not (
            membership.epoch == member.epoch or (older and membership.epoch < member.epoch)
        ):
            raise Migrated(
                f"refused: the group has moved on (member {membership.member_id!r}, epoch {membership.epoch}, "
                f"now {member.epoch if member else 'removed'})"
            )

    def _aim(self) -> None:
        """Assign contiguous ranges of each topic in joining order: equal partition counts are co-assigned."""
        topics = sorted({topic for member in self._members.values() for topic in member.topics})
        # Called by each heartbeat, usually without a change.
        dealt = (
            [(member_id, member.topics) for member_id, member in self._members.items()],
            [self._partitions(topic) for topic in topics],
        )
        if dealt == self._dealt:
            return
        self._dealt = dealt
        target: dict[str, set[TopicPartition]] = {member_id: set() for member_id in self._members}
        for topic in topics:
            subscribed = [m for m, member in self._members.items() if topic in member.topics]
            each, more = divmod(self._partitions(topic), len(subscribed))
            first = 0
            for index, member_id in enumerate(subscribed):
                end = first + each + (index < more)
                target[member_id].update(TopicPartition(topic, p) for p in range(first, end))
                first = end
        aimed = {
            member_id: frozenset(p for p in places if self.only is None or p.partition in self.only)
            for member_id, places in target.items()
        }
        if aimed != self._target:
            self._target = aimed
            self._epoch += 1
