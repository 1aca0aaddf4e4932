"""The description of a flow for people: as text and as a Mermaid flow chart."""

from dataclasses import dataclass

from streamtable.flow.plan.ahead import ahead_of_grace
from streamtable.flow.plan.plan import Plan


@dataclass(frozen=True)
class Description:
    """The description of a flow. `str()` returns the text.

    Attributes:
        text: The groups with their steps, each step below the step that it follows.
        mermaid: The same as a Mermaid flow chart.
    """

    text: str
    mermaid: str

    def __str__(self) -> str:
        return self.text


def describe(plan: Plan) -> Description:
    """Describe a flow."""
    return Description(_text(plan), _mermaid(plan))


def _text(plan: Plan) -> str:
    lines = [f"flow {plan.name}"]
    for group in dict.fromkeys(node.group for node in plan.nodes):
        lines.append(f"  group {group}")
        shown: set[int] = set()
        sources = [node for node in plan.nodes if node.group == group and node.source is not None]
        following = [(node, 2) for node in reversed(sources)]  # a stack: a flow may be deeper than Python's
        while following:
            node, depth = following.pop()
            again = " (above)" if node.number in shown else ""
            lines.append(f"{'  ' * depth}{node.label}{f' -> {node.feeds}' if node.feeds else ''}{again}")
            if node.number not in shown:
                shown.add(node.number)
                children = [child for child in reversed(plan.nodes) if node in child.parents]
                following += [(child, depth + 1) for child in children]
    if (text := ahead_of_grace(plan.nodes, plan.event_time)) is not None:
        lines.append(f"  {text}")
    return "\n".join(lines) + "\n"


def _mermaid(plan: Plan) -> str:
    lines = ["flowchart LR"]
    sources = {node.source.topic.name: node for node in plan.nodes if node.source is not None}
    for group in dict.fromkeys(node.group for node in plan.nodes):
        lines.append(f'  subgraph "{group}"')
        lines.extend(
            f'    n{node.number}["{node.label.replace(chr(34), chr(39))}"]'
            for node in plan.nodes
            if node.group == group
        )
        lines.append("  end")
    lines.extend(f"  n{parent.number} --> n{node.number}" for node in plan.nodes for parent in node.parents)
    lines += [f"  n{node.reads.number} -.-> n{node.number}" for node in plan.nodes if node.reads is not None]
    fed = [(node, sources[node.feeds]) for node in plan.nodes if node.feeds]
    lines += [f'  n{node.number} -- "{node.feeds}" --> n{reader.number}' for node, reader in fed]
    return "\n".join(lines) + "\n"
