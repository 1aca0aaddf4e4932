"""Operations for administrators, by the command line: groups, brokers, offsets by time, resets."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, OffsetSpec, ResourceType

from streamtable.base.range_assignor import order_of
from streamtable.base.types import Committed, TopicPartition, Watermarks
from streamtable.errors import ConfigurationError, RetryLater
from streamtable.kafka.cluster import Isolation, KafkaCluster
from streamtable.kafka.consumer import GroupMembership, offsets_of
from streamtable.kafka.errors import FORBIDDEN, MIGRATED, cause, describe
from streamtable.kafka.identity import ClientIdentity, ConnectionErrors

T = TypeVar("T")

_NEVER_S = 3_600.0  # the largest time-out that the client takes


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The advertised address of a broker."""

    number: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A live member of a group and its assigned partitions."""

    member_id: str
    client_id: str
    host: str
    instance_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it; of a group that was only listed, `members` is empty.

    Attributes:
        state: Stable, rebalancing, empty, dead and so on.
        protocol: Consumer or classic.
        coordinator: `host:port`.
    """

    name: str
    state: str
    protocol: str
    assignor: str = ""
    coordinator: str = ""
    members: tuple[GroupMember, ...] = ()


class KafkaAdmin(KafkaCluster):
    """A cluster with its administrative operations. All methods raise `RetryLater` when there is no answer.

    Args:
        make_client: Makes another admin client with the same settings.
        outsider: See `KafkaCluster`, as of the others.
    """

    def __init__(
        self,
        make_client: Callable[[], AdminClient],
        outsider: Callable[[str, Isolation], Consumer],
        caller: ClientIdentity,
        connection_errors: ConnectionErrors,
        timeout: float,
    ) -> None:
        super().__init__(make_client(), outsider, caller, connection_errors, timeout)
        self._short_lived = make_client

    def brokers(self) -> list[BrokerAddress]:
        """Return all brokers, at once or not at all, which also shows whether the cluster answers."""
        return [
            BrokerAddress(each.id, each.host, each.port)
            for each in sorted(self._metadata().brokers.values(), key=lambda each: each.id)
        ]

    def cluster_id(self) -> str:
        """Return Kafka's name of the cluster, made when its storage was formatted."""
        return str(self._metadata().cluster_id)

    def topic_partitions(self) -> dict[str, int]:
        """Return the number of partitions of each topic, internal ones included."""
        return {name: len(topic.partitions) for name, topic in sorted(self._metadata().topics.items())}

    def watermarks_known(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Return the watermarks of partitions, without the partitions that have no leader."""
        asked = list(places)
        lows = self._offsets(asked, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the client's
        highs = self._offsets(asked, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the client's
        return {
            place: Watermarks(lows[place], highs[place])
            for place in asked
            if lows.get(place, -1) >= 0 and highs.get(place, -1) >= 0
        }

    def offsets_at(
        self, places: Iterable[TopicPartition], milliseconds: int
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset of each partition with a timestamp not before this one; None if there is none yet."""
        asked = list(places)
        found = self._offsets(asked, OffsetSpec.for_timestamp(milliseconds))
        if missing := [place for place in asked if place not in found]:
            raise RetryLater(f"no offsets yet from Kafka at {self._bootstrap_servers}").at(*missing[0])
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    def newest_timestamp(self, topic: str) -> int | None:
        """Return the largest timestamp of a topic in milliseconds since 1970; None if it is not known."""
        places = [TopicPartition(topic, number) for number in range(self.topic_partitions().get(topic, 0))]
        newest = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # the client's
        answers = self._answers(places, newest)
        return max((each.timestamp for each in answers.values() if each.timestamp >= 0), default=None)

    def groups(self) -> list[GroupDescription]:
        """Return all groups, without their members."""
        listed = self._answer(self._admin.list_consumer_groups(request_timeout=self._timeout))
        for error in listed.errors:  # as in `group_names`
            raise self._silent(error)
        return sorted(
            (
                GroupDescription(
                    each.group_id, _name(each.state), _name(each.type or ConsumerGroupType.UNKNOWN)
                )
                for each in listed.valid
            ),
            key=lambda group: group.name,
        )

    def describe_groups(self, names: Iterable[str]) -> dict[str, GroupDescription]:
        """Return the groups among these that exist, with their members."""
        requested = sorted(set(names))
        if not requested:
            return {}
        answers = self._ask_coordinators(
            lambda client: client.describe_consumer_groups(requested, request_timeout=_NEVER_S)
        )
        found = {}
        for name, answer in answers.items():
            if isinstance(answer, KafkaException):
                if cause(answer).code() in (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID):
                    continue
                raise self._unanswered(cause(answer), group=name) from answer
            if answer.state is not ConsumerGroupState.DEAD:
                found[name] = _description(answer)
        return found

    def group_members(self, group: str) -> list[str]:
        """Return the ids of the members of a group, in the order of the range assignor."""
        found = self.describe_groups([group]).get(group)
        members = (
            [] if found is None else sorted(found.members, key=lambda m: order_of(m.member_id, m.instance_id))
        )
        return [member.member_id for member in members]

    def _ask_coordinators(
        self, ask: Callable[[AdminClient], Mapping[str, Future[T]]]
    ) -> Mapping[str, T | KafkaException]:
        """Return the answers of the coordinators by group, or their errors."""
        # When a request times out in the client, what its lookup of the coordinator returns later, an answer or a lost
        # connection, aborts the process ("eonce->refcnt > 0", librdkafka 2.16, issues 3663 and 4605). So it never does: a
        # client for this call alone is destroyed after the time-out, with its requests.
        answers: dict[str, T | KafkaException] = {}
        deadline = time.monotonic() + self._timeout
        with self._short_lived() as client:
            for name, future in ask(client).items():
                try:
                    answers[name] = future.result(max(0.0, deadline - time.monotonic()))
                except TimeoutError:
                    answers[name] = KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - a code
                except KafkaException as error:
                    answers[name] = error
            with suppress(KafkaException):
                client.poll(0)  # delivers its connection errors, which explain the others
        return answers

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Set the committed offsets of a group that has no members.

        Raises:
            ConfigurationError: The broker refuses, because the group has members.
        """
        # By a consumer that never joins, as offsets are asked for, and for the same reason: see `stable_offsets`.
        with self._asking:
            try:
                answers = self._outsider_of(group).commit(offsets=offsets_of(offsets), asynchronous=False)
                errors = [(each, each.error) for each in answers if each.error is not None]
            except KafkaException as exception:
                errors = [(Partition(group), cause(exception))]
        for each, error in errors:
            if error.code() in FORBIDDEN:
                raise self._unanswered(error, "READ", each.topic, group)
            if error.code() in MIGRATED:
                raise ConfigurationError(
                    f"the offsets of group {group!r} were not set: it has members ({describe(error)})"
                )
            raise RetryLater(
                f"setting offsets of group {group!r} was not answered ({describe(error)})", topic=each.topic
            )

    def membership_of_nobody(self, group: str) -> GroupMembership:
        """Return a membership that lets a tool commit offsets of a group in a transaction.

        The broker takes such offsets from anyone, so the caller must look whether the group has members.
        """
        with self._asking:
            metadata = self._outsider_of(group).consumer_group_metadata()
        return GroupMembership(metadata, "no-member")

    def delete_group(self, group: str) -> None:
        """Delete a group with all its offsets; no error if there is none.

        Raises:
            ConfigurationError: The broker refuses, because the group has members.
        """
        (answer,) = self._ask_coordinators(
            lambda client: client.delete_consumer_groups([group], request_timeout=_NEVER_S)
        ).values()
        if isinstance(answer, KafkaException):
            error = cause(answer)
            if error.code() == KafkaError.NON_EMPTY_GROUP:
                raise ConfigurationError(
                    f"group {group!r} was not deleted: it has members ({describe(error)})"
                ) from answer
            if error.code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise self._unanswered(error, "DELETE", group=group) from answer

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until the broker does not show it any more; no error if there is none. Raises `RetryLater`."""
        (future,) = self._admin.delete_topics([name], request_timeout=self._timeout).values()
        self._existing(future, "DELETE", name)
        self._wait_visible({name}, lambda: not self._described({name}, self._timeout))

    def own_settings(self, topic: str) -> dict[str, str]:
        """Return the settings of this topic that are not defaults, to create it again with."""
        entries = self._entries(ResourceType.TOPIC, topic, topic)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in entries.items() if entry.source == own}

    def broker_settings(self, number: int) -> dict[str, str]:
        """Return all settings of a broker that are not secret."""
        return {name: entry.value for name, entry in self._entries(ResourceType.BROKER, str(number)).items()}

    def _entries(self, kind: ResourceType, name: str, topic: str = "") -> dict[str, Any]:
        """Return the settings that have a value. `topic`: the one that a missing right would be on."""
        resource = ConfigResource(kind, name)
        (future,) = self._admin.describe_configs([resource], request_timeout=self._timeout).values()
        answer = self._answer(future, "DESCRIBE_CONFIGS", topic)
        return {each: entry for each, entry in answer.items() if entry.value is not None}

    def _metadata(self) -> Any:
        try:
            return self._admin.list_topics(timeout=self._timeout)
        except KafkaException as error:
            raise self._silent(cause(error)) from error

    def _offsets(self, asked: list[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        return {place: each.offset for place, each in self._answers(asked, spec).items()}

    def _answers(self, asked: list[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, Any]:
        """Return the broker's answers; partitions without an answer are omitted."""
        found = {}
        for place, future in (self._list_offsets(asked, spec) if asked else {}).items():
            try:
                found[place] = self._result(future)
            except KafkaException as error:
                if cause(error).code() in _UNREACHED:
                    raise self._silent(cause(error)) from error
                continue
            if found[place].offset == OFFSET_INVALID:  # no answer in time is no error for the client
                raise RetryLater(f"no offsets yet from Kafka at {self._bootstrap_servers}").at(*place)
        return found


_UNREACHED = {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001 - codes


def _name(value: ConsumerGroupState | ConsumerGroupType) -> str:
    return value.name.lower().replace("_", " ")


def _description(answer: Any) -> GroupDescription:
    return GroupDescription(
        name=answer.group_id,
        # The client has no names yet for the states of KIP-848's rebalances, and says UNKNOWN.
        state=_name(answer.state) if answer.state is not ConsumerGroupState.UNKNOWN else "rebalancing",
        protocol=_name(answer.type),
        assignor=answer.partition_assignor or "",
        coordinator=f"{answer.coordinator.host}:{answer.coordinator.port}" if answer.coordinator else "",
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                client_id=each.client_id,
                host=each.host.removeprefix("/"),
                instance_id=each.group_instance_id or "",
                partitions=tuple(
                    TopicPartition(place.topic, place.partition)
                    for place in sorted(
                        each.assignment.topic_partitions, key=lambda p: (p.topic, p.partition)
                    )
                ),
            )
            for each in answer.members
        ),
    )
