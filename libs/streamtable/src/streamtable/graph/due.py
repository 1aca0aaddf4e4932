"""Rows that fall due: a state table whose rows are given to a handler when a clock has reached their time.

    REMINDERS = State(
        "reminders",
        key=String(),
        value=Avro(REMINDER),
        due=Due(lambda key, data: REMINDER_CODEC.decode(data)["at_ms"], remind, clock="wall"),
    )

Windows and timers are made of this.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Literal, TypeVar

from streamtable.errors import GraphError
from streamtable.graph.edge import OnError, checked_handler
from streamtable.handlers.due_rows import DueRows

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Due(Generic[K, V]):
    """The due times of the rows of a state table, and the handler that is called with rows that are due.

    The handler is called once with each row, also across crashes: the call is committed in one transaction with its
    effects. Rows come in the order of their due times, and rows of the same time in the order of their encoded keys. A row
    that is written with a time that the clock has already passed is due immediately.

    Args:
        when: Returns the time when a row is due, in milliseconds since 1970, from its encoded key and the encoded
            row; None: never. It must always return the same for the same bytes. If it changes, so must the `meaning` of
            the state.
        handler: Called with some of the rows that are due.
        clock: The clock that has to reach the time: "event", the watermark of the task, or "wall".
        keep: The time that a row stays in the table after it was due. 0: it is deleted when the handler has been called. A new
            value also counts for rows that have been kept until now.
        by_key: Whether the due time depends on the encoded key alone. `when` is then called without the row, and a change
            of the row costs nothing.
        on_error: The policy for a failure of the handler. A dead letter holds the row.
        times: As `when`, for many encoded keys in one call, if `by_key` is set: it saves a call for each row that changes.
        holds: How much earlier than the due time of their row the records that the handler emits may be, such as the
            grace of a window. The watermark that the group passes on (`Output(watermarks=True)`) stays behind by this time.
    """

    when: Callable[[bytes, bytes], int | None]
    handler: Callable[[DueRows[K, V]], None]
    clock: Literal["event", "wall"] = "event"
    keep: timedelta = timedelta(0)
    by_key: bool = False
    on_error: OnError = OnError.STOP
    holds: timedelta = timedelta(0)
    times: Callable[[Sequence[bytes]], Sequence[int | None]] | None = None

    def __post_init__(self) -> None:
        checked_handler(self.handler, self.on_error, "rows that are due")
        if self.clock not in {"event", "wall"}:
            raise GraphError(f"rows fall due by clock={self.clock!r}: give 'event' or 'wall'")
        if self.keep < timedelta(0):
            raise GraphError(f"rows are kept for {self.keep} after they were due: give 0 or more")
        if self.holds < timedelta(0):
            raise GraphError(f"rows that fall due hold watermarks back by {self.holds}: give 0 or more")

    @property
    def keep_ms(self) -> int:
        """The time that a row is kept after it was due, in milliseconds."""
        return self.keep // timedelta(milliseconds=1)

    @property
    def holds_ms(self) -> int:
        """The lag of the emitted watermarks in milliseconds."""
        return self.holds // timedelta(milliseconds=1)
