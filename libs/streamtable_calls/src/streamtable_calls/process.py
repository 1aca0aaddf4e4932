"""The calls of one process: a queue of attempts for each declared call, in an event loop of its own thread."""

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

import structlog

from streamtable import StateTable
from streamtable.base.clock import Clock
from streamtable.observe import Metrics
from streamtable_calls.errors import CallTimedOut, text_of
from streamtable_calls.ids import running
from streamtable_calls.metrics import CallMeters, PendingNow
from streamtable_calls.partition import Attempt, Executor, Outcome, PartitionCalls
from streamtable_calls.settings import CallSettings, RetrySettings

log = structlog.get_logger()

_CLOSE_SECONDS = 5.0
_BLOCKED_SECONDS = 1.0
_DURATIONS_MAX = 100_000  # that are kept until they are asked for


class ProcessCalls:
    """The calls of all partitions of a process; implements `graph.companion.Companions`.

    Args:
        group: The name of the group.
        calls: Its declared calls, by name.
        retried: Its retried inputs, by name.
        executor: Runs the attempts.
        clock: The clock.
    """

    def __init__(
        self,
        group: str,
        calls: Mapping[str, CallSettings],
        retried: Mapping[str, RetrySettings],
        executor: Executor,
        clock: Clock,
    ) -> None:
        self.executor = executor
        self._group = group
        self._calls = calls
        self._retried = retried
        self._clock = clock
        self._meters = CallMeters(group)
        self._open: list[PartitionCalls] = []

    def open(self, partition: int, rows: StateTable[bytes, bytes]) -> PartitionCalls:
        made = PartitionCalls(
            self._group, partition, self._calls, self._retried, rows, self.executor, self._clock, self._meters
        )
        self._open = [*(each for each in self._open if not each.closed), made]
        return made

    def measure(self, metrics: Metrics) -> None:
        partitions = [each for each in self._open if not each.closed]
        pending, seconds = {}, {}
        for name in self._calls:
            times = filter(None, (each.oldest_call_ms(name) for each in partitions))
            count = sum(each.pending[name] for each in partitions)
            pending[name] = PendingNow(count, self.executor.running(name), min(times, default=None))
            seconds[name] = self.executor.durations(name)
        self._meters.update(metrics, pending, seconds, int(self._clock.now() * 1000))

    def close(self) -> None:
        self.executor.close()
        self._meters.close(list(self._calls))


Place = tuple[PartitionCalls, bytes, int]


def place_of(attempt: Attempt) -> Place:
    """Return the identity of an attempt: of one call only one is made with so many before it."""
    return attempt.calls, attempt.row_key, attempt.pending.attempts


class ByHand:
    """Runs nothing: a test takes the attempts and gives the outcomes.

    Attributes:
        attempts: The attempts that have no outcome yet, in the order of their starts.
    """

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []

    def start(self, attempt: Attempt) -> None:
        self.attempts = [each for each in self.attempts if place_of(each) != place_of(attempt)]
        self.attempts.append(attempt)

    def drop(self, attempt: Attempt) -> None:
        self.attempts.remove(attempt)

    def answer(self, attempt: Attempt, result: Any) -> None:
        """Give the result of an attempt."""
        self.attempts.remove(attempt)
        attempt.calls.arrive(Outcome(attempt.row_key, result))

    def fail(self, attempt: Attempt, error: BaseException) -> None:
        """Let an attempt fail."""
        self.attempts.remove(attempt)
        attempt.calls.arrive(Outcome(attempt.row_key, error=error))

    def running(self, call: str) -> int:
        return sum(attempt.call.name == call for attempt in self.attempts)

    def durations(self, call: str) -> Sequence[float]:  # noqa: ARG002 - nothing runs
        return ()

    def cancel(self, calls: PartitionCalls) -> None:
        self.attempts = [attempt for attempt in self.attempts if attempt.calls is not calls]

    def close(self) -> None:
        self.attempts = []


