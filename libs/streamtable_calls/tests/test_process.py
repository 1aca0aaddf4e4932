"""The event loop of a process's calls: limits, batches, threads, and an end that waits for nothing."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from localkafka.waiting import wait_until
from streamtable import Json
from streamtable.base.clock import SystemClock
from streamtable_calls import CallTimedOut, RateLimit, Retry, RetryAfter, call_id, call_ids
from streamtable_calls.partition import Attempt, Outcome
from streamtable_calls.pending import PendingCall
from streamtable_calls.process import InLoop
from streamtable_calls.settings import CallSettings

SECONDS_MAX = 60.0


class Partition:
    """Stands where a partition takes the outcomes."""

    def __init__(self) -> None:
        self.closed = False
        self.outcomes: queue.Queue[Outcome] = queue.Queue()

    def arrive(self, outcome: Outcome) -> None:
        self.outcomes.put(outcome)


class Caller:
    """The calls of one function."""

    def __init__(self, function: Callable[[Any], Any], **given: Any) -> None:
        settings: dict[str, Any] = {
            "order": "key", "at_once": 64, "batch": 1, "batch_within": timedelta(0), "timeout": timedelta(seconds=30),
            "retry": Retry(first=timedelta(milliseconds=1), most=timedelta(milliseconds=200)), "rate": None,
            "pending_max": 10, "breaker": 20,
        }  # fmt: skip
        self.call = CallSettings("f", function, Json(), Json(), **{**settings, **given})
        self.executor = InLoop("g", {"f": self.call}, SystemClock())
        self.partition = Partition()

    def start(self, *requests: Any, partition: Partition | None = None, next_ms: int = 0) -> None:
        for request in requests:
            pending = PendingCall(b"", 0, next_ms=next_ms)
            calls: Any = partition or self.partition
            self.executor.start(
                Attempt(self.call, calls, str(request).encode(), f"g/0/{request}", b"", request, pending)
            )

    def outcomes(self, count: int) -> dict[str, Any]:
        """Wait for outcomes. Returns the result or the error of each, by request."""
        found = [self.partition.outcomes.get(timeout=SECONDS_MAX) for _ in range(count)]
        return {each.row_key.decode(): each.result if each.error is None else each.error for each in found}


Make = Callable[..., Caller]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Caller] = []

    def make(function: Callable[[Any], Any], **given: Any) -> Caller:
        made.append(Caller(function, **given))
        return made[-1]

    yield make
    for caller in made:
        caller.executor.close()


async def ident(request: Any) -> str:
    await asyncio.sleep(0.001)
    return call_id()


def test_a_coroutine_function_runs_with_the_id_of_its_call(make: Make) -> None:
    caller = make(ident)
    caller.start(1, 2, 3)
    assert caller.outcomes(3) == {"1": "g/0/1", "2": "g/0/2", "3": "g/0/3"}


def test_a_plain_function_runs_in_a_thread_with_the_id_of_its_call(make: Make) -> None:
    def function(request: Any) -> Any:
        return [call_id(), threading.current_thread().name]

    caller = make(function)
    caller.start(1)
    assert caller.outcomes(1) == {"1": ["g/0/1", "call"]}


def test_a_coroutine_function_that_blocks_the_event_loop_is_logged(make: Make) -> None:
    async def sleeps(request: Any) -> Any:
        time.sleep(float(request))  # noqa: ASYNC251 - the mistake
        return request

    with capture_logs() as logs:
        caller = make(sleeps)
        caller.start(0)
        caller.outcomes(1)
        assert logs == []
        caller.start(2.2)
        caller.outcomes(1)
        wait_until(lambda: logs != [], 20, "it is logged")
    (line,) = logs
    assert line["event"].startswith("event loop of calls blocked")
    assert (line["group"], line["seconds"] > 1) == ("g", True)


@pytest.mark.parametrize("plain", [False, True])
def test_no_more_functions_run_at_once_than_the_call_says(make: Make, plain: bool) -> None:  # noqa: FBT001
    running, most, lock = 0, 0, threading.Lock()

    def enter(step: int) -> None:
        nonlocal running, most
        with lock:
            running += step
            most = max(most, running)

    def function(request: Any) -> None:
        enter(1)
        time.sleep(0.01)
        enter(-1)

    async def coroutine(request: Any) -> None:
        enter(1)
        await asyncio.sleep(0.01)
        enter(-1)

    caller = make(function if plain else coroutine, at_once=4)
    caller.start(*range(20))
    caller.outcomes(20)
    assert most == 4


def test_an_error_of_the_function_is_the_outcome(make: Make) -> None:
    async def function(request: Any) -> Any:
        raise RetryAfter(3) if request == 1 else asyncio.CancelledError

    caller = make(function)
    caller.start(1, 2)
    found = caller.outcomes(2)
    assert isinstance(found["1"], RetryAfter)
    assert isinstance(found["2"], asyncio.CancelledError)


@pytest.mark.parametrize("plain", [False, True])
def test_an_attempt_that_takes_too_long_has_failed(make: Make, plain: bool) -> None:  # noqa: FBT001
    release = threading.Event()

    async def hang(request: Any) -> None:
        await asyncio.sleep(3600)

    caller = make(release.wait if plain else hang, timeout=timedelta(milliseconds=20))
    caller.start(1 if not plain else 3600)
    (error,) = caller.outcomes(1).values()
    release.set()
    assert isinstance(error, CallTimedOut)
    assert "longer than 0.02 s" in str(error)
    # As `ConnectionError` stands for a server that cannot be reached, and this one may be busy.
    assert Retry(attempts=2, on=(ConnectionError,)).pause_seconds(1, error, 0.0) is not None


class ServerTimeout(ConnectionError, TimeoutError):
    """As clients of HTTP have: an error of their own that is a `TimeoutError` too."""


@pytest.mark.parametrize("plain", [False, True])
def test_a_timeout_of_the_functions_own_is_its_error_and_not_the_timeout_of_the_call(
    make: Make,
    plain: bool,  # noqa: FBT001
) -> None:
    def function(request: Any) -> Any:
        raise ServerTimeout("no answer within 2 s")

    async def coroutine(request: Any) -> Any:
        return function(request)

    caller = make(function if plain else coroutine)
    caller.start(1)
    (error,) = caller.outcomes(1).values()
    assert (type(error), str(error)) == (ServerTimeout, "no answer within 2 s")
    assert Retry(on=(OverflowError,)).pause_seconds(1, error, 0.0) is None


class Stopped(BaseException):
    """An error that `except Exception` does not catch, as some libraries have."""


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, Stopped])
@pytest.mark.parametrize("plain", [False, True])
def test_a_function_that_wants_to_end_the_process_fails_its_own_call_and_the_others_go_on(
    make: Make,
    error: type[BaseException],
    plain: bool,  # noqa: FBT001
) -> None:
    def function(request: Any) -> Any:
        if request == "bad":
            raise error("usage: score [options]")
        return request

    async def coroutine(request: Any) -> Any:
        return function(request)

    caller = make(function if plain else coroutine, at_once=1)
    caller.start("bad", "good")
    found = caller.outcomes(2)
    assert (type(found["bad"]), found["good"]) == (error, "good")


def test_a_plain_function_that_raises_stop_iteration_has_failed_at_once(make: Make) -> None:
    caller = make(lambda _: next(iter(())))
    caller.start(1)
    (error,) = caller.outcomes(1).values()
    assert (type(error), "StopIteration" in str(error)) == (RuntimeError, True)


def test_a_plain_function_that_returns_a_coroutine_is_waited_for(make: Make) -> None:
    caller = make(lambda request: ident(request))  # noqa: PLW0108 - a plain function around it
    caller.start(1)
    assert caller.outcomes(1) == {"1": "g/0/1"}


def test_requests_are_given_together_to_the_function_of_a_batch(make: Make) -> None:
    batches: list[int] = []

    async def function(requests: Sequence[int]) -> Sequence[Any]:
        batches.append(len(requests))
        return [ValueError("odd") if n % 2 else call for n, call in zip(requests, call_ids(), strict=True)]

    caller = make(function, batch=4, batch_within=timedelta(milliseconds=50))
    caller.start(*range(10))
    found = caller.outcomes(10)
    assert sorted(batches) == [2, 4, 4]
    assert (found["8"], type(found["9"])) == ("g/0/8", ValueError)


def test_a_batch_with_another_number_of_results_has_failed(make: Make) -> None:
    async def function(requests: Sequence[int]) -> Sequence[Any]:
        return [1]

    caller = make(function, batch=2, batch_within=timedelta(seconds=5))
    caller.start(1, 2)
    assert [type(each).__name__ for each in caller.outcomes(2).values()] == ["WrongResults"] * 2


def test_no_more_calls_start_within_a_time_than_the_rate_says(make: Make) -> None:
    starts: list[float] = []

    async def function(request: Any) -> None:
        starts.append(time.monotonic())

    caller = make(function, rate=RateLimit(3, per=timedelta(milliseconds=100)))
    began = time.monotonic()
    caller.start(*range(9))
    caller.outcomes(9)
    # A function notes its start a moment later, so the starts are compared with the beginning and not with each other.
    assert all(start - began >= index // 3 * 0.1 - 0.001 for index, start in enumerate(starts))


def test_an_attempt_waits_until_its_time(make: Make) -> None:
    caller = make(ident)
    until = time.time() + 0.1
    caller.start(1, next_ms=int(until * 1000))
    caller.outcomes(1)
    assert time.time() >= until - 0.002


def test_after_failures_in_a_row_the_calls_pause_and_one_is_tried(make: Make) -> None:
    starts: list[float] = []
    good = False

    async def function(request: Any) -> None:
        starts.append(time.monotonic())
        await asyncio.sleep(0)
        if not good:
            raise ConnectionError

    pauses = Retry(first=timedelta(milliseconds=200), most=timedelta(milliseconds=200))
    caller = make(function, breaker=3, at_once=1, retry=pauses)
    caller.start(1, 2, 3)
    caller.outcomes(3)
    good = True
    caller.start(4, 5)
    caller.outcomes(2)
    assert starts[3] - starts[2] >= 0.19


def test_a_call_whose_shared_task_is_cancelled_by_another_one_is_tried_again(make: Make) -> None:
    shared: list[asyncio.Task[None]] = []

    async def function(request: Any) -> None:
        if not shared:
            shared.append(asyncio.ensure_future(asyncio.sleep(3600)))
        if request == "late":
            shared[0].cancel()
        await shared[0]

    caller = make(function)
    caller.start("early", "late")
    for error in caller.outcomes(2).values():
        assert isinstance(error, asyncio.CancelledError)
        assert Retry().pause_seconds(1, error, 0.0) is not None
        assert Retry(on=(ConnectionError,)).pause_seconds(1, error, 0.0) is None


@pytest.mark.parametrize("error", [ConnectionError, asyncio.CancelledError, SystemExit])
def test_failures_of_any_kind_in_a_row_pause_the_calls(make: Make, error: type[BaseException]) -> None:
    async def function(request: Any) -> None:
        raise error

    caller = make(function, breaker=2)
    with capture_logs() as logs:
        caller.start(1, 2)
        caller.outcomes(2)
    assert [line["event"] for line in logs] == ["calls paused"]


def test_calls_that_are_cancelled_with_their_partition_are_no_failures(make: Make) -> None:
    async def function(request: Any) -> Any:
        return await asyncio.sleep(3600 if request == "long" else 0, request)

    caller, gone = make(function, breaker=1), Partition()
    caller.start("long", partition=gone)
    wait_until(lambda: caller.executor.running("f") == 1, SECONDS_MAX, "it runs")
    with capture_logs() as logs:
        gone.closed = True
        caller.executor.cancel(gone)  # type: ignore[arg-type] # stands for it
        caller.start("short")
        assert caller.outcomes(1) == {"short": "short"}
    assert logs == []


def test_what_runs_for_a_partition_that_has_gone_is_cancelled_and_gives_no_outcome(make: Make) -> None:
    began, cancelled = threading.Event(), threading.Event()

    async def function(request: Any) -> Any:
        if request != "long":
            return request
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    caller, gone = make(function), Partition()
    caller.start("long", partition=gone)
    assert began.wait(SECONDS_MAX)
    gone.closed = True
    caller.executor.cancel(gone)  # type: ignore[arg-type] # stands for it
    assert cancelled.wait(SECONDS_MAX)
    caller.start("short")
    assert caller.outcomes(1) == {"short": "short"}
    assert gone.outcomes.empty()


def test_an_attempt_that_is_cancelled_before_its_first_step_leaves_its_place_to_another(make: Make) -> None:
    async def function(request: Any) -> Any:
        return request

    caller, gone = make(function, at_once=1), Partition()
    caller.start("first")
    caller.outcomes(1)
    loop, attempts = caller.executor._loop, caller.executor._queues["f"]
    wait_until(lambda: not attempts._running, SECONDS_MAX, "its place is free")
    calls: Any = gone
    unstarted = Attempt(caller.call, calls, b"gone", "g/0/gone", b"", "gone", PendingCall(b"", 0))

    def start_and_cancel() -> None:
        attempts.add(unstarted)
        gone.closed = True
        attempts.cancel(calls)

    assert loop is not None
    loop.call_soon_threadsafe(start_and_cancel)
    caller.start("second")
    assert caller.outcomes(1) == {"second": "second"}
    assert gone.outcomes.empty()


def test_the_end_waits_for_no_function(make: Make) -> None:
    release = threading.Event()
    caller = make(lambda _: release.wait(3600))
    caller.start(1)
    began = time.monotonic()
    caller.executor.close()
    assert time.monotonic() - began < 4
    release.set()


def test_a_call_that_waits_for_its_time_runs_once_and_at_once_when_it_is_hurried(make: Make) -> None:
    seen: list[Any] = []

    async def function(request: Any) -> Any:
        seen.append(request)
        await asyncio.sleep(0.01)

    caller = make(function)
    later_ms = int((time.time() + 3600) * 1000)
    caller.start("a", next_ms=later_ms)
    caller.start("a", "a")
    caller.start("b", next_ms=later_ms)
    caller.outcomes(1)
    caller.start("c")
    assert caller.outcomes(1) == {"c": None}
    assert seen == ["a", "c"]


def test_a_call_that_is_dropped_does_not_start_and_gives_no_outcome(make: Make) -> None:
    seen: list[Any] = []
    goes_on = threading.Event()

    def function(request: Any) -> Any:
        seen.append(request)
        assert goes_on.wait(SECONDS_MAX)

    caller = make(function, at_once=1)
    attempts = [
        Attempt(caller.call, caller.partition, key.encode(), f"g/0/{key}", b"", key, PendingCall(b"", 0))  # type: ignore[arg-type] # stands for one
        for key in ("a", "b", "c")
    ]
    for attempt in attempts:
        caller.executor.start(attempt)
    for attempt in attempts[:2]:
        caller.executor.drop(attempt)
    goes_on.set()
    assert caller.outcomes(1) == {"c": None}
    assert "b" not in seen


def test_the_durations_of_attempts_are_given_once(make: Make) -> None:
    async def function(request: Any) -> Any:
        await asyncio.sleep(request)

    caller = make(function)
    assert (caller.executor.running("f"), caller.executor.durations("f")) == (0, ())
    caller.start(0.01, 0.02)
    caller.outcomes(2)
    assert [each >= 0.01 for each in caller.executor.durations("f")] == [True, True]
    assert (caller.executor.running("f"), caller.executor.durations("f")) == (0, [])
