"""Selects the topics between the groups of a flow that carry watermarks: those upstream of a step that uses event time.

Only the downstream groups determine that, so the selection is made when the flow is compiled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamtable.flow.nodes import Node
from streamtable.graph import EventTime, Input, Output
from streamtable.state import State
from streamtable.timer import Timer

if TYPE_CHECKING:
    from streamtable.edge import Edge


def topics_in_band(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the topics that carry watermarks."""
    fed = {node.feeds: node.group for node in nodes if node.feeds}
    read = {topic: _readers(topic, nodes) for topic in fed}
    timed = {node.group for node in nodes if _uses_event_time(node)}
    found: set[str] = set()
    while (
        more := {
            topic
            for topic, group in fed.items()
            if read[topic] & timed and _has_records(group, nodes) and not _leads_back(topic, fed, read)
        }
        - found
    ):
        found |= more
        timed |= {fed[topic] for topic in more}
    return frozenset(found)


def _readers(topic: str, nodes: Sequence[Node]) -> set[str]:
    """Return the groups that read a topic."""
    return {node.group for node in nodes if node.source is not None and node.source.topic.name == topic}


def _leads_back(topic: str, fed: Mapping[str, str], read: Mapping[str, set[str]]) -> bool:
    """Return whether the group that writes a topic also reads it, so that its watermark would wait for itself."""
    reached: set[str] = set()
    following = set(read[topic])
    while following:
        reached |= following
        following = {
            reader for other, group in fed.items() if group in reached for reader in read[other]
        } - reached
    return fed[topic] in reached


def with_watermarks(edge: "Edge[Any, Any]", in_band: frozenset[str]) -> "Edge[Any, Any]":
    """Return the edge, reading or writing watermarks if its topic carries them."""
    if isinstance(edge, Input | Output) and edge.stream.name in in_band:
        return replace(edge, watermarks=True)
    return edge


def _uses_event_time(node: Node) -> bool:
    return node.windowed or any(
        isinstance(edge, EventTime)
        or (isinstance(edge, Timer) and edge.clock == "event")
        or (isinstance(edge, State) and edge.due is not None and edge.due.clock == "event")
        for edge in node.edges
    )


def _has_records(group: str, nodes: Sequence[Node]) -> bool:
    """Event time follows the records of a stream; a group that reads changes of tables alone has none."""
    return any(
        node.group == group and node.source is not None and node.source.kind == "stream" for node in nodes
    )
