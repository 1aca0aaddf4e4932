"""The nodes of a flow while it is built, each with the step that it runs and the group that it belongs to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from streamtable.base.ports import Codec
from streamtable.base.topics import Stream, Table
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.graph.edge import Edge
from streamtable.graph.group import Output
from streamtable.graph.state import State

if TYPE_CHECKING:
    from streamtable.graph.group import Changes, Input
    from streamtable.handlers.due_rows import DueRows

Step = Callable[[Scope, Columns], Columns | None]
"""The function of a node: processes the records of a batch and returns those for the next step; None: there is no output."""

MakeInput = Callable[[dict[str, Any]], "Input[Any, Any, Any] | Changes[Any, Any, Any] | None"]
"""Makes the edge of a source, given its handler: `handler=` or `batch=`; None: it has one already."""

DueRecord = tuple[bytes, Any, int, int]
"""A record that is due: the encoded key, the value, the event time, and the time before which windows are closed."""


class DueRecords:
    """Handles rows that fall due, as of windows that have closed: passes them on as records.

    What follows is known when the flow is compiled, after the table of the rows was made.

    Args:
        key: The codec of the records' keys.
        of: Returns the records of rows that are due.
    """

    def __init__(self, key: Codec[Any], of: "Callable[[DueRows[Any, Any]], Sequence[DueRecord]]") -> None:
        self.key = key
        self._of = of
        self._run: Callable[..., None] | None = None

    def edge(self, handler: dict[str, Any]) -> None:
        """Take the handler of the records; the state is an edge of the group already."""
        self._run = handler["handler"]

    def __call__(self, due: "DueRows[Any, Any]") -> None:
        if self._run is not None and (records := self._of(due)):
            self._run(due, *zip(*records, strict=True))


@dataclass(frozen=True)
class Source:
    """A source of records of a group.

    Attributes:
        topic: The topic that is read, or the state whose windows close.
        edge: Called with the handler of the source, by the name of its kind. Returns the edge of the group; None if the
            source needs none.
        arguments: The arguments that the source was made with. They distinguish two sources of the same topic.
        kind: The kind of records: records of a stream, changes of a table, closed windows of a state, or changes of a state
            that are emitted at the end of their interval.
        due: The handler of the rows of a state that fall due; None: the source is a topic.
        retracts: Whether a stream carries the changes of a table, as values that are subtracted and added.
    """

    topic: Stream[Any, Any] | Table[Any, Any] | State[Any, Any]
    edge: MakeInput
    arguments: tuple[object, ...] = ()
    kind: Literal["stream", "table", "closed", "pending"] = "stream"
    due: DueRecords | None = None
    retracts: bool = False


@dataclass(frozen=True, eq=False)
class Node:
    """An operator of a flow.

    Attributes:
        number: The number of the node in the order of building; its parents have lower numbers.
        group: The name of the group that the node belongs to.
        label: The description of the node for people.
        parents: The nodes whose output the node gets.
        step: The step that the node runs; None: it only passes records on.
        leaf: The step that is run instead if no node follows; None: `step`.
        edges: The edges that the node adds to its group.
        source: The source of a node without parents in its group; None: it has parents.
        singly: Whether the step needs the context of each single record.
        windowed: Whether the step needs to know which windows are closed for a record.
        grace_ms: The grace of the step for records out of order, in milliseconds; None: it has none.
        interval_ms: The length of the intervals at whose ends the step needs the rows of a table; 0: it needs none.
        feeds: The topic through which its output reaches another group.
        reads: The table whose rows the step reads.
        makes: The table of the group whose changes its output is, by the name of its state.
        as_records: Whether it takes the changes of a table as records of a stream, which may begin at any of them.
        follows: Another node whose changes its state needs all of.
    """

    number: int
    group: str
    label: str
    parents: tuple["Node", ...] = field(default=(), repr=False)  # there may be many, each with its own
    step: Step | None = None
    leaf: Step | None = None
    edges: tuple[Edge[Any, Any], ...] = ()
    source: Source | None = None
    singly: bool = False
    windowed: bool = False
    grace_ms: int | None = None
    interval_ms: int = 0
    feeds: str = ""
    reads: "Node | None" = field(default=None, repr=False)
    makes: str = ""
    as_records: bool = False
    follows: "Node | None" = field(default=None, repr=False)


def nodes_before(node: Node, fed: Mapping[str, Node] = MappingProxyType({})) -> set[Node]:
    """Return the node and all that its records come from in its group.

    Args:
        node: The node.
        fed: Topics with the nodes that feed them: the nodes before these are returned, too.
    """
    found, ahead = {node}, [node]
    while ahead:
        each = ahead.pop()
        feeding = fed.get(each.source.topic.name) if each.source is not None else None
        parents = {*each.parents, *([feeding] if feeding else [])} - found
        found |= parents
        ahead.extend(parents)
    return found


def sources_of(node: Node, fed: Mapping[str, Node] = MappingProxyType({})) -> set[Node]:
    """Return the sources that the records of a node come from in its group. Arguments as in `nodes_before`."""
    return {each for each in nodes_before(node, fed) if each.source is not None}


def by_batches(node: Node, nodes: Iterable[Node]) -> bool:
    """Whether records of the node are changes of rows that the flow keeps: batches decide how many of them there are.

    Changes of tables that the flow only reads come one by one, and so do the changes of joins of such tables by their keys.
    """
    fed: dict[str, Node] = {}
    for each in nodes:
        written = {edge.stream.name for edge in each.edges if isinstance(edge, Output)}
        fed |= dict.fromkeys(written | ({each.feeds} if each.feeds else set()), each)
    changes = {each for each in nodes_before(node, fed) if each.as_records}
    of_streams = (each for each in changes if any(_is_stream(source) for source in sources_of(each)))
    return any(
        isinstance(edge, State) for each in of_streams for at in nodes_before(each, fed) for edge in at.edges
    )


def _is_stream(node: Node) -> bool:
    return node.source is not None and node.source.kind != "table"


def intervals_of(nodes: Sequence[Node]) -> Mapping[Node, int]:
    """Return the milliseconds that divide all intervals behind a source, in its group and in the next ones."""
    fed = {node.feeds: node for node in nodes if node.feeds}
    found: dict[Node, int] = {}
    for node in nodes:
        if node.interval_ms:
            for source in sources_of(node, fed):
                found[source] = gcd(found.get(source, 0), node.interval_ms)
    return found
