"""The trace of a schedule: kept as facts, formatted only when it is read."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from streamtable.base.clock import Clock

CALL = "call"
LOG = "log"
_DETAIL = {CALL, LOG}


class Event(NamedTuple):
    """Something that happened, `at` seconds of virtual time after the beginning."""

    at: float
    who: str
    what: str
    facts: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.at:10.3f}  {self.who:<9} {self.what:<14} {' '.join(map(str, self.facts))}".rstrip()


class Trace:
    """The events of one schedule. `what` is `CALL` for each request to the broker and `LOG` for the engine's own lines."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_at = clock.now()
        self.events: list[Event] = []

    def add(self, who: str, what: str, *facts: object) -> None:
        self.events.append(Event(self._clock.now() - self._began_at, who, what, facts))

    def digest(self) -> str:
        """Equal for equal events. The engine's log lines do not count: most runs do not record them."""
        total = blake2b(digest_size=16)
        for event in self.events:
            if event.what != LOG:
                total.update(str(event).encode())
        return total.hexdigest()

    def lines(self, last: int | None = None, *, detail: bool = False) -> Iterator[str]:
        """Format the events as text.

        Args:
            last: The number of events to format; None: all.
            detail: Whether to include each request to the broker and each line of the engine's log.
        """
        chosen = [event for event in self.events if detail or event.what not in _DETAIL]
        yield from map(str, chosen if last is None else chosen[-last:])
