"""A question to Kafka to which many threads need the answer, each until a deadline of its own."""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from streamtable.base.clock import Clock
from streamtable.errors import NotReady

T = TypeVar("T")

_WAIT_SECONDS: Final = 1.0
"""A caller that can do without an answer waits for no question that was asked longer ago than this."""


class Question(Generic[T]):
    """Asks in one thread of its own at a time, and remembers the last answer and the last error. Any thread.

    Kafka's client waits for a broker that is away for longer than a call may take.

    Args:
        ask: Returns the answer, or raises the reason why there is none.
        last: The answer before the first one.
        clock: Monotonic time.

    Attributes:
        last: The last answer.
        asked_at: The monotonic time at which its question was asked.
    """

    def __init__(self, ask: Callable[[], T], last: T, clock: Clock) -> None:
        self.last = last
        self._ask, self._clock = ask, clock
        self.asked_at = float("-inf")
        self._error: BaseException | None = None
        self._failed = float("-inf")  # when its question was asked
        self._asked: float | None = None  # when the question was asked that is still open
        self._changed = threading.Condition()

    def answer(self, since: float, deadline: float, *, needed: bool = True) -> T:
        """Return the answer to a question that was asked at a monotonic time or later.

        Args:
            since: The time.
            deadline: The monotonic time until which the caller waits.
            needed: False: the caller can do without, and needs most of the time for that.

        Raises:
            NotReady: There is none in time.
            Exception: The error of such a question.
        """
        if self.asked_at >= since:
            return self.last
        if not needed:
            now = self._clock.monotonic()
            deadline = now + (deadline - now) / 3
        with self._changed:
            while self.asked_at < since:
                if self._error is not None and self._failed >= since:
                    raise self._error.with_traceback(None)  # of another thread, and longer each time
                now = self._clock.monotonic()
                if self._asked is None:
                    threading.Thread(target=self._run, args=[now], name="question", daemon=True).start()
                    self._asked = now
                left = (deadline if needed else min(deadline, self._asked + _WAIT_SECONDS)) - now
                if left <= 0:
                    raise NotReady("Kafka has not answered yet")
                self._changed.wait(left)
            return self.last

    def _run(self, asked: float) -> None:
        try:
            answer = self._ask()
        except BaseException as error:  # noqa: BLE001 - raised to those who wait
            with self._changed:
                self._error, self._failed = error, asked
        else:
            with self._changed:
                self.last, self.asked_at = answer, asked
        with self._changed:
            self._asked = None
            self._changed.notify_all()
