"""The commands as processes: what they open, and in which order they close it."""

import secrets
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Final
from uuid import uuid4

import structlog

from click_count import topics
from click_count.emitter import ACKNOWLEDGED_SECONDS, ClickEmitter, build_emitter
from click_count.load import Load, progress_bar, send
from click_count.query import build_query
from click_count.runtime import Reachable, Runtime, operations, wait_for_topic, wait_to_stop
from click_count.top import TopList
from click_count.view import SERVICE_NAME, ClickCountsService
from servicekit.events import EventStreams
from servicekit.grpc_server import GrpcServer
from servicekit.pages import Cursors
from servicekit.process import StopSignals, say
from servicekit.server import HttpServer
from servicekit.streams import Streams
from streamtable import Emitter, View
from streamtable.errors import StreamtableError

log = structlog.get_logger()
_STREAMS: Final = 64
_ANSWER_SECONDS: Final = 2.0  # for questions that a readiness probe waits for


def serve_emitter(runtime: Runtime) -> int:
    """Take clicks until stopped; those that were accepted are sent."""
    settings = runtime.settings
    with StopSignals() as signals, ExitStack() as opened:
        cluster = replace(runtime.kafka, admin_timeout=_ANSWER_SECONDS).cluster()
        opened.callback(cluster.close)
        wait_for_topic(cluster, topics.USER_CLICKS.name, settings.start_timeout, signals)
        emitter = Emitter(topics.USER_CLICKS, runtime.kafka)
        # Whatever is not acknowledged by then has been answered as unknown: nobody waits for it.
        opened.callback(_close, emitter, ACKNOWLEDGED_SECONDS)
        app = build_emitter(
            emitter,
            ready=Reachable(cluster, topics.USER_CLICKS.name),
            metrics=runtime.metrics,
            new_id=uuid4,
            now_ms=lambda: time.time_ns() // 1_000_000,
            docs=runtime.service.docs,
        )
        server = HttpServer(app, settings.http_address.host, settings.http_address.port)
        server.start()
        opened.callback(server.stop)
        wait_to_stop(signals)
    return 0


def serve_view(runtime: Runtime) -> int:
    """Answer gRPC until stopped."""
    settings = runtime.settings
    with StopSignals() as signals, ExitStack() as opened:
        view = opened.enter_context(_view(runtime, "view"))
        opened.enter_context(operations(runtime, "view", lambda: view.ready))
        streams = Streams(_STREAMS)
        service = ClickCountsService(view, streams)
        server = GrpcServer(
            settings.grpc_address.host,
            settings.grpc_address.port,
            service.register,
            ready=lambda: view.ready,
            streams=streams,
            services=[SERVICE_NAME] if runtime.service.reflection else [],
        )
        server.start()
        opened.callback(server.stop)
        wait_to_stop(signals, lambda: view.ready)
    return 0


def serve_query(runtime: Runtime) -> int:
    """Answer REST until stopped."""
    settings = runtime.settings
    secret = runtime.service.cursor_secret
    with StopSignals() as signals, ExitStack() as opened:
        view = opened.enter_context(_view(runtime, "query"))
        top = TopList(view)
        top.start()
        opened.callback(top.close)
        events = EventStreams(Streams(_STREAMS))
        opened.callback(events.close)
        app = build_query(
            view,
            top,
            Cursors(secret.encode() if secret is not None else secrets.token_bytes(32)),
            events,
            metrics=runtime.metrics,
            docs=runtime.service.docs,
        )
        server = HttpServer(
            app, settings.http_address.host, settings.http_address.port, streams=events.streams
        )
        server.start()
        opened.callback(server.stop)
        wait_to_stop(signals, lambda: view.ready, top.check)
    return 0


def send_load(runtime: Runtime, load: Load) -> int:
    """Send a load, wait for its acknowledgements and print the report; 1 if some clicks failed."""
    settings = runtime.settings
    with StopSignals() as signals, ExitStack() as opened:
        cluster = replace(runtime.kafka, admin_timeout=_ANSWER_SECONDS).cluster()
        opened.callback(cluster.close)
        wait_for_topic(cluster, topics.USER_CLICKS.name, settings.start_timeout, signals)
        emitter = Emitter(topics.USER_CLICKS, runtime.kafka)
        begun = time.monotonic()
        with progress_bar(load) as progress:
            report = send(load, emitter, lambda seconds: signals.wait(seconds) is not None, progress)
        _close(emitter, settings.shutdown_timeout)
    say(report.text(time.monotonic() - begun))
    return 1 if report.errors else 0


def _view(runtime: Runtime, name: str) -> View[str, int]:
    table = topics.by_count(runtime.service.group).table
    state_dir = runtime.settings.state_dir
    return View(table, runtime.kafka, state_dir=state_dir, name=name, metrics=runtime.measured)


def _close(emitter: ClickEmitter, seconds: float) -> None:
    """Wait for what was sent. Failures were answered, or counted, where they happened."""
    try:
        emitter.close(seconds)
    except StreamtableError as error:
        log.warning("clicks were not acknowledged", reason=str(error))
