"""The commands as processes: what they open, and in which order they close it."""

import time
from concurrent.futures import Future
from contextlib import ExitStack
from enum import StrEnum
from typing import Final, TypeAlias, cast
from uuid import uuid4

from contracts.records import Follow, Reach, Tweet
from microbatch import BatchMetrics, BatchProcessor, MicroBatch
from microbatch.store_settings import service_store
from servicekit import serving
from servicekit.events import EventStreams
from servicekit.load import Load, progress_bar, send
from servicekit.process import StopSignals, say
from servicekit.runtime import Runtime, operations, wait_to_stop
from servicekit.sending import RecordEmitter
from servicekit.streams import Streams
from servicekit.top import TopList, TopMetrics
from servicekit.workers import stop_with_parent
from streamtable import App, View
from streamtable.types import Ack
from tweet_reach import topics
from tweet_reach.emitter import build_emitter
from tweet_reach.load import events
from tweet_reach.query import build_query
from tweet_reach.search import Search
from tweet_reach.settings import ReachSettings
from tweet_reach.view import SERVICE_NAME, TweetReachesService

ReachRuntime: TypeAlias = Runtime[ReachSettings]
MODULE: Final = "tweet_reach.main"
_STREAMS: Final = 64
_READ_THREADS: Final = 8


class Stage(StrEnum):
    """Which of the two stages a process works on."""

    AUTHORS = "authors"
    URLS = "urls"


def serve_emitter(runtime: ReachRuntime) -> int:
    """Take tweets and followers until stopped; those that were accepted are sent."""
    with StopSignals() as signals, ExitStack() as opened:
        tweets, ready = opened.enter_context(serving.emitting(runtime, topics.TWEETS, signals))
        follows, ready_too = opened.enter_context(serving.emitting(runtime, topics.FOLLOWS, signals))
        app = build_emitter(
            tweets,
            follows,
            ready=lambda: ready() and ready_too(),
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


def serve_stages(runtime: ReachRuntime, stage: Stage | None, workers: int, parent: int | None) -> int:
    """Process until stopped: one stage in this process, or as many processes of each stage as there are to be."""
    stages = [stage] if stage is not None else list(Stage)
    service_store(runtime.settings.store)  # refused here, not by each of the processes
    if stage is None or workers > 1:
        commands = [[MODULE, "processor", "--stage", each] for each in stages for _ in range(workers)]
        return serving.serve_commands(runtime.settings, commands)
    return _serve_stage(runtime, stage, parent)


def _serve_stage(runtime: ReachRuntime, stage: Stage, parent: int | None) -> int:
    processor = BatchProcessor.from_settings(
        stage_of(stage, runtime.service),
        runtime.settings,
        kafka=runtime.kafka,
        metrics=runtime.measured,
        batch_metrics=BatchMetrics.register(runtime.registry),
    )
    runtime.status.processes(processor.group, processor)
    if parent is not None:
        stop_with_parent(processor.stop, parent)
    with operations(runtime, "processor", lambda: processor.ready, lambda: processor.not_ready):
        processor.run()
    return 0


def stage_of(stage: Stage, settings: ReachSettings) -> MicroBatch:
    """A stage as the settings say."""
    from tweet_reach.stages import authors_stage, urls_stage  # noqa: PLC0415 - 23 MB of sketches, for processors

    if stage is Stage.AUTHORS:
        return authors_stage(
            settings.group, settings.batch_seconds, max_ahead_seconds=settings.max_ahead_seconds
        )
    return urls_stage(settings.group, settings.batch_seconds)


def serve_view(runtime: ReachRuntime) -> int:
    """Answer gRPC until stopped."""
    return serving.serve_table(runtime, _view(runtime, "view"), TweetReachesService, SERVICE_NAME)


def serve_query(runtime: ReachRuntime) -> int:
    """Answer REST until stopped."""
    with StopSignals() as signals, ExitStack() as opened:
        view = opened.enter_context(_view(runtime, "query"))
        measured = TopMetrics.register(runtime.registry)
        top = TopList(view, lambda row: row["reach"], metrics=measured)
        top.start()
        opened.callback(top.close)
        streams = EventStreams(Streams(_STREAMS), per_peer=runtime.edge.events_per_peer)
        opened.callback(streams.close)
        search = _search(runtime, opened)
        app = build_query(
            view, top, streams, metrics=runtime.metrics, edge=runtime.rest_edge(), search=search
        )
        server = runtime.http_server(app, runtime.settings.http_address, streams.streams, _READ_THREADS)
        server.start()
        opened.callback(server.stop)
        wait_to_stop(signals, lambda: view.ready, top.check)
    return 0


def _search(runtime: ReachRuntime, opened: ExitStack) -> Search | None:
    """Searches the rows of the first stage, if they are where that can be done."""
    store = service_store(runtime.settings.store)
    if store.kind != "elasticsearch":
        return None
    from microbatch.searching import Searcher  # noqa: PLC0415 - its client doubles the time that a start takes
    from tweet_reach.stages import TWEETED_ROWS  # noqa: PLC0415 - as in `stage_of`

    group = stage_of(Stage.AUTHORS, runtime.service)
    searcher = Searcher(group, TWEETED_ROWS, runtime.kafka.cluster(), store.driver(group.name))
    opened.callback(searcher.close)
    return lambda words, limit: [match.value for match in searcher.search({"text": words}, limit=limit)]


class _Both:
    """Sends each event of a load to its topic."""

    def __init__(self, tweets: RecordEmitter[Tweet], follows: RecordEmitter[Follow]) -> None:
        self._tweets = tweets
        self._follows = follows

    def emit(self, key: str, value: Tweet | Follow) -> Future[Ack]:
        if "follower" in value:
            return self._follows.emit(key, cast("Follow", value))
        return self._tweets.emit(key, value)

    def close(self, timeout: float) -> None:
        """Each is closed by whoever has opened it."""


def send_load(runtime: ReachRuntime, load: Load) -> int:
    """Send a load and print the report; 1 if some events failed."""
    timeouts = serving.load_timeouts(runtime.settings)
    with StopSignals() as signals:
        with (
            serving.emitting(runtime, topics.TWEETS, signals, timeouts) as (tweets, _),
            serving.emitting(runtime, topics.FOLLOWS, signals, timeouts) as (follows, _),
            progress_bar(load, "events") as progress,
        ):
            begun = time.monotonic()
            both = _Both(tweets, follows)
            made = events(load, _now_ms)
            report = send(load, made, both, lambda seconds: signals.wait(seconds) is not None, progress)
        say(report.text(time.monotonic() - begun, "events"))
    return 1 if report.errors else 0


def _view(runtime: ReachRuntime, name: str) -> View[str, Reach]:
    table = topics.reaches(runtime.service.group)
    state_dir = runtime.views_dir
    return App(runtime.kafka, state_dir, name=name, metrics=runtime.measured).view(table)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
