"""Compiles nodes to groups: the nodes between two changes of the key become one function that is called with batches."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streamtable.base.no_key import NoKey
from streamtable.base.topics import Stream, Table
from streamtable.base.watermarks import own_headers
from streamtable.errors import GraphError
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.flow.plan.feeding import fed_by_sources
from streamtable.flow.plan.in_band import depths_of, stages_of, topics_in_band, with_watermarks
from streamtable.flow.plan.nodes import Node, Step, intervals_of, sources_of
from streamtable.graph.group import EventTime, Group, Join, Output
from streamtable.graph.row_change import RowChange
from streamtable.graph.state import State
from streamtable.graph.topic_owners import refuse_shared_topics
from streamtable.handlers.context import BatchContext, Context

if TYPE_CHECKING:
    from streamtable.graph.edge import Edge


def groups_of(
    flow: str, nodes: Sequence[Node], event_time: EventTime, version: str
) -> tuple[Group[Any, Any], ...]:
    """Compile a flow to groups, in the order of the data. Raises `GraphError` for an invalid flow."""
    names = dict.fromkeys(node.group for node in nodes)
    if not names:
        raise GraphError(f"flow {flow!r} reads nothing: begin with stream() or table()")
    refuse_circles(flow, nodes)
    depths = depths_of(nodes)
    in_band, intervals = topics_in_band(nodes, depths), intervals_of(nodes)
    groups = []
    for name in names:
        timing = event_time, stages_of(name, nodes, depths, in_band)
        groups.append(Group(name, *_edges_of(name, nodes, in_band, intervals, timing), version=version))
    refuse_shared_topics(groups)
    return tuple(groups)


def refuse_circles(flow: str, nodes: Sequence[Node]) -> None:
    """Raise `GraphError` if records come back to a stream that they have come from. A handler may know when to end."""
    fed = {node.feeds: node for node in nodes if node.feeds}
    for node in nodes:
        written = {edge.stream.name for edge in node.edges if isinstance(edge, Output)} - {node.feeds}
        sources = [each.source for each in sources_of(node, fed)] if written else []
        read = {each.topic.name for each in sources if each and isinstance(each.topic, Stream)}
        for name in sorted(written & read) if not node.singly else ():
            raise GraphError(
                f"flow {flow!r} writes records that it has read from {name!r} to it again, at {node.label}: they would go round for "
                "ever. Write them to another stream; or, if they do come to an end, by emit in process(handler, Output(...))"
            )


def _edges_of(
    group: str,
    nodes: Sequence[Node],
    in_band: frozenset[str],
    intervals: Mapping[Node, int],
    timing: "Iterable[Edge[Any, Any]]",
) -> "list[Edge[Any, Any]]":
    """Return the edges of a group; `timing` only if it follows event time."""
    edges: list[Edge[Any, Any]] = []
    nodes = [each for each in nodes if each.group == group]
    for node in nodes:
        if node.source is not None:
            program = CompiledSource(node, nodes, in_band, intervals.get(node, 0))
            if _only_read(node, nodes):
                assert isinstance(node.source.topic, Table), "only tables are read"
                edges.append(Join(node.source.topic))
            elif (edge := node.source.edge(program.handler)) is not None:
                edges.append(edge)
        edges.extend(edge for edge in node.edges if edge not in edges)
    if any(node.windowed or node.feeds in in_band for node in nodes):
        edges += timing
    return [*(with_watermarks(edge, in_band) for edge in edges), *fed_by_sources(nodes)]


def _only_read(source: Node, nodes: Sequence[Node]) -> bool:
    """Whether only the rows of a table are read, and no step follows its changes."""
    return any(node.reads is source for node in nodes) and not any(source in node.parents for node in nodes)


class CompiledSource:
    """The handler of the records of one source of a group: all steps between it and the group's outputs and tables.

    Args:
        source: The node of the source.
        nodes: All nodes of the group, each after its parents.
        in_band: The topics that carry watermarks.
        interval_ms: The length of the intervals at whose ends steps behind need the rows of tables; 0: none does.
    """

    def __init__(
        self, source: Node, nodes: Sequence[Node], in_band: frozenset[str] = frozenset(), interval_ms: int = 0
    ) -> None:
        reached = {source: None}  # in order
        for node in nodes:
            if any(parent in reached for parent in node.parents):
                reached[node] = None
        followed = {parent for node in nodes for parent in node.parents}
        self._source = source
        self._plan: list[tuple[int, tuple[int, ...], Step | None]] = [
            (
                node.number,
                tuple(parent.number for parent in node.parents if parent in reached),
                node.step if node in followed or node.leaf is None else node.leaf,
            )
            for node in reached
            if node is not source
        ]
        followers = Counter(parent for _, parents, _ in self._plan for parent in parents)
        self._branching = {number for number, count in followers.items() if count > 1}
        self._windowed = any(node.windowed or node.feeds in in_band for node in reached)
        self._ordered = any(len(parents) > 1 for _, parents, _ in self._plan)
        self._singly = any(node.singly for node in reached)
        self._writes = any(isinstance(edge, Output) for node in reached for edge in node.edges)
        assert source.source is not None, "a source node has one"
        self._read = source.source
        self._key = self._read.topic.key if self._read.due is None else self._read.due.key
        self._keyless = isinstance(self._key, NoKey)
        kept = any(isinstance(edge, State) for node in reached for edge in node.edges)
        self._interval_ms = interval_ms if kept and not self._keyless else 0

    @property
    def handler(self) -> dict[str, Callable[..., None]]:
        """The handler of the source's edge, by the name of the argument."""
        if self._read.due is not None:
            return {"handler": self._run}
        if self._read.kind == "table":
            return {"handler": self.on_change}
        return {"handler": self.on_record} if self._singly else {"batch": self.on_batch}

    def on_batch(self, batch: BatchContext[Any, Any, Any]) -> None:
        """Handle records of the source."""
        late_before = batch.late_before_ms if self._windowed else None
        headers = batch.own_headers if self._writes else None
        more = {"raw_values": (self._read.topic.value, batch.raw_values), "headers": headers}
        self._run(batch, batch.raw_keys, batch.events, batch.event_times_ms, late_before, **more)

    def on_record(self, ctx: Context[Any, Any], event: Any) -> None:
        """Handle one record of the source."""
        late_before = [ctx.late_before_ms] if self._windowed else None
        headers = own_headers([ctx.headers]) if self._writes else None
        self._run(ctx, [ctx.raw_key], [event], [ctx.event_time_ms], late_before, headers=headers)

    def on_change(self, ctx: Context[Any, Any], change: RowChange[Any]) -> None:
        """Handle a change of the source's table."""
        late_before = [ctx.late_before_ms] if self._windowed else None
        self._run(ctx, [ctx.raw_key], [change.new], [ctx.timestamp_ms], late_before, olds=[change.old])

    def _run(
        self,
        scope: Scope,
        raw_keys: Sequence[bytes],
        values: Sequence[Any],
        times: Sequence[int],
        late_before: Sequence[int] | None,
        **more: Any,
    ) -> None:
        order = [(index,) for index in range(len(values))] if self._ordered else None
        first = Columns(self._key, raw_keys, None, values, times, late_before, order, **more)
        if self._keyless:
            first = first.with_keys([None] * len(values))
        for records in self._pieces(first):
            self._run_steps(scope, records)

    def _pieces(self, records: Columns) -> Sequence[Columns]:
        """Divide records where their key has reached another interval: its rows at the end of the last one are needed."""
        interval, late_before = self._interval_ms, records.late_before
        if not interval or not late_before or min(late_before) // interval == max(late_before) // interval:
            return [records]
        begins, reached = [0], dict[bytes, int]()
        for index, (key, at) in enumerate(zip(records.encoded_keys, late_before, strict=True)):
            if reached.setdefault(key, at // interval) < at // interval:
                begins.append(index)
                reached = {key: at // interval}
        return [records.at(range(begin, end)) for begin, end in pairwise([*begins, len(records)])]

    def _run_steps(self, scope: Scope, first: Columns) -> None:
        made: dict[int, Columns] = {self._source.number: first}
        for number, parents, step in self._plan:
            inputs = [
                made[parent].branched(number) if parent in self._branching else made[parent]
                for parent in parents
                if parent in made
            ]
            if not inputs:
                continue
            records = inputs[0] if len(inputs) == 1 else inputs[0].joined(inputs[1:])
            results = records if step is None else step(scope, records)
            if results:
                made[number] = results
