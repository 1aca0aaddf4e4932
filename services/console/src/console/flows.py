"""Flows in the graph: their groups, and the topics that only they use."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from streamtable_admin.graph_model import GraphModel, NodeKind

_INNER_KINDS: Final = {NodeKind.LOOP, NodeKind.VISITS}
_STATE: Final = "state"


def flows_of(model: GraphModel, instances: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the name of the flow for each node that belongs to one.

    The groups of a flow are those that a process runs together. A topic is inside a flow if only its groups use it, and
    they both write and read it, or keep their state in it. A group alone with such topics is a flow too.
    """
    owner = _flow_of_groups(instances)
    readers: dict[str, set[str]] = {}
    writers: dict[str, set[str]] = {}
    states: set[str] = set()
    for edge in model.edges:
        writers.setdefault(edge.target, set()).add(edge.source)
        readers.setdefault(edge.source, set()).add(edge.target)
        if edge.label == _STATE:
            states.add(edge.target)
    found: dict[str, str] = {}
    for name, node in model.nodes.items():
        read, written = readers.get(name, set()), writers.get(name, set())
        flows = {owner.get(user) for user in read | written}
        own = (read and written) or name in states or node.kind in _INNER_KINDS
        if node.kind not in {NodeKind.GROUP, NodeKind.SERVICE} and own and len(flows) == 1:
            (flow,) = flows
            if flow is not None:
                found[name] = flow
    several = [flow for group, flow in owner.items() if group != f"group {flow}"]
    known = {*found.values(), *several}
    return found | {group: flow for group, flow in owner.items() if flow in known and group in model.nodes}


def _flow_of_groups(instances: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the flow of each group by the id of its node."""
    together: dict[str, set[str]] = {}
    by_process: dict[tuple[str, int, str], str] = {}
    for each in instances:
        if not each["group"]:
            continue
        own = together.setdefault(each["group"], {each["group"]})
        other = by_process.setdefault((each["host"], each["pid"], each["instance"]), each["group"])
        own |= together[other]
        for group in own:
            together[group] = own
    return {
        f"group {group}": min(groups, key=lambda name: (len(name), name))
        for group, groups in together.items()
    }
