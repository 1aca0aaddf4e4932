"""The graph of a sink."""

import os
import socket
from collections.abc import Callable
from typing import Any, Literal

from microbatch.limits import Limits
from streamtable import Group, Input, OnError, Stream, Table
from streamtable.base.clock import Clock
from streamtable.base.failpoint import Failpoint
from streamtable_sinks.lane import SinkParts
from streamtable_sinks.target import Changes, SinkSource, SinkTarget
from streamtable_sinks.task import SinkTasks


def _written_to(target: SinkTarget) -> Callable[[Changes], None]:
    """Return what stands for the handler of the input, as the target takes its records. Graphs show its name."""

    def handler(changes: Changes) -> None: ...

    own_text = type(target).__repr__ is not object.__repr__
    handler.__name__ = f"written to {target if own_text else type(target).__name__}"
    return handler


class Sink(Group[Any, Any]):
    """A group that writes a table or a stream to a target outside of Kafka; `app.run(sink)` runs it.

        REVENUE_OUT = Sink("revenue-out", REVENUE.table, Postgres(url, "revenue", key=("shop",)))

    Of a table the target gets the last change of each key in a batch; of a stream each record, in the order of its partition.
    Rows of a table with windows are deleted when the `retention` of their window is over, by default a day: to keep them, write
    `final().topic(name)` with a `key` of the target, or give the windows a longer retention.
    A record that the target refuses, or that cannot be decoded, goes to the dead letters alone.

    Args:
        name: The name of the consumer group; the target keeps its positions under it. Its topics are `<name>-retry` and
            `<name>-dead-letters`.
        source: The table or the stream.
        target: The target. Used by one processor at a time, and closed with it: each sink has one of its own.
        max_records: The number of records that completes a batch.
        max_bytes: The bytes of keys and values that complete a batch.
        max_wait: The seconds since the batch's first record that complete it.
        start: Where a new sink begins to read.
        on_error: The reaction to a record that the target refuses.

    Raises:
        GraphError: The arguments contradict each other.
    """

    runs_by_app = True

    def __init__(
        self,
        name: str,
        source: Table[Any, Any] | Stream[Any, Any],
        target: SinkTarget,
        *,
        max_records: int = 10_000,
        max_bytes: int = 16 << 20,
        max_wait: float = 1.0,
        start: Literal["earliest", "latest"] = "earliest",
        on_error: OnError = OnError.DEAD_LETTER,
    ) -> None:
        stream = Stream(source.name, source.key, source.value, source.partitioner)
        made = _written_to(target)
        super().__init__(name, Input(stream, custom=made, start=start, on_error=on_error, any_partition=True))
        self.source = source
        self.target = target
        self.limits = Limits(max_records, max_bytes, max_wait)
        self.on_error = on_error

    def custom_tasks(self, clock: Clock, failpoint: Failpoint) -> SinkTasks:
        """Return the factory of its tasks."""
        read = self.source
        source = SinkSource(self.name, read.name, isinstance(read, Table), read.key, read.value)
        owner = f"{socket.gethostname()}:{os.getpid()}"
        return SinkTasks(SinkParts(source, self.target, self.limits, self.on_error, clock, failpoint, owner))

    def __repr__(self) -> str:
        return f"Sink({self.name!r})"
