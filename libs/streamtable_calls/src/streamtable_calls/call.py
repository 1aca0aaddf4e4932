"""`Call`: an edge of a group for calls of an API or a function outside.

    SCORE = Call("score", score, request=ORDER, response=SCORE_CODEC, then=scored)
    GROUP = Group("orders", Input(ORDERS, handle), SCORE, Persist(ROW))

    def handle(ctx, order):
        ctx.call(SCORE, order)

    def scored(ctx, order, score):
        ctx.set(judged(ctx.value, score))

A pending call is a timer's row that has no time yet: the engine commits it with everything else that its handler has done.
When it is answered, the row gets the answer and a time, and the engine calls its handler like the handler of any timer.
"""

from collections.abc import Callable, Iterable
from copy import copy
from datetime import timedelta
from inspect import isasyncgenfunction, iscoroutinefunction, isgenerator
from typing import Any, Generic, Literal, TypeVar

from streamtable import Codec, Context, OnError, Timer
from streamtable.base.mapped import check_results
from streamtable.base.types import RecordBatch
from streamtable.errors import DeserializationError, GraphError
from streamtable.handlers.timers import NEVER_MS, payload_of
from streamtable_calls.commands_to_group import CallCommand, command_of
from streamtable_calls.edge import PendingEdge
from streamtable_calls.errors import CallFailed
from streamtable_calls.pending import CallState, PendingCall, PendingCallCodec, next_number, pending_row
from streamtable_calls.retry import RateLimit, Retry
from streamtable_calls.settings import CallSettings

K = TypeVar("K")
Q = TypeVar("Q")
R = TypeVar("R")
V = TypeVar("V")


