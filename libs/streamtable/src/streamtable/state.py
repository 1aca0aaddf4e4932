"""State tables: tables that a group keeps besides its public one, for rows of any keys.

SESSIONS = State("sessions", key=String(), value=Avro(SESSION))
VISITORS = Group("visitors", Input(CLICKS, on_click), SESSIONS)

def on_click(ctx: Context[str, None], click: Click) -> None:
    sessions = ctx.table(SESSIONS)
    sessions.put(click["session"], extended(sessions.get(click["session"]), click))
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from streamtable.edge import Edge
from streamtable.errors import GraphError
from streamtable.keys import as_key, canonical, prefix_span, spans_of
from streamtable.ports import Codec
from streamtable.topics import legal_codec, legal_key

if TYPE_CHECKING:
    from streamtable.due import Due

K = TypeVar("K")
V = TypeVar("V")


def codec_name(codec: Codec[Any]) -> str:
    """Return the text that is recorded for a codec: its own, if that is the same in each process."""
    return type(codec).__name__ if type(codec).__repr__ is object.__repr__ else repr(codec)


RESERVED = frozenset(
    {"table", "ids", "handled", "states", "timers", "wall-timers", "loop", "visits", "retry", "dead-letters"}
)
"""The ends of the names of a group's other topics, which no state may have."""


@dataclass(frozen=True)
class State(Edge[object, object], Generic[K, V]):
    """A table that the group keeps besides its public one, in the compacted topic `<group>-<name>`.

    A task reads and writes the rows of its own partition, which may have any keys, through `Context.table` and
    `BatchContext.table`. They are written in the same commit as everything else.

    Args:
        name: The name of the table; its topic is `<group>-<name>`.
        key: The codec of the keys.
        value: The codec of the rows.
        due: The due times of the rows, and the handler that is called with due rows.
        meaning: The meaning of the rows beyond their codecs, such as the size of a window. A group that is started with
            another meaning than its rows were written with stops with `StateMeaningChanged`.
    """

    name: str
    _: KW_ONLY
    key: Codec[K]
    value: Codec[V]
    due: "Due[K, V] | None" = None
    meaning: str = ""

    def __post_init__(self) -> None:
        if self.name in RESERVED:
            raise GraphError(
                f"a state cannot be named {self.name!r}: a topic of the group's own ends like this"
            )
        legal_key(self.key, f"state {self.name!r}")
        legal_codec(self.value, "value", f"state {self.name!r}")
        object.__setattr__(self, "key", canonical(self.key))


class StateRows(Protocol[V]):
    """The rows of a state table by encoded key. `tables.ordered_table.OrderedTable` implements it."""

    @property
    def notes(self) -> dict[bytes, Any]:
        """The cache in which a step keeps what it knows of the rows, under keys of its own. A rollback of rows empties it."""
        ...

    @property
    def commits(self) -> int:
        """The number of commits so far."""
        ...

    @property
    def cache_bytes(self) -> int:
        """About how much memory may be taken for rows, beside those that have changed since the last commit."""
        ...

    def get(self, key: bytes) -> V | None: ...
    def get_many(self, keys: Iterable[bytes]) -> list[V | None]: ...
    def changing(self, keys: Iterable[bytes]) -> dict[bytes, V | None]: ...
    def put(self, key: bytes, value: V) -> None: ...
    def delete(self, key: bytes) -> None: ...
    def replace(self, gone: Collection[bytes], made: Mapping[bytes, V], new: Collection[bytes]) -> None: ...
    def append(self, keys: Sequence[bytes], rows: Sequence[V], due_ms: Sequence[int]) -> None: ...
    def ranges(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, V]]]: ...
    def stored(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]: ...
    def scan(
        self, start: bytes | None, end: bytes | None, *, at_once: int = ...
    ) -> Iterator[tuple[bytes, V]]: ...
    def gone_before_ms(self) -> int:
        """Return the time before which no row is due any more: those that were are gone."""
        ...

    def last_due_ms(self) -> int | None:
        """Return the due time of the last row, committed or not; None: there are no rows."""
        ...


class StateTable(Generic[K, V]):
    """The rows of a state table in one partition, with the changes of earlier records.

    Args:
        state: The state.
        rows: Its rows by encoded key.

    Attributes:
        raw: The rows by encoded key, for code that works on many rows at once: `raw.changing(keys)` returns a dict in
            which the rows of these keys can be replaced.
        late: The number of records since the last commit that came too late for their rows, as for a closed window.
        offered: The number of records since the last commit that could have been late: those given to windows and joins.
    """

    def __init__(self, state: State[K, V], rows: StateRows[V]) -> None:
        self.state = state
        self.raw = rows
        self.late = self.offered = 0
        self._encode = state.key.encode

    def get(self, key: K) -> V | None:
        """Return the row of a key; None if there is none.

        A value that is changed in place must still be `put`, or the change is not written.
        """
        return self.raw.get(self._encode(key))

    def get_many(self, keys: Iterable[K]) -> dict[K, V | None]:
        """Return the rows of several keys, None where there is none."""
        keys = list(dict.fromkeys(map(as_key, keys)))
        return dict(zip(keys, self.raw.get_many(map(self._encode, keys)), strict=True))

    def put(self, key: K, row: V) -> None:
        """Write the row of a key."""
        if row is None:
            raise TypeError("a row cannot be None: use delete()")
        self.raw.put(self._encode(key), row)

    def delete(self, key: K) -> None:
        """Remove the row of a key."""
        self.raw.delete(self._encode(key))

    def range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """Iterate over the rows with start <= key < end in the order of their keys; without bounds, of their encoded keys.

        Rows may be written meanwhile; whether those beyond the current one are seen as they were before is not defined.

        Args:
            start: The first key; None: from the beginning.
            end: The key behind the last one; None: to the end.

        Raises:
            GraphError: The keys have no order, as those of Avro and JSON.
        """
        spans = spans_of(self.state.key, start, end, self.state.name)
        return (row for span in spans for row in self._decoded(*span))

    def prefix(self, key: K) -> Iterator[tuple[K, V]]:
        """Iterate over the rows whose encoded keys begin with the encoded key, in the order of their encoded keys.

        Raises:
            GraphError: No other key can begin with it, as with Avro and JSON.
        """
        return self._decoded(*prefix_span(self.state.key, key, self.state.name))

    def work_on(self, rows: StateRows[V]) -> None:
        """Read and write these rows from now on."""
        self.raw = rows

    def _decoded(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[K, V]]:
        decode = self.state.key.decode
        return ((decode(key), row) for key, row in self.raw.scan(start, end))
