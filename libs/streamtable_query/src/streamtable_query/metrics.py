"""The metrics of the queries of a process."""

from dataclasses import dataclass
from typing import Self

from prometheus_client import CollectorRegistry, Counter

from streamtable.observe import instrument, registered


# ruff: noqa: RUF009 - an instrument is declared by the field that `instrument` returns
@dataclass(frozen=True)
class QueryMetrics:
    """The instruments of the queries of a process.

    Attributes:
        answered: Queries that other processes have answered; of the table's topic.
    """

    answered: Counter = instrument(
        Counter, "queries_answered", "Queries answered by other processes", "topic"
    )

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Create the instruments in a registry, once for each registry."""
        return registered(cls, registry)
