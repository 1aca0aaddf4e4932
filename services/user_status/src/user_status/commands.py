"""The commands as processes: what they open, and in which order they close it."""

import secrets
import time
from contextlib import ExitStack
from typing import Final, TypeAlias
from uuid import uuid4

from contracts.records import UserStatus
from servicekit import serving
from servicekit.events import EventStreams
from servicekit.load import Load
from servicekit.own_writes import OwnWrites
from servicekit.pages import Cursors
from servicekit.process import StopSignals
from servicekit.runtime import Runtime, wait_to_stop
from servicekit.streams import Streams
from streamtable import App, Group
from user_status import topics
from user_status.emitter import build_emitter
from user_status.load import updates
from user_status.query import Tables, build_query
from user_status.settings import StatusSettings
from user_status.view import SERVICE_NAME, UserStatusesService

StatusRuntime: TypeAlias = Runtime[StatusSettings]
_STREAMS: Final = 64
_READ_THREADS: Final = 8


def group_of(runtime: StatusRuntime) -> Group[str, UserStatus]:
    """The group that the settings name."""
    service = runtime.service
    return topics.statuses(service.group, service.clicks_group, service.max_ahead_seconds)


def serve_emitter(runtime: StatusRuntime) -> int:
    """Take statuses until stopped; those that were accepted are sent."""
    with StopSignals() as signals, ExitStack() as opened:
        emitter, ready = opened.enter_context(serving.emitting(runtime, topics.UPDATES, signals))
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


def serve_view(runtime: StatusRuntime) -> int:
    """Answer gRPC until stopped."""
    table, state_dir = group_of(runtime).table, runtime.views_dir
    view = App(runtime.kafka, state_dir, metrics=runtime.measured).view(table)
    return serving.serve_table(runtime, view, UserStatusesService, SERVICE_NAME)


def serve_query(runtime: StatusRuntime) -> int:
    """Answer REST until stopped."""
    secret = runtime.service.cursor_secret
    with StopSignals() as signals, ExitStack() as opened:
        views = opened.enter_context(
            App(runtime.kafka, runtime.views_dir, name="query", metrics=runtime.measured)
        )
        statuses = views.view(group_of(runtime).table)
        clicks = views.view(topics.click_counts(runtime.service.clicks_group))
        events = EventStreams(Streams(_STREAMS), per_peer=runtime.edge.events_per_peer)
        opened.callback(events.close)
        writes = OwnWrites(
            {topics.UPDATES.name: statuses, topics.USER_CLICKS: clicks}, runtime.service.wait_seconds
        )
        opened.callback(writes.close)
        app = build_query(
            Tables(statuses, clicks),
            Cursors(secret.encode() if secret is not None else secrets.token_bytes(32)),
            events,
            writes,
            metrics=runtime.metrics,
            edge=runtime.rest_edge(),
        )
        server = runtime.http_server(app, runtime.settings.http_address, events.streams, _READ_THREADS)
        server.start()
        opened.callback(server.stop)
        wait_to_stop(signals, lambda: statuses.ready and clicks.ready)
    return 0


def send_load(runtime: StatusRuntime, load: Load) -> int:
    """Send a load and print the report; 1 if some updates failed."""
    return serving.send_load(runtime, load, topics.UPDATES, updates(load, _now_ms), "updates")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
