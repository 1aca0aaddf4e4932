"""The console as a process, with the resources that it opens and the order it closes them in."""

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Final, TypeAlias

from console.backlog import backlog
from console.clusters import CLIENT_NAME, SMALL_QUEUES, Clusters
from console.collector import Collector
from console.decode import PageDecoder, released_schemas
from console.examination import Examination
from console.lags import Lags
from console.letters import DeadLetters
from console.runs import Runs
from console.settings import ConsoleSettings
from console.sign_in import PARAMETER, RANDOM_BYTES, SignIn
from console.tables import Tables
from console.web import AUDITED, PAGE, Parts, build_web
from contracts import records
from servicekit.auth.authentication import ApiKey, ApiKeys
from servicekit.http.app import HttpEdge
from servicekit.http.audit import AuditTrail
from servicekit.http.server_events import EventStreams
from servicekit.output import say
from servicekit.process.runtime import Runtime, stop_signals, wait_for_topic, wait_to_stop
from servicekit.streams import Streams
from streamtable import App, Bytes, Table
from streamtable.errors import ConfigurationError
from streamtable_admin.cluster import connect

ConsoleRuntime: TypeAlias = Runtime[ConsoleSettings]
STATUS_TOPIC: Final = "streamtable-status"
RUNS_TOPIC: Final = "streamtable-runs"
_ANSWER_SECONDS: Final = 4.0
_STREAMS: Final = 64
_THREADS: Final = 16


def serve(runtime: ConsoleRuntime) -> int:
    """Show all processes until stopped.

    Raises:
        ConfigurationError: Actions are on without authentication, or there is no status topic.
    """
    if runtime.service.actions and not runtime.edge.authenticates:
        raise ConfigurationError(
            "CONSOLE_ACTIONS=true: callers must authenticate: set SERVICEKIT_API_KEYS, or SERVICEKIT_JWT_..."
        )
    address: list[str] = []  # known once the server listens
    sign_in = _sign_in(runtime, lambda code: say(f"open {address[0]}/?{PARAMETER}={code}"))
    topic = runtime.edge.status_topic or STATUS_TOPIC
    runs_topic = runtime.edge.runs_topic or RUNS_TOPIC
    options = {**SMALL_QUEUES, **runtime.kafka.options}
    kafka = replace(runtime.kafka, options=options, admin_timeout=_ANSWER_SECONDS)
    with stop_signals(runtime.settings) as signals, ExitStack() as opened:
        cluster = opened.enter_context(connect(kafka, client_name=CLIENT_NAME))
        wait_for_topic(cluster.admin, topic, runtime.settings.start_timeout, signals)
        state_dir = runtime.views_dir
        own = App(kafka, state_dir, name="console", metrics=runtime.measured)
        view = opened.enter_context(own.view(Table(topic, Bytes(), Bytes())))
        settings = {"actions": runtime.service.actions, "runs_topic": runs_topic}
        decoder = PageDecoder(released_schemas(records))
        clusters = Clusters(kafka)
        examination = Examination(kafka)
        collector = Collector(
            view, cluster, settings, Lags(cluster), examination, partial(backlog, clusters, topic)
        )
        tables = Tables(kafka, state_dir, clusters, decoder, runtime.measured)
        opened.callback(tables.close)
        for each in (examination, collector):
            each.start()
            opened.callback(each.stop)
        events = EventStreams(Streams(_STREAMS), per_peer=runtime.edge.events_per_peer)
        opened.callback(events.close)
        letters, runs = DeadLetters(clusters), Runs(tables, runs_topic)
        actions = runtime.service.actions
        parts = Parts(collector, clusters, tables, letters, runs, decoder, events, actions)
        edge = _edge(runtime, sign_in)
        app = build_web(
            parts,
            ready=lambda: view.ready,
            metrics=runtime.metrics,
            edge=edge,
            not_ready=lambda: view.not_ready,
            sign_in=sign_in,
        )
        server = runtime.http_server(app, runtime.settings.http_address, events.streams, _THREADS)
        url = server.start()
        opened.callback(server.stop)
        if sign_in is not None:
            address.append(runtime.service.url or _local(url))
            sign_in.start()
        wait_to_stop(signals, lambda: view.ready)
    return 0


def _sign_in(runtime: ConsoleRuntime, announce: Callable[[str], None]) -> SignIn | None:
    """Return the sessions of browsers; None if the settings define callers."""
    if not runtime.edge.authenticates:
        token = runtime.service.token or secrets.token_urlsafe(RANDOM_BYTES)
        secure = (runtime.service.url or "").startswith("https:")
        return SignIn("streamtable-console", token, announce, secure=secure)
    if runtime.service.token is not None:
        raise ConfigurationError(
            "CONSOLE_TOKEN: callers already authenticate with SERVICEKIT_API_KEYS or SERVICEKIT_JWT_...: unset one of them"
        )
    return None


def _edge(runtime: ConsoleRuntime, sign_in: SignIn | None) -> HttpEdge:
    """Return the authentication of requests; the page's own files hold no data, and are public."""
    edge = runtime.rest_edge()
    edge = replace(
        edge,
        public=frozenset(PAGE),
        browsers=replace(edge.browsers, reads=True),
        read_scope="console",
        write_scope="replay",
    )
    if runtime.note is not None and runtime.edge.audit is not False:
        edge = replace(edge, audit=AuditTrail(runtime.note, AUDITED))
    if sign_in is None:
        return edge
    holder = ApiKey("console token", frozenset({"console"}), sha256(sign_in.token.encode()).digest())
    return replace(
        edge, session=sign_in.credential, admission=runtime.edge.admission(runtime.name, ApiKeys([holder]))
    )


def _local(url: str) -> str:
    """Return a URL that a browser on this machine can open, even if the server listens on all addresses."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
