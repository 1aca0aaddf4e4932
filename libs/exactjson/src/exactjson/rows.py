"""The columns of JSON: an Avro schema of the values of a JSON schema, and the values as it describes them.

Avro's is the schema that what reads columns knows: databases, Parquet files, Spark. A part whose type has no column of its own, such
as a union of objects, or one that is nested without end, is JSON in a text.
"""

import base64
import json
import re
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any, Final

from exactjson.schemas import choices_of, literals_of, resolved

AS_JSON: Final[Mapping[str, Any]] = {"type": "string", "json": True}
"""The Avro schema of a part that is JSON in a text."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SAME: Final = ("string", "boolean", "null")
_TYPES: Final = {**dict(zip(_SAME, _SAME, strict=True)), "integer": "long", "number": "double"}


def columns(schema: Mapping[str, Any], *, omits: bool = False, document: bool = False) -> Any:
    """Return the Avro schema of the values of a JSON schema, parsed.

    Args:
        schema: The schema.
        omits: Whether a value lacks the fields that have their default. They have it as `omitted` beside their type. In a
            schema that was not made of a type `default` is a note, and says nothing of a value.
        document: Whether the schema was not made of a type: an object may have fields that it neither names nor refuses.
            Records of objects that may have others are `open`.
    """
    root, numbers = schema, count(1)

    def of(schema: Any, inside: tuple[str, ...] = ()) -> Any:  # noqa: PLR0911 - one for each type
        name = str(schema.get("$ref", "")) if isinstance(schema, Mapping) else ""
        known = not name or (name not in inside and name.rpartition("/")[2] in root.get("$defs", {}))
        if not isinstance(schema, Mapping) or not known:
            return AS_JSON
        schema = resolved(schema, root)
        part = partial(of, inside=(*inside, name))
        if choices := choices_of(schema):
            return _union(list(map(part, choices)))
        if (literals := literals_of(schema)) is not None:
            if all(isinstance(each, str) for each in literals):
                return "string"
            return "long" if all(type(each) is int for each in literals) else AS_JSON
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union([part({**schema, "type": each}) for each in kind])
        if kind == "array" and "prefixItems" not in schema:
            return {"type": "array", "items": part(schema.get("items"))}
        if kind != "object":
            return _TYPES.get(str(kind), AS_JSON)
        fields, by_pattern = schema.get("properties"), "patternProperties" in schema
        others = schema.get("additionalProperties")
        if fields and all(map(_NAME.fullmatch, fields)):
            required = schema.get("required", ())
            made = {name: part(each) for name, each in fields.items()}
            found = record(
                {name: each if name in required else _union(["null", each]) for name, each in made.items()},
                numbers,
            )
            for each in found["fields"] if omits else ():
                if (default := fields[each["name"]].get("default")) is not None:
                    each["omitted"] = default
            refused = others is False or (others is None and not document)
            return found if refused and not by_pattern else {**found, "open": True}
        return {"type": "map", "values": part(others)} if others and not (fields or by_pattern) else AS_JSON

    return of(schema)


def record(fields: Mapping[str, Any], numbers: Any) -> Any:
    """Return the Avro schema of a record of these fields. `numbers`: makes names that no other record has."""
    return {
        "type": "record",
        "name": f"Record{next(numbers)}",
        "fields": [{"name": name, "type": each} for name, each in fields.items()],
    }


def _union(parts: list[Any]) -> Any:
    """Return null and one type, or one type; JSON for a choice of several."""
    flat = [each for part in parts for each in (part if isinstance(part, list) else [part])]
    others = [each for at, each in enumerate(flat) if each != "null" and each not in flat[:at]]
    one = others[0] if len(others) == 1 else AS_JSON
    if set(map(str, others)) == {"long", "double"}:
        one = "double"
    return ["null", one] if "null" in flat and others else one if others else "null"


def shaped(value: Any, tree: Any) -> Any:  # noqa: PLR0911 - one for each type
    """Return a value, as dicts, lists, texts and numbers, as an Avro schema of `columns` describes it.

    Fields that it lacks have their default if `columns` knows it, are null, or what their type has as zero; whole numbers, floats and bytes may be texts, as in the JSON of Protobuf.
    """
    if isinstance(tree, list):
        return None if value is None else shaped(value, tree[1])
    kind = tree["type"] if isinstance(tree, Mapping) else tree
    if kind == "record":
        given = {} if value is None else value
        return {
            each["name"]: shaped(given.get(each["name"], each.get("omitted")), each["type"])
            for each in tree["fields"]
        }
    if kind == "array":
        return [shaped(each, tree["items"]) for each in value or ()]
    if kind == "map":
        return {str(name): shaped(each, tree["values"]) for name, each in (value or {}).items()}
    if kind == "string":
        if isinstance(value, str):
            return value
        return json.dumps(value, default=str) if tree == AS_JSON else str(value or "")
    if kind == "bytes":
        return base64.b64decode(value or "")
    if kind == "null":
        return None
    made = {"long": int, "double": float, "boolean": bool}[kind](0 if value is None or value == "" else value)
    if type(value) is int and made != value:
        raise ValueError(f"{value} would be rounded to {made!r}")
    return made
