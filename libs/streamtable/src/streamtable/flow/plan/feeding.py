"""Finds the sources of each state, and of each topic to another group, and the tables and steps whose changes they follow."""

from collections.abc import Iterator, Sequence

from streamtable.flow.plan.nodes import Node
from streamtable.graph.group import Fed
from streamtable.graph.state import State


def fed_by_sources(nodes: Sequence[Node]) -> Iterator[Fed]:
    """Yield the sources of the states and of the inner topics of one group.

    Args:
        nodes: All nodes of the group, each after its parents.
    """
    inputs: dict[Node, frozenset[str]] = {}  # whose records reach the node
    tables: dict[Node, frozenset[str]] = {}  # whose changes are its output
    by: dict[str, frozenset[str]] = {}
    behind: dict[str, frozenset[str]] = {}
    sides: dict[str, tuple[frozenset[str], ...]] = {}
    rows: dict[Node, str] = {}  # what its changes, or the records of changes, are made of
    made_of: dict[str, str] = {}
    for node in nodes:
        inputs[node] = _inputs(node, by).union(*(inputs[each] for each in node.parents if each in inputs))
        followed = [each for each in (*node.parents, node.follows) if each in tables]
        needed = frozenset[str]().union(*(tables[each] for each in followed))
        tables[node] = _changes(node, needed)
        kept = [edge.name for edge in node.edges if isinstance(edge, State)]
        parts = [rows[each] for each in node.parents if rows.get(each)]
        rows[node] = _rows(node, kept, tables[node], parts)
        if len(node.parents) > 1:
            sides |= dict.fromkeys(kept, tuple(tables[each] or inputs[each] for each in node.parents))
        for name in [*kept, *([node.feeds] if node.feeds else [])]:
            by[name] = by.get(name, frozenset()) | inputs[node]
            behind[name] = behind.get(name, frozenset()) | (frozenset() if node.as_records else needed)
            if parts and ((needed and not node.as_records) or node.label.startswith("to_table ")):
                made_of[name] = f"changes of {' with '.join(parts)}"
    return (Fed(e, by[e], behind[e] - {e}, sides.get(e, ()), made_of.get(e, "")) for e in by)


def _inputs(node: Node, by: dict[str, frozenset[str]]) -> frozenset[str]:
    """Return the inputs that a source reads, or whose records are in the state that it reads."""
    if node.source is None:
        return frozenset()
    topic = node.source.topic
    return by.get(topic.name, frozenset()) if isinstance(topic, State) else frozenset({topic.name})


def _changes(node: Node, followed: frozenset[str]) -> frozenset[str]:
    """Return the tables whose changes a node's output is."""
    if node.makes:
        return frozenset({node.makes})
    if node.source is not None and (node.source.kind == "table" or node.source.retracts):
        return frozenset({node.source.topic.name})
    return frozenset() if node.as_records or node.follows is not None else followed


def _rows(node: Node, kept: Sequence[str], tables: frozenset[str], parts: Sequence[str]) -> str:
    """Return the table that the changes of a node are made of, and the steps without a name behind it; "" if there is none."""
    if node.source is not None:
        return node.source.topic.name if node.source.kind == "table" else ""
    if kept:
        return kept[0] if tables else ""
    # Behind to_stream() they handle records, and may come and go.
    unnamed = [node.label] if tables and node.label in ("filter", "map_values") else []
    return " then ".join([*parts[:1], *unnamed])