class Call(PendingEdge[K, V], Generic[K, Q, R, V]):
    """A call of something outside, which `Context.call` makes: after the commit of its record, and beside the records.

    Nothing waits for a call: no record, no commit, no rebalance. It happens at least once, always with the same `call_id()`
    and the request that was committed; its result is handled exactly once. A process that dies leaves its pending calls to
    the next owner of the partition.

    Args:
        name: The name, under which pending calls are kept: while any is pending, the graph needs it.
        function: Called with a request, or with a sequence of requests if `batch` is greater than 1; returns the result, or a
            sequence with the result of each. A coroutine function runs in the event loop of the process's calls, another one in
            a thread. It may return an exception in the place of a result.
        request: The codec of the requests.
        response: The codec of the results.
        then: Called with the context of the key, the request and the result. It may do all that a handler may, and call again.
            In a flow it returns the values for the next step. None: there is nothing to do; in a flow the result is the value.
        failed: Called with the context, the request and `CallFailed` when a call is not tried again. In a flow it returns values
            too. None: `on_error` decides.
        order: "key": of one key at most one call runs, and results are handled in the order of the calls; the next one
            starts after the commit of the result. "none": as they come.
        at_once: The maximum number of functions that run at once, in each process.
        batch: The maximum number of requests in one call of the function, from all partitions of the process.
        batch_within: How long a request waits for others to fill a batch.
        timeout: The time that an attempt may take. Then it has failed with `CallTimedOut`, which is retried; a thread that
            does not end stays.
        retry: When an attempt is repeated. None: never.
        rate: How many calls of the function may start within a time, in each process. None: no limit.
        pending_max: With so many pending calls of a partition its inputs are paused, until a fifth of it is free.
        on_error: The policy for a call that has failed, or whose `then` has raised. A dead letter holds the pending call.
        breaker: The number of attempts that fail in a row, in a process, after which its calls pause, and then run one at a time
            until one succeeds. The pauses between these grow as those of `retry`. None: never.

    Raises:
        GraphError: An argument makes no sense.
    """

    settings: CallSettings
    then: Callable[[Context[K, V], Q, R], Iterable[Any] | None] | None
    failed: Callable[[Context[K, V], Q, CallFailed], Iterable[Any] | None] | None

    def __init__(
        self,
        name: str,
        function: Callable[[Any], Any],
        *,
        request: Codec[Q],
        response: Codec[R],
        then: Callable[[Context[K, V], Q, R], Iterable[Any] | None] | None = None,
        failed: Callable[[Context[K, V], Q, CallFailed], Iterable[Any] | None] | None = None,
        order: Literal["key", "none"] = "key",
        at_once: int = 64,
        batch: int = 1,
        batch_within: timedelta = timedelta(0),
        timeout: timedelta = timedelta(seconds=30),
        retry: Retry | None = Retry(),  # noqa: B008 - frozen
        rate: RateLimit | None = None,
        pending_max: int = 10_000,
        on_error: OnError = OnError.DEAD_LETTER,
        breaker: int | None = 20,
    ) -> None:
        settings = CallSettings(
            name,
            function,
            request,
            response,
            order,
            at_once,
            batch,
            batch_within,
            timeout,
            retry or Retry(attempts=1),
            rate,
            pending_max,
            breaker,
        )
        for field, value in {"settings": settings, "then": then, "failed": failed}.items():
            object.__setattr__(self, field, value)  # as in any frozen dataclass
        for role, handler in (("then", then), ("failed", failed)):
            if iscoroutinefunction(handler) or isasyncgenfunction(handler):
                raise GraphError(
                    f"{role} of call {name!r} is a coroutine function, and nothing waits for it: give a plain one"
                )
        codec = PendingCallCodec(f"call of {request!r} answered by {response!r}")
        Timer.__init__(self, name, self._ended, codec, clock="wall", on_error=on_error)

    def begin(self, ctx: Context[Any, Any], request: Q) -> None:
        """Make a call, as `Context.call` does."""
        pending = pending_row(ctx, self.settings.request.encode(request))
        number = next_number(ctx.timers.rows(self), ctx.timers.now_ms)
        ctx.timers.at(self, NEVER_MS, pending, f"{number:016x}")

    def again(self, row: bytes | None, record: RecordBatch) -> bytes | None:
        command = command_of(record)
        if command is CallCommand.DROP:
            return None
        if command is CallCommand.RETRY_NOW:
            return row if row is None else _hurried(row)
        if row is not None:
            return row  # it is pending again already
        letter = record.values[0]
        if letter is None:
            raise DeserializationError(
                "the dead letter holds no pending call: was it too large for its topic?"
            )
        pending = PendingCall.decode(payload_of(letter))
        return PendingCall(pending.request, pending.made_ms).row()

    def finish(self, ctx: Context[K, V], pending: PendingCall) -> Iterable[Any]:
        """Call the handler of a call that has ended. Returns the values that it returns, which a flow passes on."""
        request: Q = self.settings.request.decode(pending.request)
        if pending.state is CallState.ANSWERED:
            result: R = self.settings.response.decode(pending.answer)
            return [result] if self.then is None else self.then(ctx, request, result) or ()
        error = CallFailed(self.name, pending.attempts, pending.error)
        if self.failed is None:
            raise error
        return self.failed(ctx, request, error) or ()

    def _ended(self, ctx: Context[K, V], pending: PendingCall) -> None:
        if isgenerator(made := self.finish(ctx, pending)):
            raise GraphError(
                f"a handler of call {self.name!r} yields values, which only a flow passes on: emit them, or use call_each()"
            )
        check_results([made])

    def handled_by(self, handler: Callable[[Context[K, V], PendingCall], None]) -> "Call[K, Q, R, V]":
        """Return the same call, with another handler of those that have ended: `ctx.call` takes either."""
        made = copy(self)
        object.__setattr__(made, "handler", handler)  # as above
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            return NotImplemented
        return (self.settings, self.then, self.failed) == (other.settings, other.then, other.failed)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Call({self.name!r})"


def _hurried(row: bytes) -> bytes:
    """Return the row of a call whose next attempt is due at once; one that has its result stays as it is."""
    pending = PendingCall.decode(payload_of(row))
    return pending._replace(next_ms=0).row() if pending.state is CallState.WAITING else row
