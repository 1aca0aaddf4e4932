"""Python values of the defaults that a schema states as JSON."""

from struct import Struct
from typing import Any

from exactavro.branches import avro_branch, full_names, is_ambiguous
from exactavro.errors import Unusable
from exactavro.logical import conversion
from exactavro.schema import Node, kind, logical, title

_JSON_TYPES: dict[str, set[type]] = {
    "null": {type(None)},
    "boolean": {bool},
    "int": {int},
    "long": {int},
    "float": {int, float},
    "double": {int, float},
    "bytes": {str},
    "string": {str},
    "fixed": {str},
    "enum": {str},
    "array": {list},
    "map": {dict},
    "record": {dict},
}
_BITS = {"int": 32, "long": 64}
_FLOAT = Struct("<f")


def default_value(node: Node, default: Any) -> Any:
    """Return the value as reading would return it. Raises `Unusable` if the default does not fit it."""
    name = kind(node)
    if isinstance(node, list):
        return _of_branch(node, default)
    if type(default) not in _JSON_TYPES[name]:
        raise Unusable(f"the default {default!r} is no {title(node)}")
    if isinstance(node, dict) and name in {"array", "map", "record"}:
        return _of_parts(node, default)
    rule = conversion(node)
    try:
        value = _carrier(node, default)
        return value if rule is None else rule.load(value)
    except (ValueError, ArithmeticError) as error:
        raise Unusable(f"the default {default!r} is no {logical(node) or title(node)}: {error}") from error


def _carrier(node: Node, default: Any) -> Any:
    name = kind(node)
    if name in {"bytes", "fixed"}:
        value = default.encode("latin-1")
        if isinstance(node, dict) and len(value) != node.get("size", len(value)):
            raise ValueError(f"must be {node['size']} bytes")
        return value
    if name in {"int", "long"} and (default if default >= 0 else ~default).bit_length() >= _BITS[name]:
        raise ValueError(f"more than {_BITS[name]} bits")
    if isinstance(node, dict) and name == "enum" and default not in node["symbols"]:
        raise ValueError("not one of its symbols")
    if name == "float":
        return narrow(default)
    return float(default) if name == "double" else default


def narrow(number: float) -> float:
    """Round to a 32-bit float."""
    (rounded,) = _FLOAT.unpack(_FLOAT.pack(number))
    return float(rounded)


def _of_parts(node: dict[str, Any], default: Any) -> Any:
    if isinstance(default, list):
        return [default_value(node["items"], item) for item in default]
    if "values" in node:
        return {key: default_value(node["values"], item) for key, item in default.items()}
    return _of_record(node, default)


def _of_branch(branches: list[Node], default: Any) -> Any:
    for branch in branches:
        try:
            value = default_value(branch, default)
        except Unusable:
            continue
        return avro_branch(full_names(branch)[0], value) if is_ambiguous(branch, branches) else value
    raise Unusable(f"the default {default!r} fits no branch")


def _of_record(node: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    given = {field["name"]: field["default"] for field in node["fields"] if "default" in field} | default
    fields = {field["name"]: field["type"] for field in node["fields"]}
    if given.keys() != fields.keys():
        raise Unusable(f"the default of {node['name']} has other fields than the record")
    return {name: default_value(fields[name], value) for name, value in given.items()}
