"""What the jobs ask of Kafka beside records, and do to it: topics, offsets, groups."""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from streamtable_spark.errors import ConfigurationError, RetryLater
from streamtable_spark.jobs.kafka import Kafka
from streamtable_spark.jobs.positions import Committed, Offsets, Place

T = TypeVar("T")

_ASK_AGAIN_S: Final = 0.2
_GONE: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID}
_COORDINATOR: Final = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_LEADER: Final = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
_MEMBERS: Final = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
}


_SHUT: Final = {
    KafkaError._AUTHENTICATION: "check STREAMTABLE_KAFKA_SASL_USERNAME, _SASL_PASSWORD and _SASL_MECHANISM",  # noqa: SLF001 - a code
    KafkaError._SSL: "check STREAMTABLE_KAFKA_SSL_CA_LOCATION and the name in the broker's certificate",  # noqa: SLF001 - a code
}
_FORBIDDEN: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_LISTEN_S: Final = 0.1
_AGAIN_S: Final = 12.0  # what stays so is said again every ten seconds
_SHUT_S: Final = 2.0  # a broker that starts or stops may break off a handshake
_ABSENT: Final = 1 / 3  # of the timeout, when no broker is reachable


class _Heard(NamedTuple):
    """What the client has said of its connections: since when, and when last."""

    text: str
    since: float
    last: float


