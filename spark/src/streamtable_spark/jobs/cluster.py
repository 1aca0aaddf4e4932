"""What the jobs ask of Kafka beside records, and do to it: the library's administration, by topic and partition."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Self, TypeVar

from streamtable import errors
from streamtable.ports import TopicDescription
from streamtable.types import Committed, Watermarks
from streamtable_spark.errors import ConfigurationError, RetryLater
from streamtable_spark.jobs.kafka import Kafka
from streamtable_spark.jobs.positions import Offsets, Place, first_beyond

T = TypeVar("T")

_ASK_AGAIN_S: Final = 0.2
_REFUSED_S: Final = 2.0  # a broker that starts or stops may break off a handshake


class Cluster:
    """A Kafka cluster.

    Every method raises `RetryLater` when there is no answer in time, and `ConfigurationError` when Kafka does not let the job in
    or does not allow what it asks.

    Args:
        bootstrap_servers: The addresses of the brokers; a `Kafka` where the connection needs TLS or authentication.
        timeout_s: For how many seconds a question is repeated. A transaction of a process that was killed holds committed
            offsets back for up to 20.
    """

    def __init__(self, bootstrap_servers: str, timeout_s: float = 30.0) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._timeout_s = timeout_s
        self._admin = self._answer(Kafka(bootstrap_servers).client().admin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def id(self) -> str:
        """Kafka's name of itself."""
        return self._answer(self._admin.cluster_id)

    # ---- topics ----------------------------------------------------------------------------------------------------

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each has.

        Raises:
            ConfigurationError: A topic does not exist.
        """
        return {name: found.partitions for name, found in self._topics(topics).items()}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each: another one means that the topic was deleted and created again.

        Raises:
            ConfigurationError: one does not exist.
        """
        return {name: found.topic_id for name, found in self._topics(topics).items()}

    def settings(self, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """How each is configured: all of Kafka's settings of topics, by Kafka's names.

        Raises:
            ConfigurationError: one does not exist.
        """
        return {name: found.config for name, found in self._topics(topics).items()}

    def _topics(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        names = list(dict.fromkeys(topics))
        found = self._answer(lambda: self._admin.describe(names))
        if missing := [name for name in names if name not in found]:
            raise ConfigurationError(
                f"Kafka at {self.bootstrap_servers} has no topic {', '.join(map(repr, missing))}: "
                "declare it in topics.yaml and run `streamtable topics apply`"
            )
        return {name: found[name] for name in names}

    def starts(self, topics: Iterable[str]) -> dict[str, Offsets]:
        """The first offset that is still there, of each partition."""
        return _by_topic({place: each.low for place, each in self._watermarks(topics).items()})

    def ends(self, topics: Iterable[str]) -> dict[str, Offsets]:
        """The offset that the next record will get, open transactions included."""
        return _by_topic({place: each.high for place, each in self._watermarks(topics).items()})

    def stable_ends(self, topics: Iterable[str]) -> dict[str, Offsets]:
        """How far committed records can be read: up to the first open transaction."""
        places = self._places(topics)
        return _by_topic(self._answer(lambda: self._admin.stable_ends(places)))

    def wait_stable(self, topic: str, until: Offsets, wait_s: float) -> None:
        """Wait until everything before these offsets can be read: the broker shows a commit a moment after it.

        Raises:
            RetryLater: A transaction is still open there after `wait_s` seconds.
        """
        deadline = time.monotonic() + wait_s
        while True:
            beyond = first_beyond({topic: until}, self.stable_ends([topic]))
            if beyond is None:
                return
            if time.monotonic() > deadline:
                place, offset, end = beyond
                raise RetryLater(
                    f"{place} can be read to {end} only, and {offset} is needed: a transaction is still open "
                    "there; run this again when it has timed out (transaction.timeout.ms of who has begun it)"
                )
            time.sleep(_ASK_AGAIN_S)

    def _watermarks(self, topics: Iterable[str]) -> Mapping[Place, Watermarks]:
        places = self._places(topics)
        return self._answer(lambda: self._admin.watermarks(places))

    def _places(self, topics: Iterable[str]) -> list[Place]:
        """All partitions of these topics."""
        counts = self.partitions(topics)
        return [Place(topic, number) for topic, count in counts.items() for number in range(count)]

    # ---- groups ----------------------------------------------------------------------------------------------------

    def members(self, group: str) -> list[str]:
        """Return the live members of the group, as text; an empty list if there is no such group."""
        found = self._answer(lambda: self._admin.describe_groups([group])).get(group)
        return [] if found is None else [f"{each.client_id} on {each.host}" for each in found.members]

    def committed(self, group: str, topics: Iterable[str]) -> Mapping[Place, Committed | None]:
        """The stable offsets of a group in all partitions of these topics: the answer waits for commits that are under way."""
        places = self._places(topics)
        return self._answer(lambda: self._admin.stable_offsets(group, places))

    def set_offsets(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        """Set the committed offsets of a group without members.

        Raises:
            ConfigurationError: The group has members; none of its offsets was set.
        """
        self._answer(lambda: self._admin.set_offsets(group, offsets))

    def _answer(self, ask: Callable[[], T]) -> T:
        """Ask until there is an answer: brokers that have just started, or moved their work, have none for a while."""
        began = time.monotonic()
        while True:
            try:
                return ask()
            except errors.RetryLater as error:
                waited = time.monotonic() - began
                if isinstance(error, errors.AuthenticationFailed) and waited > _REFUSED_S:
                    raise ConfigurationError(str(error)) from error
                if waited > self._timeout_s:
                    raise RetryLater(
                        f"{error}: start it, check the address (`streamtable doctor` finds what is wrong), or run this again"
                    ) from error
            except (errors.AuthorizationError, errors.ConfigurationError) as error:
                raise ConfigurationError(str(error)) from error
            time.sleep(_ASK_AGAIN_S)


def _by_topic(found: Mapping[Place, int]) -> dict[str, Offsets]:
    by_topic: dict[str, Offsets] = {}
    for place, offset in found.items():
        by_topic.setdefault(place.topic, {})[place.partition] = offset
    return by_topic
