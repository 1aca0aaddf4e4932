"""The parts that the commands of services share: settings, logs, metrics, the cluster, and exit codes for errors."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar

import structlog
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from servicekit.auth.access import Admission
from servicekit.http.app import HttpEdge, build_app
from servicekit.http.audit import AuditEntry, AuditTrail
from servicekit.http.connections import ConnectionLimits
from servicekit.http.metrics import HttpMetrics
from servicekit.http.origins import BrowserRules
from servicekit.http.server import HttpServer
from servicekit.output import complain
from servicekit.process.auditing import auditing
from servicekit.process.edge_settings import EdgeSettings
from servicekit.process.service_settings import ServiceSettings
from servicekit.process.signals import StopSignals, allow_connections
from servicekit.process.tracing import trace_settings, tracing
from servicekit.status.publisher import StatusBoard, publishing
from servicekit.streams import Streams
from servicekit.tracing import ServerTracer
from streamtable import Kafka, Settings
from streamtable.base.hosts import OwnHosts, is_loopback, is_unspecified
from streamtable.base.ports import TopicInfo
from streamtable.base.process import require_address_space
from streamtable.base.settings import Address
from streamtable.errors import (
    AuthorizationError,
    ConfigurationError,
    RetryLater,
    StreamtableError,
    TopicMismatch,
)
from streamtable.observe import Metrics, configure_logging, metrics_page

S = TypeVar("S", bound=ServiceSettings)
log = structlog.get_logger()
VERSION: Final = "1.0.0"
EXIT_CONFIGURATION: Final = 2
_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.5
_FAIL_FAST_SECONDS: Final = 3.0
_CLOSE_SECONDS: Final = 30.0  # for closing all that a service has, beside its last acknowledgements


class ClusterTopics(Protocol):
    """Reports which topics exist; `streamtable`'s cluster does."""

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        """Return those of these topics that exist. Raises `RetryLater`."""


@dataclass(frozen=True)
class Runtime(Generic[S]):
    """The environment of a command; `name` is the service's name."""

    name: str
    settings: Settings
    service: S
    edge: EdgeSettings
    admission: Admission
    kafka: Kafka
    registry: CollectorRegistry
    measured: Metrics
    http: HttpMetrics
    status: StatusBoard
    tracer: ServerTracer | None = None
    note: Callable[[AuditEntry], None] | None = None

    @property
    def views_dir(self) -> Path:
        """The folder of this process's views: other services and instances have their own in the same `state_dir`."""
        return self.settings.state_dir / "services" / f"{self.name}-{self.settings.instance_id}"

    def rest_edge(self) -> HttpEdge:
        """Return the layers in front of a REST application of this process."""
        browsers = BrowserRules(self.own_hosts)
        return HttpEdge(
            self.admission,
            self.http,
            self.tracer,
            self.edge.metrics_public,
            self.service.docs,
            browsers=browsers,
            audit=AuditTrail(self.note) if self.note and self.edge.audits else None,
            proxies=self.edge.proxies,
        )

    def require_callers(self, variable: str, address: Address, *, certificates: bool = False) -> None:
        """Refuse to serve other machines without authentication, unless the settings explicitly allow it.

        Servers with only `/livez`, `/readyz` and `/metrics` need none: these paths need no credential.

        Args:
            variable: The setting of the address.
            address: The address at which rows are served or events are accepted.
            certificates: Whether callers need a client certificate.

        Raises:
            ConfigurationError: Other machines can reach the address, and callers are not authenticated.
        """
        if is_loopback(address.host) or self.edge.authenticates or certificates:
            return
        if not self.edge.allow_unauthenticated:
            raise ConfigurationError(
                f"{variable}={address}: other machines can reach it, and callers are not authenticated: set SERVICEKIT_API_KEYS or "
                "SERVICEKIT_JWT_..., or SERVICEKIT_ALLOW_UNAUTHENTICATED=true if every machine that reaches it may read and "
                "write; nothing was started"
            )
        log.warning("callers are not authenticated", address=str(address))

    @property
    def own_hosts(self) -> OwnHosts:
        """The hosts that the REST servers of this process answer to."""
        addresses = (self.settings.http_address, self.settings.metrics_address)
        bound = {each.host.lower() for each in addresses if each}
        return OwnHosts(self.edge.hosts | {host for host in bound if not is_unspecified(host)})

    def http_server(
        self, app: ASGIApp, address: Address, streams: Streams | None = None, threads: int = 40
    ) -> HttpServer:
        """Return a server for the application with the limits of the settings; its `stop` ends `streams`."""
        if isinstance(app, FastAPI):
            self.status.serves(app.title.removeprefix(f"{self.name} "), app.state.ready)
        connections = self.edge.connections
        allow_connections(connections, f"SERVICEKIT_CONNECTIONS={connections}")
        limits = ConnectionLimits(connections, self.edge.connections_per_peer, proxies=self.edge.proxies)
        dropped = self.http.count_dropped
        return HttpServer(app, *address, streams=streams, threads=threads, limits=limits, dropped=dropped)

    def metrics(self) -> bytes:
        """Return the metrics page for Prometheus."""
        return metrics_page(self.registry)


