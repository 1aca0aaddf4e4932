"""Work beside the records: an edge whose pending timers are worked on elsewhere, as by calls to an API.

The engine keeps the rows of such timers with everything else, commits them with the records, and calls their handlers. The
companion of a partition only decides when: it learns that rows are committed, works on them in threads of its own, and writes
a time into a row as soon as its handler is to be called.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from streamtable.base.clock import Clock
from streamtable.base.types import RecordBatch
from streamtable.graph.timer import TIMERS, Timer
from streamtable.handlers.state_table import StateTable
from streamtable.observe import Metrics

CALLS = "calls"
"""The name of the state table of such timers."""
TIMER_TABLES: Mapping[str, str] = {**TIMERS, "call": CALLS}
"""The state tables of all timers, by their kind in a declaration of topics."""

K = TypeVar("K")
P = TypeVar("P")
V = TypeVar("V")


class Companion(Protocol):
    """The work beside one partition. All methods are called by the main thread, which must not wait in them."""

    @property
    def full(self) -> bool:
        """Whether the partition has to take no more records for now, but from the retry topic, whose commands may change it."""

    def placed(self, row_key: bytes) -> None:
        """Note that a timer was set or cancelled, or that its handler is called. It may still be undone."""

    def work(self) -> int:
        """Write the rows whose work is done; called after each poll. Returns the number of rows that were written.

        Raises:
            StoreCorrupted: The store of the rows is damaged.
            RetryLater: Something that is needed, such as a schema, cannot be had now. It goes on from there when it is called again.
        """

    def oldest_ms(self) -> int | None:
        """Return the least event time of a record whose rows are there, committed or not: readers wait for their outputs.

        Asked at each commit of a group that passes its watermark on. In milliseconds since 1970; None: there are no rows.
        """

    def committed(self) -> None:
        """Note that all rows are committed, as they are now."""

    def undone(self) -> None:
        """Note that all rows are again as they were at the last commit."""

    def close(self) -> None:
        """End the work: another process continues it. Nothing may be written any more."""


class Companions(Protocol):
    """The work beside all partitions of a process."""

    def open(self, partition: int, rows: StateTable[bytes, bytes]) -> Companion:
        """Return the work beside a partition whose tables are recovered.

        Args:
            partition: Its number.
            rows: The rows of the pending timers, by `handlers.timers.PendingTimer`.
        """

    def measure(self, metrics: Metrics) -> None:
        """Update metrics; called every few seconds, by a thread of the engine's own."""

    def close(self) -> None: ...


class Accompanied(Timer[K, P, V]):
    """A timer that is worked on beside the records. Its rows are in a table of their own; all of a group are of one class."""

    @property
    def table(self) -> str:
        return CALLS

    def again(self, row: bytes | None, record: RecordBatch) -> bytes | None:
        """Return the row of a timer after a record of the retry topic: its dead letter that is replayed, or a command.

        Args:
            row: The row as it is; None: there is none.
            record: The record. Its key is the key of the row.

        Returns:
            The row; None: there is none any more.
        """
        raise NotImplementedError

    @classmethod
    def companions(
        cls, group: str, timers: Sequence[Timer[Any, Any, Any]], clock: Clock, *, by_hand: bool
    ) -> Companions:
        """Return the work of one process.

        Args:
            group: The name of the group.
            timers: Its timers of this class.
            clock: The clock.
            by_hand: Do nothing by itself, but what a test says.
        """
        raise NotImplementedError
