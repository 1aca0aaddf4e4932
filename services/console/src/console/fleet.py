"""The fleet: all instances, and the graph of services, groups, topics and tables with its rates."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from console.flows import flows_of
from contracts.records import DueStatus, ProcessStatus
from streamtable.base.lateness import LATE_SHARE_MAX, advice
from streamtable_admin.graph_model import GraphEdge, GraphModel, GraphNode, NodeKind
from streamtable_admin.process_status import state_at

OWN: Final = "console"
EMIT: Final = "emit"
VIEW: Final = "view"
QUERY: Final = "query"
CALL: Final = "call"
_ASIDE: Final = {"retry", "dead letters"}
_DEAD: Final = {"silent", "failed"}
_KINDS: Final = {
    "join": NodeKind.TABLE,
    "lookup": NodeKind.TABLE,
    "table": NodeKind.TABLE,
    "state": NodeKind.TABLE,
    "loop": NodeKind.LOOP,
    "visits": NodeKind.VISITS,
}
"""The kinds of topics, by how a group reads or writes them; all others are streams."""


@dataclass(frozen=True)
class Topic:
    """A topic as the broker knows it.

    Attributes:
        records: The offsets between start and end, of all partitions.
        rate: The growth in offsets per second; None if not known yet.
    """

    partitions: int
    records: int
    rate: float | None = None


def instances_of(statuses: Mapping[str, ProcessStatus], now_ms: int) -> list[dict[str, Any]]:
    """Return the processes that have reported within a day, without their graphs, in the order of their keys.

    `state` is silent for those that have not reported for 15 seconds, unless they have failed.
    """
    found = []
    for key, status in sorted(statuses.items()):
        state = state_at(status, now_ms)
        if state is not None:
            known = {name: value for name, value in status.items() if name != "graph"}
            due = [{**each, "late_advice": _late_advice(each)} for each in status["due"]]
            lag = sum(max(0, each["lag"]) for each in status["inputs"])
            found.append({"key": key, **known, "due": due, "state": state, "lag": lag})
    return found


def _late_advice(due: DueStatus) -> str:
    return advice(due["moved_by"]) if due["late_share"] > LATE_SHARE_MAX else ""


def graph_of(
    statuses: Mapping[str, ProcessStatus], instances: Iterable[Mapping[str, Any]], topics: Mapping[str, Topic]
) -> dict[str, Any]:
    """Return nodes (`id`, `kind`, `label`, `detail`, `flow`, and more), and edges (`source`, `target`, `how`, `rate`).

    Kinds are group, service, stream, table, loop, visits and call. Rates are in records per second, None where not known.
    """
    listed = list(instances)
    emitters = Counter(
        topic for key in {(e["service"], e["role"]) for e in listed} for topic in _emits(listed, key)
    )
    model = GraphModel()
    rates: dict[GraphEdge, float | None] = {}
    members = _by_node(listed)
    graphs: dict[str, str] = {}
    services = []
    for each in listed:
        text = statuses[each["key"]]["graph"]
        if graphs.get(each["group"]) == text != "":
            continue  # the processes of a group report the same graph
        graph = _graph(text)
        if graph is not None and graph["group"] == each["group"]:
            graphs[each["group"]] = text
            _add_group(model, rates, graph, [e for e in members[node_of(each)] if e["state"] not in _DEAD])
        elif each["service"] != OWN:  # its views are of the tables that users look at
            services.append(each)
    for each in services:
        _add_service(model, rates, each, topics, emitters)
    flows = flows_of(model, listed)
    nodes = [{**_node(node, members, topics), "flow": flows.get(node.name)} for node in model.nodes.values()]
    edges = [
        {"source": edge.source, "target": edge.target, "how": edge.label, "rate": rates[edge]}
        for edge in model.edges
    ]
    return {"nodes": nodes, "edges": edges}


def node_of(process: Mapping[str, Any]) -> str:
    """Return the id of the node of a process in the graph."""
    if process["group"]:
        return f"{NodeKind.GROUP} {process['group']}"
    return f"{NodeKind.SERVICE} {process['service']} {process['role']}".strip()


def _by_node(instances: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in instances:
        found.setdefault(node_of(each), []).append(each)
    return found


def _emits(instances: Iterable[Mapping[str, Any]], role: tuple[str, str]) -> set[str]:
    return {topic for each in instances if (each["service"], each["role"]) == role for topic in each["emits"]}


def _graph(text: str) -> dict[str, Any] | None:
    """Return the graph that a process reports, if it is valid: any producer may write to the topic."""
    try:
        graph = json.loads(text) if text else None
        edges = [*graph["reads"], *graph["writes"]] if graph else []
        fits = isinstance(graph["group"], str) if graph else False
        fits = fits and all(
            isinstance(each[name], str) for each in edges for name in ("topic", "how", "codecs")
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return graph if graph and fits else None


def _add_group(
    model: GraphModel,
    rates: dict[GraphEdge, float | None],
    graph: Mapping[str, Any],
    members: list[Mapping[str, Any]],
) -> None:
    own = model.actor(NodeKind.GROUP, graph["group"])
    flows = Counter[tuple[str, str]]()
    for member in members:
        for flow in member["flows"]:
            flows[flow["topic"], flow["direction"]] += flow["rate"]
    for each in graph["reads"]:
        if each["how"] not in _ASIDE:
            topic = model.topic(each["topic"], _KINDS.get(each["how"], NodeKind.STREAM), each["codecs"])
            known = each["how"] != "lookup" and bool(members)
            edge = model.edge(topic, own, each["how"])
            rates.setdefault(edge, flows[each["topic"], "in"] if known else None)
    for each in graph["writes"]:
        if each["how"] not in _ASIDE:
            topic = model.topic(each["topic"], _KINDS.get(each["how"], NodeKind.STREAM), each["codecs"])
            edge = model.edge(own, topic, each["how"])
            rates.setdefault(edge, flows[each["topic"], "out"] if members else None)
    for name in sorted({call["call"] for member in members for call in member["calls"]}):
        # Named with the group: two groups may have calls of one name.
        edge = model.edge(own, model.actor(NodeKind.CALL, f"{graph['group']} {name}"), CALL)
        rates.setdefault(edge, sum(each["rate"] for each in _calls(members, name)))


def _calls(members: Iterable[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """Return the numbers of a call in each process that lives: what a dead one had pending, another one has now."""
    live = (each for each in members if each["state"] not in _DEAD)
    return [call for member in live for call in member["calls"] if call["call"] == name]


def _add_service(
    model: GraphModel,
    rates: dict[GraphEdge, float | None],
    instance: Mapping[str, Any],
    topics: Mapping[str, Topic],
    emitters: Mapping[str, int],
) -> None:
    name = f"{instance['service']} {instance['role']}".strip()
    for topic in instance["emits"]:
        own = model.actor(NodeKind.SERVICE, name)
        known = topics.get(topic)
        edge = model.edge(own, model.topic(topic, NodeKind.STREAM), EMIT)
        # The growth of a topic is the rate of a service only if no other service emits to it.
        rates.setdefault(edge, known.rate if known and emitters[topic] == 1 else None)
    for flow in (e for e in instance["flows"] if e["direction"] == QUERY and instance["state"] not in _DEAD):
        table = f"topic {flow['topic']}"
        for keeper in [each.source for each in model.edges if each.target == table and each.label != EMIT]:
            edge = model.edge(keeper, model.actor(NodeKind.SERVICE, name), QUERY)
            rates[edge] = (rates.get(edge) or 0.0) + flow["rate"]
    for copy in instance["copies"]:
        table = f"topic {copy['table']}"
        if copy["table"] in topics and (table in model.nodes or copy["table"].endswith("-table")):
            own = model.actor(NodeKind.SERVICE, name)
            rates.setdefault(model.edge(model.topic(copy["table"], NodeKind.TABLE), own, VIEW), None)


def _node(
    node: GraphNode, members: Mapping[str, list[Mapping[str, Any]]], topics: Mapping[str, Topic]
) -> dict[str, Any]:
    """Return a node with its known members; `members`: the processes by the nodes of their groups and services."""
    found = {"id": node.name, "kind": str(node.kind), "label": node.label, "detail": node.detail}
    if node.kind in {NodeKind.GROUP, NodeKind.SERVICE}:
        return found | _members(members.get(node.name, []))
    if node.kind is NodeKind.CALL:
        group, _, name = node.label.partition(" ")
        calls = _calls(members[f"{NodeKind.GROUP} {group}"], name)
        pending = sum(each["pending"] for each in calls)
        oldest = max(each["oldest_seconds"] for each in calls) if pending else 0.0
        return found | {"label": name, "group": group, "pending": pending, "oldest_seconds": oldest}
    topic = topics.get(node.label)
    if topic is None:
        return found
    return {**found, "rate": topic.rate, "partitions": topic.partitions, "records": topic.records}


def _members(members: Collection[Mapping[str, Any]]) -> dict[str, Any]:
    states = Counter(each["state"] for each in members)
    return {
        "instances": len(members),
        "states": dict(states),
        "lag": sum(each["lag"] for each in members),
        "dead_letters": sum(each["dead_letters"] for each in members),
        "detail": ", ".join(f"{count} {state}" for state, count in sorted(states.items())),
    }
