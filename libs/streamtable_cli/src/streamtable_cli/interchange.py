"""Group graphs in the formats of other tools: AsyncAPI 3.0 for documentation, OpenLineage 2 for lineage."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from streamtable import Avro, Bytes, Group, Json, Long, String
from streamtable.base.topics import Stream, Table

Topic = Stream[Any, Any] | Table[Any, Any]

_AVRO = "application/vnd.apache.avro;version=1.9.0"
_PLAIN: dict[type, tuple[str, dict[str, Any]]] = {
    String: ("text/plain", {"type": "string"}),
    Bytes: ("application/octet-stream", {"type": "string", "format": "binary"}),
    Long: ("application/octet-stream", {"type": "integer", "format": "int64"}),
    Json: ("application/json", {}),
}
"""The content type and the JSON schema of the values of a codec."""
_PRODUCER = "https://pypi.org/project/streamtable/"
_JOB_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"


def asyncapi(groups: Sequence[Group[Any, Any]]) -> dict[str, Any]:
    """Return the topics of groups as channels with the schemas of their records, and what groups do with them as operations."""
    topics = {topic.name: topic for group in groups for topic in (*_read(group), *_written(group))}
    operations = {
        f"{_id(group.name)}-{verb}-{_id(topic.name)}": {
            "action": action,
            "channel": {"$ref": f"#/channels/{_id(topic.name)}"},
            "summary": f"Group {group.name} {verb} {topic.name}.",
        }
        for group in groups
        for action, verb, found in (("receive", "reads", _read(group)), ("send", "writes", _written(group)))
        for topic in found
    }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": ", ".join(group.name for group in groups), "version": "1"},
        "channels": {
            _id(name): {"address": name, "messages": {"record": _message(topic)}}
            for name, topic in topics.items()
        },
        "operations": operations,
    }


def openlineage(groups: Sequence[Group[Any, Any]], cluster: str, now: datetime) -> str:
    """Return a JobEvent of each group, a line each: the topics that it reads and writes.

    Args:
        groups: The groups.
        cluster: The first bootstrap server, which names the data sets.
        now: The time of the events.
    """
    events = (
        {
            "eventTime": now.isoformat(),
            "producer": _PRODUCER,
            "schemaURL": _JOB_EVENT,
            "job": {"namespace": f"kafka://{cluster}", "name": group.name},
            "inputs": [_data_set(topic, cluster) for topic in _read(group)],
            "outputs": [_data_set(topic, cluster) for topic in _written(group)],
        }
        for group in groups
    )
    return "".join(f"{json.dumps(event)}\n" for event in events)


def _read(group: Group[Any, Any]) -> Iterable[Topic]:
    """Return the topics that a group reads, once each."""
    found: list[Topic] = [edge.stream for edge in group.inputs]
    found += [*(e.table for e in group.joins), *(e.table for e in group.changes)]
    found += [e.table for e in group.lookups]
    return {each.name: each for each in found}.values()


def _written(group: Group[Any, Any]) -> Iterable[Topic]:
    """Return the topics that a group writes, once each; the topics that the engine has for itself are not among them."""
    found: list[Topic] = [edge.stream for edge in group.outputs]
    found += [] if group.persist is None else [group.table]
    found += [group.state_table(state) for state in group.states]
    found += [] if group.loop is None else [group.loop.stream]
    return {each.name: each for each in found}.values()


def _message(topic: Topic) -> dict[str, Any]:
    content, payload = _schema(topic.value)
    _, key = _schema(topic.key)
    found: dict[str, Any] = {"name": topic.name, "payload": payload, "bindings": {"kafka": {"key": key}}}
    return found | ({"contentType": content} if content else {})


def _schema(codec: Any) -> tuple[str, dict[str, Any]]:
    """Return the content type and the schema of what a codec encodes; "" and the codec's name if it is a program's own."""
    if isinstance(codec, Avro):
        text = codec.schema.text
        schema = json.loads(text) if text[:1] in '{["' else text
        return "application/vnd.apache.avro+binary", {"schemaFormat": _AVRO, "schema": schema}
    return _PLAIN.get(type(codec), ("", {"description": repr(codec)}))


def _data_set(topic: Topic, cluster: str) -> dict[str, Any]:
    return {"namespace": f"kafka://{cluster}", "name": topic.name, "facets": _fields(topic.value)}


def _fields(codec: Any) -> dict[str, Any]:
    """Return the facet with the fields of an Avro record; none for other values."""
    tree = codec.schema.tree if isinstance(codec, Avro) else None
    if not isinstance(tree, dict) or tree.get("type") != "record":
        return {}
    fields = [{"name": each["name"], "type": _type(each["type"])} for each in tree["fields"]]
    url = "https://openlineage.io/spec/facets/1-1-1/SchemaDatasetFacet.json"
    return {"schema": {"_producer": _PRODUCER, "_schemaURL": url, "fields": fields}}


def _type(node: Any) -> str:
    if isinstance(node, list):
        return " or ".join(map(_type, node))
    return str(node.get("logicalType") or node["type"]) if isinstance(node, dict) else str(node)


def _id(name: str) -> str:
    """Return a name as an id: letters, digits, underscores and hyphens. Another character is written as its number."""
    return re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", name)
