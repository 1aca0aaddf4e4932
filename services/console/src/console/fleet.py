"""All processes as one picture: the instances, and the graph of services, groups, topics and tables with its rates."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.records import ProcessStatus

SILENT_MS: Final = 15_000
"""A process that has told nothing for longer may be gone: it tells every five seconds."""
FORGOTTEN_MS: Final = 24 * 3_600_000
OWN: Final = "console"
_ASIDE: Final = {"retry", "dead letters"}


@dataclass(frozen=True)
class Topic:
    """What the broker says of a topic.

    Attributes:
        records: offsets between its first and its end, of all partitions.
        rate: offsets a second that it grows by; None: not known yet.
    """

    partitions: int
    records: int
    rate: float | None = None


def instances_of(statuses: Mapping[str, ProcessStatus], now_ms: int) -> list[dict[str, Any]]:
    """The processes that have told something within a day, without their graphs, in the order of their keys.

    `state` is silent for those that have not told anything for 15 seconds, unless they have failed.
    """
    found = []
    for key, status in sorted(statuses.items()):
        quiet_ms = now_ms - status["at"]
        if quiet_ms > FORGOTTEN_MS:
            continue
        state = "silent" if quiet_ms > SILENT_MS and status["state"] != "failed" else status["state"]
        known = {name: value for name, value in status.items() if name != "graph"}
        lag = sum(max(0, each["lag"]) for each in status["inputs"])
        found.append({"key": key, **known, "state": state, "lag": lag})
    return found


@dataclass
class _Picture:
    """A graph being put together."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)

    def node(self, name: str, kind: str, label: str) -> dict[str, Any]:
        node = self.nodes.setdefault(name, {"id": name, "kind": kind, "label": label, "detail": ""})
        if node["kind"] == "stream" and kind in {"table", "loop"}:
            node["kind"] = kind  # what is a table to one stays one when another reads it as a stream
        return node

    def edge(self, source: str, target: str, how: str, rate: float | None) -> None:
        self.edges.setdefault(
            (source, target, how), {"source": source, "target": target, "how": how, "rate": rate}
        )


def graph_of(
    statuses: Mapping[str, ProcessStatus], instances: Iterable[Mapping[str, Any]], topics: Mapping[str, Topic]
) -> dict[str, Any]:
    """Nodes (`id`, `kind`, `label`, `detail`, and what is known of them) and edges (`source`, `target`, `how`, `rate`).

    Kinds are group, service, stream, table, loop and visits. Rates are in records a second, None where nobody knows.
    """
    listed = list(instances)
    live = [each for each in listed if each["state"] not in {"silent", "failed"}]
    emitters = Counter(
        topic for key in {(e["service"], e["role"]) for e in listed} for topic in _emits(listed, key)
    )
    picture = _Picture()
    for each in listed:
        graph = _graph(statuses[each["key"]])
        if graph is not None:
            _add_group(picture, graph, [e for e in live if e["group"] == each["group"]])
        elif each["service"] != OWN:  # its copies are of whatever tables people look at
            _add_service(picture, each, topics, emitters)
    for node in picture.nodes.values():
        if node["kind"] in {"group", "service"}:
            _add_members(node, listed)
        elif (topic := topics.get(node["label"])) is not None:
            node |= {"rate": topic.rate, "partitions": topic.partitions, "records": topic.records}
    return {"nodes": list(picture.nodes.values()), "edges": list(picture.edges.values())}


def _emits(instances: Iterable[Mapping[str, Any]], who: tuple[str, str]) -> set[str]:
    return {topic for each in instances if (each["service"], each["role"]) == who for topic in each["emits"]}


def _graph(status: ProcessStatus) -> dict[str, Any] | None:
    """What the process says that its group is; anybody may write to the topic, so it is looked at closely."""
    try:
        graph = json.loads(status["graph"]) if status["graph"] else None
        edges = [*graph["reads"], *graph["writes"]] if graph else []
        fits = isinstance(graph["group"], str) if graph else False
        fits = fits and all(
            isinstance(each[name], str) for each in edges for name in ("topic", "how", "codecs")
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return graph if graph and fits else None


def _add_group(picture: _Picture, graph: Mapping[str, Any], members: list[Mapping[str, Any]]) -> None:
    own = f"group {graph['group']}"
    picture.node(own, "group", graph["group"])
    rates = Counter[tuple[str, str]]()
    for member in members:
        for flow in member["flows"]:
            rates[flow["topic"], flow["direction"]] += flow["rate"]
    for each in graph["reads"]:
        if each["how"] not in _ASIDE:
            kind = {"join": "table", "lookup": "table"}.get(each["how"], each["how"])
            topic = picture.node(f"topic {each['topic']}", kind, each["topic"])
            topic["detail"] = topic["detail"] or each["codecs"]
            known = each["how"] != "lookup" and bool(members)
            picture.edge(topic["id"], own, each["how"], rates[each["topic"], "in"] if known else None)
    for each in graph["writes"]:
        if each["how"] not in _ASIDE:
            topic = picture.node(f"topic {each['topic']}", each["how"], each["topic"])
            topic["detail"] = topic["detail"] or each["codecs"]
            picture.edge(own, topic["id"], each["how"], rates[each["topic"], "out"] if members else None)


def _add_service(
    picture: _Picture, instance: Mapping[str, Any], topics: Mapping[str, Topic], emitters: Mapping[str, int]
) -> None:
    name = f"{instance['service']} {instance['role']}".strip()
    own = f"service {name}"
    for topic in instance["emits"]:
        picture.node(own, "service", name)
        picture.node(f"topic {topic}", "stream", topic)
        known = topics.get(topic)
        # Only of one who alone sends to a topic do we know how much: as much as the topic grows by.
        picture.edge(own, f"topic {topic}", "emit", known.rate if known and emitters[topic] == 1 else None)
    for copy in instance["copies"]:
        if copy["table"] in topics and copy["table"].endswith("-table"):
            picture.node(own, "service", name)
            picture.node(f"topic {copy['table']}", "table", copy["table"])
            picture.edge(f"topic {copy['table']}", own, "view", None)


def _add_members(node: dict[str, Any], instances: Iterable[Mapping[str, Any]]) -> None:
    members = [
        each
        for each in instances
        if node["id"] in (f"group {each['group']}", f"service {each['service']} {each['role']}".strip())
    ]
    states = Counter(each["state"] for each in members)
    node |= {
        "instances": len(members),
        "states": dict(states),
        "lag": sum(each["lag"] for each in members),
        "dead_letters": sum(each["dead_letters"] for each in members),
        "detail": ", ".join(f"{count} {state}" for state, count in sorted(states.items())),
    }