class InLoop:
    """Runs attempts in an event loop of its own thread, which begins with the first attempt.

    Args:
        group: The name of the group.
        calls: Its declared calls, by name.
        clock: The clock, for the times of attempts.
    """

    def __init__(self, group: str, calls: Mapping[str, CallSettings], clock: Clock) -> None:
        self._group = group
        self._calls = calls
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._queues: dict[str, CallQueue] = {}
        self._new: deque[Attempt] = deque()

    def start(self, attempt: Attempt) -> None:
        if self._loop is None:
            loop = self._loop = asyncio.new_event_loop()
            self._queues = {name: CallQueue(call, loop, self._clock) for name, call in self._calls.items()}
            self._thread = threading.Thread(target=loop.run_forever, name=f"calls-{self._group}", daemon=True)
            self._thread.start()
            loop.call_soon_threadsafe(self._watch, loop, loop.time())
        first = not self._new
        self._new.append(attempt)
        if first:  # one wake-up for all that start together
            self._loop.call_soon_threadsafe(self._take)

    def drop(self, attempt: Attempt) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._queues[attempt.call.name].drop, attempt)

    def running(self, call: str) -> int:
        return self._queues[call].running if call in self._queues else 0

    def durations(self, call: str) -> Sequence[float]:
        return self._queues[call].durations() if call in self._queues else ()

    def cancel(self, calls: PartitionCalls) -> None:
        if self._loop is not None:
            for queue in self._queues.values():
                self._loop.call_soon_threadsafe(queue.cancel, calls)

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._cancel_all(), loop)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            log.warning("calls do not end, their thread is left", group=self._group)
        else:
            loop.close()

    def _watch(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Log when the loop runs this more than a second late: no call goes on meanwhile, and none is timed out."""
        late = loop.time() - due
        if late > _BLOCKED_SECONDS:
            names = [name for name, queue in self._queues.items() if queue.running]
            log.warning(
                "event loop of calls blocked: a coroutine function calls something that does not await, or the process has no CPU; "
                "a plain function runs in a thread",
                group=self._group,
                seconds=round(late, 1),
                calls=names,
            )
        loop.call_later(_BLOCKED_SECONDS, self._watch, loop, loop.time() + _BLOCKED_SECONDS)

    def _take(self) -> None:
        while self._new:
            attempt = self._new.popleft()
            self._queues[attempt.call.name].add(attempt)

    async def _cancel_all(self) -> None:
        loop = asyncio.get_running_loop()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await loop.shutdown_asyncgens()
        loop.call_soon(loop.stop)


class CallQueue:
    """The attempts of one declared call. All of it runs in the event loop.

    Args:
        call: The call.
        loop: The event loop.
        clock: The clock, for the times of attempts.

    Attributes:
        running: The number of calls whose function runs.
    """

    def __init__(self, call: CallSettings, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._call = call
        self._loop = loop
        self._clock = clock
        self._ready: deque[tuple[float, Attempt]] = deque()  # with the time since when each is ready
        self.running = 0
        self._durations = deque[float](maxlen=_DURATIONS_MAX)
        self._running: dict[asyncio.Task[None], Sequence[Attempt]] = {}
        self._waiting: dict[Place, asyncio.TimerHandle] = {}  # for their times
        self._begun: set[Place] = set()  # those whose time has come, and that have no outcome
        self._started: deque[float] = deque(maxlen=call.rate.calls if call.rate else 1)
        self._failures = self._pauses = 0  # in a row
        self._paused_until = 0.0
        self._pumps_at: asyncio.TimerHandle | None = None
        self._is_coroutine = inspect.iscoroutinefunction(call.function) or inspect.iscoroutinefunction(
            getattr(call.function, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine
        )

    def add(self, attempt: Attempt) -> None:
        """Run an attempt as soon as its time has come and there is room."""
        place = place_of(attempt)
        if (waiting := self._waiting.pop(place, None)) is not None:
            waiting.cancel()
        wait = attempt.pending.next_ms / 1000 - self._clock.now()
        if attempt.pending.next_ms and wait > 0:
            self._waiting[place] = self._loop.call_later(wait, self._add_now, attempt)
        else:
            self._add_now(attempt)

    def drop(self, attempt: Attempt) -> None:
        """Forget an attempt. A function that runs goes on: it may be in the middle of what it does."""
        place = place_of(attempt)
        if (waiting := self._waiting.pop(place, None)) is not None:
            waiting.cancel()
        self._begun.discard(place)
        self._ready = deque(each for each in self._ready if place_of(each[1]) != place)

    def durations(self) -> Sequence[float]:
        """Return the seconds of each attempt that has ended since this was asked last. Any thread."""
        return [self._durations.popleft() for _ in range(len(self._durations))]

    def cancel(self, calls: PartitionCalls) -> None:
        """Cancel the attempts of a partition; a batch goes on for the others in it."""
        self._ready = deque(each for each in self._ready if each[1].calls is not calls)
        self._begun = {place for place in self._begun if place[0] is not calls}
        for place in [each for each in self._waiting if each[0] is calls]:
            self._waiting.pop(place).cancel()
        for task, attempts in self._running.items():
            if all(attempt.calls.closed for attempt in attempts):
                task.cancel()

    def _add_now(self, attempt: Attempt) -> None:
        place = place_of(attempt)
        self._waiting.pop(place, None)
        if not attempt.calls.closed and place not in self._begun:
            self._begun.add(place)
            self._ready.append((self._loop.time(), attempt))
            self._pump()

    def _pump(self) -> None:
        """Start what may start now, and come back when more may."""
        while self._ready:
            wait = self._wait()
            if wait is None:
                return  # until one ends
            if wait > 0:
                if self._pumps_at is not None:
                    self._pumps_at.cancel()
                self._pumps_at = self._loop.call_later(wait, self._pump)
                return
            count = min(self._call.batch, len(self._ready))
            attempts = [self._ready.popleft()[1] for _ in range(count)]
            self._started.append(self._loop.time())
            task = self._loop.create_task(self._run(attempts))
            self._running[task] = attempts
            # Also of one that is cancelled before its first step, whose function never runs.
            task.add_done_callback(self._ended)

    def _wait(self) -> float | None:
        """Return the seconds until the next start; None: another attempt has to end before it."""
        call, now = self._call, self._loop.time()
        broken = call.breaker is not None and self._failures >= call.breaker
        if len(self._running) >= (1 if broken else call.at_once):
            return None
        waits = [0.0, self._paused_until - now]
        if call.rate is not None and len(self._started) == call.rate.calls:
            waits.append(self._started[0] + call.rate.per.total_seconds() - now)
        if len(self._ready) < call.batch:
            waits.append(self._ready[0][0] + call.batch_within.total_seconds() - now)
        return max(waits)

    async def _run(self, attempts: Sequence[Attempt]) -> None:
        began = self._loop.time()
        self.running += len(attempts)
        try:
            running([attempt.id for attempt in attempts])
            results = await self._results(attempts)
        except (asyncio.CancelledError, GeneratorExit) as error:
            # Cancelled from here, or by the function itself: then it has failed like any other.
            results = [error for _ in attempts]
        finally:
            self.running -= len(attempts)
            self._durations.append(self._loop.time() - began)
        if not all(attempt.calls.closed for attempt in attempts):  # else it may have been cancelled from here
            self._judge(results)
        for attempt, result in zip(attempts, results, strict=True):
            place = place_of(attempt)
            if place in self._begun and not attempt.calls.closed:
                failure = result if isinstance(result, BaseException) else None
                answer = None if failure is not None else result
                attempt.calls.arrive(Outcome(attempt.row_key, answer, failure, attempt.pending.attempts))
            self._begun.discard(place)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._pump()

    async def _results(self, attempts: Sequence[Attempt]) -> Sequence[Any]:
        call = self._call
        argument = [each.request for each in attempts] if call.batch > 1 else attempts[0].request
        limit = asyncio.timeout(call.timeout.total_seconds())
        try:
            async with limit:
                work = call.function(argument) if self._is_coroutine else _in_thread(call.function, argument)
                found = await work
                if inspect.isawaitable(found):  # a plain function around a coroutine function
                    found = await found
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - user code may raise anything; SystemExit would end the event loop
            failed = error
            if isinstance(error, TimeoutError) and limit.expired():
                seconds = call.timeout.total_seconds()
                failed = CallTimedOut(f"the call took longer than {seconds:g} s: {error}")
            return [failed for _ in attempts]
        if call.batch == 1:
            return [found]
        if not isinstance(found, Sequence) or len(found) != len(attempts):
            many = len(found) if isinstance(found, Sequence) else type(found).__name__
            wrong = WrongResults(f"{call.name!r} was given {len(attempts)} requests, and it returned {many}")
            return [wrong for _ in attempts]
        return found

    def _judge(self, results: Sequence[Any]) -> None:
        """Count failures in a row, and pause after too many."""
        if not all(isinstance(result, BaseException) for result in results):
            self._failures = self._pauses = 0
            return
        self._failures += 1
        now = self._loop.time()
        # Those that were running when the pause began say nothing new.
        most = self._call.breaker
        if most is not None and self._failures >= most and now >= self._paused_until:
            self._pauses += 1
            pause = self._call.retry.growing_seconds(self._pauses)
            self._paused_until = now + pause
            log.warning(
                "calls paused",
                call=self._call.name,
                failures=self._failures,
                seconds=pause,
                error=text_of(results[0]),
            )


class WrongResults(Exception):
    """The function of a batch has not returned one result for each request."""


def _in_thread(function: Callable[[Any], Any], argument: Any) -> Awaitable[Any]:
    """Run a function in a thread of its own: one that never ends keeps neither the others nor the process."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    context = copy_context()

    def finish(result: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result: Any = None
        failed: BaseException | None = None
        try:
            result = context.run(function, argument)
        except StopIteration as error:  # which no future takes
            failed = RuntimeError(f"the function raised StopIteration({error})")
        except BaseException as error:  # noqa: BLE001 - handed to the loop
            failed = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, result, failed)

    threading.Thread(target=run, name="call", daemon=True).start()
    return done