@dataclass(frozen=True)
class Program(Generic[S]):
    """A service as a program with commands.

    Attributes:
        name: The name of its command.
        settings: The class of its settings.
        topic: A topic that the service needs; `--fail-fast` checks that it exists.
    """

    name: str
    settings: type[S]
    topic: str

    @property
    def environment(self) -> str:
        """Return the text about variables and exit codes at the end of each command's help."""
        own = ", ".join(self.settings.variables())
        return (
            "Settings: STREAMTABLE_BOOTSTRAP_SERVERS, STREAMTABLE_STATE_DIR, STREAMTABLE_HTTP_ADDRESS, "
            "STREAMTABLE_GRPC_ADDRESS, STREAMTABLE_METRICS_ADDRESS, STREAMTABLE_INSTANCE_ID, STREAMTABLE_LOG_LEVEL and "
            f"the other variables of the library; {own}; SERVICEKIT_API_KEYS, SERVICEKIT_RATE_LIMIT and the other "
            "variables of the servers. Exit codes: 0 stopped in order, 1 failed, 2 wrong settings."
        )

    def run(self, command: Callable[[Runtime[S]], int], *, fail_fast: bool = False) -> int:
        """Read the settings, run a command and return the exit code: 2 for invalid settings, 1 for failures.

        Args:
            command: The command to run.
            fail_fast: Fail if Kafka does not respond at once; otherwise the command waits for it.
        """
        try:
            require_address_space()
            settings = Settings.from_environment()
            service = self.settings.from_environment(os.environ)
            edge = EdgeSettings.from_environment(os.environ)
            traces = trace_settings(os.environ, self.name, settings.instance_id)
            registry = CollectorRegistry()
            measured = Metrics.register(registry)
            configure_logging(settings.log_format, settings.log_level, sys.stderr, measured.log_lost.inc)
            kafka = Kafka.from_settings(settings)
            if fail_fast and (silence := self._silence(kafka)):
                complain(silence)
                return 1
            admission, http = edge.admission(self.name), HttpMetrics.register(registry)
            status = StatusBoard(self.name, settings.instance_id)
            with (
                tracing(traces) as tracer,
                publishing(status, registry, kafka, edge.status_topic),
                auditing(self.name, settings.instance_id, kafka, edge.audit_topic) as note,
            ):
                traced = kafka if tracer is None else replace(kafka, tracer=tracer)
                parts = (settings, service, edge, admission, traced, registry, measured, http, status, tracer)
                return command(Runtime(self.name, *parts, note))
        except ConfigurationError as error:
            complain(str(error))
            return EXIT_CONFIGURATION
        except StreamtableError as error:
            log.exception("stopped by an error", error=type(error).__name__)
            return 1

    def _silence(self, kafka: Kafka) -> str | None:
        """Return why Kafka cannot be reached; empty if it can."""
        cluster = replace(kafka, admin_timeout=_FAIL_FAST_SECONDS).cluster()
        # A right that is missing means that the broker responds; not every command needs this topic.
        with closing(cluster), suppress(AuthorizationError):
            try:
                cluster.topics([self.topic])
            except RetryLater as error:
                return str(error)
        return None


@contextmanager
def operations(
    runtime: Runtime[S], command: str, ready: Callable[[], bool], not_ready: Callable[[], str] = lambda: ""
) -> Iterator[None]:
    """Serve `/livez`, `/readyz` and `/metrics` at STREAMTABLE_METRICS_ADDRESS, if that is set."""
    runtime.status.serves(command, ready)
    address = runtime.settings.metrics_address
    if address is None:
        yield
        return
    edge = runtime.rest_edge()
    title = f"{runtime.name} {command}"
    app = build_app(title, VERSION, ready=ready, metrics=runtime.metrics, edge=edge, not_ready=not_ready)
    server = runtime.http_server(app, address)
    server.start()
    try:
        yield
    finally:
        server.stop()


def stop_signals(settings: Settings) -> StopSignals:
    """Return the signals that stop a service, which ends in bounded time after the first."""
    return StopSignals(settings.shutdown_timeout + _CLOSE_SECONDS)


def wait_to_stop(signals: StopSignals, *checks: Callable[[], object]) -> None:
    """Wait for a signal, and raise the errors of `checks`, which are called every second."""
    try:
        while (reason := signals.wait(_LOOK_SECONDS)) is None:
            for check in checks:
                check()
    finally:
        signals.end_in_time()
    log.info("stopping", reason=reason)


def wait_for_topic(cluster: ClusterTopics, topic: str, seconds: float | None, signals: StopSignals) -> None:
    """Wait until the broker responds, and return if the topic exists, or when a signal arrives.

    Raises:
        TopicMismatch: The topic does not exist.
        RetryLater: No response within `seconds`; None waits without limit.
    """
    end = math.inf if seconds is None else time.monotonic() + seconds
    while True:
        try:
            found = cluster.topics([topic])
        except RetryLater as error:
            if time.monotonic() >= end:
                raise
            log.warning("waiting for Kafka", reason=str(error))
        else:
            if topic not in found:
                raise TopicMismatch(
                    f"there is no topic {topic!r}: declare it in topics.yaml and run 'streamtable topics apply'",
                    topic=topic,
                )
            return
        if (reason := signals.wait(_RETRY_SECONDS)) is not None:
            signals.ask(reason)
            return


class Reachable:
    """Whether Kafka responds, checked at most every few seconds. Any thread.

    Args:
        cluster: The cluster to ask.
        topic: The topic to ask for.
        seconds: The time for which a result is valid.
    """

    def __init__(self, cluster: ClusterTopics, topic: str, seconds: float = 3.0) -> None:
        self._cluster = cluster
        self._topic = topic
        self._seconds = seconds
        self._lock = Lock()
        self._asked_at: float | None = None
        self._answer = False

    def __call__(self) -> bool:
        with self._lock:
            if self._asked_at is None or time.monotonic() - self._asked_at > self._seconds:
                self._answer = False
                with suppress(RetryLater, AuthorizationError):
                    self._answer = self._topic in self._cluster.topics([self._topic])
                self._asked_at = time.monotonic()
            return self._answer
