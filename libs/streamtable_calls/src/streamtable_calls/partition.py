"""The pending calls of one partition: which run, which wait for another one of their key, which are answered.

All of it but `arrive` is called by the main thread. The rows are the truth; what is kept here in memory follows them: a call
starts when its row is committed, the next one of its key when the row is gone and that is committed.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from streamtable import StateTable
from streamtable.base.clock import Clock
from streamtable.base.limited_log import LimitedLog
from streamtable.errors import RetryLater
from streamtable.handlers.timers import PendingTimer, payload_of
from streamtable_calls.errors import PendingCallsLeft, text_of
from streamtable_calls.held import release
from streamtable_calls.metrics import AttemptOutcome, CallMeters
from streamtable_calls.pending import OWN, CallState, PendingCall
from streamtable_calls.pending_times import PendingTimes
from streamtable_calls.settings import CallSettings, RetrySettings

log = structlog.get_logger()

_FREE_SHARE = 0.8  # of `pending_max`: so full that the inputs go on


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """One attempt of a call, for an executor.

    Attributes:
        call: The declared call.
        calls: The calls of its partition, which get the outcome.
        row_key: The key of its row.
        id: The id of the call.
        key: The encoded key of the record that has made it.
        request: The request.
        pending: Its row.
    """

    call: CallSettings
    calls: "PartitionCalls"
    row_key: bytes
    id: str
    key: bytes
    request: Any
    pending: PendingCall


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt, or its error.

    Attributes:
        row_key: The key of the row of its call.
        result: The result.
        error: The error; None: there is a result.
        attempts: The number of attempts before this one; -1: any. Another one has been written if the row has more.
    """

    row_key: bytes
    result: Any = None
    error: BaseException | None = None
    attempts: int = -1


class Executor(Protocol):
    """Runs attempts, and gives their outcomes to `PartitionCalls.arrive`."""

    def start(self, attempt: Attempt) -> None:
        """Run an attempt, not before the time in its row. One that waits for a later time is hurried by this."""

    def drop(self, attempt: Attempt) -> None:
        """Forget an attempt; its outcome is not taken any more."""

    def running(self, call: str) -> int:
        """Return how many calls of a name run. Any thread."""

    def durations(self, call: str) -> Sequence[float]:
        """Return the seconds that each attempt of a call took that has ended since this was asked last. Any thread."""

    def cancel(self, calls: "PartitionCalls") -> None:
        """Cancel what runs for a partition: its outcomes are not taken any more."""

    def close(self) -> None: ...


