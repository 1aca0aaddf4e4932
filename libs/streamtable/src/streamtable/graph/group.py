"""The group graph: what a processor reads, keeps and writes, as frozen data (after Goka's group graph).

    CLICK_COUNT = Group("click-count", Input(USER_CLICKS, count), Persist(Avro("long")))

A graph is checked when it is built; nothing is started and no broker is asked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from streamtable.base.clock import Clock
from streamtable.base.decoding import codec_name, codecs_name, row_codec
from streamtable.base.evolution import has_schema, without_schemas
from streamtable.base.failpoint import Failpoint
from streamtable.base.keys import form_of
from streamtable.base.message import prefix_header
from streamtable.base.ports import Codec, PreparedCodec
from streamtable.base.topics import Stream, Table, check_kind, legal_codec, legal_name
from streamtable.errors import GraphError
from streamtable.graph.aggregate import Aggregate, check_sums
from streamtable.graph.companion import Accompanied, Companions
from streamtable.graph.custom_task import CustomTasks
from streamtable.graph.edge import Edge as Edge  # noqa: PLC0414 - a public name of this module
from streamtable.graph.edge import OnError as OnError  # noqa: PLC0414 - a public name of this module
from streamtable.graph.edge import checked_function, checked_handler
from streamtable.graph.event_time import EventTime as EventTime  # noqa: PLC0414 - a public name of this module
from streamtable.graph.once import Once
from streamtable.graph.row_change import RowChange
from streamtable.graph.stages import Stages
from streamtable.graph.state import State
from streamtable.graph.timer import Timer, timer_states
from streamtable.handlers.context import BatchContext, Context
from streamtable.tables.kept import HANDLED as HANDLED  # noqa: PLC0414 - a public name of this module
from streamtable.tables.kept import IDS as IDS  # noqa: PLC0414 - a public name of this module
from streamtable.tables.kept import OWN, bounded_codecs, bounded_meaning
from streamtable.tables.seen import TOPICS_MAX

K = TypeVar("K")
E = TypeVar("E")
V = TypeVar("V")
J = TypeVar("J")
SK = TypeVar("SK")
SV = TypeVar("SV")

_WAIT_SECONDS_MAX = 60.0
_VERSION_CHARACTERS_MAX = 40
NAMED_TABLES_MAX = 12
NAMED_TABLE_CHARACTERS_MAX = 32
"""The limits of the number of named tables and of the length of their names. They keep the metadata that is committed with
an offset below 1 KB; Kafka accepts 4 KB."""
_METADATA_CHARS, _INNER_TOPIC_CHARS = 4_000, 38
"""The room in the metadata of an offset for tables, inputs and inner topics, and the part that an inner topic takes beside the
names of its codecs."""
_TIME_CHARS, _LEFT_IDS_CHARS = 80, 90
"""The parts of event time, and of the ids that an earlier version of the group has recorded."""
STATES = "states"
"""The engine's own named tables, with `IDS` and `HANDLED`: the ids of events that are handled once, the values of joined rows that were handled last,
and the meanings of the state tables of a group."""


@dataclass(frozen=True)
class Input(Edge[K, V], Generic[K, E, V]):
    """A stream that the group reads, and how its records are handled: exactly one of three kinds of handler.

    Args:
        stream: The stream to read. All inputs of a group have the same number of partitions and are keyed alike.
        handler: Called for each record: `handler(ctx, event)`.
        batch: Called for consecutive records of one partition: `batch(records)`.
        aggregate: A built-in fold over whole batches: `Count()`, `Sum(...)`, `Min(...)`, `Max(...)`, `Last()`.
        start: Where a new group begins to read.
        on_error: The policy for a failure of the handler, or for output that does not fit the schema or Kafka's limits.
        once: The deduplication of repeated events, by their ids.
        time: Takes the event time from an event: milliseconds since 1970, or a datetime with a time zone. By default
            the record's timestamp is its event time. See `EventTime`.
        custom: Instead of a handler, for a group that brings its own kind of task (`tasks=` of a processor): the function
            that these call.
        tombstones: Call the handler for records without a value too, with None. By default such a record is no event: it
            goes to the dead letters. "skip": it is skipped, and counted in `streamtable_tombstones_skipped_total`.
        watermarks: Whether another group writes the stream with `Output(watermarks=True)`: the stream then carries the
            watermarks of that group's tasks, and its records carry whether they are late.
        any_partition: Whether the writers of the stream choose partitions by something else than the key. By default the
            engine warns of a record that is not in the partition of its key, where views, lookups and joins look for it.
        purge: Delete the records of the stream from Kafka once the group has committed them, for a stream that no other
            group or program reads. Flows set it for the topics between their groups.
        keyless: Call the handler for records without a key too, with the key None: they have no row and no timers. By default
            such a record goes to the dead letters.
    """

    stream: Stream[K, E]
    handler: Callable[[Context[K, V], E], None] | None = None
    batch: Callable[[BatchContext[K, E, V]], None] | None = None
    aggregate: Aggregate[E, V] | None = None
    start: Literal["earliest", "latest"] = "earliest"
    on_error: OnError = OnError.STOP
    once: Once[E] | None = None
    time: Callable[[E], int | datetime] | None = None
    custom: Callable[..., Any] | None = None
    tombstones: bool | Literal["skip"] = False
    watermarks: bool = False
    any_partition: bool = False
    purge: bool = False
    keyless: bool = False

    def __post_init__(self) -> None:
        check_kind(self.stream, "Input", Stream)
        if self.aggregate is not None:
            check_kind(self.aggregate, f"aggregate= of input {self.stream.name!r}", Aggregate)
        checked_handler(self.handler or self.batch, self.on_error, f"input {self.stream.name!r}")
        checked_function(self.time, f"time= of input {self.stream.name!r}")
        kinds = [kind for kind in (self.handler, self.batch, self.aggregate, self.custom) if kind is not None]
        if len(kinds) != 1:
            raise GraphError(
                f"input {self.stream.name!r} has {len(kinds)} handlers: give exactly one of handler=, batch=, aggregate="
            )
        if self.watermarks and self.custom is not None:
            raise GraphError(
                f"input {self.stream.name!r} has watermarks=True, which only groups over local tables read"
            )
        taken = (("aggregate", self.aggregate), ("once", self.once), ("time", self.time))
        if self.tombstones is True and (names := [f"{name}=" for name, given in taken if given is not None]):
            raise GraphError(
                f"input {self.stream.name!r} has tombstones=True with {' and '.join(names)}: a record without a value has "
                "nothing to take that from. Give handler= or batch= alone"
            )
        if self.keyless and self.aggregate is not None:
            raise GraphError(
                f"input {self.stream.name!r} has keyless=True with aggregate=: a record without a key has no row. Give handler="
            )


@dataclass(frozen=True)
class Persist(Edge[object, V], Generic[V]):
    """A table that the group keeps, with one row for each key, in `<group>-table`.

    Args:
        value: The codec of the rows.
    """

    value: Codec[V]

    def __post_init__(self) -> None:
        legal_codec(self.value, "value", "Persist")
        object.__setattr__(self, "value", row_codec(self.value))


@dataclass(frozen=True)
class Output(Edge[object, object]):
    """A stream that handlers may emit to. Emitting to an undeclared stream is an error.

    Args:
        stream: The stream to write to; the key of a record decides its partition.
        watermarks: Write the watermark of each task into the stream, and with each record whether it is late, for a group
            that reads it with `Input(watermarks=True)`. No other program may write the stream, or read it without.
        event_times: Whether the timestamps of the records are the times of events, as with the outputs of flows and with `watermarks`: a
            record without a `timestamp_ms` of its own has the event time of the one whose handler emits it. The topic should then
            keep timestamps and not delete records by age; the processor warns at the start if it does not.
    """

    stream: Stream[Any, Any]
    watermarks: bool = False
    event_times: bool = False

    def __post_init__(self) -> None:
        check_kind(self.stream, "Output", Stream)


@dataclass(frozen=True)
class Fed(Edge[object, object]):
    """The sources of a state, or of a topic between two groups of a flow. The compiler of flows adds it.

    Args:
        name: The name of the state, or of the topic.
        by: The inputs whose records reach it.
        behind: The states of the group, and the inputs, whose changes it follows: its rows are right only if it has seen
            all changes of these.
        sides: For a state with rows of several sides, as of a join: the tables that each side follows, or its inputs.
        made_of: The tables whose rows it follows, each with the steps without a name behind it; "" for records of streams.
    """

    name: str
    by: frozenset[str]
    behind: frozenset[str] = frozenset()
    sides: tuple[frozenset[str], ...] = ()
    made_of: str = ""


@dataclass(frozen=True)
class Loop(Edge[K, V], Generic[K, E, V]):
    """A stream from the group to itself, to change the rows of other keys (`Context.loopback`).

    Args:
        stream: The stream of the loop, named `<group>-loop` and keyed as the inputs are.
        handler: Called for each record that was looped back.
        on_error: The policy for a failure of the handler, as for an `Input`.
    """

    stream: Stream[K, E]
    handler: Callable[[Context[K, V], E], None]
    on_error: OnError = OnError.STOP

    def __post_init__(self) -> None:
        checked_handler(self.handler, self.on_error, f"loop {self.stream.name!r}")


@dataclass(frozen=True)
class Join(Edge[K, object], Generic[K, J]):
    """A table of another group with the same partitions: `Context.join` returns its row of the record's key.

    A task starts when its partition of the table is complete, and follows the table from then on.

    Args:
        table: The table to join, keyed as the inputs are, with the same number of partitions.
        wait: Seconds that a record waits, counted from its own timestamp, for the table to reach that time.
            An older record does not wait. 0: the record is joined with the rows that are there.
    """

    table: Table[K, J]
    wait: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.wait <= _WAIT_SECONDS_MAX:
            raise GraphError(
                f"the join of {self.table.name!r} waits {self.wait!r} s: give 0 to {_WAIT_SECONDS_MAX:g}"
            )


@dataclass(frozen=True)
class Changes(Edge[K, V], Generic[K, J, V]):
    """A joined table whose changes are handled: `Context.join` works as with `Join`.

    Args:
        table: The table to join, keyed as the inputs are, with the same number of partitions.
        handler: Called for each record of the table's topic, with the old and the new value of the row, also for a deletion that
            Kafka has deleted while the group stood still. Changes of a row within one commit of the table's group are one record.
            Both values may be equal, as when a row is written again, and both None, as when a row is deleted that is not there. The
            old value is always the one that the handler was given last for this row, also of a change that was refused and is
            sent again: the group keeps it in its own topic `<group>-handled`. In a table of windows it is called with a deletion
            when the window's `retention` is over.
        start: The treatment of existing rows by a group that has not read the table before: "latest" takes them as known, "earliest"
            handles each of them as a change from None, and joins do not see a row before that. A group that had the table
            as a `Join` takes the rows that it has read as known in any case. Before the first change
            the rows taken as known are copied to `<group>-handled`; those that cannot be decoded, or are larger than that topic
            accepts (`max.message.bytes`), are treated as missing.
        on_error: The policy for a failure of the handler, as for an `Input`.
    """

    table: Table[K, J]
    handler: Callable[[Context[K, V], RowChange[J]], None]
    start: Literal["earliest", "latest"] = "latest"
    on_error: OnError = OnError.STOP

    def __post_init__(self) -> None:
        checked_handler(self.handler, self.on_error, f"changes of {self.table.name!r}")


@dataclass(frozen=True)
class Lookup(Edge[object, object]):
    """A table that every process of the group holds in full: `Context.lookup` returns the row of any key.

    Args:
        table: The table to look up, with any key and any number of partitions.
    """

    table: Table[Any, Any]


@dataclass(frozen=True)
class Visit(Edge[K, V], Generic[K, V]):
    """A handler that can be run for every row of the group's table, by `streamtable visit GROUP NAME`.

    Args:
        name: The name of the visit on the command line.
        handler: Called with the context of each row and the text that was given to the command. A row that exists
            from the beginning to the end is visited once, also across crashes.
        on_error: The policy for a failure of the handler, as for an `Input`. A dead letter holds the record of the command,
            and the visit of the partition ends; `SKIP` skips only this row.
    """

    name: str
    handler: Callable[[Context[K, V], str], None]
    on_error: OnError = OnError.STOP

    def __post_init__(self) -> None:
        legal_name(self.name, "visit")
        checked_handler(self.handler, self.on_error, f"visit {self.name!r}")


class Group(Generic[K, V]):
    """A named set of edges. Its name is the name of the consumer group, and the names of its topics derive from it.

    Args:
        name: The name of the consumer group. Its topics are `<name>-table`, `<name>-dead-letters`, `<name>-retry`,
            `<name>-loop` and `<name>-visits`, as the edges need them, `<name>-ids` and `<name>-handled`, and for state
            tables and timers `<name>-states` and one topic each.
        edges: The edges for what it reads (`Input`, `Loop`, `Changes`: at least one), keeps (`Persist`: at most one;
            `State`), joins or looks up (`Join`, `Lookup`), writes (`Output`), runs at a time (`Timer`) or on request
            (`Visit`), and for event time (`EventTime`: at most one).
        version: The version of the group's functions. Give another text when a function has changed so that the rows of the
            tables would be others: a start with tables of another version is refused, so that none is mixed of both.

    Attributes:
        inputs: The inputs; the loop, if there is one, is the last.
        joins: One join for each joined table, including those with `Changes`.
        event_time: The event time of the group; None if it does not follow event time.
        stages: The stages of its inputs, which follow event time one after the other.
        states: The state tables.
        timers: The timers.
        rows_evolve: Whether the schema of the rows is recorded, and may change.
        all_states: The state tables, and those that hold the pending timers.
        named_tables: The tables beside the group's public one, by the suffixes of their topics' names: the engine's own,
            and the state tables.
        fed: The sources of states and inner topics, by name; those that are missing are fed by all inputs.
        inner_topics: The topics of the group's outputs through which a flow goes on in another group.

    Raises:
        GraphError: The edges contradict each other; the message names both sides.
    """

    def __init__(self, name: str, *edges: Edge[K, V], version: str = "") -> None:
        self.name = legal_name(name, "group")
        self.version = legal_version(version, f"group {name!r}")
        legal_name(self.dead_letters, f"the longest topic of group {name!r},")
        for edge in edges:
            if not isinstance(edge, Edge):
                raise GraphError(f"group {name!r}: {edge!r} is none of the edges that a group is made of")
        loops = [e for e in edges if isinstance(e, Loop)]
        self.loop: Loop[K, Any, V] | None = loops[0] if loops else None
        self.inputs: tuple[Input[K, Any, V], ...] = (
            *(e for e in edges if isinstance(e, Input)),
            *(Input(e.stream, e.handler, on_error=e.on_error) for e in loops),
        )
        self.outputs: tuple[Output, ...] = tuple(e for e in edges if isinstance(e, Output))
        self.lookups: tuple[Lookup, ...] = tuple(e for e in edges if isinstance(e, Lookup))
        self.changes: tuple[Changes[K, Any, V], ...] = tuple(e for e in edges if isinstance(e, Changes))
        self.visits: tuple[Visit[K, V], ...] = tuple(e for e in edges if isinstance(e, Visit))
        joins = [e for e in edges if isinstance(e, Join)]
        joined = {e.table.name for e in joins}
        self.joins: tuple[Join[K, Any], ...] = (
            *joins,
            *(Join(e.table) for e in self.changes if e.table.name not in joined),
        )
        persists = [e for e in edges if isinstance(e, Persist)]
        self.persist: Persist[V] | None = persists[0] if persists else None
        self.states: tuple[State[Any, Any], ...] = tuple(e for e in edges if isinstance(e, State))
        self.timers: tuple[Timer[K, Any, V], ...] = tuple(e for e in edges if isinstance(e, Timer))
        self.rows_evolve = self.persist is not None and has_schema(codec_name(self.persist.value))
        self.all_states = (*self.states, *timer_states(self.timers))
        self.named_tables = _checked_names(
            self.name,
            [
                *([IDS] if any(e.once for e in self.inputs) else []),
                *([HANDLED] if self.changes else []),
                *([STATES] if self.all_states or self.rows_evolve else []),
                *(state.name for state in self.all_states),
            ],
        )
        self.fed = {e.name: e for e in edges if isinstance(e, Fed)}
        self.inner_topics = tuple(name for name in self.fed if name in {e.stream.name for e in self.outputs})
        event_times = [e for e in edges if isinstance(e, EventTime)]
        timed = any(e.time is not None or e.watermarks for e in self.inputs) or any(
            state.due is not None and state.due.clock == "event" for state in self.all_states
        )
        timed = timed or any(e.watermarks for e in self.outputs)
        self.event_time: EventTime | None = event_times[0] if event_times else EventTime() if timed else None
        self.stages = next((e for e in edges if isinstance(e, Stages)), Stages())
        self._refuse_twins("edges", ["EventTime"] * len(event_times))
        self._check_counts(len(persists), len(loops))
        self._check_topics()
        self._check_keys()
        self._check_keyless()
        self._check_table()

    runs_by_app: ClassVar[bool] = False
    """Whether an `App` runs it with its `custom_tasks`, as a sink. Other kinds need a processor of their own."""

    def custom_tasks(self, clock: Clock, failpoint: Failpoint) -> CustomTasks | None:  # noqa: ARG002 - of other kinds
        """Return the factory of tasks that are not over local tables, as in the `Tester`; None for a plain group."""
        return None

    def written_codecs(self) -> Iterator[tuple[str, Codec[Any]]]:
        """Yield the names of the topics that the group writes, each with a codec of its records."""
        topics: list[Stream[Any, Any] | Table[Any, Any]] = [edge.stream for edge in self.outputs]
        topics += [self.loop.stream] if self.loop is not None else []
        topics += [self.table] if self.persist is not None else []
        yield from ((each.name, codec) for each in topics for codec in (each.key, each.value))
        for state in self.states:
            yield from ((self.named_topic(state.name), codec) for codec in (state.key, state.value))
        yield from ((self.named_topic(each.table), codec) for each in self.timers for codec in each.codecs)

    def companions(self, clock: Clock, *, by_hand: bool = False) -> Companions | None:
        """Return what works beside the records of a process; None if no timer needs it. As `Accompanied.companions`."""
        timers = [timer for timer in self.timers if isinstance(timer, Accompanied)]
        return timers[0].companions(self.name, timers, clock, by_hand=by_hand) if timers else None

    def _check_counts(self, persists: int, loops: int) -> None:
        if not self.inputs and not self.changes:
            raise GraphError(f"group {self.name!r} reads nothing: give it an Input, a Loop or Changes")
        if self.inner_topics and (spare := self.spare_metadata + _LEFT_IDS_CHARS) < 0:
            asked = self._inner_topics_chars
            fitting = max(0, asked + spare) * len(self.inner_topics) // asked
            raise GraphError(
                f"group {self.name!r} sends records to {len(self.inner_topics)} inner topics, as of group_by, and Kafka's metadata of "
                f"an offset have room for {fitting}. Read the stream in several groups: stream(..., group=)"
            )
        if persists > 1:
            raise GraphError(f"group {self.name!r} has {persists} Persist edges: a group keeps one table")
        if self.event_time is not None and not self.event_time_inputs:
            raise GraphError(
                f"group {self.name!r} has no Input that event time could follow: a Loop and Changes do not advance it"
            )
        if any(e.watermarks for e in self.outputs) and any(e.custom for e in self.inputs):
            raise GraphError(f"group {self.name!r} has an Output with watermarks=True, but no local tables")
        back = {e.stream.name for e in self.outputs if e.watermarks}
        for name in (e.stream.name for e in self.inputs if e.watermarks and e.stream.name in back):
            if self.stages.inputs.get(name, 0) <= self.stages.outputs.get(name, 0):
                raise GraphError(
                    f"group {self.name!r} writes {name!r} with watermarks=True and reads it: its watermark would wait for "
                    "itself. Read the stream in another group, or without watermarks"
                )
        if loops > 1:
            raise GraphError(
                f"group {self.name!r} has {loops} Loop edges: it has one loop topic; give its events a field that tells them apart"
            )
        if self.loop is not None and self.loop.stream.name != f"{self.name}-loop":
            raise GraphError(
                f"the loop of group {self.name!r} is named {self.loop.stream.name!r}: name its stream '{self.name}-loop'"
            )
        self._refuse_twins("Inputs for stream", [e.stream.name for e in self.inputs])
        self._refuse_twins("Changes of table", [e.table.name for e in self.changes])
        self._refuse_twins("Joins of table", [e.table.name for e in self.joins])
        self._refuse_twins("Lookups of table", [e.table.name for e in self.lookups])
        self._refuse_twins("Visits named", [e.name for e in self.visits])
        self._refuse_twins("States named", [e.name for e in self.states])
        self._refuse_twins("Timers named", [e.name for e in self.timers])

    @property
    def spare_metadata(self) -> int:
        """The characters of an offset's metadata that are free beside the record of the tables and inner topics, at least."""
        names = [*([OWN] if self.persist else ()), *self.named_tables]
        # A position, the digest of a topic, and a meaning, which is long where rows are of one input each, or by handlers.
        tables = sum(60 + 3 * len(name) + 240 * (name in {OWN, IDS}) for name in names)
        tables += sum(len(bounded_meaning(each.made_of)) for each in self.fed.values())
        inputs = 19 * min(TOPICS_MAX, len(self.input_topics))
        rest = len(self.version) + _LEFT_IDS_CHARS + (_TIME_CHARS if self.event_time else 0)
        return _METADATA_CHARS - rest - tables - inputs - self._inner_topics_chars

    @property
    def _inner_topics_chars(self) -> int:
        codecs = (
            codecs_name(e.stream.key, e.stream.value)
            for e in self.outputs
            if e.stream.name in self.inner_topics
        )
        return sum(_INNER_TOPIC_CHARS + len(bounded_codecs(without_schemas(each))) for each in codecs)

    def _refuse_twins(self, what: str, names: list[str]) -> None:
        for twice in {n for n in names if names.count(n) > 1}:
            raise GraphError(f"group {self.name!r} has two {what} {twice!r}: handle both in one")

    def _check_topics(self) -> None:
        own = {f"{self.name}-table", self.retry, self.dead_letters, self.visits_topic}
        own |= set(map(self.named_topic, self.named_tables))
        # A handler may start a visit.
        written = [e.stream.name for e in self.outputs if e.stream.name != self.visits_topic]
        streams = [e.stream.name for e in self.inputs] + written
        for stream in (each for each in streams if each in own):
            raise GraphError(f"group {self.name!r} uses {stream!r} as a stream, but that topic is its own")
        for table in [*(e.table.name for e in self.joins), *(e.table.name for e in self.lookups)]:
            if table in own:
                raise GraphError(
                    f"group {self.name!r} joins {table!r}, but that topic is its own: ctx.value is its row of the key; for rows of other "
                    "keys loop back to them, or in a flow keep it in another group: stream(..., group=)"
                )
            if table in streams:
                raise GraphError(f"group {self.name!r} uses {table!r} as a stream and as a table: choose one")

    def _check_keys(self) -> None:
        first, *others = [e.stream for e in self.inputs] + [e.table for e in self.joins]
        shared = self.persist is not None or bool(self.joins)  # rows that all of them find by their keys
        for one in others:
            if type(one.key) is not type(first.key) or (shared and form_of(one.key) != form_of(first.key)):
                raise GraphError(
                    f"inputs of group {self.name!r} are keyed differently: {first.name!r} by {first.key!r}, "
                    f"{one.name!r} by {one.key!r}; the same key must be the same bytes. A flow reads one of them in another "
                    "group: stream(..., group=)"
                )
            if one.partitioner != first.partitioner:
                raise GraphError(
                    f"inputs of group {self.name!r} are partitioned differently: {first.name!r} by "
                    f"{first.partitioner}, {one.name!r} by {one.partitioner}; the same key must be in the same "
                    "partition: copy one of them to a stream that is partitioned as the other"
                )

    def _check_keyless(self) -> None:
        keyed = {"Persist": self.persist, "Join": self.joins, "Timer": self.timers}
        for edge in self.inputs:
            for name in (name for name, found in keyed.items() if found and edge.stream.keyless):
                raise GraphError(
                    f"group {self.name!r} has a {name} edge, which needs the keys of records, and reads {edge.stream.name!r}, "
                    "which has none: copy its records to a stream with keys, as key_by() does in a flow"
                )

    def _check_table(self) -> None:
        for edge in self.inputs:
            if self.persist is not None:
                check_sums(f"input {edge.stream.name!r}", edge.aggregate, self.persist.value)
            elif edge.aggregate is not None:
                raise GraphError(
                    f"input {edge.stream.name!r} of group {self.name!r} aggregates, but the group keeps no table: add Persist(codec)"
                )
        if self.visits and self.persist is None:
            raise GraphError(
                f"visit {self.visits[0].name!r} of group {self.name!r} has no rows to visit, as the group keeps no table: add Persist(codec)"
            )

    @property
    def key(self) -> Codec[K]:
        """The codec of the keys of all inputs and joined tables."""
        return self._first.key

    @property
    def event_time_inputs(self) -> tuple[str, ...]:
        """The inputs whose records advance the event time: all but the loop."""
        names = (e.stream.name for e in self.inputs)
        return tuple(name for name in names if self.loop is None or name != self.loop.stream.name)

    @property
    def only_joined(self) -> frozenset[str]:
        """The joined tables whose changes are not handled."""
        return frozenset({e.table.name for e in self.joins} - {e.table.name for e in self.changes})

    @property
    def table(self) -> Table[K, V]:
        """The group's table, to be read by views. Raises `GraphError` if it keeps none."""
        if self.persist is None:
            raise GraphError(f"group {self.name!r} keeps no table: it has no Persist edge")
        return self._kept(f"{self.name}-table", self.key, self.persist.value)

    def state_table(self, state: State[SK, SV]) -> Table[SK, SV]:
        """Return the table of a state, to be read by views. Raises `GraphError` if the group does not keep it.

        Its rows are in the partition of the task that has written them, whatever their keys: `View.get` finds a row by
        its key only where that is the partition of the key, as with the keys of the records.
        """
        if state not in self.states:
            raise GraphError(f"group {self.name!r} keeps no state {state.name!r}: add it to its edges")
        return self._kept(self.named_topic(state.name), state.key, state.value)

    def _kept(self, topic: str, key: Codec[SK], value: Codec[SV]) -> Table[SK, SV]:
        return Table(topic, key, value, group=self.name, partitioner=self._first.partitioner)

    @property
    def _first(self) -> Stream[K, Any] | Table[K, Any]:
        return self.inputs[0].stream if self.inputs else self.changes[0].table

    def named_topic(self, name: str) -> str:
        """Return the changelog topic of one of the named tables."""
        return f"{self.name}-{name}"

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The changelog topics of all tables that the group keeps."""
        own = (self.table.name,) if self.persist is not None else ()
        return (*own, *map(self.named_topic, self.named_tables))

    @property
    def dead_letters(self) -> str:
        """The topic of the records that could not be processed."""
        return f"{self.name}-dead-letters"

    @property
    def retry(self) -> str:
        """The topic of replayed dead letters, an input of this group alone."""
        return f"{self.name}-retry"

    @property
    def visits_topic(self) -> str:
        """The topic of requested visits and their progress: an input of this group alone, if it has `Visit` edges."""
        return f"{self.name}-visits"

    @property
    def input_topics(self) -> tuple[str, ...]:
        """All topics whose partitions are assigned together: inputs, loop, joined tables, retries, visits."""
        visits = (self.visits_topic,) if self.visits else ()
        return (
            *(e.stream.name for e in self.inputs),
            *(e.table.name for e in self.joins),
            self.retry,
            *visits,
        )

    def __repr__(self) -> str:
        return f"Group({self.name!r})"


def prefix_headers(group: Group[Any, Any]) -> Mapping[str, str]:
    """Return the names of the headers that may hold the prefixes of values, by the topic that is read."""
    read: list[Stream[Any, Any] | Table[Any, Any]] = [edge.stream for edge in group.inputs]
    read += [edge.table for edge in group.joins]
    return {topic.name: name for topic in read if (name := prefix_header(topic.value))}


def prepare_codecs(group: Group[Any, Any]) -> None:
    """Look up the schemas that a group writes with. Raises `ConfigurationError`, `RetryLater`; see `ports.PreparedCodec`."""
    for _, codec in group.written_codecs():
        if isinstance(codec, PreparedCodec):
            codec.prepare()


def legal_version(version: object, of: str) -> str:
    """Return the version of a program's functions. Raises `GraphError` for anything but a short text."""
    if isinstance(version, str) and len(version) <= _VERSION_CHARACTERS_MAX:
        return version
    raise GraphError(f"{of} has version={version!r}: give at most {_VERSION_CHARACTERS_MAX} characters")


