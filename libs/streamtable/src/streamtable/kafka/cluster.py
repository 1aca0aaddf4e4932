"""Queries about topics, and the few changes that the command line makes to them."""

import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import TopicDescription as DescribedTopic

from streamtable.base.ports import TopicDescription, TopicInfo
from streamtable.base.types import Committed, NextOffset, TopicPartition, Watermarks
from streamtable.errors import (
    AuthenticationFailed,
    ConfigurationError,
    RetryLater,
    StreamtableError,
    TransactionPending,
)
from streamtable.kafka.errors import FORBIDDEN, PASSING, cause, describe
from streamtable.kafka.identity import REFUSALS, ClientIdentity, ConnectionErrors

T = TypeVar("T")
Isolation = Literal["read_committed", "read_uncommitted"]

_EVENTS = 1_000
_METADATA_SECONDS = 1.0
_LOOK_SECONDS = 0.02
# A pending transaction keeps the client asking for as long as this. Other partitions wait meanwhile. It doubles while the
# broker does not answer at all, up to the time-out of other requests.
_OFFSETS_SECONDS = 0.5
_ANY_TIME = (1 << 63) - 1
_OFFSETS_TOPIC = "__consumer_offsets"


def hash_of(group: str) -> int:
    """Return the hash that finds the partition of the offsets topic: a Java string's hash, without its sign."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", group.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


@dataclass(eq=False)
class KafkaCluster:
    """`ports.Cluster` on librdkafka.

    Args:
        admin: The client.
        outsider: Makes a consumer that asks for the offsets of a group without being its member; of committed
            transactions only, or, for the isolation level read_uncommitted, also of those that are pending.
        caller: The user that the clients act as, for errors.
        connection_errors: The connection errors of the clients.
        timeout: Seconds to wait for each answer.
    """

    _admin: AdminClient
    _outsider: Callable[[str, Isolation], Consumer]
    _caller: ClientIdentity
    _connection_errors: ConnectionErrors
    _timeout: float

    def __post_init__(self) -> None:
        self._outsiders: dict[str, Consumer] = {}
        self._uncommitted: dict[str, Consumer] = {}  # by group: they do not wait for pending transactions
        self._refused: dict[str, KafkaError] = {}  # by group: why nothing may be asked about it
        self._asking = threading.Lock()  # for the consumers: one call at a time
        self._offsets_seconds = min(self._timeout, _OFFSETS_SECONDS)
        self._metadata_seconds = min(self._timeout, _METADATA_SECONDS)
        self._bootstrap_servers = self._caller.servers

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        return {
            name: TopicInfo(
                name=name,
                partitions=topic.partitions,
                topic_id=topic.topic_id,
                compacted="compact" in topic.config["cleanup.policy"],
                delete_retention_ms=int(topic.config["delete.retention.ms"]),
                max_message_bytes=int(topic.config["max.message.bytes"]),
                keeps_timestamps=topic.config.get("message.timestamp.type") != "LogAppendTime",
                # Brokers before 3.6 do not have these two.
                timestamp_before_max_ms=int(topic.config.get("message.timestamp.before.max.ms", _ANY_TIME)),
                timestamp_after_max_ms=int(topic.config.get("message.timestamp.after.max.ms", _ANY_TIME)),
                retention_ms=_retention_ms(topic.config),
                own_settings=topic.own_settings,
            )
            for name, topic in self.describe(names).items()
        }

    def describe(self, names: Iterable[str]) -> Mapping[str, TopicDescription]:
        """Return the topics among these that exist, with all their settings. Raises `RetryLater`."""
        requested = sorted(set(names))
        if not requested:
            return {}
        found = self._described(requested, self._timeout)
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in found]
        configs = self._admin.describe_configs(resources, request_timeout=self._timeout) if resources else {}
        descriptions = {}
        for resource, future in configs.items():
            entries = self._existing(future, "DESCRIBE_CONFIGS", resource.name)
            if entries is not None:  # else deleted between the two questions
                topic = found[resource.name]
                descriptions[resource.name] = TopicDescription(
                    name=resource.name,
                    partitions=len(topic.partitions),
                    replication=min(len(partition.replicas) for partition in topic.partitions),
                    topic_id=str(topic.topic_id),
                    config={name: entry.value or "" for name, entry in entries.items()},
                    own_settings=frozenset(
                        name
                        for name, entry in entries.items()
                        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
                    ),
                )
        return descriptions

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, str]:
        try:
            found = self._described(names, self._metadata_seconds)
        except RetryLater:
            self._metadata_seconds = min(self._metadata_seconds * 2, self._timeout)
            raise
        return {name: str(topic.topic_id) for name, topic in found.items()}

    def _described(self, names: Iterable[str], timeout: float) -> Mapping[str, DescribedTopic]:
        """Return the topics among these, at least one, that exist."""
        described = self._admin.describe_topics(TopicCollection(sorted(set(names))), request_timeout=timeout)
        found = {name: self._existing(future, "DESCRIBE", name) for name, future in described.items()}
        return {name: topic for name, topic in found.items() if topic is not None}

    def watermarks(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        return self._asked_again(places, self._watermarks)

    def stable_ends(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        committed, latest = IsolationLevel.READ_COMMITTED, OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client's
        return self._asked_again(
            places, lambda asked: self._listed(self._list_offsets(asked, latest, committed))
        )

    def _asked_again(
        self,
        places: Iterable[TopicPartition],
        ask: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, T]],
    ) -> Mapping[TopicPartition, T]:
        asked = list(places)
        try:
            return ask(asked) if asked else {}
        except RetryLater:
            # The client keeps asking the leaders that it knows, by epochs that are over, until the metadata of
            # these very topics is requested.
            with suppress(KafkaException):
                for topic in {place.topic for place in asked}:
                    self._admin.list_topics(topic, timeout=self._metadata_seconds)
            raise

    def _watermarks(self, asked: Sequence[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        # Both questions before the first answer.
        low = self._list_offsets(asked, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the client's
        high = self._list_offsets(asked, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the client's
        lows, highs = self._listed(low), self._listed(high)
        return {place: Watermarks(lows[place], highs[place]) for place in asked}

    def _list_offsets(
        self,
        asked: Iterable[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Mapping[TopicPartition, Future[Any]]:
        """Ask for an offset of each of these partitions, at least one. Returns the client's answers to come."""
        partitions = {Partition(*place): spec for place in asked}
        answers = self._admin.list_offsets(
            partitions, isolation_level=isolation, request_timeout=self._timeout
        )
        return {TopicPartition(each.topic, each.partition): future for each, future in answers.items()}

    def _listed(self, answers: Mapping[TopicPartition, Future[Any]]) -> Mapping[TopicPartition, int]:
        found = {}
        for place, future in answers.items():
            found[place] = self._answer(future, topic=place.topic).offset
            # When there is no answer in time, or the connection was lost at the wrong moment, the client knows no error.
            if found[place] < 0:
                raise RetryLater(f"no offsets yet from Kafka at {self._bootstrap_servers}").at(*place)
        return found

    def group_names(self) -> frozenset[str]:
        listed = self._answer(self._admin.list_consumer_groups(request_timeout=self._timeout))
        # Of a broker that did not answer: a part of the list would look like all of it.
        for error in listed.errors:
            raise self._silent(error)
        return frozenset(each.group_id for each in listed.valid)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        if not before:
            return
        places = [Partition(*place, offset) for place, offset in before.items()]
        for each, future in self._admin.delete_records(places, request_timeout=self._timeout).items():
            self._change(future, f"deleting records of {each.topic!r}", "DELETE", each.topic)

    def offsets_partition(self, group: str) -> TopicPartition | None:
        described = self._admin.describe_topics(
            TopicCollection([_OFFSETS_TOPIC]), request_timeout=self._timeout
        )
        try:
            topic = self._existing(described[_OFFSETS_TOPIC], "DESCRIBE", _OFFSETS_TOPIC)
        except StreamtableError:
            return None  # mostly because this user has no right to it
        return TopicPartition(_OFFSETS_TOPIC, hash_of(group) % len(topic.partitions)) if topic else None

    @property
    def servers(self) -> str:
        return self._bootstrap_servers

    def stable_offsets(
        self, group: str, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        # Asked of a consumer, not of the admin client: that aborts the process ("eonce->refcnt > 0") when the broker
        # disconnects while it looks for the group's coordinator (librdkafka 2.16, issues 3663 and 4605). And of one
        # that is no member: `committed` does not return while another thread is inside of the same client's poll.
        asked = [Partition(*place) for place in places]
        if not self._asking.acquire(timeout=self._timeout):
            raise RetryLater("others are asking for committed offsets, ask again")
        try:
            consumer = self._outsider_of(group)
            self._listen(group)
            answers = consumer.committed(asked, timeout=self._offsets_seconds)
        except KafkaException as error:
            self._listen(group)
            if group not in self._refused and (latest := self._latest(group, asked)) is not None:
                raise TransactionPending(
                    f"a transaction with committed offsets of group {group!r} has not ended", latest
                ) from error
            self._offsets_seconds = min(self._offsets_seconds * 2, self._timeout)
            raise self._unanswered(self._refused.get(group, cause(error)), group=group) from error
        finally:
            self._asking.release()
        self._refused.pop(group, None)
        for each in answers:
            if each.error is not None:
                unanswered = self._unanswered(each.error, topic=each.topic, group=group)
                raise unanswered.at(each.topic, each.partition)
        return _offsets_in(answers)

    def _outsider_of(self, group: str) -> Consumer:
        if group not in self._outsiders:
            self._outsiders[group] = self._outsider(group, "read_committed")
        return self._outsiders[group]

    def _latest(self, group: str, asked: list[Partition]) -> Mapping[TopicPartition, Committed | None] | None:
        """Return the offsets that the coordinator knows without waiting for transactions; None if it does not answer.

        The client asks again and again while a transaction is pending, and reports only a time-out.
        """
        if group not in self._uncommitted:
            self._uncommitted[group] = self._outsider(group, "read_uncommitted")
        try:
            answers = self._uncommitted[group].committed(asked, timeout=self._offsets_seconds)
        except KafkaException:
            return None
        finally:
            self._uncommitted[group].consume(_EVENTS, 0)
        return _offsets_in(answers) if all(each.error is None for each in answers) else None

    def _listen(self, group: str) -> None:
        """Poll the consumer, which reads nothing, so that its errors do not pile up.

        The client reports once that it may not access the group, and then does not answer the requests themselves.
        """
        for message in self._outsiders[group].consume(_EVENTS, 0):
            if (error := message.error()) is not None and error.code() in FORBIDDEN:
                self._refused[group] = error

    def create_topics(self, topics: Iterable[TopicDescription]) -> None:
        """Create topics, and wait until the broker shows them; existing ones are left as they are.

        Raises:
            RetryLater: There is no answer, or the broker does not show them in time.
            ConfigurationError: Kafka refuses.
        """
        new = [
            NewTopic(topic.name, topic.partitions, topic.replication, config=dict(topic.config))
            for topic in topics
        ]
        if new:
            for name, future in self._admin.create_topics(new, request_timeout=self._timeout).items():
                self._change(future, f"creating topic {name!r}", "CREATE", name)
            names = {topic.topic for topic in new}
            self._wait_visible(names, lambda: self._have_leaders(names))

    def _have_leaders(self, names: Collection[str]) -> bool:
        found = self._described(names, self._timeout)
        leaders = [partition.leader for topic in found.values() for partition in topic.partitions]
        return len(found) == len(names) and None not in leaders

    def _wait_visible(self, names: Collection[str], done: Callable[[], bool]) -> None:
        """Wait until a change of these topics is `done` for the answering broker. Raises `RetryLater`."""
        # The controller answers when it has decided. Brokers take that over later, under load seconds later, and a service
        # that starts meanwhile gets the answer that its topic does not exist.
        end = time.monotonic() + self._timeout
        while not done():
            if time.monotonic() >= end:
                raise RetryLater(
                    f"a change of these topics is not visible on the broker after {self._timeout:g} s: "
                    f"{', '.join(sorted(names))}. Run this again"
                )
            time.sleep(_LOOK_SECONDS)

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        """Set these settings of a topic, leave the others, and wait until the broker shows the change.

        Raises:
            RetryLater: There is no answer, or the broker does not show the change in time.
            ConfigurationError: Kafka refuses.
        """
        before = self._settings(name)
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs(
            [resource], request_timeout=self._timeout
        ).values():
            self._change(future, f"altering topic {name!r}", "ALTER_CONFIGS", name)

        def shown() -> bool:
            after = self._settings(name)
            # The broker may write a value in another way. A missing topic was deleted meanwhile.
            return not after or all(
                after.get(key) == value or after.get(key) != before.get(key) for key, value in config.items()
            )

        self._wait_visible([name], shown)

    def _settings(self, name: str) -> Mapping[str, str]:
        """Return the settings of a topic; none if there is none."""
        found = self.describe([name])
        return found[name].config if name in found else {}

    def close(self) -> None:
        """Disconnect. Waits for calls of other threads; later calls fail. May be called twice."""
        with self._asking:
            for consumer in (*self._outsiders.values(), *self._uncommitted.values()):
                consumer.close()
            self._outsiders, self._uncommitted = {}, {}
        # Not left to the garbage collector: it may run in the client's own thread, which delivers answers, and librdkafka
        # aborts a process that destroys a client there ("rd_kafka_destroy() called from librdkafka owned thread").
        self._admin.__exit__(None, None, None)  # the only method that closes this client

    def _result(self, future: Future[T]) -> T:
        """Return the client's answer, which comes in time unless the process was stopped meanwhile."""
        try:
            return future.result(self._timeout + 1)
        except TimeoutError as error:
            raise RetryLater(f"no answer from the Kafka client for {self._bootstrap_servers}") from error

    def _existing(self, future: Future[T], operation: str, topic: str) -> T | None:
        try:
            return self._result(future)
        except KafkaException as error:
            if cause(error).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._unanswered(cause(error), operation, topic) from error

    def _answer(self, future: Future[T], operation: str = "DESCRIBE", topic: str = "") -> T:
        try:
            return self._result(future)
        except KafkaException as error:
            raise self._unanswered(cause(error), operation, topic) from error

    def _change(self, future: Future[T], doing: str, operation: str, topic: str = "") -> None:
        try:
            self._result(future)
        except KafkaException as exception:
            error = cause(exception)
            if error.code() in PASSING or error.code() in FORBIDDEN:
                raise self._unanswered(error, operation, topic) from exception
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ConfigurationError(f"{doing} was refused ({describe(error)})") from exception

    def _unanswered(
        self, error: KafkaError, operation: str = "DESCRIBE", topic: str = "", group: str = ""
    ) -> StreamtableError:
        """Return `AuthorizationError` where the broker has refused, else `RetryLater`."""
        if error.code() in FORBIDDEN:
            return replace(self._caller, group=group).lacks(error, operation, topic)
        return self._silent(error)

    def _silent(self, error: KafkaError) -> RetryLater:
        """Return the error for no answer: no broker is reachable, or one side refuses the connection (`AuthenticationFailed`)."""
        with suppress(KafkaException, RuntimeError):  # the latter after `close`
            self._admin.poll(0)  # delivers its connection errors, which are not read before
        found = self._connection_errors.taken()
        kind = AuthenticationFailed if found is not None and found.code() in REFUSALS else RetryLater
        why = describe(error) if found is None else self._caller.explain(found)
        return kind(f"no answer from Kafka at {self._bootstrap_servers} ({why})")


def _retention_ms(config: Mapping[str, str]) -> int | None:
    retention_ms = int(config["retention.ms"]) if "delete" in config["cleanup.policy"] else -1
    return None if retention_ms < 0 else retention_ms


def _offsets_in(answers: Iterable[Partition]) -> dict[TopicPartition, Committed | None]:
    """Return the committed offsets in the client's answers, which have no errors."""
    return {
        TopicPartition(each.topic, each.partition): None
        if each.offset == OFFSET_INVALID
        else Committed(NextOffset(each.offset), each.metadata or "")
        for each in answers
    }
