"""Selects the topics of a flow that carry watermarks, those upstream of a step that uses event time, and their stages.

Only the downstream groups determine that, so the selection is made when the flow is compiled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamtable.errors import GraphError
from streamtable.flow.plan.nodes import Node, nodes_before
from streamtable.graph.group import EventTime, Input, Output
from streamtable.graph.stages import Stages
from streamtable.graph.state import State
from streamtable.graph.timer import TIMERS, Timer

if TYPE_CHECKING:
    from streamtable.graph.edge import Edge


def topics_in_band(nodes: Sequence[Node], depths: Mapping[Node, int]) -> frozenset[str]:
    """Return the topics that carry watermarks.

    Args:
        nodes: All nodes of the flow.
        depths: What `depths_of` returns for them.
    """
    fed = _fed(nodes)
    read = {topic: _readers(topic, nodes) for topic in fed}
    timed = {node.group for node in nodes if _uses_event_time(node)}
    found: set[str] = set()
    # Event time follows the records of a stream; nodes made of changes of tables alone have none.
    while more := {
        topic for topic, node in fed.items() if node in depths and read[topic] & timed and topic not in found
    }:
        found |= more
        timed |= {fed[topic].group for topic in more}
    return frozenset(found)


def _fed(nodes: Sequence[Node]) -> Mapping[str, Node]:
    """Return the topics of the flow, each with the node that feeds it, but for those that go round in a circle.

    A join by a foreign key asks the right table and gets answers: watermarks in these would wait for themselves.
    """
    fed = {node.feeds: node for node in nodes if node.feeds}
    return {
        topic: node
        for topic, node in fed.items()
        if not any(node in nodes_before(parent, fed) for parent in node.parents)
    }


def _readers(topic: str, nodes: Sequence[Node]) -> set[str]:
    """Return the groups that read a topic."""
    return {node.group for node in nodes if node.source is not None and node.source.topic.name == topic}


def depths_of(nodes: Sequence[Node]) -> Mapping[Node, int]:
    """Return through how many topics of the flow the records of each node have come.

    Nodes that no stream leads to, such as those behind changes of tables alone, are skipped.

    Raises:
        GraphError: Timers lead back to a step before them.
    """
    found: dict[Node, int] = {}
    shared: dict[object, int] = {}  # the depth of what falls due at once, whichever node has set it
    fed = _fed(nodes)
    changed = True
    while changed:
        changed = False
        for node in nodes:
            known = [found[parent] for parent in node.parents if parent in found]
            known += [shared[each] for each in _shared_by(node) if each in shared]
            if node.source is not None and node.source.kind == "stream":
                feeding = fed.get(node.source.topic.name)
                known += [0] if feeding is None else [found[feeding] + 1] if feeding in found else []
            if known and max(known) > found.get(node, -1):
                changed = True
                found[node] = max(known)
                shared |= dict.fromkeys(_shared_by(node), found[node])
        if found and max(found.values()) > len(nodes):
            raise GraphError(
                "process() with timers or states in event time is used before and after a step with beside= in the same "
                "group: read the stream that is re-keyed in a group of its own, by group= of stream()"
            )
    return found


def _shared_by(node: Node) -> list[object]:
    """Return the parts with one clock for all nodes that use them: states whose rows fall due, and a group's timers."""
    states: list[object] = [id(edge) for edge in node.edges if isinstance(edge, State) and _falls_due(edge)]
    if node.source is not None and node.source.kind in {"closed", "pending"}:
        states.append(id(node.source.topic))
    return [*states, node.group] if _sets_timers(node) else states


def _falls_due(state: State[Any, Any]) -> bool:
    return state.due is not None and state.due.clock == "event"


def _sets_timers(node: Node) -> bool:
    return any(isinstance(edge, Timer) and edge.clock == "event" for edge in node.edges)


def stages_of(
    group: str, nodes: Sequence[Node], depths: Mapping[Node, int], in_band: frozenset[str]
) -> Stages:
    """Return the stages of a group: inputs whose records have come equally far are of one stage."""
    own = [node for node in nodes if node.group == group and node in depths]
    inputs = {
        node.source.topic.name: depths[node] if node.source.topic.name in in_band else 0
        for node in own
        if node.source is not None and node.source.kind == "stream"
    }
    steps = sorted(set(inputs.values()))

    def stage(node: Node) -> int:
        return max((number for number, depth in enumerate(steps) if depth <= depths[node]), default=0)

    states = {edge.name: stage(node) for node in own for edge in node.edges if isinstance(edge, State)}
    if timers := [stage(node) for node in own if _sets_timers(node)]:
        states[TIMERS["event"]] = max(timers)
    outputs = {node.feeds: stage(node) for node in own if node.feeds in in_band}
    staged = {name: steps.index(depth) for name, depth in inputs.items()}
    return Stages(staged, states, outputs, _lags_of(own))


def _lags_of(nodes: Sequence[Node]) -> Mapping[str, int]:
    """Return how far records that the states of a group get may be behind its watermark, as rows that fall due made them."""
    behind: dict[Node, int] = {}
    states: dict[str, int] = {}
    for node in nodes:  # each after its parents, and after the state that it is the source of
        behind[node] = max((behind.get(parent, 0) for parent in node.parents), default=0)
        if (
            node.source is not None
            and isinstance(state := node.source.topic, State)
            and state.due is not None
        ):
            behind[node] = states.get(state.name, 0) + state.due.holds_ms
        for edge in node.edges:
            if isinstance(edge, State) and _falls_due(edge):
                states[edge.name] = max(states.get(edge.name, 0), behind[node])
    return states


def with_watermarks(edge: "Edge[Any, Any]", in_band: frozenset[str]) -> "Edge[Any, Any]":
    """Return the edge, reading or writing watermarks if its topic carries them."""
    if isinstance(edge, Input | Output) and edge.stream.name in in_band:
        return replace(edge, watermarks=True)
    return edge


def _uses_event_time(node: Node) -> bool:
    return (
        node.windowed
        or _sets_timers(node)
        or any(
            isinstance(edge, EventTime) or (isinstance(edge, State) and _falls_due(edge))
            for edge in node.edges
        )
    )
