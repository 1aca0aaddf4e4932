"""Metadata, offsets and groups of a Kafka cluster, for the jobs: the library's administration by topic and partition."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Self, TypeVar

from streamtable import Bytes, Stream, errors
from streamtable.base.ports import TopicDescription
from streamtable.base.types import Committed, Watermarks
from streamtable_spark.errors import ConfigurationError, RetryLater
from streamtable_spark.jobs.kafka import Kafka
from streamtable_spark.jobs.positions import Offsets, Place, first_beyond

T = TypeVar("T")
Topics = Mapping[str, TopicDescription]
"""Topics as Kafka describes them, by their names."""

_ASK_AGAIN_S: Final = 0.2
_REFUSED_S: Final = 2.0  # a broker that is starting or stopping may abort a handshake


class Cluster:
    """A Kafka cluster.

    Every method raises `RetryLater` when there is no answer in time, and `ConfigurationError` when Kafka refuses the
    authentication of the job or does not authorize the request.

    Args:
        bootstrap_servers: The addresses of the brokers; a `Kafka` where the connection needs TLS or authentication.
        timeout_s: How many seconds a request is retried. The open transaction of a killed process holds
            committed offsets back for up to 20 seconds.
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
        """Return the id that Kafka gives the cluster."""
        return self._answer(self._admin.cluster_id)

    # ---- topics ----------------------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str]) -> Topics:
        """Describe topics, with all of their settings. The id of one changes when it is deleted and created again.

        Raises:
            ConfigurationError: A topic does not exist.
        """
        names = list(dict.fromkeys(names))
        # A stream refuses a name that no topic can have; Kafka's answer looks like an error that passes.
        found = self._answer(
            lambda: self._admin.describe([Stream(name, Bytes(), Bytes()).name for name in names])
        )
        if missing := [name for name in names if name not in found]:
            raise ConfigurationError(
                f"Kafka at {self.bootstrap_servers} has no topic {', '.join(map(repr, missing))}: correct --group, or the argument that names it; or declare it in topics.yaml and run `streamtable topics apply`"
            )
        return {name: found[name] for name in names}

    def starts(self, topics: Iterable[str]) -> dict[str, Offsets]:
        """Return the first available offset of each partition."""
        return _by_topic({place: each.low for place, each in self._watermarks(topics).items()})

    def ends(self, topics: Iterable[str]) -> dict[str, Offsets]:
        """Return the end offset of each partition, open transactions included."""
        return _by_topic({place: each.high for place, each in self._watermarks(topics).items()})

    def stable_ends(self, topics: Iterable[str]) -> dict[str, Offsets]:
        """Return the last stable offset of each partition: committed records can be read up to it."""
        places = self._places(topics)
        return _by_topic(self._answer(lambda: self._admin.stable_ends(places)))

    def wait_stable(self, topic: str, until: Offsets, wait_s: float = 60.0) -> None:
        """Wait until all records before these offsets can be read: a commit becomes visible with a short delay.

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
                    f"{place} can be read to {end} only, and {offset} is needed: a transaction is still open there; run this again when it has timed out (transaction.timeout.ms of who has begun it)"
                )
            time.sleep(_ASK_AGAIN_S)

    def _watermarks(self, topics: Iterable[str]) -> Mapping[Place, Watermarks]:
        places = self._places(topics)
        return self._answer(lambda: self._admin.watermarks(places))

    def _places(self, topics: Iterable[str]) -> list[Place]:
        """Return all partitions of these topics."""
        found = self.topics(topics).values()
        return [Place(topic.name, number) for topic in found for number in range(topic.partitions)]

    # ---- groups ----------------------------------------------------------------------------------------------------

    def members(self, group: str) -> list[str]:
        """Return the live members of the group, as text; an empty list if there is no such group."""
        found = self._answer(lambda: self._admin.describe_groups([group])).get(group)
        return [] if found is None else [f"{each.client_id} on {each.host}" for each in found.members]

    def committed(self, group: str, topics: Iterable[str]) -> Mapping[Place, Committed | None]:
        """Return a group's stable committed offsets in all partitions of these topics, after pending commits have ended."""
        places = self._places(topics)
        return self._answer(lambda: self._admin.stable_offsets(group, places))

    def set_offsets(self, group: str, offsets: Mapping[Place, Committed]) -> None:
        """Set the committed offsets of a group without members.

        Raises:
            ConfigurationError: The group has members; none of its offsets was set.
        """
        self._answer(lambda: self._admin.set_offsets(group, offsets))

    def _answer(self, ask: Callable[[], T]) -> T:
        """Retry a request until it is answered: brokers that have just started, or moved partitions, fail for a while."""
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
