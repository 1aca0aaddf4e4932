"""The plan of a flow: its nodes, the names that its steps have taken, and the groups that it is compiled to."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from streamtable.base.partitioner import Partitioner
from streamtable.base.ports import Codec
from streamtable.base.topics import Table, legal_name
from streamtable.errors import GraphError
from streamtable.flow.plan.ahead import warn_of_ahead
from streamtable.flow.plan.compiler import groups_of
from streamtable.flow.plan.nodes import Node, Source
from streamtable.graph.edge import OnError
from streamtable.graph.group import EventTime, Group
from streamtable.graph.state import State

K = TypeVar("K")
V = TypeVar("V")


@dataclass
class Plan:
    """The nodes of a flow.

    Attributes:
        name: The name of the flow.
        on_error: The policy for records that make a step raise.
        event_time: The event time of the groups with windows.
        version: The version of the functions.
        nodes: All of them, each after its parents.
        names: The operators that have taken names for state and topics.
        added: The groups that run with those of the flow.
    """

    name: str
    on_error: OnError
    event_time: EventTime
    version: str = ""
    nodes: list[Node] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    added: list[Group[Any, Any]] = field(default_factory=list)
    _groups: tuple[int, tuple[Group[Any, Any], ...]] = (0, ())  # and of how many nodes they were made

    def add(self, label: str, *parents: Node, group: str = "", **more: Any) -> Node:
        """Add a node, to the group of its parents; one without parents, a source, to the given group."""
        node = Node(len(self.nodes), group or parents[0].group, label, parents, **more)
        self.nodes.append(node)
        return node

    def claim(self, name: Any, operator: str) -> str:
        """Take a name for a step that keeps state or has a topic. Raises `GraphError` if it is none, or taken."""
        if not isinstance(name, str) or not name:
            raise GraphError(
                f"{operator}({name!r}) in flow {self.name!r} has no name: give it one. Topics and state are named after steps"
            )
        legal_name(f"{self.name}-{name}", f"step of flow {self.name!r},")
        if name in self.names:
            raise GraphError(
                f"flow {self.name!r} has two steps named {name!r}: {self.names[name]} and {operator}. Topics and state are "
                "named after steps: give each a name of its own"
            )
        self.names[name] = operator
        return name

    def source(self, group: str, source: Source, label: str = "") -> Node:
        """Return the node of a source; two sources of the same kind and topic, or state, share a node."""
        place = (group, source.kind, source.topic.name)
        for node in self.nodes:
            if node.source and (node.group, node.source.kind, node.source.topic.name) == place:
                if node.source.arguments != source.arguments:
                    raise GraphError(
                        f"flow {self.name!r} reads {source.topic.name!r} twice in group {group!r}, with other arguments: "
                        "read it once and use the stream for both"
                    )
                return node
        return self.add(label or f"{source.kind} {source.topic.name}", group=group, source=source)

    def partitioner_of(self, group: str) -> Partitioner:
        """Return the partitioner of the streams and tables that a group reads: its other topics have the same."""
        for node in self.nodes:
            if node.group == group and node.source is not None and not isinstance(node.source.topic, State):
                return node.source.topic.partitioner
        return "murmur2"

    @property
    def groups(self) -> tuple[Group[Any, Any], ...]:
        """The groups, compiled again when steps were added. Raises `GraphError`."""
        if self._groups[0] != len(self.nodes) or not self.nodes:
            self._groups = len(self.nodes), groups_of(self.name, self.nodes, self.event_time, self.version)
            warn_of_ahead(self.name, self.nodes, self.event_time)
        return (*self._groups[1], *self.added)

    def table_of(self, name: str, state: State[K, V]) -> Table[K, V]:
        """Return the table of a state, as views read it. Raises `GraphError`."""
        (group,) = (group for group in self.groups if group.name == name)
        return group.state_table(state)


def checked_keys(key: Codec[K] | None, operator: str) -> Codec[K]:
    """Return the codec of the keys. Raises `GraphError` if they are not those that the records are partitioned by."""
    if key is None:
        raise GraphError(
            f"{operator} after a step that changes keys, such as map(), or of a stream without keys: records of a key would "
            "be in several partitions. Put repartition(name, key=codec, value=codec) or group_by(name, ..., key=codec, value=codec) between them"
        )
    return key


def copartitioned(nodes: Iterable[Node], operator: str = "merge") -> None:
    """Raise `GraphError` if these nodes belong to several groups: their records cannot be merged or joined."""
    groups = sorted({node.group for node in nodes})
    if len(groups) > 1:
        raise GraphError(
            f"{operator}() of inputs that are partitioned differently, in the groups {groups}. Bring one into the group "
            "of the other: by beside= of repartition(), key_by() and group_by(), or by group= of stream() and table()"
        )
