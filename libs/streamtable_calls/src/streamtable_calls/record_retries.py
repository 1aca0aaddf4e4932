"""`retried`: an input whose failing records are tried again later, in the order of each key.

    GROUP = Group("payments", *retried(Input(ORDERS, charge), Retry(on=(ConnectionError,))), Persist(PAYMENT))

A record whose handler fails becomes a pending row, in the commit of everything else that the batch has done. The later records of its
key are kept behind it; all other keys go on.
"""

from dataclasses import replace
from functools import partial, wraps
from typing import Any, Generic, Literal, TypeVar

import structlog

from streamtable import Context, Input, OnError, Timer
from streamtable.base.message import MadeMessage
from streamtable.base.types import RecordBatch
from streamtable.errors import (
    DoInstead,
    Fatal,
    GraphError,
    HandlerFailed,
    RetryLater,
    StoreCorrupted,
    StreamtableError,
)
from streamtable.handlers.timers import NEVER_MS, PendingTimer, payload_of, time_of
from streamtable_calls.commands_to_group import CallCommand, command_of
from streamtable_calls.edge import PendingEdge
from streamtable_calls.errors import text_of
from streamtable_calls.held import HeldRecord, hold, release, waits
from streamtable_calls.pending import PendingCall, PendingCallCodec, next_number, pending_row
from streamtable_calls.retry import Retry
from streamtable_calls.settings import RetrySettings

log = structlog.get_logger()

K = TypeVar("K")
E = TypeVar("E")
V = TypeVar("V")

_ENGINES_OWN = (DoInstead, Fatal, GraphError, RetryLater, StoreCorrupted)
"""Errors that no record has caused: the engine treats them."""


def retried(
    edge: Input[K, E, V],
    retry: Retry,
    *,
    name: str = "",
    order: Literal["key", "none"] = "key",
    pending_max: int = 10_000,
) -> tuple[Input[K, E, V], "RecordRetries[K, E, V]"]:
    """Return an input whose failing records are tried again later, and the edge that does so. A group needs both.

    A record that fails for good, since it has no attempts left or its error is not one of `retry.on`, is treated as the input's
    `on_error` says, and the next one of its key follows. `ctx.fail` and errors of Streamtable are never retried, nor are
    records without a key (`Input(keyless=True)`).

    Args:
        edge: The input, with a handler of single records.
        retry: The errors to retry, and the pauses.
        name: The name under which records are kept: while any is pending, the graph needs it. By default the name of the stream.
        order: "key": the later records of a key wait behind one that is retried, and are handled in their order. "none": only
            the failing record waits.
        pending_max: With so many kept records of a partition its inputs are paused, until a fifth of it is free.

    Raises:
        GraphError: An argument makes no sense.
    """
    if edge.handler is None:
        raise GraphError(
            f"the retried input {edge.stream.name!r} has no handler of single records: give it handler="
        )
    if edge.once is not None:
        raise GraphError(
            f"the retried input {edge.stream.name!r} has once=: the id of a record that is kept has been seen, so if it becomes a "
            "dead letter, its replay would be skipped as a repeat. Copy the stream without repeats, and retry its reader"
        )
    retries = RecordRetries(edge, RetrySettings(name or edge.stream.name, retry, order, pending_max))
    return replace(edge, handler=retries.handler_of_records()), retries


