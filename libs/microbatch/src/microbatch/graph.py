"""What a micro-batch reads, keeps in a central store and sends, as frozen data.

PIECES = Rows("pieces", value=Avro(FOLLOWER_PIECE))
AUTHORS = MicroBatch("authors", inputs=[TWEETS, FOLLOWS], process=fold, outputs=[FACTS], rows=[PIECES])
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Literal, TypeVar

from microbatch.batch import Batch, Send
from microbatch.rows import Rows
from streamtable import Batch as GroupBatch
from streamtable import Group, Input, OnError, Output, Stream
from streamtable.errors import GraphError

V = TypeVar("V")

Process = Callable[[Batch, Send], Awaitable[None] | None]
"""`process(batch, send)`, plain or `async`. One thread runs all of them; those that await, do so at the same time."""

_LONGEST_WAIT_S = 3_600.0


@dataclass(frozen=True)
class Limits:
    """When a partition's batch is complete: whichever comes first.

    Args:
        records: of all inputs together.
        bytes: of their keys and values. A single record may be larger.
        seconds: since the batch's first record came.
    """

    records: int = 10_000
    bytes: int = 16 << 20
    seconds: float = 5.0

    def __post_init__(self) -> None:
        if self.records < 1 or self.bytes < 1 or not 0 <= self.seconds <= _LONGEST_WAIT_S:
            raise GraphError(
                f"{self}: a batch has at least 1 record and 1 byte, and waits for 0 to {_LONGEST_WAIT_S:g} s"
            )


class MicroBatch(Group[Any, Any]):
    """A group whose records are handled by `process(batch, send)`, one partition's batch at a time.

    A batch holds records of the same partition of all inputs. Its rows, what it sends, and its input offsets count
    together or not at all. `BatchProcessor` runs it; the `Tester` runs it over a store in memory.

    Args:
        name: of the consumer group; `<name>-retry` and `<name>-dead-letters` are its topics.
        inputs: keyed alike, in the same number of partitions. A record without key or value is a dead letter.
        process: called with each batch. It may raise `RetryLater` to be given the same records again later.
        outputs: what it may send to.
        rows: what it may keep in the store.
        max_records: completes a batch.
        max_bytes: of keys and values; completes a batch.
        max_wait: seconds from the batch's first record, which complete it.
        start: where a new group begins.
        on_error: when `process` raises, or makes what does not fit. Other than with `STOP` the batch is cut in halves
            until the record that did it is alone.

    Raises:
        GraphError: it contradicts itself.
    """

    def __init__(
        self,
        name: str,
        *,
        inputs: Sequence[Stream[Any, Any]],
        process: Process,
        outputs: Sequence[Stream[Any, Any]] = (),
        rows: Sequence[Rows[Any]] = (),
        max_records: int = 10_000,
        max_bytes: int = 16 << 20,
        max_wait: float = 5.0,
        start: Literal["earliest", "latest"] = "earliest",
        on_error: OnError = OnError.STOP,
    ) -> None:
        super().__init__(
            name,
            *(Input(stream, batch=_named_as(process), start=start, on_error=on_error) for stream in inputs),
            *(Output(stream) for stream in outputs),
        )
        self.process = process
        self.awaits = iscoroutinefunction(process) or iscoroutinefunction(type(process).__call__)
        self.limits = Limits(max_records, max_bytes, max_wait)
        self.on_error = on_error
        self.rows: Mapping[str, Rows[Any]] = {each.name: each for each in rows}
        if len(self.rows) != len(rows):
            raise GraphError(f"two of the rows of {name!r} have the same name")
        self.streams: Mapping[str, Stream[Any, Any]] = {stream.name: stream for stream in inputs}

    def tasks_for_tests(self) -> Any:
        """A `rehearsal.Rehearsal`: tasks over a store in memory."""
        from microbatch.rehearsal import Rehearsal  # noqa: PLC0415 - it knows this module

        return Rehearsal(self)

    def __repr__(self) -> str:
        return f"MicroBatch({self.name!r})"


def _named_as(process: Process) -> Callable[[GroupBatch[Any, Any, Any]], None]:
    """What stands in the graph for `process`, with its name."""

    def of_batches(records: GroupBatch[Any, Any, Any]) -> None:
        raise GraphError(
            f"records of {records.topic!r} belong to a MicroBatch: run it with BatchProcessor, not with Processor"
        )

    of_batches.__name__ = getattr(process, "__name__", "process")
    return of_batches
