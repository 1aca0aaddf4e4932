"""Additions to the schemas that msgspec makes of types: the form of times without a constraint, the type of keys, and the names of
fields that are written as arrays.
"""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import inspect as types

NAMES: Final = "fieldNames"
"""The entry of the schema of an array with the names of the fields at its places, which its bytes do not have."""
_ZONES = {None: "any-", True: "", False: "local-"}


def refine(kind: Any, schema: dict[str, Any], *, names: bool = True) -> list[Any]:
    """Add to a schema that msgspec has made of a type, in place.

    Args:
        kind: The type.
        schema: The schema.
        names: Add the names of fields that are written as arrays.

    Returns:
        All types that it is made of, as msgspec describes them.
    """
    found = list(_with_schemas(types.type_info(kind), schema, schema, set()))
    for part, its in found:
        if isinstance(part, types.DateTimeType | types.TimeType):
            its["format"] = _ZONES[part.tz] + ("time" if isinstance(part, types.TimeType) else "date-time")
        key = _bare(getattr(part, "key_type", None))
        if key is not None and not isinstance(key, types.StrType | types.AnyType):
            its["propertyNames"] = {"const": repr(key)}
        if names and (fields := getattr(part, "fields", ())) and "prefixItems" in its:
            unnamed = [""] * (len(its["prefixItems"]) - len(fields))
            its[NAMES] = unnamed + [each.encode_name for each in fields]
    return [part for part, _ in found]


def _bare(kind: Any) -> Any:
    while isinstance(kind, types.Metadata):
        kind = kind.type
    return kind


def _with_schemas(
    kind: Any, schema: Any, root: dict[str, Any], done: set[str]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the types that a type is made of, each with its schema; an empty one where there is none."""
    schema = schema if isinstance(schema, dict) else {}
    if reference := schema.get("$ref"):
        if reference in done:
            return
        done.add(reference)
        schema = root["$defs"][reference.rpartition("/")[2]]
    kind = _bare(kind)
    yield kind, schema
    for part, inner in _parts(kind, schema):
        yield from _with_schemas(part, inner, root, done)


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
        named, at = schema.get("properties"), schema.get("prefixItems", ())[-len(fields) :]
        inner = at if named is None else [named[each.encode_name] for each in fields]
        yield from zip((each.type for each in fields), inner, strict=True)


def _place(kind: Any) -> int:
    kind = _bare(kind)
    if isinstance(kind, types.NoneType):
        return 2
    return int(isinstance(kind, types.StructType) and not kind.array_like)


def _flat(schema: Any) -> Iterator[Any]:
    for each in schema["anyOf"]:
        yield from _flat(each) if "anyOf" in each else [each]
