"""A clock controlled by the test: it advances only when a client sleeps or the test moves it."""


class VirtualClock:
    """A `clock.Clock` whose `sleep` returns at once, later. Wall and monotonic time are the same.

    Args:
        seconds: since 1970, at the beginning.
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
        """Let time pass. Raises `ValueError` if it were to go back."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} s")
        self._seconds += seconds