class PartitionCalls:
    """The pending calls of one partition; implements `graph.companion.Companion`.

    Args:
        group: The name of the group.
        partition: The number of the partition.
        calls: The declared calls, by name.
        retried: The retried inputs, by name.
        rows: The rows of the pending calls, and of the records that are retried.
        executor: Runs the attempts.
        clock: The clock, for the time of the next attempt.
        meters: Counts the attempts.
    """

    def __init__(
        self,
        group: str,
        partition: int,
        calls: Mapping[str, CallSettings],
        retried: Mapping[str, RetrySettings],
        rows: StateTable[bytes, bytes],
        executor: Executor,
        clock: Clock,
        meters: CallMeters,
    ) -> None:
        self.full = False
        self.closed = False
        self._group = group
        self._partition = partition
        self._calls = calls
        self._retried = retried
        edges: list[CallSettings | RetrySettings] = [*calls.values(), *retried.values()]
        self._pending_max = {each.name: each.pending_max for each in edges}
        self._rows = rows
        self._executor = executor
        self._clock = clock
        self._meters = meters
        self._limited_log = LimitedLog(log, clock)
        self._opened = False
        self._unhandled: list[
            tuple[bytes, bytes]
        ] = []  # rows found with a result, until their handlers are committed
        self._rewritten = False  # since the last rewind
        self._changed: list[bytes] = []  # rows that were written since the last commit
        self._committed: deque[bytes] = deque()  # rows that were committed, and not looked at since
        self._arrived: deque[Outcome] = deque()
        self._written: list[Outcome] = []  # since the last commit: they arrive again after a rewind
        self._ended: list[AttemptOutcome] = []  # by these
        self._lines: dict[bytes, deque[bytes]] = {}  # the rows of each key, in the order of their calls
        self._known: dict[bytes, int] = {}  # with the time of its record, in milliseconds since 1970
        self._started: dict[bytes, Attempt] = {}  # those without an outcome
        self._left: set[PendingTimer] = set()  # keys that a record which was retried has left
        self._uncommitted: set[PendingTimer] = set()  # those that were looked at since the last commit
        self._times = PendingTimes(rows)
        self.pending: Counter[str] = Counter()

    # ---- what the engine tells -----------------------------------------------------------------------------------------

    def placed(self, row_key: bytes) -> None:
        self._changed.append(row_key)
        self._measure()

    def work(self) -> int:
        if not self._opened:
            self._open()
        written = self._write_unhandled()
        while self._committed:
            self._look(self._committed[0])  # looked at again if a schema cannot be had now
            self._committed.popleft()
        self._measure()  # each time: a rewind may have taken the rows away that had filled it
        written += self._release()
        while self._arrived:
            written += self._write(self._arrived[0])  # the same
            self._arrived.popleft()
        return written

    def oldest_ms(self) -> int | None:
        return self._times.oldest_ms(self._changed)

    def committed(self) -> None:
        if self._rewritten:
            self._unhandled = []
        self._committed += self._changed
        self._meters.attempts.update(self._ended)
        self._changed, self._written, self._ended, self._uncommitted = [], [], [], set()

    def undone(self) -> None:
        self._rewritten = False
        self._arrived.extendleft(reversed(self._written))
        self._left |= self._uncommitted
        self._times.forget()
        self._changed, self._written, self._ended, self._uncommitted = [], [], [], set()

    def close(self) -> None:
        self.closed = True
        self._executor.cancel(self)

    def oldest_call_ms(self, call: str) -> int | None:
        """Return the event time of the oldest pending call of a name, in milliseconds since 1970. Any thread."""
        known = list(self._known.items())  # at once, as the main thread changes it
        times = (made for key, made in known if made and PendingTimer.decode(key).name == call)
        return min(times, default=None)

    # ---- called by the executor, from its thread -----------------------------------------------------------------------

    def arrive(self, outcome: Outcome) -> None:
        """Take the outcome of an attempt."""
        self._arrived.append(outcome)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Find the calls that are pending, in the order of each key."""
        # Calls may have been made, and committed, before this: they are behind the others, and found among them.
        self._committed.clear()
        uncommitted = set(self._changed)
        unknown: Counter[str] = Counter()
        for row_key, data in self._rows.raw.scan(None, None):
            if row_key in uncommitted:
                continue
            timer = PendingTimer.decode(row_key)
            name = timer.name
            if row_key.startswith(OWN):
                # The mark of a key that waits. Its rows may have been deleted while the group was stopped.
                if timer.id in self._retried:
                    self._left.add(PendingTimer(timer.id, timer.raw_key, ""))
            elif name in self._retried:
                self._committed.append(row_key)
                self._left.add(timer._replace(id=""))
            elif name not in self._calls:
                unknown[name] += 1
            elif PendingCall.decode(payload_of(data)).state is CallState.WAITING:
                self._committed.append(row_key)
            else:
                self._unhandled.append((row_key, data))
        for name, count in unknown.items():
            raise PendingCallsLeft(name, self._group, self._partition, count)
        for row_key, data in self._unhandled:
            self._note(row_key, PendingCall.decode(payload_of(data)))
        self._opened = True

    def _write_unhandled(self) -> int:
        """Write the rows again whose handlers have not been called, which calls them. Returns their number."""
        if self._rewritten:
            return 0
        for row_key, data in self._unhandled:
            self._rows.raw.put(row_key, data)
        self._rewritten = True
        return len(self._unhandled)

    def _look(self, row_key: bytes) -> None:
        data = self._rows.raw.get(row_key)
        if data is None:
            self._gone(row_key)
            return
        name = PendingTimer.decode(row_key).name
        pending = PendingCall.decode(payload_of(data))
        if name in self._retried:
            self._count(row_key, pending)
            if pending.attempts:
                self._warn("attempt failed, the record is handled again", name, pending)
            return
        line = self._note(row_key, pending)
        if pending.state is CallState.WAITING and line[0] == row_key:
            self._start(row_key, pending)

    def _note(self, row_key: bytes, pending: PendingCall) -> deque[bytes]:
        """Add a row to the line of its key, unless it is there. Returns the line."""
        line = self._lines.setdefault(self._line_of(row_key), deque())
        if self._count(row_key, pending):
            line.append(row_key)
        return line

    def _count(self, row_key: bytes, pending: PendingCall) -> bool:
        """Count a row. Returns whether it is new."""
        if row_key in self._known:
            return False
        self._known[row_key] = pending.made_ms
        self.pending[PendingTimer.decode(row_key).name] += 1
        return True

    def _gone(self, row_key: bytes) -> None:
        """Forget a call whose result is handled, and start the next one of its key."""
        if row_key not in self._known:
            return  # its record was undone
        del self._known[row_key]
        timer = PendingTimer.decode(row_key)
        self.pending[timer.name] -= 1
        if timer.name in self._retried:
            self._left.add(timer._replace(id=""))
            return
        line_of = self._line_of(row_key)
        line = self._lines[line_of]
        was_first = line[0] == row_key
        line.remove(row_key)
        if (dropped := self._started.pop(row_key, None)) is not None:
            self._executor.drop(dropped)
        if not line:
            del self._lines[line_of]
        elif was_first and self._rows.raw.get(line[0]) is not None:
            self._committed.append(line[0])

    def _release(self) -> int:
        """Let the next records follow those that the engine has given up. Returns the number of rows that were written."""
        if not self._left:
            return 0
        now_ms = int(self._clock.now() * 1000)
        left, self._left = self._left, set()
        self._uncommitted |= left
        # Also without an order: records may wait from the time when there was one.
        return sum(release(self._rows.raw, timer, now_ms) for timer in left)

    def _line_of(self, row_key: bytes) -> bytes:
        """Return the key of the line: calls of one line run one after the other."""
        timer = PendingTimer.decode(row_key)
        ordered = self._calls[timer.name].order == "key"
        return row_key[: len(row_key) - len(timer.id)] if ordered else row_key

    def _start(self, row_key: bytes, pending: PendingCall) -> None:
        timer = PendingTimer.decode(row_key)
        call = self._calls[timer.name]
        try:
            request = call.request.decode(pending.request)
        except RetryLater:
            raise
        except Exception as error:  # noqa: BLE001 - a codec may raise anything; the call fails with it
            self.arrive(Outcome(row_key, error=error))
            return
        call_id = f"{self._group}/{self._partition}/{int(timer.id, 16)}"
        attempt = Attempt(call, self, row_key, call_id, timer.raw_key, request, pending)
        self._started[row_key] = attempt
        self._executor.start(attempt)

    def _write(self, outcome: Outcome) -> int:
        """Write the outcome of an attempt into the row of its call. Returns the number of rows."""
        data = self._rows.raw.get(outcome.row_key)
        if data is None:
            return 0
        before = PendingCall.decode(payload_of(data))
        if outcome.attempts not in {-1, before.attempts}:
            return 0  # a call that was hurried may have run twice
        self._started.pop(outcome.row_key, None)
        call = self._calls[PendingTimer.decode(outcome.row_key).name]
        now_ms = int(self._clock.now() * 1000)
        pending = after(before, call, outcome, now_ms)
        if pending.state is not CallState.ANSWERED:
            last = pending.state is CallState.FAILED
            self._warn("call failed" if last else "attempt failed, the call is repeated", call.name, pending)
        waits = pending.state is CallState.WAITING
        self._ended.append(AttemptOutcome(call.name, "retried" if waits else pending.state.name.lower()))
        # A time that is over makes the row due at once; its handler sees it as the time of the request.
        row = pending.row() if waits else pending.row(min(pending.made_ms, now_ms))
        self._rows.raw.put(outcome.row_key, row)
        self._written.append(outcome)
        if waits:  # else its handler is called, which says so
            self._changed.append(outcome.row_key)
        return 1

    def _warn(self, event: str, name: str, pending: PendingCall) -> None:
        fields: Any = {"attempts": pending.attempts, "error": pending.error}
        self._limited_log.warning(event, group=self._group, call=name, **fields)

    def _measure(self) -> None:
        """Decide whether the inputs of the partition go on."""
        new = len(self._changed) + len(self._committed)
        share = _FREE_SHARE if self.full else 1.0
        self.full = any(self.pending[name] + new >= most * share for name, most in self._pending_max.items())


def after(pending: PendingCall, call: CallSettings, outcome: Outcome, now_ms: int) -> PendingCall:
    """Return a call after an attempt.

    Args:
        pending: The call before it.
        call: The declared call.
        outcome: The outcome of the attempt.
        now_ms: The time, in milliseconds since 1970.

    Raises:
        RetryLater: A schema that the result is written with cannot be had now.
    """
    pending = pending._replace(since_ms=pending.since_ms or now_ms)
    attempts, error, pause = pending.attempts + 1, outcome.error, None
    if error is not None:
        pause = call.retry.pause_seconds(attempts, error, (now_ms - pending.since_ms) / 1000)
    else:
        try:
            answer = call.response.encode(outcome.result)
            return pending._replace(state=CallState.ANSWERED, attempts=attempts, answer=answer, error="")
        except RetryLater:
            raise  # the outcome stays
        except Exception as refused:  # noqa: BLE001 - a codec may raise anything; the call fails with it
            error = refused
    text = text_of(error)
    if pause is None:
        return pending._replace(state=CallState.FAILED, attempts=attempts, error=text)
    return pending._replace(attempts=attempts, next_ms=now_ms + int(pause * 1000), error=text)
