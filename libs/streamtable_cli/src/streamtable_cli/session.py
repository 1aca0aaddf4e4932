"""The session that all commands share: settings from the environment and flags, and a connection to the cluster."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import typer

from streamtable import Kafka
from streamtable.auth import named
from streamtable.base.settings import KAFKA_PREFIX, PREFIX, Settings
from streamtable.errors import ConfigurationError
from streamtable_admin.cluster import Cluster, connect
from streamtable_cli.terminal import Terminal

FLAGS = {PREFIX + "BOOTSTRAP_SERVERS": "--bootstrap-servers", PREFIX + "STATE_DIR": "--state-dir"}


@dataclass(frozen=True)
class CommandSession:
    """One run of the command.

    Attributes:
        flags: Settings given as flags; they override the environment.
        timeout: The seconds to wait for each response of Kafka.
    """

    flags: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold a password
    timeout: float = 2.5

    @cached_property
    def settings(self) -> Settings:
        """The settings, read at first use, so that help works without them. Raises `ConfigurationError`."""
        try:
            return Settings.from_environment({**os.environ, **self.flags})
        except ConfigurationError as error:
            message = error.message
            for variable in self.flags.keys() & FLAGS.keys():
                message = message.replace(variable, FLAGS[variable])
            raise ConfigurationError(message) from error

    @contextmanager
    def unchecked_cluster(self, at_least: float = 0.0) -> Iterator[Cluster]:
        """Open the cluster without checking that it responds."""
        s, timeout = self.settings, max(self.timeout, at_least)
        token = named(s.kafka_token)
        kafka = Kafka(s.bootstrap_servers, s.kafka, s.group_protocol, admin_timeout=timeout, token=token)
        with connect(kafka, timeout=timeout, client_name="streamtable-cli", observer=Terminal()) as cluster:
            yield cluster

    @contextmanager
    def cluster(self, at_least: float = 0.0) -> Iterator[Cluster]:
        """Open the cluster. Raises `RetryLater` quickly if no broker responds.

        Args:
            at_least: The minimum seconds to wait for each response, for changes of the cluster.
        """
        with self.unchecked_cluster(at_least) as cluster:
            cluster.admin.brokers()
            yield cluster


def session_of(ctx: typer.Context) -> CommandSession:
    found = ctx.find_object(CommandSession)
    return found if found is not None else CommandSession()


def session_from(
    bootstrap_servers: str | None, options: Sequence[str], state_dir: str | None, timeout: float
) -> CommandSession:
    """Return the session that the flags describe. Raises `typer.BadParameter` for an option without a value."""
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
    return CommandSession(flags, timeout)
