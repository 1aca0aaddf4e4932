"""`Flow`: streams and tables as a program, compiled to groups."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, TypeVar, overload

from streamtable.base.topics import Stream, Table, check_kind, legal_name
from streamtable.errors import GraphError
from streamtable.flow.plan.describe import Description, describe
from streamtable.flow.plan.nodes import Source
from streamtable.flow.plan.plan import Plan
from streamtable.flow.stream import KeyedStream
from streamtable.flow.table import KeyedTable
from streamtable.graph.group import Changes, EventTime, Group, Input, OnError, legal_version
from streamtable.graph.once import Once

K = TypeVar("K")
V = TypeVar("V")


class Flow:
    """A program over streams and tables.

        flow = Flow("page-views")
        views = flow.stream(PAGE_VIEWS)
        views.group_by("by-page", lambda view: view["page"], key=String()).count("per-page")
        app.run(flow)

    A flow is compiled to groups, which are cut where records change their key and nowhere else. The names of groups,
    topics and tables derive from the names of the flow and its steps alone.

    Args:
        name: The name of the flow, and of the group that reads its streams.
        on_error: The policy for records that make a step raise, unless their stream has its own policy.
        event_time: The event time of the groups with windows. Default: `EventTime()`.
        version: The version of the functions of its steps; see `Group`. Change it when a changed function,
            such as one that takes keys, would make other rows in tables.
    """

    def __init__(
        self,
        name: str,
        *,
        on_error: OnError = OnError.STOP,
        event_time: EventTime | None = None,
        version: str = "",
    ) -> None:
        legal_version(version, f"flow {name!r}")
        check_kind(event_time or EventTime(), "event_time= of Flow", EventTime)
        self._plan = Plan(legal_name(name, "flow"), on_error, event_time or EventTime(), version)

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self._plan.name

    @overload
    def stream(
        self,
        stream: Stream[K, V],
        *,
        time: Callable[[V], int | datetime] | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        on_error: OnError | None = None,
        once: Once[V] | None = None,
        group: str = "",
        tombstones: Literal[False] = False,
    ) -> KeyedStream[K, V]: ...
    @overload
    def stream(
        self,
        stream: Stream[K, V],
        *,
        start: Literal["earliest", "latest"] = "earliest",
        on_error: OnError | None = None,
        group: str = "",
        tombstones: Literal[True],
    ) -> KeyedStream[K, V | None]: ...
    def stream(
        self,
        stream: Stream[K, V],
        *,
        time: Callable[[V], int | datetime] | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        on_error: OnError | None = None,
        once: Once[V] | None = None,
        group: str = "",
        tombstones: bool = False,
    ) -> KeyedStream[K, Any]:
        """Read a stream. One without keys (`NoKey`) is for steps that need none, and for those that give it keys.

        Args:
            stream: The stream to read.
            time: Takes the event time from a value: milliseconds since 1970, or a datetime with a time zone. By default
                it is the timestamp of the record. Whether it is given cannot change once windows, joins or timers have followed
                event time: the flow stops with `StateMeaningChanged`.
            start: Where a new group begins to read.
            on_error: The policy for records that make a step raise. Default: the flow's policy.
            once: The deduplication of repeated events, by their ids.
            group: The end of the name of the group that reads it, `<flow>-<group>`: for streams that are keyed or
                partitioned differently from the flow's others. By default all are read by the group `<flow>`.
            tombstones: Take records without a value too, as None. By default they are skipped, and counted in the metric
                `streamtable_tombstones_skipped_total`. Not together with `time` or `once`, which need a value.
        """
        check_kind(stream, "stream()", Stream)
        if tombstones and (
            names := [each for each, given in (("time", time), ("once", once)) if given is not None]
        ):
            raise GraphError(
                f"stream({stream.name!r}) has tombstones=True with {' and '.join(names)}: a record without a value has nothing to take that from"
            )
        failing = on_error or self._plan.on_error

        def edge(handler: dict[str, Any]) -> Input[Any, Any, Any]:
            taken: Literal[True, "skip"] = True if tombstones else "skip"
            return Input(
                stream, start=start, on_error=failing, once=once, time=time, tombstones=taken, **handler
            )

        source = Source(stream, edge, (stream, time, start, failing, once, tombstones))
        key = None if stream.keyless else stream.key
        return KeyedStream(self._plan, self._plan.source(self._group(group), source), key, stream.value)

    def table(
        self, table: Table[K, V], *, on_error: OnError | None = None, group: str = ""
    ) -> KeyedTable[K, V]:
        """Read a table of another group or program, with its changes.

        A new flow gets each row that is there as a change from nothing. In a table with windows the expiry of a window, after
        its `retention`, is a deletion: sums over such rows are over the windows that are still kept.

        Args:
            table: The table to read.
            on_error: The policy for changes that make a step raise. Default: the flow's policy.
            group: As in `stream`.
        """
        check_kind(table, "table()", Table)
        failing = on_error or self._plan.on_error

        def edge(handler: dict[str, Any]) -> Changes[Any, Any, Any]:
            return Changes(table, start="earliest", on_error=failing, **handler)

        source = Source(table, edge, (table, failing), kind="table")
        node = self._plan.source(self._group(group), source)
        made = KeyedTable(self._plan, node, table.key, table.value, lambda: table)
        made._versions = node  # noqa: SLF001 - of this package
        return made

    def add(self, group: Group[Any, Any]) -> None:
        """Run another group with those of the flow, such as a sink of one of its tables: `flow.add(Sink("out", counts.table, TARGET))`."""
        self._plan.added.append(group)

    @property
    def groups(self) -> tuple[Group[Any, Any], ...]:
        """The groups that the flow is compiled to, in the order of the data, and then those that were added to it.

        Raises:
            GraphError: The flow reads nothing, or its parts contradict each other; the message names both sides.
        """
        return self._plan.groups

    def group(self, name: str = "") -> Group[Any, Any]:
        """Return one of the groups: that which reads the flow's streams, or that behind the step `name`."""
        full_name = self._group(name)
        for group in self.groups:
            if group.name == full_name:
                return group
        names = ", ".join(group.name for group in self.groups)
        raise GraphError(f"flow {self.name!r} has no group {full_name!r}: its groups are {names}")

    def describe(self) -> Description:
        """Describe the flow, as text and as a Mermaid drawing."""
        return describe(self._plan)

    def _group(self, name: str) -> str:
        return f"{self.name}-{name}" if name else self.name

    def __repr__(self) -> str:
        return f"Flow({self.name!r})"
