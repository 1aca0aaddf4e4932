"""The services of the engine behind `Context` and `Batch`, as protocols."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from streamtable.base.topics import Stream
from streamtable.base.types import Headers, RecordBatch
from streamtable.errors import StreamtableError
from streamtable.handlers.own_keys import OwnKeys
from streamtable.handlers.state_table import StateTable
from streamtable.handlers.timers import Timers

V = TypeVar("V")


Emit = Callable[[Stream[Any, Any], Any, Any, Headers, int], None]
"""Queues an output record for the next commit: stream, key, value, headers and timestamp in milliseconds. Refuses undeclared
topics and records that are too large."""


class EmitMany(Protocol):
    """Queue output records of one stream for the next commit. Refuses as `Emit`."""

    def __call__(
        self,
        stream: Stream[Any, Any],
        keys: Sequence[Any],
        values: Sequence[Any],
        raw_keys: Sequence[bytes] | None,
        timestamps_ms: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
        partitions: Sequence[int] | None = None,
        *,
        own_headers: bool = False,
    ) -> None: ...


class JoinedRows(Protocol):
    """The rows of a joined table by encoded key. `tables.joined.JoinedTable` implements it."""

    def get(self, key: bytes) -> Any: ...


class TableRows(Protocol[V]):
    """The rows of the group's table by encoded key. `tables.working_table.WorkingTable` implements it."""

    def get(self, key: bytes) -> V | None: ...
    def get_many(self, keys: Iterable[bytes]) -> list[V | None]: ...
    def put(self, key: bytes, value: V | None) -> None: ...


class WholeTable(Protocol):
    """A full table by decoded key. `views.view.View` implements it."""

    def get(self, key: Any) -> Any: ...


class Watermark(Protocol):
    """The event time of a partition. `engine.time.event_time.EventClock` implements it."""

    @property
    def watermark_ms(self) -> int: ...

    def watermark_of(self, stage: int) -> int: ...


@dataclass(frozen=True)
class HandlerServices:
    """The services that handlers can use, in addition to the row of their record's key.

    Attributes:
        own_keys: Refuses rows of other partitions; None: the group keeps no table.
        event_clock: The event time of the partition; None: the group does not follow it.
        timers: Sets timers; None: the group has none.
        dated: The outputs whose timestamps are the times of events, each with whether its records carry whether they are late.
        repeats: Records may be handled again, with the rows as they were left: the group runs at least once.
    """

    emit: Emit
    emit_many: EmitMany
    set_aside: Callable[[RecordBatch, int, StreamtableError], None]  # to the dead letters
    loop: str | None = None  # name of the loop's stream
    joins: Mapping[str, JoinedRows] = field(default_factory=dict)
    lookups: Mapping[str, WholeTable] = field(default_factory=dict)
    states: Mapping[str, StateTable[Any, Any]] = field(default_factory=dict)
    own_keys: OwnKeys | None = None
    event_clock: Watermark | None = None
    timers: Timers | None = None
    dated: Mapping[str, bool] = field(default_factory=dict)
    repeats: bool = False
