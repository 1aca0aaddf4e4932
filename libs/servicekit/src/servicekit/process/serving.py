"""Runs the roles of services: emitters, loads, processors, views, and the servers in front of them."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final, TypeVar

import structlog
from fastapi import FastAPI

from servicekit.http.produce import SendTimeouts
from servicekit.output import say
from servicekit.process.load import LoadOptions, send
from servicekit.process.runtime import (
    Reachable,
    Runtime,
    S,
    operations,
    stop_signals,
    wait_for_topic,
    wait_to_stop,
)
from servicekit.process.signals import StopSignals
from servicekit.process.workers import Worker, run_workers, stop_with_parent
from streamtable import App, Emitter, Group, Kafka, Processor, Settings, Stream, Table, View
from streamtable.base.settings import Address
from streamtable.base.types import Ack
from streamtable.errors import ConfigurationError, StreamtableError
from streamtable.observe import progress_on

V = TypeVar("V")
log = structlog.get_logger()


Reading = Callable[[Runtime[Any], Sequence[Table[Any, Any]], str], AbstractContextManager[list[Any]]]
"""Opens tables for reading, for a block; the last argument distinguishes the processes that share a `state_dir`."""
Answering = Callable[
    [Runtime[Any]], tuple[Kafka, Callable[[Sequence[Processor]], AbstractContextManager[Any]]]
]
_ANSWER_SECONDS: Final = 2.0  # for requests that a readiness probe waits for


@contextmanager
def emitting(
    runtime: Runtime[S], stream: Stream[str, V], signals: StopSignals, timeouts: SendTimeouts | None = None
) -> Iterator[tuple[Emitter[str, V], Reachable]]:
    """Yield an emitter for the block, and a check whether Kafka responds. At the end, pending records are awaited.

    Args:
        runtime: Settings and cluster.
        stream: The stream to send to.
        signals: Ends the wait for the broker.
        timeouts: The timeouts of deliveries and of the final wait; default: those of requests.

    Raises:
        TopicMismatch: The topic does not exist.
        RetryLater: No response within the setting `start_timeout`.
    """
    timeouts = timeouts or runtime.edge.send_timeouts
    cluster = replace(runtime.kafka, admin_timeout=_ANSWER_SECONDS).cluster()
    try:
        wait_for_topic(cluster, stream.name, runtime.settings.start_timeout, signals)
        emitter = Emitter(stream, runtime.kafka, delivery_timeout=timeouts.delivery)
        runtime.status.sends(stream.name)
        try:
            yield emitter, Reachable(cluster, stream.name)
        finally:
            # Records not acknowledged by then were reported as unknown: no request waits for them.
            _close(emitter, timeouts.wait)
    finally:
        cluster.close()


def _close(emitter: Emitter[str, V], seconds: float) -> None:
    """Wait for pending records. Failures were answered or counted where they happened."""
    try:
        emitter.close(seconds)
    except StreamtableError as error:
        log.warning("records were not acknowledged", reason=str(error))


def send_load(
    runtime: Runtime[S],
    load: LoadOptions,
    streams: Sequence[Stream[str, Any]],
    records: Iterator[tuple[str, Any]],
    what: str,
    stream_of: Callable[[Any], int] = lambda _: 0,
) -> int:
    """Send a load, wait for its acknowledgements and print the report. Returns 1 if some records failed.

    Args:
        runtime: Settings and cluster.
        load: The number and the rate of the records.
        streams: The streams to send to.
        records: Keys and records, without end.
        what: The name of the records in the plural, for the report.
        stream_of: Returns the index of the stream that a record belongs to.
    """
    timeouts = load_timeouts(runtime.settings)
    with stop_signals(runtime.settings) as signals:
        with ExitStack() as opened:
            emitters = [
                opened.enter_context(emitting(runtime, each, signals, timeouts))[0] for each in streams
            ]
            bar = opened.enter_context(closing(progress_on(sys.stderr)))
            begun = time.monotonic()

            def emit(key: str, record: Any) -> Future[Ack]:
                return emitters[stream_of(record)].emit(key, record)

            def show(sent: int) -> None:
                bar.update(what, sent, load.total or sent)

            report = send(load, records, emit, lambda seconds: signals.wait(seconds) is not None, show)
        say(report.text(time.monotonic() - begun, what))
    return 1 if report.errors else 0


def load_timeouts(settings: Settings) -> SendTimeouts:
    """Return the timeouts of a load: its records time out before the final wait ends."""
    seconds = settings.shutdown_timeout
    return SendTimeouts(delivery=0.9 * seconds, wait=seconds)


def serve_groups(
    runtime: Runtime[S],
    groups: Sequence[Group[Any, Any]],
    parent: int | None = None,
    answering: Answering | None = None,
) -> int:
    """Process groups in this process until stopped.

    Args:
        runtime: Settings and cluster.
        groups: A group alone, or all groups of a flow.
        parent: The id of the parent process; this one stops when it has ended.
        answering: Returns the cluster as the processors should connect to it, and a function that opens what answers others
            from them while they run.
    """
    kafka, beside = (runtime.kafka, nullcontext) if answering is None else answering(runtime)
    app = App.from_settings(runtime.settings, kafka=kafka, metrics=runtime.measured)
    processors = [app.processor(group) for group in groups]
    for group, processor in zip(groups, processors, strict=True):
        runtime.status.processes(group, processor)

    def stop() -> None:
        for each in processors:
            each.stop()

    if parent is not None:
        stop_with_parent(stop, parent)

    def not_ready() -> str:
        return "; ".join(filter(None, (each.not_ready for each in processors)))

    ready = operations(runtime, "processor", lambda: all(each.ready for each in processors), not_ready)
    with ready, beside(processors):
        app.run_all(processors)
    return 0


def serve_commands(settings: Settings, commands: Sequence[Sequence[str]]) -> int:
    """Run commands, each in a process with its own instance id and metrics port.

    Args:
        settings: The settings of this process.
        commands: The module and arguments of each; `--parent` and this process's id are added.

    Raises:
        ConfigurationError: An instance id with a number is too long, or a port is too high.
    """
    workers = [_worker(settings, command, number) for number, command in enumerate(commands, 1)]
    return run_workers(workers, stop_seconds=settings.shutdown_timeout + 5)


def _worker(settings: Settings, command: Sequence[str], number: int) -> Worker:
    own: dict[str, Any] = {"instance_id": f"{settings.instance_id}-{number}"}
    address = settings.metrics_address
    if address is not None and address.port != 0:
        own["metrics_address"] = Address(address.host, address.port + number - 1)
    environment = {f"STREAMTABLE_{name.upper()}": str(value) for name, value in own.items()}
    try:
        replace(settings, **own)
    except ConfigurationError as error:
        given = " and ".join(f"{name}={value}" for name, value in environment.items())
        raise ConfigurationError(f"process {number} of several would have {given}: {error.message}") from None
    return Worker([sys.executable, "-m", *command, "--parent", str(os.getpid())], environment)


def local(runtime: Runtime[S], name: str) -> App:
    """Return an App for views and tails; `name` distinguishes the processes that share a `state_dir`."""
    return App(runtime.kafka, runtime.views_dir, name=name, metrics=runtime.measured)


@contextmanager
def viewing(
    runtime: Runtime[S], tables: Sequence[Table[Any, Any]], name: str
) -> Iterator[list[View[Any, Any]]]:
    """Open views of tables for the block."""
    with local(runtime, name) as app:
        yield [app.view(table) for table in tables]


def require_http_callers(runtime: Runtime[S]) -> None:
    """Refuse a REST address that other machines can reach without authentication, before anything starts."""
    runtime.require_callers("STREAMTABLE_HTTP_ADDRESS", runtime.settings.http_address)


def serve_app(
    runtime: Runtime[S], app: FastAPI, signals: StopSignals, *checks: Callable[[], object], **server: Any
) -> None:
    """Serve an application at the address of the settings until stopped, or until a check raises an error.

    Args:
        runtime: Settings and limits.
        app: The application.
        signals: Ends the server.
        checks: Called every second.
        server: Arguments of `Runtime.http_server`.
    """
    require_http_callers(runtime)
    http = runtime.http_server(app, runtime.settings.http_address, **server)
    http.start()
    try:
        wait_to_stop(signals, *checks)
    finally:
        http.stop()
