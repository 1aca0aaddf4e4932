"""The commands as processes: what they open, and in which order they close it."""

import secrets
import time
from contextlib import ExitStack
from typing import Final, TypeAlias
from uuid import uuid4

from click_count import topics
from click_count.emitter import build_emitter
from click_count.load import clicks
from click_count.query import build_query
from click_count.settings import ClickSettings
from click_count.view import SERVICE_NAME, ClickCountsService
from servicekit import serving
from servicekit.events import EventStreams
from servicekit.load import Load
from servicekit.own_writes import OwnWrites
from servicekit.pages import Cursors
from servicekit.process import StopSignals
from servicekit.runtime import Runtime, wait_to_stop
from servicekit.streams import Streams
from servicekit.top import TopList, TopMetrics
from streamtable import App, View

ClickRuntime: TypeAlias = Runtime[ClickSettings]
_STREAMS: Final = 64
_READ_THREADS: Final = 8


def serve_emitter(runtime: ClickRuntime) -> int:
    """Take clicks until stopped; those that were accepted are sent."""
    with StopSignals() as signals, ExitStack() as opened:
        emitter, ready = opened.enter_context(serving.emitting(runtime, topics.USER_CLICKS, signals))
        app = build_emitter(
            emitter,
            ready=ready,
            metrics=runtime.metrics,
            new_id=uuid4,
            now_ms=_now_ms,
            max_ahead_seconds=runtime.service.max_ahead_seconds,
            timeouts=runtime.edge.send_timeouts,
            edge=runtime.rest_edge(),
        )
        server = runtime.http_server(app, runtime.settings.http_address)
        server.start()
        opened.callback(server.stop)
        wait_to_stop(signals)
    return 0


def serve_view(runtime: ClickRuntime) -> int:
    """Answer gRPC until stopped."""
    return serving.serve_table(runtime, _view(runtime, "view"), ClickCountsService, SERVICE_NAME)


def serve_query(runtime: ClickRuntime) -> int:
    """Answer REST until stopped."""
    secret = runtime.service.cursor_secret
    with StopSignals() as signals, ExitStack() as opened:
        view = opened.enter_context(_view(runtime, "query"))
        top = TopList(view, int, metrics=TopMetrics.register(runtime.registry))
        top.start()
        opened.callback(top.close)
        events = EventStreams(Streams(_STREAMS), per_peer=runtime.edge.events_per_peer)
        opened.callback(events.close)
        writes = OwnWrites({topics.USER_CLICKS.name: view}, runtime.service.wait_seconds)
        opened.callback(writes.close)
        app = build_query(
            view,
            top,
            Cursors(secret.encode() if secret is not None else secrets.token_bytes(32)),
            events,
            metrics=runtime.metrics,
            edge=runtime.rest_edge(),
            writes=writes,
        )
        server = runtime.http_server(app, runtime.settings.http_address, events.streams, _READ_THREADS)
        server.start()
        opened.callback(server.stop)
        wait_to_stop(signals, lambda: view.ready, top.check)
    return 0


def send_load(runtime: ClickRuntime, load: Load) -> int:
    """Send a load and print the report; 1 if some clicks failed."""
    return serving.send_load(runtime, load, topics.USER_CLICKS, clicks(load, _now_ms), "clicks")


def _view(runtime: ClickRuntime, name: str) -> View[str, int]:
    table = topics.by_count(runtime.service.group).table
    state_dir = runtime.views_dir
    return App(runtime.kafka, state_dir, name=name, metrics=runtime.measured).view(table)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
