"""Validates the times of events in requests: none may be far ahead of the service's clock."""

from collections.abc import Callable
from dataclasses import dataclass

from contracts.event_time import MAX_AHEAD_SECONDS
from servicekit.http.problems import invalid


@dataclass(frozen=True, slots=True)
class EventTimestamps:
    """Determines the times of events.

    Attributes:
        now_ms: The clock, in milliseconds since 1970.
        max_ahead_seconds: The maximum time by which an event may be ahead of it.
    """

    now_ms: Callable[[], int]
    max_ahead_seconds: float = MAX_AHEAD_SECONDS

    def of(self, at: int | None, where: str) -> int:
        """Return the time of an event.

        Args:
            at: The time in the request; None: now.
            where: The place in the request, for the error.

        Raises:
            Problem: It is too far in the future.
        """
        now = self.now_ms()
        if at is None:
            return now
        if at > now + self.max_ahead_seconds * 1000:
            what = f"must be at most {self.max_ahead_seconds:g} seconds ahead of the clock of the service"
            raise invalid(where, what)
        return at
