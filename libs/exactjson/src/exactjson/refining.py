"""Additions to the schemas that msgspec makes of types: the form of times without a constraint, and the type of keys."""

from collections.abc import Iterator
from typing import Any

from msgspec import inspect as types

_ZONES = {None: "any-", True: "", False: "local-"}


def refine(kind: Any, schema: dict[str, Any]) -> None:
    """Add to a schema that msgspec has made of a type, in place."""
    _refine(types.type_info(kind), schema, schema, set())


def _refine(kind: Any, schema: dict[str, Any], root: dict[str, Any], done: set[str]) -> None:
    while isinstance(kind, types.Metadata):
        kind = kind.type
    if reference := schema.get("$ref"):
        if reference in done:
            return
        done.add(reference)
        schema = root["$defs"][reference.rpartition("/")[2]]
    if isinstance(kind, types.DateTimeType | types.TimeType):
        schema["format"] = _ZONES[kind.tz] + ("time" if isinstance(kind, types.TimeType) else "date-time")
    key = getattr(kind, "key_type", None)
    while isinstance(key, types.Metadata):
        key = key.type
    if key is not None and not isinstance(key, types.StrType | types.AnyType):
        schema["propertyNames"] = {"const": repr(key)}
    for part, inner in _parts(kind, schema):
        if isinstance(inner, dict):
            _refine(part, inner, root, done)


def _parts(kind: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the parts of a type, each with its schema."""
    if isinstance(kind, types.UnionType):
        # In the order of msgspec: the structs that a tag tells apart are the last but for None.
        yield from zip(sorted(kind.types, key=_place), _flat(schema), strict=True)
    elif isinstance(kind, types.CollectionType):
        yield kind.item_type, schema.get("items")
    elif isinstance(kind, types.TupleType):
        yield from zip(kind.item_types, schema.get("prefixItems", ()), strict=True)
    elif hasattr(kind, "value_type"):
        yield kind.value_type, schema.get("additionalProperties")
    elif fields := getattr(kind, "fields", ()):
        named = schema.get("properties")
        inner = (
            schema["prefixItems"][-len(fields) :]
            if named is None
            else [named[each.encode_name] for each in fields]
        )
        yield from zip((each.type for each in fields), inner, strict=True)


def _place(kind: Any) -> int:
    while isinstance(kind, types.Metadata):
        kind = kind.type
    if isinstance(kind, types.NoneType):
        return 2
    return int(isinstance(kind, types.StructType) and not kind.array_like)


def _flat(schema: Any) -> Iterator[Any]:
    for each in schema["anyOf"]:
        yield from _flat(each) if "anyOf" in each else [each]
