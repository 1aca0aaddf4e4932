"""The console as a process: what it opens, and in which order it closes it."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from console.backlog import backlog
from console.clusters import CLIENT_NAME, Clusters
from console.collector import Collector
from console.decode import PageDecoder, released_schemas
from console.lags import Lags
from console.letters import DeadLetters
from console.runs import Runs
from console.settings import ConsoleSettings
from console.tables import Tables
from console.web import PAGE, Parts, build_web
from contracts import records
from servicekit.http.server_events import EventStreams
from servicekit.process.runtime import Runtime, wait_for_topic, wait_to_stop
from servicekit.process.signals import StopSignals
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
        ConfigurationError: Actions are on without authentication; or there is no status topic.
    """
    if runtime.service.actions and not (runtime.edge.api_keys or runtime.edge.jwt_algorithm):
        raise ConfigurationError(
            "CONSOLE_ACTIONS=true: callers have to authenticate: set SERVICEKIT_API_KEYS, or SERVICEKIT_JWT_..."
        )
    topic = runtime.edge.status_topic or STATUS_TOPIC
    runs_topic = runtime.edge.runs_topic or RUNS_TOPIC
    kafka = replace(runtime.kafka, admin_timeout=_ANSWER_SECONDS)
    with StopSignals() as signals, ExitStack() as opened:
        cluster = opened.enter_context(connect(kafka, client_name=CLIENT_NAME))
        wait_for_topic(cluster.admin, topic, runtime.settings.start_timeout, signals)
        state_dir = runtime.views_dir
        view = opened.enter_context(
            App(kafka, state_dir, name="console", metrics=runtime.measured).view(
                Table(topic, Bytes(), Bytes())
            )
        )
        settings = {"actions": runtime.service.actions, "runs_topic": runs_topic}
        decoder = PageDecoder(released_schemas(records))
        clusters = Clusters(kafka)
        collector = Collector(view, cluster, settings, Lags(cluster), partial(backlog, clusters, topic))
        tables = Tables(kafka, state_dir, clusters, decoder, runtime.measured)
        opened.callback(tables.close)
        collector.start()
        opened.callback(collector.stop)
        events = EventStreams(Streams(_STREAMS), per_peer=runtime.edge.events_per_peer)
        opened.callback(events.close)
        parts = Parts(
            collector,
            clusters,
            tables,
            DeadLetters(clusters),
            Runs(tables, runs_topic),
            decoder,
            events,
            runtime.service.actions,
        )
        edge = runtime.rest_edge()
        edge = replace(edge, public=frozenset(PAGE), browsers=replace(edge.browsers, reads=True))
        app = build_web(parts, ready=lambda: view.ready, metrics=runtime.metrics, edge=edge)
        server = runtime.http_server(app, runtime.settings.http_address, events.streams, _THREADS)
        server.start()
        opened.callback(server.stop)
        wait_to_stop(signals, lambda: view.ready)
    return 0
