"""A service of a table, declared in one place: emitter, load generator, processor, view (gRPC) and query (REST)."""

import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import uuid4

import typer
from fastapi import FastAPI

from servicekit.http.app import HttpEdge
from servicekit.http.cursors import Cursors
from servicekit.http.emitter_api import EmitterApi
from servicekit.http.read_your_writes import ReadYourWrites
from servicekit.http.server_events import EventStreams
from servicekit.http.table_api import TableApi
from servicekit.process import options, serving
from servicekit.process.load import LoadOptions
from servicekit.process.runtime import Program, Runtime, stop_signals
from servicekit.process.service_settings import ServiceSettings
from servicekit.streams import Streams
from servicekit.tables.top_list import TopList, TopMetrics
from streamtable import Group, Stream, Table, Tail, Topology, View

if TYPE_CHECKING:
    from servicekit.grpc.table_service import TableContract

S = TypeVar("S", bound=ServiceSettings)
V = TypeVar("V")
STREAMS_MAX: Final = 1000
_READ_THREADS: Final = 8  # few: handlers compute, and share one interpreter with the server


@dataclass(frozen=True)
class QueryContext(Generic[S]):
    """The parts that a query application is built from.

    Attributes:
        runtime: Settings and cluster.
        views: Views of the tables, in their order.
        top: The ranking of the first table; None: the service declares none.
        cursors: Signs the cursors of pages.
        events: Server-sent events.
        writes: Waits for the writes that requests name.
        edge: Authentication, limits and instruments.
        opened: An exit stack for resources that a builder opens.
        windows: Views of the windowed tables, by name.
        closed: Tails of the topics of closed windows, by name.
    """

    runtime: Runtime[S]
    views: Sequence[View[str, Any]]
    top: TopList[Any] | None
    cursors: Cursors
    events: EventStreams
    writes: ReadYourWrites
    edge: HttpEdge
    opened: ExitStack
    windows: Mapping[str, View[Any, Any]] = field(default_factory=dict)
    closed: Mapping[str, Tail[Any, Any]] = field(default_factory=dict)

    def of(self, api: TableApi[Any]) -> FastAPI:
        """Return the application of an API over the first table."""
        return api.build(
            self.views[0],
            self.top,
            self.cursors,
            self.events,
            metrics=self.runtime.metrics,
            edge=self.edge,
            writes=self.writes,
            windows=self.windows,
            closed=self.closed,
        )


@dataclass(frozen=True)
class Texts:
    """The help texts of the service and its commands."""

    service: str
    emitter: str = "Accept events over REST on STREAMTABLE_HTTP_ADDRESS and write them to Kafka."
    load: str = "Write generated events to Kafka and report the acknowledged rate."
    processor: str = "Compute the table from the events."
    view: str = "Serve a local copy of the table over gRPC, on STREAMTABLE_GRPC_ADDRESS."
    query: str = "Serve a local copy of the table over REST, on STREAMTABLE_HTTP_ADDRESS."


