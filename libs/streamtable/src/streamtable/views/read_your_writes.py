"""Read your writes: a view can wait until a group has committed the effects of an event."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import structlog

from streamtable.base.clock import Clock
from streamtable.base.ports import ClusterClient
from streamtable.base.types import Committed, TopicPartition
from streamtable.errors import NotReady, RetryLater
from streamtable.tables.offset_barrier import OffsetBarrier

Asked = tuple[str, TopicPartition]  # a group, and one of its inputs
log = structlog.get_logger()

_PAUSE_SECONDS = 0.02
_ALONE_SECONDS = 1.0


class CommitWatcher:
    """Requests the committed offsets of groups while callers wait: one request at a time for all of them.

    Args:
        cluster: Gives the client to ask with.
        clock: Monotonic time.
    """

    def __init__(self, cluster: Callable[[], ClusterClient], clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._barrier: OffsetBarrier[Asked, Committed] = OffsetBarrier()
        self._found: dict[Asked, Committed | None] = {}
        self._alone: dict[Asked, float] = {}  # from when on to ask for it again, by itself
        self._reason = "no answer from Kafka yet"
        self._lock, self._asking = threading.Lock(), threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._threaded = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start a thread that asks, with the first query."""
        self._threaded = True

    def close(self) -> None:
        """Wake all callers that wait. May be called twice."""
        self._barrier.end(NotReady("the view is closed"))
        self._stopping.set()
        self._wake.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def wait(self, group: str, place: TopicPartition, offset: int, timeout: float) -> Committed:
        """Return the committed position of the group once it is past the record at `offset`.

        Without a thread, or for a timeout of 0, it is asked for once.

        Raises:
            NotReady: It is not within `timeout` seconds, or the view is closed; the message says its position.
        """
        with self._waiting(group, place, offset, timeout) as committed:
            return committed.result(timeout if self._threaded else 0)

    async def wait_async(self, group: str, place: TopicPartition, offset: int, timeout: float) -> Committed:  # noqa: ASYNC109 - as `wait`
        """Wait as `wait` does, without blocking the event loop."""
        if timeout <= 0:  # Kafka is asked in the caller's thread
            return await asyncio.to_thread(self.wait, group, place, offset, timeout)
        with self._waiting(group, place, offset, timeout) as committed:
            return await asyncio.wait_for(asyncio.wrap_future(committed), timeout)

    @contextmanager
    def _waiting(
        self, group: str, place: TopicPartition, offset: int, timeout: float
    ) -> Iterator[Future[Committed]]:
        """Ask, and give the answer to come. A wait for it that times out raises `NotReady`."""
        with self._barrier.waiting((group, place), offset + 1) as future:
            if self._threaded and timeout > 0:
                self._begin()
            else:
                self.ask()
            try:
                yield future
            except TimeoutError:
                text = f"{self._how_far((group, place), offset)}, after {timeout:g} s"
                raise NotReady(text).at(*place, offset) from None

    def ask(self) -> None:
        """Ask for everything that callers wait for."""
        with self._asking:
            places = self._barrier.places()
            now = self._clock.monotonic()
            self._alone = {asked: at for asked, at in self._alone.items() if asked in places}
            self._found = {asked: found for asked, found in self._found.items() if asked in places}
            for group in dict.fromkeys(group for group, _ in places):
                mine = [asked for asked in places if asked[0] == group]
                self._ask(group, [asked for asked in mine if asked not in self._alone])
                for asked in mine:
                    if self._alone.get(asked, now + 1) <= now:
                        self._ask(group, [asked])

    def _ask(self, group: str, asked: list[Asked]) -> None:
        if not asked:
            return
        try:
            answers = self._cluster().stable_offsets(group, [place for _, place in asked])
        except RetryLater as error:
            # One place whose transaction hangs fails the question for all: from here on each is asked for by itself,
            # until it has an answer, and one that has none not so often, as that takes long.
            self._reason = str(error)
            pause = _ALONE_SECONDS if len(asked) == 1 else 0.0
            self._alone.update(dict.fromkeys(asked, self._clock.monotonic() + pause))
            return
        for place, committed in answers.items():
            self._alone.pop((group, place), None)
            self._found[group, place] = committed
            if committed is not None:
                self._barrier.arrived((group, place), committed.next_offset, committed)

    def _how_far(self, asked: Asked, offset: int) -> str:
        (group, place), found = asked, self._found.get(asked)
        past = found is not None and found.next_offset > offset  # as an earlier wait has found it
        if past or asked not in self._found or asked in self._alone:
            return f"what group {group!r} has committed is not known ({self._reason})"
        if found is None:
            return f"group {group!r} has never committed an offset of {place}: is that one of its inputs, and does it run?"
        return f"group {group!r} is at offset {found.next_offset} of {place}, not yet past the event"

    def _begin(self) -> None:
        self._wake.set()
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="views-wait", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._wake.wait()
                self._wake.clear()
                while self._barrier.places() and not self._stopping.is_set():
                    self.ask()
                    self._stopping.wait(_PAUSE_SECONDS)
        except Exception as error:
            log.exception("waiting for the effect of events has failed")
            self._barrier.end(error)
