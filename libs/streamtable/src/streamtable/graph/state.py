"""State tables: tables that a group keeps besides its public one, for rows of any keys.

SESSIONS = State("sessions", key=String(), value=Avro(SESSION))
VISITORS = Group("visitors", Input(CLICKS, on_click), SESSIONS)

def on_click(ctx: Context[str, None], click: Click) -> None:
    sessions = ctx.table(SESSIONS)
    sessions.put(click["session"], extended(sessions.get(click["session"]), click))
"""

from dataclasses import KW_ONLY, dataclass
from typing import Generic, TypeVar

from streamtable.base.decoding import row_codec
from streamtable.base.keys import canonical
from streamtable.base.ports import Codec
from streamtable.base.topics import legal_codec, legal_key
from streamtable.errors import GraphError
from streamtable.graph.due import Due
from streamtable.graph.edge import Edge

K = TypeVar("K")
V = TypeVar("V")


RESERVED = frozenset(
    {"table", "ids", "handled", "states", "timers", "wall-timers", "calls", "loop", "visits", "retry", "dead-letters"}
)  # fmt: skip
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
    due: Due[K, V] | None = None
    meaning: str = ""

    def __post_init__(self) -> None:
        if self.name in RESERVED:
            raise GraphError(f"a state cannot be named {self.name!r}: a topic of the group ends like this")
        legal_key(self.key, f"state {self.name!r}")
        legal_codec(self.value, "value", f"state {self.name!r}")
        object.__setattr__(self, "key", canonical(self.key))
        object.__setattr__(self, "value", row_codec(self.value))
