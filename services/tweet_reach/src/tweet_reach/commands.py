"""The commands as processes, with the resources that they open and the order they close them in."""

from contextlib import ExitStack
from enum import StrEnum
from typing import Final, TypeAlias

from fastapi import FastAPI

from microbatch import BatchMetrics, BatchProcessor, MicroBatch
from microbatch.store_settings import service_store
from servicekit.process import serving
from servicekit.process.runtime import Runtime, operations
from servicekit.process.table_service import QueryContext
from servicekit.process.workers import stop_with_parent
from tweet_reach.query import build_query
from tweet_reach.search import Search
from tweet_reach.settings import ReachSettings

ReachRuntime: TypeAlias = Runtime[ReachSettings]
MODULE: Final = "tweet_reach.main"
_STREAMS: Final = 64
_READ_THREADS: Final = 8


class Stage(StrEnum):
    """The stage that a process runs."""

    AUTHORS = "authors"
    URLS = "urls"


def serve_stages(runtime: ReachRuntime, stage: Stage | None, workers: int, parent: int | None) -> int:
    """Process until stopped: one stage in this process, or both, each in the given number of processes."""
    stages = [stage] if stage is not None else list(Stage)
    service_store(runtime.settings.store)  # rejected here, not in each of the processes
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
    """Return the stage with its settings."""
    from tweet_reach.stages import authors_stage, urls_stage  # noqa: PLC0415 - 23 MB of sketches, for processors

    if stage is Stage.AUTHORS:
        return authors_stage(
            settings.group, settings.batch_seconds, max_ahead_seconds=settings.max_ahead_seconds
        )
    return urls_stage(settings.group, settings.batch_seconds)


def query_of(query: QueryContext[ReachSettings]) -> FastAPI:
    """Build the query service; it can search tweets if the central store supports it."""
    (reaches,) = query.views
    assert query.top is not None
    search = _search(query.runtime, query.opened)
    return build_query(
        reaches, query.top, query.events, metrics=query.runtime.metrics, edge=query.edge, search=search
    )


def _search(runtime: ReachRuntime, opened: ExitStack) -> Search | None:
    """Return a search over the rows of the first stage, if their store supports it."""
    store = service_store(runtime.settings.store)
    if store.kind != "elasticsearch":
        return None
    from microbatch.searching import Searcher  # noqa: PLC0415 - its client doubles the start time
    from tweet_reach.stages import TWEETED_ROWS  # noqa: PLC0415 - as in `stage_of`

    group = stage_of(Stage.AUTHORS, runtime.service)
    searcher = Searcher(group, TWEETED_ROWS, runtime.kafka.cluster(), store.driver(group.name))
    opened.callback(searcher.close)
    return lambda words, limit: [match.value for match in searcher.search({"text": words}, limit=limit)]
