"""The declaration of a micro-batch, as its tasks read it: the inputs, rows, outputs and limits, as frozen data."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from inspect import iscoroutinefunction
from typing import Any, Literal, Self

from microbatch.batch import Batch, Send
from microbatch.limits import Limits
from microbatch.rows import Rows
from streamtable import Bytes, Codec, Group, Input, OnError, Output, Persist, Stream, String, Table
from streamtable.errors import GraphError
from streamtable.graph.edge import checked_function

Process = Callable[[Batch, Send], Awaitable[None] | None]
"""`process(batch, send)`, plain or `async`. One thread runs all batches; `async` ones await concurrently."""


class DeclaredBatch(Group[Any, Any]):
    """A group whose records are handled by `process(batch, send)`. Programs write a `MicroBatch`, which adds its tasks."""

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
        checked_function(None if self.awaits else process, f"process of {name!r}")
        self.limits = Limits(max_records, max_bytes, max_wait)
        self.on_error = on_error
        self.rows: Mapping[str, Rows[Any]] = {each.name: each for each in rows}
        if len(self.rows) != len(rows):
            raise GraphError(f"two of the rows of {name!r} have the same name")
        self.streams: Mapping[str, Stream[Any, Any]] = {stream.name: stream for stream in inputs}

    def written_codecs(self) -> Iterator[tuple[str, Codec[Any]]]:
        yield from super().written_codecs()
        yield from ((f"{self.name}-table", each.value) for each in self.rows.values())

    @property
    def table(self) -> Table[str, bytes]:
        """The changelog of its rows: encoded values by kind and key, such as `totals/alice`. Keys of the library's own begin with NUL.

        A record is in the partition of the batch that wrote it, not in its key's partition, so views cannot look up its
        rows. Send data for other readers to an output. Raises `GraphError` without rows or with a central store.
        """
        if self.persist is None:
            raise GraphError(
                f"micro-batch {self.name!r} has no table: it keeps no rows, or keeps them in a central store"
            )
        return Table(f"{self.name}-table", String(), Bytes(), group=self.name)

    def over_central_store(self) -> Self:
        """Return the same group with its rows in a central store, and thus without a table."""
        found = copy(self)
        found.persist = None
        return found
