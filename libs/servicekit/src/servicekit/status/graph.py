"""A group's graph as JSON, for those who have not got its code: what it reads, keeps and writes."""

import json
from collections.abc import Sequence
from typing import Any, Protocol


class _Codecs(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...


class Graph(Protocol):
    """What is looked at of a group; `streamtable.Group` has it."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Sequence[Any]: ...
    @property
    def joins(self) -> Sequence[Any]: ...
    @property
    def lookups(self) -> Sequence[Any]: ...
    @property
    def outputs(self) -> Sequence[Any]: ...
    @property
    def loop(self) -> Any: ...
    @property
    def persist(self) -> Any: ...
    @property
    def table(self) -> Any: ...
    @property
    def visits(self) -> Sequence[Any]: ...
    @property
    def dead_letters(self) -> str: ...
    @property
    def retry(self) -> str: ...
    @property
    def visits_topic(self) -> str: ...


def graph_of(group: Graph) -> str:
    """JSON: the group's name, its topics in `reads` and `writes`, each with `topic`, `how` and `codecs`.

    `how` is stream, loop, join, lookup, visits or retry of what is read, and stream, loop, table or dead letters of
    what is written.
    """
    loop = None if group.loop is None else group.loop.stream.name
    reads = [_edge(each.stream, "loop" if each.stream.name == loop else "stream") for each in group.inputs]
    reads += [_edge(each.table, "join") for each in group.joins]
    reads += [_edge(each.table, "lookup") for each in group.lookups]
    if group.visits:
        reads.append({"topic": group.visits_topic, "how": "visits", "codecs": ""})
    reads.append({"topic": group.retry, "how": "retry", "codecs": ""})
    writes = [_edge(each.stream, "stream") for each in group.outputs]
    if group.loop is not None:
        writes.append(_edge(group.loop.stream, "loop"))
    if group.persist is not None:
        writes.append(_edge(group.table, "table"))
    writes.append({"topic": group.dead_letters, "how": "dead letters", "codecs": ""})
    return json.dumps({"group": group.name, "reads": reads, "writes": writes})


def _edge(found: _Codecs, how: str) -> dict[str, str]:
    return {"topic": found.name, "how": how, "codecs": f"{_codec(found.key)} → {_codec(found.value)}"}


def _codec(codec: Any) -> str:
    schema = getattr(codec, "schema", None)
    name = getattr(schema, "name", "")
    return f"Avro {name.rpartition('.')[2]}" if name else type(codec).__name__
