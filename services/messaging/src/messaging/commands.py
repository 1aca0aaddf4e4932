"""The commands as processes, with the resources that they open and the order they close them in."""

from contextlib import ExitStack
from typing import Any, Final, TypeAlias
from uuid import uuid4

from contracts.records import Block
from messaging import groups
from messaging.load import messages
from messaging.settings import MessagingSettings
from messaging.web import Emitters, build_web
from servicekit.http.server_events import EventStreams
from servicekit.process import serving
from servicekit.process.load import LoadOptions
from servicekit.process.runtime import Runtime, stop_signals
from servicekit.process.table_service import STREAMS_MAX, now_ms
from servicekit.process.workers import stop_with_parent
from servicekit.streams import Streams
from streamtable import Group, Settings

MessagingRuntime: TypeAlias = Runtime[MessagingSettings]
MODULE: Final = "messaging.main"
_THREADS: Final = 16


ROLES: Final = (
    *(each.name for each in (groups.FILTER, groups.COLLECTOR, groups.BLOCKER, groups.TRANSLATOR)),
    groups.DETECTOR.name,
)
"""The roles of processors: each runs a group, except for the detector, which runs a flow."""


def serve_role(runtime: MessagingRuntime, role: str, parent: int | None = None) -> int:
    """Run the group or the flow of a role until stopped, or until the process `parent` has ended."""
    if role == groups.DETECTOR.name:
        return serving.serve_groups(runtime, groups.DETECTOR.groups, parent)
    return serving.serve_groups(runtime, [_group(runtime, role)], parent)


def serve_web(runtime: MessagingRuntime, parent: int | None = None) -> int:
    """Accept messages and send them to Kafka, and serve feeds, until stopped."""
    serving.require_http_callers(runtime)
    with stop_signals(runtime.settings) as signals, ExitStack() as opened:
        if parent is not None:
            stop_with_parent(lambda: signals.ask("the parent process has ended"), parent)
        streams = (groups.MESSAGES, groups.BLOCKS, groups.TRANSLATIONS)
        sent: list[Any] = [
            opened.enter_context(serving.emitting(runtime, stream, signals)) for stream in streams
        ]
        table = groups.collector(runtime.service.group).table
        (feeds,) = opened.enter_context(serving.viewing(runtime, [table], "web"))
        events = EventStreams(Streams(STREAMS_MAX), per_peer=runtime.edge.events_per_peer)
        opened.callback(events.close)
        reachable = sent[0][1]
        app = build_web(
            Emitters(*(emitter for emitter, _ in sent)),
            feeds,
            events,
            ready=lambda: feeds.ready and reachable(),
            metrics=runtime.metrics,
            new_id=uuid4,
            now_ms=now_ms,
            timeouts=runtime.edge.send_timeouts,
            edge=runtime.rest_edge(),
        )
        checks = [lambda: feeds.ready]
        serving.serve_app(runtime, app, signals, *checks, streams=events.streams, threads=_THREADS)
    return 0


def serve_all(settings: Settings) -> int:
    """Run every role and the web service, each in a process of its own, until stopped or until one of them ends."""
    return serving.serve_commands(settings, [[MODULE, role] for role in (*ROLES, "web")])


def send_load(runtime: MessagingRuntime, load: LoadOptions, spammers: int) -> int:
    """Send a load and print the report; 1 if some messages failed."""
    return serving.send_load(runtime, load, [groups.MESSAGES], messages(load, spammers, now_ms), "messages")


def unblock(runtime: MessagingRuntime, user: str) -> int:
    """Unblock a user whom the detector blocks for all recipients; blocks by single users stay, however many there are."""
    with (
        stop_signals(runtime.settings) as signals,
        serving.emitting(runtime, groups.BLOCKS, signals) as (emitter, _),
    ):
        emitter.emit_now(user, Block(by=None, blocked=False))
    return 0


def _group(runtime: MessagingRuntime, role: str) -> Group[str, Any]:
    return groups.collector(runtime.service.group) if role == "collector" else groups.GROUPS[role]
