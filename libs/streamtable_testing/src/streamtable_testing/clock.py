"""A clock controlled by the test: it advances only when a client sleeps or the test moves it."""


class VirtualClock:
    """A `clock.Clock` whose `sleep` advances it and returns at once. Wall-clock and monotonic time are the same.

    Args:
        seconds: The initial time in seconds since 1970.
    """

    def __init__(self, seconds: float = 1_700_000_000.0) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return self._seconds

    def monotonic(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Advance the clock. Raises `ValueError` for a negative time."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} s")
        self._seconds += seconds
