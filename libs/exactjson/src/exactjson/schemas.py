"""Looking through JSON schemas, as msgspec and pydantic make them of types."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_NOTES: Final = frozenset({"title", "description", "examples", "deprecated", "discriminator"})
_LITERAL: Final = frozenset({"default", "enum", "const", "required"})
_NAMED: Final = frozenset({"properties", "$defs"})
_INEXACT: Final = ("time", "duration", "decimal")
"""The ends of the formats of texts that may differ where the values are equal."""
_EXACT: Final = frozenset({"string", "integer", "boolean", "null"})


def bare(schema: Any) -> Any:
    """Return a schema without the parts that are for people, such as titles."""
    if isinstance(schema, list | tuple):
        return [bare(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {}
    for name, part in schema.items():
        if name in _NAMED:
            made[name] = {key: bare(each) for key, each in part.items()}
        elif name not in _NOTES:
            made[name] = part if name in _LITERAL else bare(part)
    return made


def closed(schema: Any) -> Any:
    """Return a schema whose objects have no fields but the named ones."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: part if name in _LITERAL else closed(part) for name, part in schema.items()}
    has_fields = made.get("type") == "object" and "properties" in made
    return {"additionalProperties": False, **made} if has_fields else made


def resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema together with the one that it refers to, of the definitions of the root: a value has the fields of both."""
    while "$ref" in schema:
        base, rest = root["$defs"][schema["$ref"].rpartition("/")[2]], dict(schema)
        del rest["$ref"]
        if "properties" in base and "properties" in rest:
            rest["properties"] = {**base["properties"], **rest["properties"]}
        if "required" in base:
            rest["required"] = [*base["required"], *rest.get("required", ())]
        schema = {**base, **rest}
    return schema


def choices_of(schema: Mapping[str, Any]) -> list[Any]:
    """Return the alternatives: a value has to fit one of these schemas; empty if there is no choice."""
    return list(schema.get("anyOf") or schema.get("oneOf") or ())


def literals_of(schema: Mapping[str, Any]) -> Any:
    """Return the values that a schema lists; None if it lists none."""
    return schema.get("enum", [schema["const"]] if "const" in schema else None)


def unknown_field(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: str = "$") -> str:
    """Return the place of the first field of a value that its closed schema does not name; "" if there is none.

    Args:
        value: Parsed JSON that fits the schema but for such fields.
        schema: The schema.
        root: The schema with the definitions.
        path: The place of the value.
    """
    schema = resolved(schema, root)
    if choices := choices_of(schema):
        found = [unknown_field(value, each, root, path) for each in choices if _may_be(value, each, root)]
        return found[0] if all(found) and found else ""
    for place, each, of in _parts(value, schema, path):
        if of is False:
            return place
        if isinstance(of, dict) and (unknown := unknown_field(each, of, root, place)):
            return unknown
    return ""


def _parts(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place of each field or item of a value, the part, and its schema."""
    if isinstance(value, dict):
        fields, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, each in value.items():
            yield f"{path}.{name}", each, fields.get(name, others)
    elif isinstance(value, list):
        first, others = schema.get("prefixItems", ()), schema.get("items", True)
        for at, each in enumerate(value):
            yield f"{path}[{at}]", each, first[at] if at < len(first) else others


def _may_be(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Return whether a value may be of one of the choices of a schema, by its type and its tag."""
    schema = resolved(schema, root)
    if not isinstance(value, dict) or schema.get("type", "object") != "object":
        return not isinstance(value, dict) and schema.get("type") != "object"
    for name, each in schema.get("properties", {}).items():
        tags = literals_of(each)
        if tags is not None and name in value and value[name] not in tags:
            return False
    return True


def key_fault(
    schema: Mapping[str, Any], root: Mapping[str, Any], path: str = "$", inside: tuple[str, ...] = ()
) -> str:
    """Return why values of a schema that are equal may have different bytes, with the place; "" if they have the same."""
    name = schema.get("$ref", "")
    if name and name in inside:
        return f"{path} is nested without end"
    schema, inside = resolved(schema, root), (*inside, name)
    parts = [(path, each) for each in choices_of(schema)]
    parts += [(f"{path}.{field}", each) for field, each in schema.get("properties", {}).items()]
    parts += [(f"{path}[{at}]", each) for at, each in enumerate(schema.get("prefixItems", ()))]
    if {"boolean", "integer"} <= {each.get("type") for each in choices_of(schema)}:
        return f"equal values of {path} (boolean and integer) may have different bytes"  # True equals 1
    if parts:
        return next(filter(None, (key_fault(each, root, place, inside) for place, each in parts)), "")
    kind, form = schema.get("type"), schema.get("format")
    if kind == "number" or (form or "").endswith(_INEXACT):
        return f"equal values of {path} ({form or kind}) may have different bytes"
    if "enum" in schema or "const" in schema or kind in _EXACT:
        return ""
    return f"{path} ({kind or 'any value'}) has no fixed form"
