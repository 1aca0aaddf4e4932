"""The commands as processes: what they open, and in which order they close it."""

import os
import sys
import time
from contextlib import ExitStack
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

from contracts.records import Block
from messaging import groups
from messaging.load import messages
from messaging.settings import MessagingSettings
from messaging.web import Emitters, build_web
from servicekit.http.server_events import EventStreams
from servicekit.process import serving
from servicekit.process.load import Load
from servicekit.process.runtime import Reachable, Runtime, wait_to_stop
from servicekit.process.signals import StopSignals
from servicekit.process.workers import Worker, run_workers, stop_with_parent
from servicekit.streams import Streams
from streamtable import App, Emitter, Group, Settings, Stream
from streamtable.settings import Address

V = TypeVar("V")
MessagingRuntime: TypeAlias = Runtime[MessagingSettings]
MODULE: Final = "messaging.main"
_STREAMS: Final = 64
_THREADS: Final = 16


def serve_role(runtime: MessagingRuntime, role: str, parent: int | None = None) -> int:
    """Process the group of a role until stopped, or until the process `parent` has gone."""
    return serving.serve_group(runtime, _group(runtime, role), parent)


def serve_web(runtime: MessagingRuntime, parent: int | None = None) -> int:
    """Take messages and tell feeds until stopped; what was accepted is sent."""
    state_dir = runtime.views_dir
    with StopSignals() as signals, ExitStack() as opened:
        if parent is not None:
            stop_with_parent(lambda: signals.ask("the parent has gone"), parent)

        def emitter(stream: Stream[str, V]) -> tuple[Emitter[str, V], Reachable]:
            return opened.enter_context(serving.emitting(runtime, stream, signals))

        messages_out, reachable = emitter(groups.MESSAGES)
        emitters = Emitters(messages_out, emitter(groups.BLOCKS)[0], emitter(groups.TRANSLATIONS)[0])
        table = groups.collector(runtime.service.group).table
        feeds = opened.enter_context(
            App(runtime.kafka, state_dir, name="web", metrics=runtime.measured).view(table)
        )
        events = EventStreams(Streams(_STREAMS), per_peer=runtime.edge.events_per_peer)
        opened.callback(events.close)
        app = build_web(
            emitters,
            feeds,
            events,
            ready=lambda: feeds.ready and reachable(),
            metrics=runtime.metrics,
            new_id=uuid4,
            now_ms=_now_ms,
            timeouts=runtime.edge.send_timeouts,
            edge=runtime.rest_edge(),
        )
        server = runtime.http_server(app, runtime.settings.http_address, events.streams, _THREADS)
        server.start()
        opened.callback(server.stop)
        wait_to_stop(signals, lambda: feeds.ready)
    return 0


def serve_all(settings: Settings) -> int:
    """Run every role and the web service, each in a process of its own, until stopped or until one of them ends."""
    workers = [_worker(settings, role, number) for number, role in enumerate([*groups.GROUPS, "web"])]
    return run_workers(workers, stop_seconds=settings.shutdown_timeout + 5)


def send_load(runtime: MessagingRuntime, load: Load, spammers: int) -> int:
    """Send a load and print the report; 1 if some messages failed."""
    return serving.send_load(runtime, load, [groups.MESSAGES], messages(load, spammers, _now_ms), "messages")


def unblock(runtime: MessagingRuntime, user: str) -> int:
    """Take back that a user is blocked for everybody; blocks by single users stay."""
    with (
        StopSignals() as signals,
        serving.emitting(runtime, groups.BLOCKS, signals) as (emitter, _),
    ):
        emitter.emit_now(user, Block(by=None, blocked=False))
    return 0


def _group(runtime: MessagingRuntime, role: str) -> Group[str, Any]:
    return groups.collector(runtime.service.group) if role == "collector" else groups.GROUPS[role]


def _worker(settings: Settings, role: str, number: int) -> Worker:
    address = settings.metrics_address
    environment = {}
    if address is not None and address.port != 0:
        environment["STREAMTABLE_METRICS_ADDRESS"] = str(Address(address.host, address.port + number))
    return Worker([sys.executable, "-m", MODULE, role, "--parent", str(os.getpid())], environment)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
