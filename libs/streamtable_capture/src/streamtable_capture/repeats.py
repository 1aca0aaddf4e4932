"""The changes that a captured table has dropped, counted with the other metrics of its process."""

from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter

from streamtable.graph.companion import Companion
from streamtable.observe import Metrics, instrument


# ruff: noqa: RUF009 - an instrument is declared by the field that `instrument` returns
@dataclass(frozen=True)
class CaptureInstruments:
    """The instruments of the captured tables of a process."""

    repeated: Counter = instrument(Counter, "capture_repeated", "Changes older than their rows", "group")


@dataclass
class Repeats:
    """The number of changes that were dropped; the engine shows it while it runs the group.

    Attributes:
        group: The name of the group.
        count: The number, in this process.
    """

    group: str
    count: int = 0
    _shown: int = 0

    def measure(self, metrics: Metrics) -> None:
        """Set the metric."""
        more, self._shown = self.count - self._shown, self.count
        metrics.of(CaptureInstruments).repeated.labels(self.group).inc(more)

    def open(self, partition: int, rows: Any) -> Companion:
        """Do not call it: no work is done beside the records."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing."""
