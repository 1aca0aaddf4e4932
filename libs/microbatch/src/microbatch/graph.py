"""The graph of a micro-batch: its inputs, rows and outputs, as frozen data.

PIECES = Rows("pieces", value=Avro(FOLLOWER_PIECE))
AUTHORS = MicroBatch("authors", inputs=[TWEETS, FOLLOWS], process=fold, outputs=[FACTS], rows=[PIECES])
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from inspect import iscoroutinefunction
from typing import Any, Literal, TypeVar

from prometheus_client import CollectorRegistry

from microbatch.batch import Batch, Send
from microbatch.embedded import EmbeddedTasks
from microbatch.limits import Limits
from microbatch.metrics import BatchMetrics
from microbatch.rows import Rows
from streamtable import Bytes, Group, Input, OnError, Output, Persist, Stream, String, Table
from streamtable.base.clock import Clock
from streamtable.base.failpoint import Failpoint
from streamtable.errors import GraphError

V = TypeVar("V")

Process = Callable[[Batch, Send], Awaitable[None] | None]
"""`process(batch, send)`, plain or `async`. One thread runs all batches; `async` ones await concurrently."""


class MicroBatch(Group[Any, Any]):
    """A group whose records are handled by `process(batch, send)`, one partition's batch at a time.

    A batch has records of the same partition of all inputs. Its rows, its output and its input offsets are committed
    atomically. `BatchProcessor` runs it; the `Tester` runs it with the disk in memory.

    Its rows are kept in the compacted topic `<name>-table` and in RocksDB beside the process, unless the processor is
    given a central store.

    Args:
        name: The name of the consumer group. Its topics are `<name>-retry`, `<name>-dead-letters` and, if it keeps
            rows, `<name>-table`.
        inputs: The inputs, with the same keys and the same number of partitions. A record without key or value is a
            dead letter.
        process: Called with each batch. It may raise `RetryLater` to get the same records again later.
        outputs: The streams that it may send to.
        rows: The kinds of rows that it may keep, per partition.
        max_records: The number of records that completes a batch.
        max_bytes: The bytes of keys and values that complete a batch.
        max_wait: The seconds since the batch's first record that complete it.
        start: The offset where a new group starts.
        on_error: The reaction if `process` raises an error, or its rows or output cannot be encoded. Except with
            `STOP`, the batch is halved until the record at fault is isolated.

    Raises:
        GraphError: The arguments contradict each other.
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
            *(Input(stream, custom=process, start=start, on_error=on_error) for stream in inputs),
            *(Output(stream) for stream in outputs),
            *([Persist(Bytes())] if rows else []),
        )
        self.process = process
        self.awaits = iscoroutinefunction(process) or iscoroutinefunction(type(process).__call__)
        self.limits = Limits(max_records, max_bytes, max_wait)
        self.on_error = on_error
        self.rows: Mapping[str, Rows[Any]] = {each.name: each for each in rows}
        if len(self.rows) != len(rows):
            raise GraphError(f"two of the rows of {name!r} have the same name")
        self.streams: Mapping[str, Stream[Any, Any]] = {stream.name: stream for stream in inputs}

    @property
    def table(self) -> Table[str, bytes]:
        """The changelog of its rows: encoded values by kind and key, such as `totals/alice`.

        A record is in the partition of the batch that wrote it, not in its key's partition, so views cannot look up its
        rows. Send data for other readers to an output. Raises `GraphError` without rows or with a central store.
        """
        if self.persist is None:
            raise GraphError(
                f"micro-batch {self.name!r} has no table: it keeps no rows, or keeps them in a central store"
            )
        return Table(f"{self.name}-table", String(), Bytes(), group=self.name)

    def over_central_store(self) -> "MicroBatch":
        """Return the same group with its rows in a central store, and thus without a table."""
        found = copy(self)
        found.persist = None
        return found

    def custom_tasks(self, clock: Clock, failpoint: Failpoint) -> EmbeddedTasks:
        """Return the factory of its tasks with embedded rows, as in a process without a central store."""
        return EmbeddedTasks(self, clock, BatchMetrics.register(CollectorRegistry()), failpoint)

    def __repr__(self) -> str:
        return f"MicroBatch({self.name!r})"