class Cluster:
    """A Kafka cluster.

    Every method raises `RetryLater` when there is no answer in time, and `ConfigurationError` when Kafka does not let the
    job in or does not allow what it asks.

    Args:
        bootstrap_servers: The addresses of the brokers; a `Kafka` where the connection needs TLS or authentication.
        timeout_s: The timeout of each request in seconds.
    """

    def __init__(self, bootstrap_servers: str, timeout_s: float = 30.0) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._timeout_s = timeout_s
        self._kafka = Kafka(bootstrap_servers)
        listening: dict[str, Any] = {**self._kafka.client(), "error_cb": self._hear}
        self._admin = AdminClient(listening)
        self._heard: dict[int, _Heard] = {}
        self._outsiders: dict[str, Consumer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for consumer in self._outsiders.values():
            consumer.close()

    def id(self) -> str:
        """Kafka's name of itself."""
        found: Any = self._result(self._admin.describe_cluster(request_timeout=self._timeout_s))
        return str(found.cluster_id)

    # ---- topics ----------------------------------------------------------------------------------------------------

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each has.

        Raises:
            ConfigurationError: A topic does not exist.
        """
        return {name: len(found.partitions) for name, found in self._topics(topics).items()}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each: another one means that the topic was deleted and created again.

        Raises:
            ConfigurationError: one does not exist.
        """
        return {name: str(found.topic_id) for name, found in self._topics(topics).items()}

    def _topics(self, topics: Iterable[str]) -> dict[str, Any]:
        names = list(dict.fromkeys(topics))
        found = {}
        asked = self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout_s)
        for name, future in asked.items():
            try:
                found[name] = self._result(future)
            except KafkaException as exception:
                if _code(exception) not in _GONE:
                    raise self._silent(exception, f"topic {name!r}") from exception
        if missing := [name for name in names if name not in found]:
            raise ConfigurationError(
                f"Kafka at {self.bootstrap_servers} has no topic {', '.join(map(repr, missing))}: "
                "declare it in topics.yaml and run `streamtable topics apply`"
            )
        return found

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """How each is configured: all of Kafka's settings of topics, by Kafka's names."""
        asked = self._admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name) for name in topics], request_timeout=self._timeout_s
        )
        found = {}
        for resource, future in asked.items():
            try:
                entries = self._result(future)
            except KafkaException as exception:
                raise self._silent(exception, f"topic {resource.name!r}") from exception
            found[resource.name] = {name: str(entry.value) for name, entry in entries.items()}
        return found

    def starts(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        """The first offset that is still there, of each partition; `topics` says how many there are."""
        return self._offsets(topics, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]  # the client's

    def ends(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        """The offset that the next record will get, open transactions included."""
        return self._offsets(topics, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]  # the client's

    def stable_ends(self, topics: Mapping[str, int]) -> dict[str, Offsets]:
        """How far committed records can be read: up to the first open transaction."""
        return self._offsets(topics, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]  # the client's

    def wait_stable(self, topic: str, until: Offsets, wait_s: float) -> None:
        """Wait until everything before these offsets can be read: the broker shows a commit a moment after it.

        Raises:
            RetryLater: A transaction is still open there after `wait_s` seconds.
        """
        deadline = time.monotonic() + wait_s
        while True:
            ends = self.stable_ends({topic: len(until)})[topic]
            behind = [number for number, offset in sorted(until.items()) if ends[number] < offset]
            if not behind:
                return
            if time.monotonic() > deadline:
                place, end = Place(topic, behind[0]), ends[behind[0]]
                raise RetryLater(
                    f"{place} can be read to {end} only, and {until[behind[0]]} is needed: a transaction is still open "
                    "there; run this again when it has timed out (transaction.timeout.ms of who has begun it)"
                )
            time.sleep(_ASK_AGAIN_S)

    def _offsets(
        self, topics: Mapping[str, int], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[str, Offsets]:
        places = [Partition(topic, number) for topic, count in topics.items() for number in range(count)]
        found: dict[str, Offsets] = {topic: {} for topic in topics}
        deadline = time.monotonic() + self._timeout_s
        while places:
            again = self._ask_offsets(places, spec, isolation, found, time.monotonic() < deadline)
            if again:
                time.sleep(_ASK_AGAIN_S)
            places = again
        return found

    def _ask_offsets(
        self,
        places: Sequence[Partition],
        spec: OffsetSpec,
        isolation: IsolationLevel,
        found: dict[str, Offsets],
        patient: bool,  # noqa: FBT001 - of one caller
    ) -> list[Partition]:
        """Add what is answered to `found`. Returns the partitions to ask for again, if there is time left."""
        asked = self._admin.list_offsets(
            dict.fromkeys(places, spec), isolation_level=isolation, request_timeout=self._timeout_s
        )
        again = []
        for place, future in asked.items():
            try:
                offset = self._result(future).offset
            except KafkaException as exception:
                # A topic that was just created, or whose leader has moved: the client learns of it by this answer.
                if patient and _code(exception) in _LEADER:
                    again.append(place)
                    continue
                raise self._silent(exception, f"topic {place.topic!r}") from exception
            if (
                offset < 0
            ):  # a connection lost at the wrong moment: for the client neither an error nor an answer
                raise RetryLater(
                    f"no offset of {place.topic}[{place.partition}] from Kafka yet: run this again"
                )
            found[place.topic][place.partition] = offset
        return again

    # ---- groups ----------------------------------------------------------------------------------------------------

    def members(self, group: str) -> list[str]:
        """Return the live members of the group, as text; an empty list if there is no such group."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            (future,) = self._admin.describe_consumer_groups(
                [group], request_timeout=self._timeout_s
            ).values()
            try:
                found: Any = self._result(future)
                break
            except KafkaException as exception:
                if _code(exception) in (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID):
                    return []
                # A new cluster's coordinators, or those of a broker that has just gone, are not found at once.
                if _code(exception) not in _COORDINATOR or time.monotonic() > deadline:
                    raise self._silent(exception, f"group {group!r}") from exception
            time.sleep(_ASK_AGAIN_S)
        if found.state is ConsumerGroupState.DEAD:
            return []
        return [f"{each.client_id} on {each.host.removeprefix('/')}" for each in found.members]

    def committed(self, group: str, topics: Mapping[str, int]) -> dict[Place, Committed | None]:
        """The stable offsets of a group: the answer waits for commits that are under way.

        Args:
            group: The name of the group.
            topics: The number of partitions of each topic, by its name.
        """
        places = [Partition(topic, number) for topic, count in topics.items() for number in range(count)]
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                answers = self._outsider(group).committed(places, timeout=self._timeout_s)
                errors = [each.error for each in answers if each.error is not None]
                if not errors:
                    return {
                        Place(each.topic, each.partition): None
                        if each.offset == OFFSET_INVALID
                        else Committed(each.offset, each.metadata or "")
                        for each in answers
                    }
                last = KafkaException(errors[0])
            except KafkaException as exception:
                last = exception
            if time.monotonic() > deadline:
                raise self._silent(last, f"group {group!r}") from last
            time.sleep(_ASK_AGAIN_S)

    def set_offsets(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        """Set the committed offsets of a group without members.

        Raises:
            ConfigurationError: The group has members; none of its offsets was set.
        """
        new_offsets = [
            Partition(place.topic, place.partition, each.next_offset, each.metadata)
            for place, each in offsets.items()
        ]
        # By a consumer that never joins: the admin client ends the process when the broker disconnects while it
        # looks for the group's coordinator.
        try:
            answers = self._outsider(group).commit(offsets=new_offsets, asynchronous=False) or []
        except KafkaException as exception:
            raise self._not_set(group, exception) from exception
        for each in answers:  # the call itself succeeds when single partitions are refused
            if each.error is not None:
                raise self._not_set(group, KafkaException(each.error))

    def _not_set(self, group: str, exception: KafkaException) -> ConfigurationError | RetryLater:
        if _code(exception) in _MEMBERS:
            return ConfigurationError(
                f"the offsets of group {group!r} were not set: it has members now; stop them and run this again"
            )
        return self._silent(exception, f"group {group!r}")

    def _outsider(self, group: str) -> Consumer:
        if group not in self._outsiders:
            self._outsiders[group] = Consumer(
                {
                    **self._kafka.client(),
                    "group.id": group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",  # else offsets of a commit under way are answered as the old ones
                }
            )
        return self._outsiders[group]

    def _result(self, future: Future[T]) -> T:
        began = time.monotonic()
        while True:
            try:
                return future.result(_LISTEN_S)
            except TimeoutError:
                self._admin.poll(0)
                for code, advice in _SHUT.items():
                    if self._since(code, began) > _SHUT_S:
                        raise ConfigurationError(
                            f"Kafka at {self.bootstrap_servers} does not let this job in: {self._reason()}: {advice}"
                        ) from None
                waited = time.monotonic() - began
                absent = self._since(KafkaError._ALL_BROKERS_DOWN, began)  # noqa: SLF001 - a code
                if waited > self._timeout_s + 1 or absent > self._timeout_s * _ABSENT:
                    raise RetryLater(
                        f"no answer from Kafka at {self.bootstrap_servers} in {waited:.0f} s{self._reason(': ')}: start it, "
                        "check the address, or run this again"
                    ) from None

    def _hear(self, error: KafkaError) -> None:
        """What the client says of its connections; only `poll` calls this."""
        now = time.monotonic()
        before = self._heard.get(error.code())
        since = before.since if before is not None and now - before.last < _AGAIN_S else now
        self._heard[error.code()] = _Heard(error.str(), since, now)

    def _since(self, code: int, began: float) -> float:
        """For how many seconds this has been so, while waiting for one answer; 0: it is not so, or not any more."""
        now, heard = time.monotonic(), self._heard.get(code)
        return now - max(heard.since, began) if heard is not None and now - heard.last < _AGAIN_S else 0.0

    def _reason(self, before: str = "") -> str:
        """Why there is no connection, as far as the client has said so."""
        down = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - a code
        reasons = [heard.text for code, heard in self._heard.items() if code != down]
        if down in self._heard:  # the client gives no reason when a broker just hangs up
            reasons.insert(0, "connections are closed at once; is STREAMTABLE_KAFKA_SECURITY_PROTOCOL right?")
        return before + reasons[-1] if reasons else ""

    def _silent(self, exception: KafkaException, what: str = "") -> RetryLater | ConfigurationError:
        error: KafkaError = exception.args[0]
        if error.code() in _FORBIDDEN:
            return ConfigurationError(
                f"Kafka at {self.bootstrap_servers} does not allow this ({error.name()}{f' of {what}' if what else ''}): "
                "give the job's user the right"
            )
        self._admin.poll(0)
        return RetryLater(
            f"no answer from Kafka at {self.bootstrap_servers} ({error.name()}: {error.str()}{self._reason(': ')}): "
            "check the address, or run this again"
        )


def _code(exception: KafkaException) -> int:
    error: KafkaError = exception.args[0]
    code: int = error.code()
    return code
