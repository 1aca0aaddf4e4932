"""What every command shares: settings from the environment and the flags, and a cluster that has answered once."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import typer

from streamtable.errors import ConfigurationError, RetryLater, TransactionPending
from streamtable.kafka import Kafka
from streamtable.kafka.admin import GroupDescription, KafkaAdmin
from streamtable.settings import KAFKA_PREFIX, PREFIX, Settings
from streamtable.types import Committed, TopicPartition
from streamtable_cli.errors import NotFound

T = TypeVar("T")
INTERNAL = "__"
FLAGS = {PREFIX + "BOOTSTRAP_SERVERS": "--bootstrap-servers", PREFIX + "STATE_DIR": "--state-dir"}
_PENDING_S = 2.0
_AGAIN_S = 0.1


@dataclass(frozen=True)
class Session:
    """One run of the command.

    Attributes:
        flags: settings given as flags; they go before the environment's.
        timeout: seconds to wait for each answer of Kafka.
    """

    flags: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold a password
    timeout: float = 2.5

    @cached_property
    def settings(self) -> Settings:
        """Raises `ConfigurationError`; asked for only when needed, so that help is always to be had."""
        try:
            return Settings.from_environment({**os.environ, **self.flags})
        except ConfigurationError as error:
            message = error.message
            for variable in self.flags.keys() & FLAGS.keys():
                message = message.replace(variable, FLAGS[variable])
            raise ConfigurationError(message) from error

    @cached_property
    def kafka(self) -> Kafka:
        settings = self.settings
        return Kafka(
            settings.bootstrap_servers,
            settings.kafka,
            group_protocol=settings.group_protocol,
            admin_timeout=self.timeout,
        )

    @contextmanager
    def admin(self) -> Iterator[KafkaAdmin]:
        """The cluster. Raises `RetryLater` soon if nobody answers at the addresses."""
        admin = self.kafka.admin()
        try:
            admin.brokers()
            yield admin
        finally:
            admin.close()

    def patiently(self, ask: Callable[[], T]) -> T:
        """Ask again until there is an answer or the time is over. Raises the last `RetryLater`."""
        began = time.monotonic()
        while True:
            try:
                return ask()
            except RetryLater as error:
                # Brokers may be slow to answer. That a transaction is pending is an answer: most end within moments.
                pending = isinstance(error, TransactionPending)
                if time.monotonic() - began > (min(_PENDING_S, self.timeout) if pending else self.timeout):
                    raise
                time.sleep(_AGAIN_S)


def session_of(ctx: typer.Context) -> Session:
    found = ctx.find_object(Session)
    return found if found is not None else Session()


def session_from(
    bootstrap_servers: str | None, options: Sequence[str], state_dir: str | None, timeout: float
) -> Session:
    """Raises `typer.BadParameter` for an option of librdkafka without a value."""
    flags = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise typer.BadParameter(
                f"{option!r}: expected NAME=VALUE, for example sasl.username=me", param_hint="--option"
            )
        flags[KAFKA_PREFIX + name.upper().replace(".", "_")] = value
    if bootstrap_servers is not None:
        flags[PREFIX + "BOOTSTRAP_SERVERS"] = bootstrap_servers
    if state_dir is not None:
        flags[PREFIX + "STATE_DIR"] = state_dir
    return Session(flags, timeout)


def partitions_of(admin: KafkaAdmin, topic: str) -> int:
    """How many the topic has. Raises `NotFound`, with the name that was probably meant."""
    known = admin.topic_partitions()
    if topic in known:
        return known[topic]
    close = f"; there is {topic}-table" if f"{topic}-table" in known else ""
    raise NotFound(f"there is no topic {topic!r}{close}")


def places_of(topic: str, partitions: int, only: Iterable[int] = ()) -> list[TopicPartition]:
    """All partitions of a topic, or those asked for. Raises `NotFound` for one that it does not have."""
    wanted = sorted(set(only)) or range(partitions)
    for number in wanted:
        if not 0 <= number < partitions:
            raise NotFound(f"topic {topic!r} has no partition {number}: it has 0 to {partitions - 1}")
    return [TopicPartition(topic, number) for number in wanted]


def describe_groups(
    session: Session, admin: KafkaAdmin, names: Iterable[str]
) -> Mapping[str, GroupDescription]:
    """Those that exist. A coordinator that has just moved or started is asked again."""
    wanted = list(names)
    return session.patiently(lambda: admin.describe_groups(wanted))


def committed_of(session: Session, admin: KafkaAdmin, group: str) -> dict[TopicPartition, Committed]:
    """All that a group has committed, for topics that exist; no pending transaction is overlooked."""
    places = [
        TopicPartition(topic, number)
        for topic, partitions in admin.topic_partitions().items()
        if not topic.startswith(INTERNAL)
        for number in range(partitions)
    ]
    if not places:
        return {}
    found = session.patiently(lambda: admin.stable_offsets(group, places))
    return {place: committed for place, committed in sorted(found.items()) if committed is not None}