@dataclass(frozen=True)
class TableService(Generic[S, V]):
    """A service of a table; `command_line` makes its commands.

    Attributes:
        program: The name, the settings, and a topic that the service needs.
        module: The module whose commands worker processes run.
        texts: The help texts.
        streams: The streams that the emitter writes to.
        what: The name of its events, in the plural.
        emitter: The REST API of the emitter.
        query: The REST API of the query service, or a function that builds its application.
        group: Returns the group that makes the table; None: a flow does, or the service has a command `processor` of its
            own.
        flow: Returns the flow that makes the tables, all of whose groups each processor runs; None: a group does.
        tables: Returns the queried tables, by the topics whose events they are computed from; the view serves the
            first. Default: the group's table, computed from the first stream.
        view: The gRPC service of the view; None: there is no view.
        windows: Returns the windowed tables that are queried besides, by name.
        closed: Returns the topics of closed windows that are followed, by name.
        number: Returns the number that rows are ranked by; None: there is no ranking.
        load: Generates the events of a load, with their keys, without end; its second argument is the clock. None: there
            is no load generator.
        stream_of: Returns the index of the stream that an event of a load belongs to.
        over: Opens what answers for tables in place of local copies, by the name that the option `--over` of `view` and `query`
            has for it; called as `serving.viewing`, with the queried and the windowed tables. It returns objects with the methods
            of `servicekit.tables.protocol.UserTable`, `wait_for_async`, and `windows` for windowed tables. Such a service has no
            rankings.
        answering: Opens what answers such services beside the processors of a process, before they run; see `serve_groups`.
    """

    program: Program[S]
    module: str
    texts: Texts
    streams: Sequence[Stream[str, Any]]
    what: str
    emitter: EmitterApi
    query: TableApi[V] | Callable[[QueryContext[S]], FastAPI]
    group: Callable[[S], Group[str, V]] | None = None
    flow: Callable[[S], Topology] | None = None
    tables: Callable[[S], Mapping[str, Table[str, Any]]] | None = None
    view: "TableContract[V] | None" = None
    windows: Callable[[S], Mapping[str, Table[Any, Any]]] = lambda _: {}
    closed: Callable[[S], Mapping[str, Stream[Any, Any]]] = lambda _: {}
    number: Callable[[V], int] | None = None
    load: Callable[[LoadOptions, Callable[[], int]], Iterator[tuple[str, Any]]] | None = None
    stream_of: Callable[[Any], int] = lambda _: 0
    over: Mapping[str, serving.Reading] = field(default_factory=dict)
    answering: serving.Answering | None = None

    def tables_of(self, settings: S) -> Mapping[str, Table[str, Any]]:
        """Return the queried tables by the topics whose events they are computed from."""
        if self.tables is not None:
            return self.tables(settings)
        assert self.group is not None, "a service without a group declares its tables"
        return {self.streams[0].name: self.group(settings).table}

    def serve_emitter(self, runtime: Runtime[S]) -> int:
        """Accept events and send them to Kafka until stopped."""
        serving.require_http_callers(runtime)
        with stop_signals(runtime.settings) as signals, ExitStack() as opened:
            sent = [opened.enter_context(serving.emitting(runtime, each, signals)) for each in self.streams]
            app = self.emitter.build(
                *(emitter for emitter, _ in sent),
                ready=lambda: all(ready() for _, ready in sent),
                metrics=runtime.metrics,
                new_id=uuid4,
                now_ms=now_ms,
                max_ahead_seconds=runtime.service.max_ahead_seconds,
                timeouts=runtime.edge.send_timeouts,
                edge=runtime.rest_edge(),
            )
            serving.serve_app(runtime, app, signals)
        return 0

    def serve_view(self, runtime: Runtime[S], over: str | None = None) -> int:
        """Answer gRPC calls until stopped, from local copies or from what `over` names."""
        from servicekit.process.grpc_serving import serve_table  # noqa: PLC0415 - only views need it

        assert self.view is not None
        table = next(iter(self.tables_of(runtime.service).values()))
        called = {call.table for call in self.view.windows}  # no views of tables that no call reads
        windows = {name: each for name, each in self.windows(runtime.service).items() if name in called}
        read = serving.viewing if over is None else self.over[over]
        return serve_table(runtime, table, self.view, windows, read)

    def serve_query(self, runtime: Runtime[S], over: str | None = None) -> int:
        """Answer REST requests until stopped, from local copies or from what `over` names."""
        serving.require_http_callers(runtime)
        tables = self.tables_of(runtime.service)
        with stop_signals(runtime.settings) as signals, ExitStack() as opened:
            windowed, closed = self.windows(runtime.service), self.closed(runtime.service)
            read = serving.viewing if over is None else self.over[over]
            found = opened.enter_context(read(runtime, [*tables.values(), *windowed.values()], "query"))
            views, windows = found[: len(tables)], dict(zip(windowed, found[len(tables) :], strict=True))
            app = opened.enter_context(serving.local(runtime, "query"))
            tails = {name: app.tail(stream) for name, stream in closed.items()}
            checks: list[Callable[[], object]] = [lambda: [each.ready for each in (*found, *tails.values())]]
            top = None
            if self.number is not None and over is None:
                top = TopList(views[0], self.number, metrics=TopMetrics.register(runtime.registry))
                top.start()
                opened.callback(top.close)
                checks.append(top.check)
            events = EventStreams(Streams(STREAMS_MAX), per_peer=runtime.edge.events_per_peer)
            opened.callback(events.close)
            writes = ReadYourWrites(dict(zip(tables, views, strict=True)), runtime.service.wait_seconds)
            secret = runtime.service.cursor_secret
            cursors = Cursors(secret.encode() if secret is not None else secrets.token_bytes(32))
            edge = runtime.rest_edge()
            query = QueryContext(runtime, views, top, cursors, events, writes, edge, opened, windows, tails)
            api = self.query(query) if callable(self.query) else query.of(self.query)
            serving.serve_app(runtime, api, signals, *checks, streams=events.streams, threads=_READ_THREADS)
        return 0

    def send_load(self, runtime: Runtime[S], load: LoadOptions) -> int:
        """Send a load and print the report. Returns 1 if some events failed."""
        assert self.load is not None
        records = self.load(load, now_ms)
        return serving.send_load(runtime, load, self.streams, records, self.what, self.stream_of)

    def process(
        self, made: Callable[[S], Group[str, V] | Topology], workers: int, parent: int | None, *arguments: str
    ) -> Callable[[Runtime[S]], int]:
        """Return the work of the command `processor`; worker processes get these further arguments."""

        def work(runtime: Runtime[S]) -> int:
            if workers > 1:
                command = [self.module, "processor", *arguments]
                return serving.serve_commands(runtime.settings, [command] * workers)
            worked = made(runtime.service)
            groups = [worked] if isinstance(worked, Group) else worked.groups
            return serving.serve_groups(runtime, groups, parent, self.answering)

        return work

    def command_line(
        self,
        processor: Callable[..., None] | None = None,
        further: Mapping[str, tuple[str, Callable[[Runtime[S]], int]]] | None = None,
        *,
        skew: float = 0.0,
    ) -> typer.Typer:
        """Make the command line.

        Args:
            processor: The command of that name, if it has options of its own.
            further: Further commands of the service, by name: their help text and their function.
            skew: The default of the option of that name of the command `load`.
        """
        app = typer.Typer(
            help=self.texts.service,
            epilog=self.program.environment,
            no_args_is_help=True,
            add_completion=False,
            pretty_exceptions_enable=False,
        )

        def add(name: str, text: str, command: Callable[..., None]) -> None:
            app.command(name, help=text, epilog=self.program.environment)(command)

        add("emitter", self.texts.emitter, self._command(self.serve_emitter))
        if self.load is not None:
            add("load", self.texts.load, self._load(skew))
        add("processor", self.texts.processor, processor or self._processor())
        for name, (text, work) in (further or {}).items():
            add(name, text, self._command(work))
        if self.view is not None:
            add("view", self.texts.view, self._reading(self.serve_view))
        add("query", self.texts.query, self._reading(self.serve_query))
        return app

    def _reading(self, work: Callable[[Runtime[S], str | None], int]) -> Callable[..., None]:
        """Return a command with the option `--over`, if the service can ask others."""

        def serve(over: options.Over = None, *, fail_fast: options.FailFast = False) -> None:
            if over not in (None, *self.over):
                raise typer.BadParameter(f"expected {' or '.join(self.over)}", param_hint="--over")
            sys.exit(self.program.run(lambda runtime: work(runtime, over), fail_fast=fail_fast))

        return serve if self.over else self._command(lambda runtime: work(runtime, None))

    def _command(self, work: Callable[[Runtime[S]], int]) -> Callable[..., None]:
        """Return a command whose only option is `--fail-fast`."""

        def serve(*, fail_fast: options.FailFast = False) -> None:
            sys.exit(self.program.run(work, fail_fast=fail_fast))

        return serve

    def _load(self, skew: float) -> Callable[..., None]:
        def load(
            rate: options.Rate = 1000.0,
            keys: options.Keys = 1000,
            skew: options.Skew = skew,
            count: options.Count = None,
            seconds: options.Seconds = None,
            *,
            seed: options.Seed,
            fail_fast: options.FailFast = False,
        ) -> None:
            given = LoadOptions(rate=rate, keys=keys, skew=skew, count=count, seconds=seconds, seed=seed)
            sys.exit(self.program.run(lambda runtime: self.send_load(runtime, given), fail_fast=fail_fast))

        return load

    def _processor(self) -> Callable[..., None]:
        made = self.group or self.flow
        assert made is not None, "a service without a group or a flow declares its own command"

        def processor(
            workers: options.Workers = 1,
            parent: options.Parent = None,
            *,
            fail_fast: options.FailFast = False,
        ) -> None:
            sys.exit(self.program.run(self.process(made, workers, parent), fail_fast=fail_fast))

        return processor


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
