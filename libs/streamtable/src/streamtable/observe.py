"""Logs, metrics, and in a terminal the progress of recovery.

Loggers come from `structlog.get_logger()`. One made at import follows `configure_logging`, but only if it is bound
(with group and instance) later, where these are known: `bind` takes the configuration of that moment. Metrics are updated for each batch and commit, never for each record.
"""

import logging
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cache, partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TextIO, TypeVar, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from streamtable.base.hosts import OwnHosts
from streamtable.base.log_stream import LogStream
from streamtable.base.settings import Address, LogFormat, LogLevel

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_LOCAL_ADDRESS: Final = "streamtable.local_address"

# ---- logs ----------------------------------------------------------------------------------------------------------


def log_to_stderr_by_default() -> None:
    """Log to standard error in structlog's default style, unless the program has configured structlog.

    Tracebacks show no local variables: a handler's are the records of customers, hundreds at a time.
    """
    if not structlog.is_configured():
        processors = [*structlog.get_config()["processors"][:-1], _console(sys.stderr)]
        structlog.configure(processors=processors, logger_factory=_default_logger)


def _console(stream: TextIO, **more: Any) -> structlog.dev.ConsoleRenderer:
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain, **more)


def _default_logger(*_: object) -> structlog.PrintLogger:
    return structlog.PrintLogger(cast("TextIO", LogStream(sys.stderr)))


def log_as_set(log_format: LogFormat | None, level: LogLevel) -> None:
    """Configure logs on standard error as `configure_logging` does, unless the program has configured logging itself."""
    own = structlog.is_configured() and structlog.get_config()["logger_factory"] is not _default_logger
    if not own and not logging.getLogger().handlers:
        configure_logging(log_format, level, sys.stderr)


def configure_logging(
    log_format: LogFormat | None, level: LogLevel, stream: TextIO, lost: Callable[[], object] = bool
) -> None:
    """Configure how log lines are written: ours, and log lines of libraries that use the standard `logging`.

    Every line has time (UTC), level and event. Tracebacks show no local variables: they may hold secrets. A line that
    cannot be written is lost, and the program goes on.

    Args:
        log_format: None: console if the stream is a terminal, else json.
        level: The lowest level of lines that are written.
        stream: The stream to write to; standard error for a service.
        lost: Called for each write that has failed, as on a full disk. Any thread.
    """
    written = cast("TextIO", LogStream(stream, lost))
    chosen = log_format or ("console" if stream.isatty() else "json")
    common: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    finish: list[structlog.typing.Processor]
    if chosen == "json":
        finish = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        finish = [_console(stream, timestamp_key="time")]
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*common, *finish],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(written),
        cache_logger_on_first_use=False,  # loggers made at import follow the configuration made later
    )
    handler = logging.StreamHandler(written)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)


# ruff: noqa: RUF009 - an instrument is declared by the field that `instrument` returns
# ---- metrics -------------------------------------------------------------------------------------------------------

T = TypeVar("T")

_PLACE = ("group", "topic", "partition")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_RECORDS = (1, 10, 100, 1_000, 5_000, 10_000, 20_000, 50_000)


def instrument(kind: Any, name: str, text: str, *labels: str, **more: Any) -> Any:
    """Return the dataclass field of a Prometheus instrument; `registered` makes the instruments of a class."""
    return field(metadata={"make": partial(kind, f"streamtable_{name}", text, labels, **more)})


def registered(kind: type[T], registry: CollectorRegistry) -> T:
    """Return a set of instruments, made in a registry: once for each registry."""
    return kind(**{each.name: each.metadata["make"](registry=registry) for each in fields(kind)})  # type: ignore[arg-type] # a dataclass


_counter, _gauge, _histogram = (partial(instrument, kind) for kind in (Counter, Gauge, Histogram))


