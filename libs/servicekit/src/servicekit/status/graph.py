"""A group's graph as JSON, for programs that do not have its code: its inputs, tables and outputs."""

import json
from typing import Any

from streamtable import Group, Stream, Table


def graph_of(group: Group[Any, Any]) -> str:
    """Return the graph as JSON: the group's name, its topics in `reads` and `writes`, with `topic`, `how`, `codecs`.

    `how` is "stream", "loop", "join", "lookup", "visits" or "retry" for a topic that is read, and "stream", "loop",
    "table", "state" or "dead letters" for one that is written.
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
    writes += [_edge(group.state_table(each), "state") for each in group.states]
    writes.append({"topic": group.dead_letters, "how": "dead letters", "codecs": ""})
    return json.dumps({"group": group.name, "reads": reads, "writes": writes})


def _edge(found: Stream[Any, Any] | Table[Any, Any], how: str) -> dict[str, str]:
    return {"topic": found.name, "how": how, "codecs": f"{_codec(found.key)} → {_codec(found.value)}"}


def _codec(codec: Any) -> str:
    schema = getattr(codec, "schema", None)
    name = getattr(schema, "name", "")
    return f"Avro {name.rpartition('.')[2]}" if name else type(codec).__name__
