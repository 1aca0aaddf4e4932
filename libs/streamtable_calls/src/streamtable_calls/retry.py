"""The pauses between the attempts of a call, and the rate of their starts."""

from asyncio import CancelledError
from dataclasses import dataclass
from datetime import timedelta
from math import isnan
from typing import Final

from streamtable.errors import GraphError
from streamtable_calls.errors import CallTimedOut, RetryAfter

_YEAR_SECONDS: Final = 365 * 86_400.0


@dataclass(frozen=True)
class Retry:
    """The attempts of a call, and the pauses between them. The number of attempts and the time of the next one are kept with the call.

    Args:
        first: The pause after the first attempt.
        factor: Each further pause is longer by this factor.
        most: The longest pause.
        attempts: The number of attempts after which the call has failed.
        on: The errors that are worth another attempt. Others fail the call at once; `RetryAfter` and `CallTimedOut`, an attempt
            that took longer than the `timeout` of its call, are always retried. `Exception` stands for `asyncio.CancelledError`
            too: what the function awaits, as a task that calls share, may be cancelled by others.
        give_up_after: How long after the first attempt further ones may begin. None: only their number counts.
    """

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    most: timedelta = timedelta(minutes=5)
    attempts: int = 10
    on: tuple[type[Exception], ...] = (Exception,)
    give_up_after: timedelta | None = None

    def __post_init__(self) -> None:
        if self.first <= timedelta(0) or self.most < self.first:
            raise GraphError(f"Retry has first={self.first} and most={self.most}: give 0 < first <= most")
        if self.factor < 1:
            raise GraphError(f"Retry has factor={self.factor!r}: give at least 1")
        if self.attempts < 1:
            raise GraphError(f"Retry has attempts={self.attempts!r}: give at least 1")
        on: object = self.on
        classes = on if isinstance(on, tuple) else (None,)
        if not all(isinstance(each, type) and issubclass(each, BaseException) for each in classes):
            raise GraphError(f"Retry has on={on!r}: give a tuple of classes of errors, as (ConnectionError,)")
        if self.give_up_after is not None and self.give_up_after <= timedelta(0):
            raise GraphError(f"Retry has give_up_after={self.give_up_after}: give a time, or None")

    def pause_seconds(self, attempts: int, error: BaseException, since_seconds: float) -> float | None:
        """Return the seconds until the next attempt; None: there is none.

        Args:
            attempts: The number of attempts so far, from 1.
            error: The error of the last one.
            since_seconds: The seconds since the end of the first attempt.
        """
        on = (*self.on, CancelledError) if Exception in self.on else self.on
        if attempts >= self.attempts or not isinstance(error, (RetryAfter, CallTimedOut, *on)):
            return None
        pause = self.growing_seconds(attempts)
        if isinstance(error, RetryAfter) and not isnan(error.seconds):
            pause = min(max(error.seconds, 0.0), _YEAR_SECONDS)  # the other side may say anything
        most = self.give_up_after
        return None if most is not None and since_seconds + pause > most.total_seconds() else pause

    def growing_seconds(self, attempts: int) -> float:
        """Return the pause after so many attempts that failed, from 1, in seconds."""
        # Not the power of a large number, which overflows.
        longer = self.first.total_seconds() * self.factor ** min(attempts - 1, 64)
        return min(longer, self.most.total_seconds())


@dataclass(frozen=True)
class RateLimit:
    """The number of calls that one process may start within a time. A batch is one.

    Args:
        calls: The number of calls.
        per: The time.
    """

    calls: int
    per: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if self.calls < 1 or self.per <= timedelta(0):
            raise GraphError(f"RateLimit({self.calls!r}, per={self.per}): give at least one call, and a time")
