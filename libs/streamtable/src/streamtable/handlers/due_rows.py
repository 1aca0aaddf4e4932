"""Rows that are due, as their handler gets them."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from streamtable.handlers.context import BaseContext
from streamtable.handlers.services import HandlerServices
from streamtable.handlers.state_table import DeclaredState

K = TypeVar("K")
V = TypeVar("V")


class DueRows(BaseContext[Any, Any], Generic[K, V]):
    """Due rows of one partition, in the order of their times. Valid only during the call.

    Attributes:
        rows: The encoded key, the key and the row of each. A row that is not kept has been deleted already; the handler
            may write it again.
        times_ms: The time when each was due.
        watermark_ms: The time that the clock has reached.
    """

    rows: Sequence[tuple[bytes, K, V]]
    times_ms: Sequence[int]
    watermark_ms: int

    def __init__(
        self, state: DeclaredState[K, V], topic: str, partition: int, services: HandlerServices
    ) -> None:
        super().__init__(None, services)
        self.state = state
        self._topic = topic
        self._partition = partition

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def topic(self) -> str:
        """The changelog of the state table."""
        return self._topic

    @property
    def partition(self) -> int:
        return self._partition

    def stand(self, rows: Sequence[tuple[bytes, K, V]], times_ms: Sequence[int], watermark_ms: int) -> None:
        """Move to these rows."""
        self.rows, self.times_ms, self.watermark_ms = rows, times_ms, watermark_ms
