"""What a flow is made of while it is built: nodes, each with the step that is run, and the group that it belongs to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtable.edge import Edge
from streamtable.flow.columns import Columns, Scope
from streamtable.topics import Stream, Table

if TYPE_CHECKING:
    from streamtable.graph import Changes, Input

Step = Callable[[Scope, Columns], Columns | None]
"""What a node does with the records of a batch. Returns those that go on; None if nothing ever does."""

MakeInput = Callable[[dict[str, Any]], "Input[Any, Any, Any] | Changes[Any, Any, Any]"]
"""Makes the edge of a source, given its handler: `handler=` or `batch=`."""


@dataclass(frozen=True)
class Source:
    """Where records of a group come from.

    Attributes:
        topic: The topic that is read.
        edge: Makes the edge of the group.
        arguments: What the source was made with, to tell two of the same topic apart.
        is_table: It is the changes of a table.
        time: Takes the event time from a value; None: it is the record's timestamp.
    """

    topic: Stream[Any, Any] | Table[Any, Any]
    edge: MakeInput
    arguments: tuple[object, ...] = ()
    is_table: bool = False
    time: Callable[[Any], Any] | None = None


@dataclass(frozen=True, eq=False)
class Node:
    """An operator of a flow.

    Attributes:
        number: In the order of building: those after which a node comes have lower numbers.
        group: The name of the group that it belongs to.
        label: What it is, for people.
        parents: The nodes whose records it gets.
        step: What it does; None: it only passes records on.
        leaf: What it does where nothing follows, if that is less work.
        edges: What it adds to its group.
        source: Of a node without parents in its group: where its records come from.
        singly: It needs the context of one record at a time.
        timed: It needs the event times.
        feeds: The topic through which its records go on to another group.
    """

    number: int
    group: str
    label: str
    parents: tuple["Node", ...] = ()
    step: Step | None = None
    leaf: Step | None = None
    edges: tuple[Edge[Any, Any], ...] = ()
    source: Source | None = None
    singly: bool = False
    timed: bool = False
    feeds: str = ""
