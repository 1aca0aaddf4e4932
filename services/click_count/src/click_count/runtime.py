"""What the commands have in common: settings, logs, metrics, the cluster, and how errors end a process."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

import structlog
from prometheus_client import CollectorRegistry

from click_count.settings import ServiceSettings
from servicekit.process import StopSignals
from servicekit.rest import build_app
from servicekit.server import HttpServer
from streamtable import Kafka, Settings, kafka_from
from streamtable.errors import ConfigurationError, RetryLater, StreamtableError, TopicMismatch
from streamtable.observe import Metrics, configure_logging, metrics_page
from streamtable.ports import TopicInfo

log = structlog.get_logger()
VERSION: Final = "1.0.0"
EXIT_CONFIGURATION: Final = 2
_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.5


class Topics(Protocol):
    """Knows topics; `streamtable`'s cluster does."""

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        """Those that exist. Raises `RetryLater`."""
        ...


@dataclass(frozen=True)
class Runtime:
    """What a command works with."""

    settings: Settings
    service: ServiceSettings
    kafka: Kafka
    registry: CollectorRegistry
    measured: Metrics

    def metrics(self) -> bytes:
        """The page for Prometheus."""
        return metrics_page(self.registry)


def run(command: Callable[[Runtime], int]) -> int:
    """Read the settings, run a command and return the exit code: 2 with a text for wrong settings, 1 for failures."""
    try:
        settings = Settings.from_environment()
        service = ServiceSettings.from_environment(os.environ)
        configure_logging(settings.log_format, settings.log_level, sys.stderr)
        registry = CollectorRegistry()
        measured = Metrics.register(registry)
        return command(Runtime(settings, service, kafka_from(settings), registry, measured))
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIGURATION
    except StreamtableError as error:
        log.exception("stopped by an error", error=type(error).__name__)
        return 1


@contextmanager
def operations(runtime: Runtime, name: str, ready: Callable[[], bool]) -> Iterator[None]:
    """Serve `/livez`, `/readyz` and `/metrics` where STREAMTABLE_METRICS_ADDRESS says, if it does."""
    address = runtime.settings.metrics_address
    if address is None:
        yield
        return
    app = build_app(f"click-count {name}", VERSION, ready=ready, metrics=runtime.metrics)
    server = HttpServer(app, address.host, address.port)
    server.start()
    try:
        yield
    finally:
        server.stop()


def wait_to_stop(signals: StopSignals, *checks: Callable[[], object]) -> None:
    """Wait for a signal; raise what one of `checks` raises, which are asked every second."""
    while (reason := signals.wait(_LOOK_SECONDS)) is None:
        for check in checks:
            check()
    log.info("stopping", reason=reason)


def wait_for_topic(cluster: Topics, topic: str, seconds: float, signals: StopSignals) -> None:
    """Wait until the broker answers, and return if it has the topic, or when a signal arrives meanwhile.

    Raises:
        TopicMismatch: there is no such topic.
        RetryLater: no answer in that many seconds.
    """
    end = time.monotonic() + seconds
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
    """Whether Kafka answers, asked for at most every few seconds. Any thread.

    Args:
        cluster: to ask.
        topic: to ask for.
        seconds: that an answer is good for.
    """

    def __init__(self, cluster: Topics, topic: str, seconds: float = 3.0) -> None:
        self._cluster = cluster
        self._topic = topic
        self._seconds = seconds
        self._lock = Lock()
        self._asked_at: float | None = None
        self._answer = False

    def __call__(self) -> bool:
        with self._lock:
            if self._asked_at is None or time.monotonic() - self._asked_at > self._seconds:
                try:
                    self._answer = self._topic in self._cluster.topics([self._topic])
                except RetryLater:
                    self._answer = False
                self._asked_at = time.monotonic()
            return self._answer
