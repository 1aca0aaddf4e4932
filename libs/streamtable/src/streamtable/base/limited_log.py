"""Rate-limited warnings: bad data can cause thousands a second. The first are logged, the others counted."""

from collections import defaultdict
from typing import Any

from streamtable.base.clock import Clock

_SECONDS = 10.0
_LINES_MAX = 20


class LimitedLog:
    """Logs at most 20 lines of each event in 10 seconds; the first line afterwards says how many were dropped.

    Args:
        log: The logger.
        clock: Monotonic time.
    """

    def __init__(self, log: Any, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._since: dict[str, float] = {}
        self._lines: defaultdict[str, int] = defaultdict(int)

    def warning(self, event: str, *, exc_info: BaseException | None = None, **facts: Any) -> None:
        """Log a warning, unless there were too many of its kind. Only the first has the traceback."""
        now = self._clock.monotonic()
        left_out = 0
        if now - self._since.get(event, float("-inf")) >= _SECONDS:
            left_out = max(0, self._lines[event] - _LINES_MAX)
            self._since[event], self._lines[event] = now, 0
        self._lines[event] += 1
        if self._lines[event] > _LINES_MAX:
            return
        if left_out:
            facts["left_out_before"] = left_out
        if exc_info is not None and self._lines[event] == 1:
            facts["exc_info"] = exc_info
        self._log.warning(event, **facts)
