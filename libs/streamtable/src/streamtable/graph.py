"""The group graph: what a processor reads, keeps and writes, as frozen data (after Goka's group graph).

    CLICK_COUNT = Group("click-count", Input(USER_CLICKS, count), Persist(Avro("long")))

A graph is checked when it is built; nothing is started and no broker is asked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

from streamtable.aggregate import Aggregate
from streamtable.context import Batch, Context
from streamtable.errors import GraphError
from streamtable.ports import Codec
from streamtable.topics import Stream, Table, legal_name

K = TypeVar("K")
E = TypeVar("E")
V = TypeVar("V")


class OnError(Enum):
    """What becomes of a record whose handler raises. Its work is undone in each case."""

    STOP = "stop"
    """The process stops with the error; after a restart the record is tried again. Nothing is lost."""
    DEAD_LETTER = "dead letter"
    """The record goes to the group's dead letters with the reason."""
    SKIP = "skip"
    """The record is logged and left out."""


@dataclass(frozen=True)
class Input(Generic[K, E, V]):
    """A stream that the group reads, and what to do with its records: exactly one of the three kinds of handler.

    Args:
        stream: what is read. All inputs of a group have the same number of partitions and are keyed alike.
        handler: called for each record: `handler(ctx, event)`.
        batch: called for consecutive records of one partition: `batch(records)`.
        aggregate: built in, runs over whole batches: `Count()`, `Sum(...)`, `Min(...)`, `Max(...)`, `Last()`.
        start: where a new group begins.
        on_error: when the handler raises, or what it makes is too large for Kafka.
    """

    stream: Stream[K, E]
    handler: Callable[[Context[K, V], E], None] | None = None
    batch: Callable[[Batch[K, E, V]], None] | None = None
    aggregate: Aggregate[E, V] | None = None
    start: Literal["earliest", "latest"] = "earliest"
    on_error: OnError = OnError.STOP

    def __post_init__(self) -> None:
        kinds = [kind for kind in (self.handler, self.batch, self.aggregate) if kind is not None]
        if len(kinds) != 1:
            raise GraphError(
                f"input {self.stream.name!r} has {len(kinds)} handlers: give exactly one of "
                "handler=, batch=, aggregate="
            )


@dataclass(frozen=True)
class Persist(Generic[V]):
    """The group keeps a table, one row a key, in `<group>-table`.

    Args:
        value: codec of the rows.
    """

    value: Codec[V]


@dataclass(frozen=True)
class Output:
    """A stream that handlers may emit to. What is not declared is refused.

    Args:
        stream: its records' partition follows from their key.
    """

    stream: Stream[Any, Any]


class Group(Generic[K, V]):
    """A named set of edges. Its name is the consumer group's; its topics derive from it.

    Args:
        name: `<name>-table`, `<name>-dead-letters` and `<name>-retry` are its topics.
        edges: at least one `Input`, at most one `Persist`, any number of `Output`s.

    Raises:
        GraphError: the edges contradict each other; the message names both sides.
    """

    def __init__(self, name: str, *edges: "Input[K, Any, V] | Persist[V] | Output") -> None:
        self.name = legal_name(name, "group")
        legal_name(self.dead_letters, f"the longest topic of group {name!r},")
        self.inputs: tuple[Input[K, Any, V], ...] = tuple(e for e in edges if isinstance(e, Input))
        self.outputs: tuple[Output, ...] = tuple(e for e in edges if isinstance(e, Output))
        persists = [e for e in edges if isinstance(e, Persist)]
        self.persist: Persist[V] | None = persists[0] if persists else None
        self._check(persists)

    def _check(self, persists: list[Persist[V]]) -> None:
        if not self.inputs:
            raise GraphError(f"group {self.name!r} reads nothing: give it an Input")
        if len(persists) > 1:
            raise GraphError(
                f"group {self.name!r} has {len(persists)} Persist edges: a group keeps one table"
            )
        names = [i.stream.name for i in self.inputs]
        for twice in {n for n in names if names.count(n) > 1}:
            raise GraphError(f"group {self.name!r} has two Inputs for stream {twice!r}: handle both in one")
        own = {f"{self.name}-table", self.retry, self.dead_letters}
        for stream in [*names, *(o.stream.name for o in self.outputs)]:
            if stream in own:
                raise GraphError(
                    f"group {self.name!r} uses {stream!r} as a stream, but that topic is its own"
                )
        key = self.inputs[0].stream
        for other in (i.stream for i in self.inputs[1:]):
            if type(other.key) is not type(key.key):
                raise GraphError(
                    f"inputs of group {self.name!r} are keyed differently: {key.name!r} by {key.key!r}, "
                    f"{other.name!r} by {other.key!r}; the same key must be the same bytes"
                )
        if self.persist is None:
            for edge in self.inputs:
                if edge.aggregate is not None:
                    raise GraphError(
                        f"input {edge.stream.name!r} of group {self.name!r} aggregates, but the group keeps no table: "
                        "add Persist(codec)"
                    )

    @property
    def table(self) -> Table[K, V]:
        """The group's table, to be read by views. Raises `GraphError` if it keeps none."""
        if self.persist is None:
            raise GraphError(f"group {self.name!r} keeps no table: it has no Persist edge")
        return Table(f"{self.name}-table", self.inputs[0].stream.key, self.persist.value)

    @property
    def dead_letters(self) -> str:
        """Topic of the records that could not be processed."""
        return f"{self.name}-dead-letters"

    @property
    def retry(self) -> str:
        """Topic of dead letters sent again: an input of this group alone."""
        return f"{self.name}-retry"

    @property
    def input_topics(self) -> tuple[str, ...]:
        """All topics that move together in a rebalance: the inputs and the retries."""
        return (*(i.stream.name for i in self.inputs), self.retry)

    def __repr__(self) -> str:
        return f"Group({self.name!r})"
