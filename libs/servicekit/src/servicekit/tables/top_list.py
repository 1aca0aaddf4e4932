"""The keys with the highest numbers, kept current by a thread that watches the table."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Any, Final, Generic, Self, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from servicekit.tables.protocol import KeyedRow, TableWatch, UserTable
from servicekit.tables.ranking import Ranking
from streamtable.errors import NotReady, StreamtableError, UnreadableRow

V = TypeVar("V")
log = structlog.get_logger()
SIZE: Final = 1000
_WAIT_SECONDS: Final = 0.5
_WAIT_SECONDS_MAX: Final = 30.0
_UNREADABLE_MAX: Final = 10_000


@dataclass(frozen=True)
class TopMetrics:
    """The instruments of a process's top list.

    Attributes:
        behind_seconds: The seconds since the list was last up to date with this process's copy of the table.
        rebuilds: The number of times the list was rebuilt from the whole table.
        failures: The number of times the list could not be kept current and was rebuilt, by the name of the error.
    """

    behind_seconds: Gauge
    rebuilds: Counter
    failures: Counter

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Create the instruments in a registry, once for each registry."""
        return cls(
            Gauge(
                "servicekit_top_behind_seconds", "Seconds since the top list was current", registry=registry
            ),
            Counter("servicekit_top_rebuilds", "Top lists built from the whole table", registry=registry),
            Counter("servicekit_top_failures", "Failures of the top list", ("error",), registry=registry),
        )


@dataclass(frozen=True, slots=True)
class Top:
    """The keys with the highest numbers.

    Attributes:
        rows: The keys and numbers, the highest first.
        behind_seconds: The seconds since the list was last up to date with this copy of the table.
        unreadable: The number of rows that are left out because they cannot be decoded; at most 10,000 are counted.
    """

    rows: list[tuple[str, int]]
    behind_seconds: float
    unreadable: int


class TopList(Generic[V]):
    """Serves the ranking from memory. If changes arrive faster than one thread applies them, it reads the table again.

    A failure is logged as a warning, counted, and shown by `detail` for as long as it lasts. The whole table is read at
    most once for each cause; after repeated failures at growing intervals, up to 30 seconds.

    Args:
        table: The table.
        number: Returns the number of a row.
        size: The maximum length of the list.
        clock: A monotonic clock, in seconds.
        metrics: The instruments; default: those of a new registry.
    """

    def __init__(
        self,
        table: UserTable[V],
        number: Callable[[V], int],
        size: int = SIZE,
        clock: Callable[[], float] = time.monotonic,
        metrics: TopMetrics | None = None,
    ) -> None:
        self._table = table
        self._number = number
        self._size = size
        self._clock = clock
        self._metrics = metrics or TopMetrics.register(CollectorRegistry())
        self._lock = Lock()
        self._ranking: Ranking | None = None
        self._unreadable: set[bytes] = set()
        self._current_at = clock()
        self._reason: StreamtableError | None = None
        self._stopping = Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="top", daemon=True)
        self._metrics.behind_seconds.set_function(self._behind_seconds)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def top(self, limit: int) -> Top:
        """Return the `limit` highest keys. Raises `NotReady` while the list is being made."""
        with self._lock:
            # After too many members fell, or became unreadable, it is not complete until the table was read again.
            if self._ranking is None or not self._ranking.complete:
                raise NotReady("the list is being built; retry the request")
            return Top(self._ranking.top(limit), self._behind_seconds(), len(self._unreadable))

    def detail(self) -> Mapping[str, Any]:
        """Return its state for `/readyz`: how far behind it is, and the error that keeps it from being current, if any."""
        reason = self._reason
        return {
            "behind_seconds": round(self._behind_seconds(), 3),
            "unreadable": len(self._unreadable),
            "error": None if reason is None else type(reason).__name__,
        }

    def check(self) -> None:
        """Raise the error that has ended the thread, if there is one."""
        if self._failure is not None:
            raise self._failure

    def _behind_seconds(self) -> float:
        return self._clock() - self._current_at

    def _run(self) -> None:
        try:
            self._keep_current()
        except BaseException as error:  # noqa: BLE001 raised in the main thread by `check`
            self._failure = error

    def _keep_current(self) -> None:
        wait = _WAIT_SECONDS
        while not self._stopping.is_set():
            try:
                # The watch is opened first, so that changes during the read are in its queue.
                with self._table.watch(on_unreadable=self._leave_out) as watch:
                    self._rebuild()
                    wait = _WAIT_SECONDS
                    self._follow(watch)
            except StreamtableError as error:
                self._failed(error)
                self._stopping.wait(wait)
                # Checked without reading the table.
                wait = _WAIT_SECONDS if isinstance(error, NotReady) else min(2 * wait, _WAIT_SECONDS_MAX)

    def _failed(self, error: StreamtableError) -> None:
        before, self._reason = self._reason, error
        self._metrics.failures.labels(type(error).__name__).inc()
        if before is None or (type(before), before.message) != (type(error), error.message):
            log.warning("top list is not current, and is made again", reason=str(error))

    def _leave_out(self, error: UnreadableRow) -> None:
        with self._lock:
            if len(self._unreadable) < _UNREADABLE_MAX:
                self._unreadable.add(error.key)
            if self._ranking is not None:
                self._ranking.update(error.key.decode(errors="replace"), None)

    def _rebuild(self) -> None:
        begun = self._clock()
        ranking, unreadable = Ranking(self._size), set[bytes]()

        def leave_out(error: UnreadableRow) -> None:
            if len(unreadable) < _UNREADABLE_MAX:
                unreadable.add(error.key)

        rows = self._table.iterate(on_unreadable=leave_out)
        ranking.rebuild((key, self._number(row)) for key, row in rows)
        self._metrics.rebuilds.inc()
        with self._lock:  # rows that are current have no error beside them
            self._ranking, self._unreadable, self._current_at = ranking, unreadable, begun
            failed, self._reason = self._reason is not None, None
        if failed:
            log.info("top list is current again")

    def _follow(self, watch: TableWatch[V]) -> None:
        while not self._stopping.is_set():
            ended = watch.ended  # read first: if changes were missed, the next call raises an error
            change = watch.next(0.0)
            if change is None:
                if ended:
                    return
                self._current_at = self._clock()
                change = watch.next(_WAIT_SECONDS)
            if (change is not None and not self._take_in(change)) or not self._complete():
                self._rebuild()

    def _complete(self) -> bool:
        with self._lock:
            return self._ranking is not None and self._ranking.complete

    def _take_in(self, change: KeyedRow[str, V]) -> bool:
        """Apply a change. Returns false if the ranking must be rebuilt from the whole table."""
        assert self._ranking is not None
        held = self._ranking.held(change.key)
        row = change.value
        with self._lock:
            self._unreadable.discard(change.key.encode())
        if held is not None and (row is None or self._number(row) < held):
            # Either its number fell, or the table was read after this change and already had a later one.
            try:
                row = self._table.get(change.key)
            except UnreadableRow as error:
                self._leave_out(error)
                row = None
        with self._lock:
            self._ranking.update(change.key, None if row is None else self._number(row))
            return self._ranking.complete
