"""The expected results of due rows and timers, computed independently of the engine."""

from collections.abc import Collection, Sequence

from tests.simulation.due import Planned
from tests.simulation.oracle import Wrong


class DueBooks:
    """The pending rows and timers of one partition of a group.

    Attributes:
        pending: The rows and timers set by committed records that have not fired.
    """

    def __init__(self) -> None:
        self.pending: dict[tuple[str, int], int] = {}

    def follow(self, new: Collection[Planned], fired: Sequence[Planned], now_ms: int) -> None:
        """Check newly observed commits. Raises `Wrong`.

        Args:
            new: The rows and timers that their records have set.
            fired: The rows and timers that have fired in them, in this order.
            now_ms: The time of the wall clock.
        """
        before = dict(self.pending)
        self.pending |= {(kind, source): at_ms for kind, source, at_ms in new}
        last: dict[str, int] = {}
        for what in fired:
            kind, source, at_ms = what
            if self.pending.pop((kind, source), None) != at_ms:
                raise Wrong(
                    f"I9: {what} has fired twice, or after the next record of its key, or was never set"
                )
            if kind != "event" and at_ms > now_ms:
                raise Wrong(f"I9: {what} has fired at {now_ms}, before its time")
            if (kind, source) in before:
                if last.get(kind, 0) > at_ms:
                    raise Wrong(f"I9: {what} has fired after one that was due at {last[kind]}")
                last[kind] = at_ms
        for (kind, source), at_ms in self.pending.items():
            if (kind, source) in before and at_ms < last.get(kind, 0):
                raise Wrong(
                    f"I9: {kind} {source} of {at_ms} has not fired, and one that was due at {last[kind]} has"
                )