def _checked_names(group: str, names: list[str]) -> tuple[str, ...]:
    """Raise `GraphError` if the positions of these tables could exceed the metadata of an offset."""
    if len(names) > NAMED_TABLES_MAX:
        raise GraphError(
            f"group {group!r} has {len(names)} named tables: at most {NAMED_TABLES_MAX}. Keep some in another group, in a flow by "
            "stream(..., group=)"
        )
    for name in names:
        legal_name(f"{group}-{name}", f"named table of group {group!r},")
        if len(name) > NAMED_TABLE_CHARACTERS_MAX:
            raise GraphError(
                f"named table {name!r} of group {group!r}: at most {NAMED_TABLE_CHARACTERS_MAX} characters. Give its step a shorter name"
            )
    return tuple(names)


class Topology(Protocol):
    """A program that consists of several groups, such as a flow."""

    @property
    def groups(self) -> Sequence[Group[Any, Any]]:
        """The groups, in the order that data flows through them."""


def groups_in(programs: Iterable[Group[Any, Any] | Topology]) -> list[Group[Any, Any]]:
    """Return these groups, and the groups of the topologies among them. Raises `GraphError` for any other object."""
    found: list[Group[Any, Any]] = []
    for program in programs:
        groups = [program] if isinstance(program, Group) else getattr(program, "groups", None)
        # The class of a flow has `groups` too, as other objects have: a property, or a method.
        if not isinstance(groups, Sequence) or not all(isinstance(each, Group) for each in groups):
            raise GraphError(f"no Group and no Flow, but a {type(program).__name__}: {program!r:.100}")
        found.extend(groups)
    return found
