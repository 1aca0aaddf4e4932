"""Graphs of groups, services and topics: nodes and edges, joined through the topics that they share."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from streamtable import Avro, Group, Input, OnError
from streamtable.base.ports import Codec
from streamtable.base.topics import Stream, Table
from streamtable.graph.companion import CALLS, TIMER_TABLES
from streamtable.graph.group import HANDLED, IDS, STATES, Changes, Join
from streamtable_admin.errors import Refused

NAMED = {
    IDS: "ids of events",
    HANDLED: "rows handled last",
    STATES: "meanings of states",
    **{name: "pending calls" if name == CALLS else "pending timers" for name in TIMER_TABLES.values()},
}
"""The contents of the engine's own named tables, as labels."""


class NodeKind(StrEnum):
    """The kinds of nodes in the drawing of a graph."""

    STREAM = "stream"
    GROUP = "group"
    SERVICE = "service"
    TABLE = "table"
    LOOP = "loop"
    VISITS = "visits"
    CALL = "call"
    ASIDE = "aside"  # dead-letter and retry topics


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A topic, a group or a service.

    Attributes:
        name: Unique: `topic clicks`, `group counts`, `service shop emitter`.
        label: The text to show.
        detail: A second, smaller line.
    """

    name: str
    kind: NodeKind
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """Records flow from `source` to `target`; `label` says what happens to them."""

    source: str
    target: str
    label: str = ""


@dataclass(slots=True)
class GraphModel:
    """Nodes by name, and the edges between them."""

    nodes: dict[str, GraphNode] = field(default_factory=dict)
    edges: list[GraphEdge] = field(default_factory=list)

    def topic(self, topic: str, kind: NodeKind, detail: str = "") -> str:
        """Add a topic, unless it is there, and return its node's name."""
        name = f"topic {topic}"
        known = self.nodes.get(name)
        # A table of one group stays a table when another reads it as a stream; so does a loop.
        if known is None or known.kind is NodeKind.STREAM:
            self.nodes[name] = GraphNode(name, kind, topic, detail or (known.detail if known else ""))
        elif not known.detail:
            self.nodes[name] = replace(known, detail=detail)
        return name

    def actor(self, kind: NodeKind, label: str) -> str:
        """Add a group or a service, unless it is there, and return its node's name."""
        name = f"{kind} {label}"
        self.nodes.setdefault(name, GraphNode(name, kind, label))
        return name

    def edge(self, source: str, target: str, label: str = "") -> GraphEdge:
        """Add an edge, unless it is there."""
        found = GraphEdge(source, target, label)
        if found not in self.edges:
            self.edges.append(found)
        return found


def model_of(groups: Iterable[Group[Any, Any]], *, aside: bool = False) -> GraphModel:
    """Return the graph of some groups, in any order.

    Args:
        groups: The groups.
        aside: Also include dead-letter and retry topics.

    Raises:
        Refused: Two groups have the same name.
    """
    model = GraphModel()

    def stream(found: Stream[Any, Any], kind: NodeKind = NodeKind.STREAM) -> str:
        return model.topic(found.name, kind, codecs(found.key, found.value))

    def table(found: Table[Any, Any]) -> str:
        return model.topic(found.name, NodeKind.TABLE, codecs(found.key, found.value))

    for group in groups:
        if f"group {group.name}" in model.nodes:
            raise Refused(
                f"two groups are named {group.name!r}: they could not be distinguished in one graph"
            )
        own = model.actor(NodeKind.GROUP, group.name)
        loop = group.loop.stream if group.loop else None
        for edge in group.inputs:
            kind = NodeKind.LOOP if edge.stream == loop else NodeKind.STREAM
            model.edge(stream(edge.stream, kind), own, handler(edge))
        for join in group.joins:
            model.edge(table(join.table), own, joined(group, join))
        for lookup in group.lookups:
            model.edge(table(lookup.table), own, "lookup")
        if group.visits:
            names = ", ".join(visit.name for visit in group.visits)
            model.edge(model.topic(group.visits_topic, NodeKind.VISITS, "visits"), own, names)
        if group.persist is not None:
            model.edge(own, table(group.table), "table")
        for name in filter(NAMED.__contains__, group.named_tables):
            model.edge(own, model.topic(group.named_topic(name), NodeKind.TABLE, NAMED[name]), name)
        for state in group.states:
            model.edge(own, table(group.state_table(state)), "state")
        if loop is not None:
            model.edge(own, stream(loop, NodeKind.LOOP), "loop")
        for output in group.outputs:
            model.edge(own, stream(output.stream))
        if aside:
            letters = model.topic(group.dead_letters, NodeKind.ASIDE, "dead letters")
            model.edge(own, letters, "cannot be processed")
            model.edge(
                model.topic(group.retry, NodeKind.ASIDE, "replayed dead letters"), own, "as at its origin"
            )
    return model


def codecs(key: Codec[Any], value: Codec[Any]) -> str:
    return f"{_codec(key)} → {_codec(value)}"


def _codec(codec: Codec[Any]) -> str:
    if isinstance(codec, Avro):
        return f"Avro {codec.schema.name.rpartition('.')[2]}"
    return type(codec).__name__


def handler(edge: Input[Any, Any, Any]) -> str:
    """Return a description of the handling of an input's records."""
    if edge.aggregate is not None:
        return _on_error(_once(repr(edge.aggregate), edge), edge.on_error)
    return _on_error(_once(function(edge.handler or edge.batch or edge.custom), edge), edge.on_error)


def _once(text: str, edge: Input[Any, Any, Any]) -> str:
    return text if edge.once is None else f"{text}, once within {edge.once.within}"


def joined(group: Group[Any, Any], join: Join[Any, Any]) -> str:
    """Return a description of the use of a joined table by a group."""
    text = f"join, waits {join.wait:g} s" if join.wait else "join"
    return "; ".join([text, *(changed(each) for each in group.changes if each.table == join.table)])


def changed(edge: Changes[Any, Any, Any]) -> str:
    return _on_error(f"changes: {function(edge.handler)}", edge.on_error)


def function(found: Any) -> str:
    """Return the name of a function; `handler` for a lambda."""
    name = getattr(found, "__name__", "handler")
    return "handler" if name == "<lambda>" else name


def _on_error(text: str, on_error: OnError) -> str:
    return text if on_error is OnError.STOP else f"{text}, on error {on_error.value}"
