"""The list of the keys with the highest numbers, kept current by a thread that watches the table."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Final, Generic, TypeVar

import structlog

from servicekit.ranking import Ranking
from servicekit.tables import Change, UserTable, Watch
from streamtable.errors import NotReady, StreamtableError

V = TypeVar("V")
log = structlog.get_logger()
SIZE: Final = 1000
_WAIT_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Top:
    """The highest keys, and how long ago the list last held all that this copy of the table did."""

    rows: list[tuple[str, int]]
    behind_seconds: float


class TopList(Generic[V]):
    """Answers from memory. Where changes come faster than one thread takes them in, it reads the table again.

    Args:
        table: the rows.
        number: of a row.
        size: how long a list can be asked for.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        table: UserTable[V],
        number: Callable[[V], int],
        size: int = SIZE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._number = number
        self._size = size
        self._clock = clock
        self._lock = Lock()
        self._ranking: Ranking | None = None
        self._current_at = 0.0
        self._stopping = Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def top(self, limit: int) -> Top:
        """The `limit` highest keys. Raises `NotReady` until the table was read once."""
        with self._lock:
            if self._ranking is None:
                raise NotReady("the list is being made; ask again")
            return Top(self._ranking.top(limit), self._clock() - self._current_at)

    def check(self) -> None:
        """Raise what has ended the thread, if something did."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._keep_current()
        except BaseException as error:  # noqa: BLE001 handed to the main thread by `check`
            self._failure = error

    def _keep_current(self) -> None:
        while not self._stopping.is_set():
            try:
                # The watch is opened first: what changes while the table is read is then in its queue.
                with self._table.watch(prefix="") as watch:
                    self._rebuild()
                    self._follow(watch)
            except StreamtableError as error:
                log.info("top list begins again", reason=str(error))
                self._stopping.wait(_WAIT_SECONDS)

    def _rebuild(self) -> None:
        begun = self._clock()
        ranking = Ranking(self._size)
        ranking.rebuild((key, self._number(row)) for key, row in self._table.iterate())
        with self._lock:
            self._ranking, self._current_at = ranking, begun

    def _follow(self, watch: Watch[V]) -> None:
        while not (self._stopping.is_set() or watch.ended):
            change = watch.next(0.0)
            if change is None:
                self._current_at = self._clock()
                change = watch.next(_WAIT_SECONDS)
            if change is not None and not self._take_in(change):
                self._rebuild()

    def _take_in(self, change: Change[V]) -> bool:
        """Apply a change; false if the ranking needs the whole table again."""
        assert self._ranking is not None
        held = self._ranking.held(change.key)
        row = change.value
        if held is not None and (row is None or self._number(row) < held):
            # Either it really fell, or the table was read after this change and already held a later one.
            row = self._table.get(change.key)
        with self._lock:
            self._ranking.update(change.key, None if row is None else self._number(row))
            if self._ranking.complete:
                return True
            self._ranking = None
            return False
