"""Group graphs as one picture: topics and groups are nodes, joined through the topics that they share."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from streamtable import Avro, Group, Input, OnError
from streamtable.graph import HANDLED, IDS, Changes, Join
from streamtable.ports import Codec
from streamtable.topics import Stream, Table
from streamtable_cli.errors import Refused

NAMED = {IDS: "ids of events", HANDLED: "rows handled last"}
"""What the named tables of groups hold."""


class Kind(StrEnum):
    """What a node is."""

    STREAM = "stream"
    GROUP = "group"
    TABLE = "table"
    LOOP = "loop"
    VISITS = "visits"
    ASIDE = "aside"  # dead letters and retries


@dataclass(frozen=True, slots=True)
class Node:
    """A topic or a group.

    Attributes:
        name: unique: topics and groups have names of different kinds.
        label: as it is shown.
        detail: a second, smaller line.
    """

    name: str
    kind: Kind
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """Records flow from `source` to `target`; `label` says what happens to them."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """Nodes by name, and edges between them."""

    nodes: dict[str, Node]
    edges: tuple[Edge, ...]


def picture_of(groups: Iterable[Group[Any, Any]], *, aside: bool = False) -> Picture:
    """The picture of some groups.

    Args:
        groups: in any order.
        aside: also with dead letters and retries.

    Raises:
        Refused: two groups have the same name.
    """
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []

    def topic(name: str, kind: Kind, detail: str) -> str:
        node = f"topic {name}"
        # What is a table to one group stays one when another reads it as a stream; the same with a loop.
        if node not in nodes or nodes[node].kind is Kind.STREAM:
            nodes[node] = Node(node, kind, name, detail)
        return node

    def stream(found: Stream[Any, Any], kind: Kind = Kind.STREAM) -> str:
        return topic(found.name, kind, codecs(found.key, found.value))

    def table(found: Table[Any, Any]) -> str:
        return topic(found.name, Kind.TABLE, codecs(found.key, found.value))

    for group in groups:
        own = f"group {group.name}"
        if own in nodes:
            raise Refused(f"two groups are named {group.name!r}: one picture cannot tell them apart")
        nodes[own] = Node(own, Kind.GROUP, group.name)
        loop = group.loop.stream if group.loop else None
        for edge in group.inputs:
            source = stream(edge.stream, Kind.LOOP if edge.stream == loop else Kind.STREAM)
            edges.append(Edge(source, own, handler(edge)))
        edges += [Edge(table(join.table), own, joined(group, join)) for join in group.joins]
        edges += [Edge(table(lookup.table), own, "lookup") for lookup in group.lookups]
        if group.visits:
            names = ", ".join(visit.name for visit in group.visits)
            edges.append(Edge(topic(group.visits_topic, Kind.VISITS, "visits"), own, names))
        if group.persist is not None:
            edges.append(Edge(own, table(group.table), "table"))
        for name in group.named_tables:
            edges.append(Edge(own, topic(group.named_topic(name), Kind.TABLE, NAMED[name]), name))
        if loop is not None:
            edges.append(Edge(own, stream(loop, Kind.LOOP), "loop"))
        edges += [Edge(own, stream(output.stream)) for output in group.outputs]
        if aside:
            edges.append(
                Edge(own, topic(group.dead_letters, Kind.ASIDE, "dead letters"), "cannot be processed")
            )
            edges.append(
                Edge(topic(group.retry, Kind.ASIDE, "dead letters sent again"), own, "as at its origin")
            )
    return Picture(nodes, tuple(edges))


def codecs(key: Codec[Any], value: Codec[Any]) -> str:
    return f"{_codec(key)} → {_codec(value)}"


def _codec(codec: Codec[Any]) -> str:
    if isinstance(codec, Avro):
        return f"Avro {codec.schema.name.rpartition('.')[2]}"
    return type(codec).__name__


def handler(edge: Input[Any, Any, Any]) -> str:
    """What an input does with its records, in a word."""
    if edge.aggregate is not None:
        return _on_error(_once(repr(edge.aggregate), edge), edge.on_error)
    return _on_error(_once(function(edge.handler or edge.batch), edge), edge.on_error)


def _once(text: str, edge: Input[Any, Any, Any]) -> str:
    return text if edge.once is None else f"{text}, once within {edge.once.within}"


def joined(group: Group[Any, Any], join: Join[Any, Any]) -> str:
    """What a group does with a table that it joins."""
    text = f"join, waits {join.wait:g} s" if join.wait else "join"
    return "; ".join([text, *(changed(each) for each in group.changes if each.table == join.table)])


def changed(edge: Changes[Any, Any, Any]) -> str:
    return _on_error(f"changes: {function(edge.handler)}", edge.on_error)


def function(found: Any) -> str:
    """Its name, as far as it has one of its own."""
    name = getattr(found, "__name__", "handler")
    return "handler" if name == "<lambda>" else name


def _on_error(text: str, on_error: OnError) -> str:
    return text if on_error is OnError.STOP else f"{text}, on error {on_error.value}"