@dataclass(frozen=True)
class Metrics:
    """The instruments of one process. Labels are group, topic and partition where they apply.

    Attributes:
        records_in: Read from inputs; of a partition.
        records_out: Sent to outputs, tables and loops; of a topic.
        dead_letters: Records that went to the dead letters; of the partition they were read from, in an input or the retry
            topic.
        repeats: Events skipped because they were sent before (`Once`); of the partition of the input.
        tombstones_skipped: Records without a value that an input skips; of the partition of the input.
        lag: Records between the applied offset and the end of the input; of a partition.
        commit_seconds: The time of a group's commit, from its begin to the store's write.
        batch_records: Records handled in one go; of a group.
        aborts: Aborted transactions, by reason; of a group.
        rebalances: Assigned, revoked and lost partitions' callbacks; of a group, with `event`.
        stall_seconds: The time since the processor last made progress (a poll, a handled record, a due commit); of a group.
        hanging_transaction_seconds: The time that a partition has waited for a transaction that does not end; reported only
            after `hanging_transaction_timeout`.
        recovery_remaining: Changelog records still to load; of a table's partition.
        standby_lag: Changelog records that a standby replica has still to read.
        store_bytes: On disk and in memory tables; of a table's partition.
        watermark_timestamp: The watermark in seconds since 1970; of a partition of a group that follows event time.
        windowed_records: Records given to windows and joins; of the partition of their table.
        late_records: Records that came when their windows were closed, or too late for a join as of a time; of the partition
            of the table of the windows or the join, with the input that had `moved_by` its event times the watermark.
        late_share: The share of late records in the last minute, where there were any; of the same partition.
        due_behind: The lag of rows that fall due, such as windows and timers, behind their clock; of a partition.
        due_rows: Rows that have not fallen due, such as open windows and pending timers; of a state table's partition.
        view_position: The next changelog offset to apply; of a table's partition.
        view_age_seconds: The time since the copy last held all records of the table; of a table's partition.
        view_unreadable: Rows that a reader was not given because they cannot be decoded, each time that they were read;
            of a table's partition.
        log_lost: Log lines that could not be written, as on a full disk; a program counts them that gives
            `log_lost.inc` to `configure_logging`.
    """

    _others: Callable[[type[Any]], Any] = field(
        metadata={"make": lambda registry: cache(partial(registered, registry=registry))}
    )
    records_in: Counter = _counter("records_in", "Records read from inputs", *_PLACE)
    records_out: Counter = _counter("records_out", "Records sent", "group", "topic")
    dead_letters: Counter = _counter("dead_letters", "Records that went to the dead letters", *_PLACE)
    repeats: Counter = _counter("repeats", "Events skipped because they were sent before", *_PLACE)
    tombstones_skipped: Counter = _counter(
        "tombstones_skipped", "Records without a value that an input skips", *_PLACE
    )
    lag: Gauge = _gauge("lag_records", "Records between the applied offset and the input's end", *_PLACE)
    commit_seconds: Histogram = _histogram("commit_seconds", "Duration of commits", "group", buckets=_SECONDS)
    batch_records: Histogram = _histogram(
        "batch_records", "Records handled in one go", "group", buckets=_RECORDS
    )
    aborts: Counter = _counter("aborts", "Aborted transactions", "group", "reason")
    rebalances: Counter = _counter("rebalances", "Rebalance callbacks", "group", "event")
    stall_seconds: Gauge = _gauge("stall_seconds", "Seconds since the processor last made progress", "group")
    hanging_transaction_seconds: Gauge = _gauge(
        "hanging_transaction_seconds", "Seconds of waiting for a transaction that does not end", *_PLACE
    )
    recovery_remaining: Gauge = _gauge(
        "recovery_remaining_records", "Changelog records still to load", *_PLACE
    )
    standby_lag: Gauge = _gauge(
        "standby_lag_records", "Changelog records that a replica still has to read", *_PLACE
    )
    store_bytes: Gauge = _gauge("store_bytes", "Bytes on disk and in memory tables", *_PLACE)
    watermark_timestamp: Gauge = _gauge(
        "watermark_timestamp_seconds", "The watermark, in seconds since 1970", "group", "partition"
    )
    windowed_records: Counter = _counter("windowed_records", "Records given to windows and joins", *_PLACE)
    late_records: Counter = _counter(
        "late_records",
        "Records that came when their windows were closed, or too late for a join as of a time",
        *_PLACE,
        "moved_by",
    )
    late_share: Gauge = _gauge("late_share", "Share of late records in the last minute", *_PLACE)
    due_behind: Gauge = _gauge(
        "due_behind_seconds", "How far rows that fall due are behind their clock", "group", "partition"
    )
    due_rows: Gauge = _gauge(
        "due_rows", "Rows that have not fallen due, such as open windows and pending timers", *_PLACE
    )
    view_position: Gauge = _gauge("view_position", "Next changelog offset to apply", *_PLACE)
    view_age_seconds: Gauge = _gauge(
        "view_age_seconds", "Seconds since the copy equalled the table's end", *_PLACE
    )
    view_unreadable: Counter = _counter(
        "view_unreadable_rows", "Rows skipped because they cannot be decoded", *_PLACE
    )
    log_lost: Counter = _counter("log_writes_lost", "Writes of log lines that have failed")

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Create the instruments in a registry, once for each registry."""
        return registered(cls, registry)

    def of(self, kind: type[T]) -> T:
        """Return the instruments of another package in the same registry, made once. `kind` is as for `registered`."""
        return cast("T", self._others(kind))

    def forget(self, group: str, topic: str, partition: int) -> None:
        """Drop the gauges of a partition that was revoked, whose last lag would be reported for ever."""
        for gauge in (
            self.lag,
            self.recovery_remaining,
            self.store_bytes,
            self.due_rows,
            self.view_position,
            self.view_age_seconds,
        ):
            with suppress(KeyError):  # it never had a value
                gauge.remove(group, topic, str(partition))


class GroupGauge:
    """A gauge of one group whose values are set together: a value that is missing the next time is dropped.

    Args:
        gauge: The gauge. Its first label is the group.
        group: The name of the group.
    """

    def __init__(self, gauge: Gauge, group: str) -> None:
        self._gauge = gauge
        self._group = group
        self._shown: set[Any] = set()

    def show(self, values: Mapping[Any, float]) -> None:
        """Set these values, by the tuple of the labels behind the group, and drop all others."""
        for labels in self._shown - values.keys():
            self._gauge.remove(self._group, *labels)
        for labels, value in values.items():
            self._gauge.labels(self._group, *labels).set(value)
        self._shown = set(values)


def metrics_page(registry: CollectorRegistry) -> bytes:
    """Return the metrics in the text format of Prometheus."""
    return generate_latest(registry)


class _SilentHandler(WSGIRequestHandler):
    """A request handler that knows the local address of its connection and logs nothing."""

    def get_environ(self) -> dict[str, Any]:
        return {**super().get_environ(), _LOCAL_ADDRESS: self.connection.getsockname()[0]}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        pass


@contextmanager
def serve_metrics(
    registry: CollectorRegistry, address: Address, hosts: Collection[str] = ()
) -> Iterator[Address]:
    """Serve the metrics page over HTTP within the block, from a thread. Yields its address.

    Args:
        registry: The metrics to serve.
        address: The address to serve them at.
        hosts: Names under which the server is called, besides its address and the loopback names; requests for other
            hosts are refused, as a page of another site makes them by DNS rebinding.
    """
    own = OwnHosts(frozenset({address.host, *hosts} - {""}))
    page = make_wsgi_app(registry)

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if own.include(environ.get("HTTP_HOST"), environ[_LOCAL_ADDRESS]):
            answered: Iterable[bytes] = page(environ, start_response)
            return answered
        start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [b"The server does not answer to this host name.\n"]

    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    kind = type("_Server", (ThreadingWSGIServer,), {"address_family": family})
    server: WSGIServer = make_server(address.host, address.port, answer, kind, _SilentHandler)
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield Address(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---- progress ------------------------------------------------------------------------------------------------------


class Progress(Protocol):
    """Shows the progress of several long tasks, each under its own name. Any thread."""

    def update(self, task: str, done: int, total: int) -> None:
        """Report `done` of `total` units of a task, which is new or known by its name. Both may change."""

    def end(self, task: str) -> None: ...

    def close(self) -> None: ...


class SilentProgress:
    """Progress that is not shown."""

    def update(self, task: str, done: int, total: int) -> None: ...

    def end(self, task: str) -> None: ...

    def close(self) -> None: ...


def progress_on(stream: TextIO) -> Progress:
    """Return progress bars if the stream is a terminal, else silent progress."""
    if not stream.isatty():
        return SilentProgress()
    from streamtable.terminal_progress import TerminalProgress  # noqa: PLC0415 - 5 MB, of use to a terminal only

    return TerminalProgress(stream)