class RecordRetries(PendingEdge[K, V], Generic[K, E, V]):
    """The records of an input that are tried again later; made by `retried`."""

    settings: RetrySettings
    edge: Input[K, E, V]

    def __init__(self, edge: Input[K, E, V], settings: RetrySettings) -> None:
        for field, value in {"edge": edge, "settings": settings}.items():
            object.__setattr__(self, field, value)  # as in any frozen dataclass
        codec = PendingCallCodec(f"records of {edge.stream.name} to be handled again")
        Timer.__init__(self, settings.name, self._handle_again, codec, clock="wall", on_error=edge.on_error)

    def handler_of_records(self) -> Any:
        """Return the handler of the records as they come."""
        assert self.edge.handler is not None, "refused above"
        return wraps(self.edge.handler)(partial(self._handle_first))

    def again(self, row: bytes | None, record: RecordBatch) -> bytes | None:
        command = command_of(record)
        if row is None or command is CallCommand.DROP:
            return None
        if command is None or time_of(row) == NEVER_MS:
            return row  # it waits for an earlier record of its key
        return PendingCall.decode(payload_of(row)).row(0)

    def _handle_first(self, ctx: Context[K, V], event: E) -> None:
        if ctx.key is None and not ctx.raw_key:
            self._call(ctx, event)  # there is nothing to keep it under
            return
        if self._in_order and waits(ctx.timers.rows(self), self._place(ctx)):
            record, pending = self._held(ctx)
            ctx.timers.at(self, NEVER_MS, pending, record.id)  # until those before it are gone
            return
        try:
            self._call(ctx, event)
        except _ENGINES_OWN:
            raise
        except Exception as error:
            pause = self._pause_seconds(error, 1, 0.0)
            if pause is None:
                raise  # treated as in any input
            raise DoInstead(partial(self._keep, ctx, error, pause), f"retried: {text_of(error)}") from error

    def _keep(self, ctx: Context[K, V], error: Exception, pause: float) -> None:
        record, pending = self._held(ctx)
        text = text_of(error).ljust(len(pending.error))
        tried = pending._replace(attempts=1, since_ms=ctx.timers.now_ms, error=text)
        self._wait(ctx, record, tried, pause)
        if self._in_order:
            hold(ctx.timers.rows(self), self._place(ctx))

    def _held(self, ctx: Context[K, V]) -> tuple[HeldRecord, PendingCall]:
        number = next_number(ctx.timers.rows(self), ctx.timers.now_ms)
        record = HeldRecord(number, ctx.topic, ctx.offset, ctx.timestamp_ms, ctx.raw_value, ctx.headers)
        return record, pending_row(ctx, record.encode())

    def _wait(self, ctx: Context[K, V], record: HeldRecord, pending: PendingCall, pause: float) -> None:
        when_ms = ctx.timers.now_ms + int(pause * 1000)
        ctx.timers.at(self, when_ms, pending._replace(next_ms=when_ms), record.id)

    def _handle_again(self, ctx: Context[K, V], pending: PendingCall) -> None:
        record = HeldRecord.decode(pending.request)
        # Windows, and the readers of outputs, take the event time from it.
        self._stand(ctx, record, pending.made_ms or record.timestamp_ms)
        try:
            stream = self.edge.stream
            event: Any = None if record.value is None else stream.value.decode(record.value)
            self._call(ctx, event)
            self._release(ctx)
        except _ENGINES_OWN:
            raise
        except Exception as error:
            now_ms = ctx.timers.now_ms
            tried = pending._replace(
                attempts=pending.attempts + 1, since_ms=pending.since_ms or now_ms, error=text_of(error)
            )
            pause = self._pause_seconds(error, tried.attempts, (now_ms - tried.since_ms) / 1000)
            if pause is not None:
                raise DoInstead(partial(self._wait, ctx, record, tried, pause), tried.error) from error
            times = "once" if tried.attempts == 1 else f"{tried.attempts} times"
            text = f"the record has failed and is not retried; it was tried {times}: {tried.error}"
            if self.edge.on_error is OnError.STOP:
                raise HandlerFailed(text).at(record.topic, ctx.partition, record.offset) from error
            failed = HandlerFailed(text)
            failed.__cause__ = error
            raise DoInstead(partial(self._give_up, ctx, record, failed), tried.error) from error

    def _give_up(self, ctx: Context[K, V], record: HeldRecord, failed: HandlerFailed) -> None:
        self._stand(ctx, record, record.timestamp_ms)
        if self.edge.on_error is OnError.DEAD_LETTER:
            ctx.set_aside(failed)
        else:
            log.warning("record is skipped", retries=self.name, offset=record.offset, error=str(failed))
        ctx.timers.cancel(self, record.id)
        self._release(ctx)

    def _release(self, ctx: Context[K, V]) -> None:
        if self._in_order:
            release(ctx.timers.rows(self), self._place(ctx), ctx.timers.now_ms)

    def _call(self, ctx: Context[K, V], event: E) -> None:
        assert self.edge.handler is not None, "refused above"
        self.edge.handler(ctx, event)

    def _pause_seconds(self, error: Exception, attempts: int, since_seconds: float) -> float | None:
        if isinstance(error, StreamtableError):
            return None
        return self.settings.retry.pause_seconds(attempts, error, since_seconds)

    def _stand(self, ctx: Context[K, V], record: HeldRecord, timestamp_ms: int) -> None:
        message = MadeMessage(ctx.raw_key, record.value, (1, timestamp_ms), record.headers, record.offset)
        ctx.stand(RecordBatch(record.topic, ctx.partition, [message]), 0, ctx.key)

    def _place(self, ctx: Context[K, V]) -> PendingTimer:
        return PendingTimer(self.name, ctx.raw_key, "")

    @property
    def _in_order(self) -> bool:
        return self.settings.order == "key"

    def __repr__(self) -> str:
        return f"RecordRetries({self.name!r})"
