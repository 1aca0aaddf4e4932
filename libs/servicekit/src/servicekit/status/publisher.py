"""The status of a process, published to a compacted topic for the console.

Off unless SERVICEKIT_STATUS_TOPIC names the topic. A process that cannot publish its status continues to work.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog
from prometheus_client import CollectorRegistry

from contracts.records import (
    PROCESS_STATUS,
    CallStatus,
    CopyStatus,
    EventTimeStatus,
    FlowStatus,
    InputStatus,
    PartitionStatus,
    ProcessStatus,
)
from servicekit.status.graph import graph_of
from servicekit.status.numbers import ProcessCounters, Rates, numbers_in
from streamtable import Avro, Emitter, Group, Kafka, Stream, String
from streamtable.errors import StreamtableError

if TYPE_CHECKING:
    from concurrent.futures import Future

log = structlog.get_logger()
EVERY_SECONDS: Final = 1.0
HEARTBEAT_SECONDS: Final = 5.0
ENTRIES_MAX: Final = 1000
_CLOSE_SECONDS: Final = 2.0
_STATM: Final = Path("/proc/self/statm")


class Working(Protocol):
    """The parts of a processor that a status needs; `streamtable.Processor` has them."""

    @property
    def ready(self) -> bool: ...
    @property
    def working(self) -> tuple[int, ...]: ...
    @property
    def recovering(self) -> Mapping[int, int]: ...


@dataclass
class StatusBoard:
    """The reports of the parts of a process; empty until the first report. Any thread.

    Args:
        service: The name of its command.
        instance: The name of the process, unique among those of its role.

    Attributes:
        further: The groups that it processes besides the first, each with a status of its own.
    """

    service: str
    instance: str
    role: str = ""
    group: str = ""
    graph: str = ""
    emits: tuple[str, ...] = ()
    processor: Working | None = None
    ready: Callable[[], bool] | None = None
    error: str = ""
    totals: dict[int, int] = field(default_factory=dict)
    further: "list[StatusBoard]" = field(default_factory=list)

    def serves(self, role: str, ready: Callable[[], bool] | None = None) -> None:
        """Report that the process serves this role of its service."""
        self.role = self.role or role
        self.ready = self.ready or ready

    def processes(self, group: Group[Any, Any], processor: Working) -> None:
        """Report that the process runs a processor of a group; called for each group of a flow."""
        if self.processor is not None:
            board = StatusBoard(self.service, self.instance)
            board.processes(group, processor)
            self.further.append(board)
            return
        self.group, self.graph, self.processor = group.name, graph_of(group), processor
        self.serves("processor")

    def sends(self, topic: str) -> None:
        """Report that the process emits to a topic."""
        self.emits = (*self.emits, topic)

    def failed(self, error: BaseException) -> None:
        """Report the error that ends the process: class and position are published, not the text, which may contain record data."""
        place = [getattr(error, name, None) for name in ("topic", "partition", "offset")]
        self.error = " ".join([type(error).__name__, *(str(part) for part in place if part is not None)])

    @property
    def key(self) -> str:
        """The key of the status record: a service may run several groups, each in its own process."""
        return f"{self.group or self.service}/{self.role}/{self.instance}"

    def partitions(self) -> list[PartitionStatus]:
        """The partitions with a started task, and the recovering partitions with their progress."""
        if self.processor is None:
            return []
        recovering = dict(self.processor.recovering)
        self.totals = {each: max(left, self.totals.get(each, 0)) for each, left in recovering.items()}
        return [
            PartitionStatus(
                partition=each,
                state="recovering" if each in recovering else "working",
                remaining=recovering.get(each, 0),
                total=self.totals.get(each, 0),
            )
            for each in sorted({*self.processor.working, *recovering})
        ]

    def state(self) -> str:
        """Return the state: failed, recovering, starting or ready."""
        if self.error:
            return "failed"
        if self.processor is not None:
            if self.processor.recovering:
                return "recovering"
            return "ready" if self.processor.ready else "starting"
        return "ready" if self.ready is None or self.ready() else "starting"


def status_of(
    board: StatusBoard, numbers: ProcessCounters, rates: Rates, *, started_at: int, at: int, committed_at: int
) -> ProcessStatus:
    """Return the status record. Lists are cut to their first thousand entries; times are in ms since 1970."""
    partitions = board.partitions()
    here = {each["partition"] for each in partitions}
    inputs = [
        InputStatus(
            topic=topic, partition=partition, lag=numbers.lags.get((topic, partition), -1), records=records
        )
        for (topic, partition), records in sorted({**dict.fromkeys(numbers.lags, 0), **numbers.read}.items())
        if partition in here
    ]
    flows = [
        FlowStatus(topic=topic, direction=direction, records=records, rate=rate(topic))
        for direction, counts, rate in (
            ("in", numbers.read_by_topic, rates.read),
            ("out", numbers.sent, rates.sent),
            ("query", numbers.queried, rates.queried),
        )
        for topic, records in sorted(counts.items())
    ]
    copies = [
        CopyStatus(table=table, partitions=count, age_seconds=age)
        for table, (count, age) in sorted(numbers.copies.items())
    ]
    event_times = [
        EventTimeStatus(partition=each, watermark=at, due_behind_ms=numbers.due_behind_ms.get(each, 0))
        for each, at in sorted(numbers.watermarks.items())
        if each in here
    ]
    due = [each for _, each in sorted(numbers.due.items()) if each["partition"] in here]
    calls: list[CallStatus] = [
        {**each, "rate": rates.answered(name)} for name, each in sorted(numbers.calls.items())
    ]
    lists = (partitions, inputs, flows, copies, event_times, due, calls)
    return ProcessStatus(
        service=board.service,
        role=board.role,
        group=board.group,
        instance=board.instance,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=_version(board.service),
        started_at=started_at,
        at=at,
        state=board.state(),
        error=board.error,
        graph=board.graph,
        partitions=partitions[:ENTRIES_MAX],
        inputs=inputs[:ENTRIES_MAX],
        flows=flows[:ENTRIES_MAX],
        copies=copies[:ENTRIES_MAX],
        event_times=event_times[:ENTRIES_MAX],
        due=due[:ENTRIES_MAX],
        calls=calls[:ENTRIES_MAX],
        emits=list(board.emits),
        commits=numbers.commits,
        committed_at=committed_at,
        commit_ms=rates.commit_ms,
        dead_letters=numbers.dead_letters,
        aborts=sum(numbers.aborts.values()),
        abort_reason=rates.abort_reason,
        rebalances=numbers.rebalances,
        requests=numbers.requests,
        failed_requests=numbers.failed_requests,
        request_rate=rates.requests,
        memory_bytes=_memory_bytes(),
        store_bytes=numbers.store_bytes,
        omitted=sum(max(0, len(each) - ENTRIES_MAX) for each in lists),
    )


def status_stream(topic: str) -> Stream[str, ProcessStatus]:
    """Return the topic with the status of all processes."""
    return Stream(topic, key=String(), value=Avro(PROCESS_STATUS))


class Publisher:
    """Publishes the status of a process from its own thread, as soon as it has changed.

    Args:
        board: The reports of the parts of the process.
        registry: The registry of the process's metrics.
        make: Makes the emitter when it is first needed.
        every: The seconds between two checks. An unchanged status is published again after five seconds.
        process: The board of the process, if `board` is a further group's; None: `board` itself.
    """

    def __init__(
        self,
        board: StatusBoard,
        registry: CollectorRegistry,
        make: Callable[[], Emitter[str, ProcessStatus]],
        every: float = EVERY_SECONDS,
        process: StatusBoard | None = None,
    ) -> None:
        self._board = board
        self._process = process or board
        self._further: list[Publisher] = []
        self._registry = registry
        self._make = make
        self._every = every
        self._started_at = _now_ms()
        self._rates = Rates()
        self._commits = self._committed_at = 0
        self._emitter: Emitter[str, ProcessStatus] | None = None
        self._waiting: Future[Any] | None = None
        self._published: Any = None
        self._published_at = 0.0
        self._logged = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, error: BaseException | None = None) -> None:
        """Delete the record or, if the process was ended by an error, leave it with that error."""
        self._stopping.set()
        self._thread.join()
        for each in self._further:
            each.say_last(error)
        self.say_last(error)
        if self._emitter is not None:
            try:
                self._emitter.close(_CLOSE_SECONDS)
            except StreamtableError as failure:
                self._log_failure(failure)

    def say_last(self, error: BaseException | None) -> None:
        """Send the deletion of the record, or the error that has ended the process."""
        if not self._board.role or (error is None and self._emitter is None):
            return
        try:
            if error is not None:
                self._board.failed(error)
            self._emit(None if error is None else self._status())
        except StreamtableError as failure:
            self._log_failure(failure)

    def publish(self) -> None:
        """Publish the status if it has changed, and that of each further group. Failures are logged once."""
        for board in self._board.further[len(self._further) :]:
            self._further.append(Publisher(board, self._registry, self._emitting, self._every, self._board))
        for each in self._further:
            each.publish()
        if not self._board.role:
            return
        try:
            if self._waiting is not None:
                if not self._waiting.done():
                    return  # wait for the pending record: nothing accumulates while Kafka is down
                waiting, self._waiting = self._waiting, None
                waiting.result()
                self._logged = False
            status = self._status()
            news = {
                **status,
                "at": 0,
                "memory_bytes": 0,
                "copies": [each["table"] for each in status["copies"]],
                "calls": [{**each, "oldest_seconds": 0} for each in status["calls"]],
            }
            now = time.monotonic()
            if news != self._published or now - self._published_at >= HEARTBEAT_SECONDS:
                self._emit(status)
                self._published, self._published_at = news, now
        except StreamtableError as failure:
            self._published = None
            self._log_failure(failure)

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                self.publish()
            except Exception as surprise:  # noqa: BLE001 - it reads other components, and must never disturb the service
                self._log_failure(surprise)

    def _emitting(self) -> Emitter[str, ProcessStatus]:
        if self._emitter is None:
            self._emitter = self._make()
        return self._emitter

    def _emit(self, status: ProcessStatus | None) -> None:
        self._waiting = self._emitting().emit(self._board.key, status)

    def _status(self) -> ProcessStatus:
        groups = {each.group for each in (self._process, *self._process.further)}
        numbers = numbers_in(self._registry, groups - {self._board.group})
        self._rates.add(time.monotonic(), numbers)
        if numbers.commits != self._commits:
            self._commits, self._committed_at = numbers.commits, _now_ms()
        times = {"started_at": self._started_at, "at": _now_ms(), "committed_at": self._committed_at}
        return status_of(self._board, numbers, self._rates, **times)

    def _log_failure(self, failure: Exception) -> None:
        if not self._logged:
            self._logged = True
            log.warning("status not published, will retry", reason=f"{type(failure).__name__}: {failure}")


@contextmanager
def publishing(
    board: StatusBoard, registry: CollectorRegistry, kafka: Kafka, topic: str | None
) -> Iterator[None]:
    """Publish the status of the process within the block; do nothing without a topic."""
    if topic is None:
        yield
        return
    publisher = Publisher(board, registry, lambda: Emitter(status_stream(topic), kafka))
    publisher.start()
    failure = None
    try:
        yield
    except Exception as error:
        failure = error
        raise
    finally:
        publisher.stop(failure)


def _version(service: str) -> str:
    with suppress(PackageNotFoundError):
        return version(f"streamtable-{service}")
    return ""


def _memory_bytes() -> int:
    """Return the resident memory; 0 where the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
