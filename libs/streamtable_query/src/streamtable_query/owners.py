"""The processes of a group, and which of them has or copies a partition, as the group's coordinator says."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from streamtable.base.clock import Clock
from streamtable.base.range_assignor import order_of, range_after_losses
from streamtable.base.types import TopicPartition
from streamtable.errors import ConfigurationError, NotReady, RetryLater
from streamtable_query.address import QueryAddress, advertised
from streamtable_query.question import Question
from streamtable_query.shares import holders_of

_ASKED_MAX: Final = 16
_LOSSES_MAX: Final = 3
"""Standby copies are kept for as many losses at most, or of all partitions."""


class ListedMember(Protocol):
    """A member of a consumer group, as its coordinator describes it."""

    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def partitions(self) -> Sequence[TopicPartition]: ...


class ListedGroup(Protocol):
    """A consumer group, as its coordinator describes it."""

    @property
    def state(self) -> str: ...

    @property
    def members(self) -> Sequence[ListedMember]: ...


class Coordinator(Protocol):
    """Describes consumer groups; `Kafka.admin()` is one."""

    def describe_groups(self, names: Iterable[str]) -> Mapping[str, ListedGroup]:
        """Return the groups, with the partitions of their members. Raises `RetryLater`."""


@dataclass(frozen=True, slots=True)
class PartitionOwner:
    """The process that has a partition, or a copy of it.

    Attributes:
        address: Where it answers queries.
        confirmed_at: The monotonic time in seconds before the question to which the coordinator answered that the process
            has the partition.
    """

    address: QueryAddress
    confirmed_at: float


@dataclass(frozen=True, slots=True)
class _Assignment:
    owners: Mapping[int, ListedMember] = field(default_factory=dict)
    members: Sequence[ListedMember] = ()
    state: str = "not described yet"
    asked_at: float = float("-inf")


class PartitionOwners:
    """Knows which process has a partition of a group. Any thread.

    Args:
        group: The name of the group.
        topic: One of its inputs: the members' partitions of it are their partitions of the group.
        coordinator: Returns the client to ask.
        clock: Monotonic time.
    """

    def __init__(self, group: str, topic: str, coordinator: Callable[[], Coordinator], clock: Clock) -> None:
        self._group = group
        self._topic = topic
        self._coordinator = coordinator
        self._clock = clock
        self._question = Question(self._describe, _Assignment(), clock)

    def owner(self, partition: int, since: float, deadline: float, *, needed: bool = True) -> PartitionOwner:
        """Return the process that has a partition.

        Args:
            partition: The partition of the group.
            since: The answer of the coordinator must be to a question that was asked at this monotonic time or later.
            deadline: The monotonic time until which to wait for it.
            needed: False: most of that time is needed to ask others than the owner.

        Raises:
            NotReady: No member has the partition at the moment, or the coordinator has not answered in time.
            ConfigurationError: The member that has it answers no queries.
            RetryLater: Kafka does not answer.
        """
        known = self._question.answer(since, deadline, needed=needed)
        member = known.owners.get(partition)
        if member is None:
            raise NotReady(
                f"no process of group {self._group!r} has partition {partition} at the moment: the group is {known.state}"
            )
        address = advertised(member.client_id)
        if address is None:
            raise ConfigurationError(
                f"the process of group {self._group!r} that has partition {partition} ({member.client_id!r} at {member.host}) "
                "does not say where it answers queries: start it with advertise() and a QueryServer"
            )
        return PartitionOwner(address, known.asked_at)

    def routes(
        self, partition: int, partitions: int, since: float, deadline: float, *, copies: bool
    ) -> Sequence[PartitionOwner]:
        """Return the processes to ask for a partition, the owner first.

        Args:
            partition: The partition.
            partitions: The number of partitions of the group's topics.
            since: As in `owner`. While the coordinator does not answer, its last answer says who has copies.
            deadline: As in `owner`. Who has copies is returned well before it.
            copies: Also return processes that may have a standby copy, the likeliest first.

        Raises:
            NotReady: There is none at the moment.
            ConfigurationError: As in `owner`.
            RetryLater: As in `owner`.
        """
        try:
            needed = not copies or not self._question.last.members
            found = [self.owner(partition, since, deadline, needed=needed)]
        except RetryLater:
            if not copies or not (found := self._copies(partition, partitions)):
                raise
            return found
        others = self._copies(partition, partitions) if copies else []
        return [*found, *(each for each in others if each not in found)]

    def _copies(self, partition: int, partitions: int) -> list[PartitionOwner]:
        """Return the processes that would have the partition if few of the others left, the fewest first: they keep copies."""
        known = self._question.last
        members = sorted(known.members, key=lambda each: order_of(each.member_id, each.instance_id))
        ranked = sorted(
            (losses, place)
            for place in range(len(members))
            for losses in range(min(_LOSSES_MAX, len(members) - 1) + 1)
            if partition in range_after_losses(place, len(members), partitions, losses)
        )
        addresses = [advertised(members[place].client_id) for _, place in ranked]
        return [PartitionOwner(each, known.asked_at) for each in dict.fromkeys(addresses) if each is not None]

    def _describe(self) -> _Assignment:
        asked_at = self._clock.monotonic()
        found = self._coordinator().describe_groups([self._group]).get(self._group)
        if found is None:
            return _Assignment(state="not known to Kafka: does it run?", asked_at=asked_at)
        owners = {
            place.partition: member
            for member in found.members
            for place in member.partitions
            if place.topic == self._topic
        }
        return _Assignment(owners, found.members, found.state, asked_at)


class PartitionHolders(PartitionOwners):
    """Knows which members of a shared view hold a partition. Any thread.

    Args:
        group: As in `PartitionOwners`, as are the others.
        replicas: The members that hold each partition.
    """

    def __init__(
        self, group: str, topic: str, coordinator: Callable[[], Coordinator], clock: Clock, replicas: int
    ) -> None:
        super().__init__(group, topic, coordinator, clock)
        self._replicas = replicas

    def routes(
        self, partition: int, partitions: int, since: float, deadline: float, *, copies: bool
    ) -> Sequence[PartitionOwner]:
        """Return the holders of a partition, then other members: until the holders have loaded it, former ones still answer."""
        del copies  # all are
        with suppress(RetryLater):  # the last answer holds while the coordinator does not answer
            self._question.answer(since, deadline, needed=not self._question.last.members)
        known = self._question.last
        if not known.members:
            raise NotReady(
                f"nobody holds partition {partition} at the moment: the group {self._group!r} is {known.state}"
            )
        members = sorted(known.members, key=lambda each: order_of(each.member_id, each.instance_id))
        first = holders_of(partition, len(members), partitions, self._replicas)
        places = dict.fromkeys([*first, *range(len(members))])
        found = [advertised(members[place].client_id) for place in places]
        return [PartitionOwner(each, known.asked_at) for each in found if each is not None][:_ASKED_MAX]
