"""Avro schemas, checked before any byte is read with them. The only module that imports fastavro.

fastavro resolves names and computes the canonical form and its fingerprint, but accepts almost anything. This module
also rejects recursion and items of zero bytes (a small message could exhaust the memory), duplicate fields, and unbounded
sizes. Names decide nothing about the bytes, so those that Java programs write are accepted: a hyphen in a namespace or a
field, a `$` of a nested class. Logical types that are not valid are ignored, as the specification says.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from orjson import JSONDecodeError, dumps, loads

from exactavro.errors import Unusable

Node = str | list[Any] | dict[str, Any]
"""A parsed schema with names replaced by their definitions: a primitive's name, a union, or an object."""

_WIDTHS = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
PRIMITIVES = frozenset(_WIDTHS)
TEXT_BYTES_MAX = 1_000_000
DEPTH_MAX = 64
NODES_MAX = 10_000
FREE_NODES_MAX = 1_000
FIXED_BYTES_MAX = 1_000_000
PRECISION_MAX = 1_000

_NAME = re.compile(r"[\w$-]+")
_FULL_NAME = re.compile(r"[\w$-]+(\.[\w$-]+)*")
_CARRIERS = {
    "date": {"int"},
    "time-millis": {"int"},
    "time-micros": {"long"},
    "timestamp-millis": {"long"},
    "timestamp-micros": {"long"},
    "local-timestamp-millis": {"long"},
    "local-timestamp-micros": {"long"},
    "timestamp-nanos": {"long"},
    "local-timestamp-nanos": {"long"},
    "uuid": {"string"},
    "decimal": {"bytes", "fixed"},
}
"""The types that may carry each logical type. All but the nanoseconds, which Python's times do not have, are converted."""


class Size(NamedTuple):
    """The minimal size of a value of a schema.

    Attributes:
        width: The minimal number of bytes.
        nodes: The number of values in it, itself included; an array counts as having one item.
        free: The number of values in it that take no bytes: nulls, and records and fixed values of size 0.
    """

    width: int
    nodes: int
    free: int


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """A schema that is safe to read with.

    Attributes:
        text: The JSON of the schema.
        tree: The schema with names replaced by their definitions; do not change it.
        canonical: The parsing canonical form.
        fingerprint: CRC-64-AVRO of the canonical form, 8 bytes little-endian as on the wire.
    """

    text: str
    tree: Node
    canonical: str
    fingerprint: bytes

    @property
    def name(self) -> str:
        """The full name of a named type, else the kind: "long", "array"."""
        return self.tree["name"] if isinstance(self.tree, dict) and "name" in self.tree else kind(self.tree)

    @classmethod
    def load(
        cls, source: str | Mapping[str, Any] | Sequence[Any], references: Mapping[str, str] | None = None
    ) -> "Schema":
        """Parse and check a schema.

        Args:
            source: A primitive's name, JSON text, or parsed JSON.
            references: The JSON texts of the named types that it refers to and does not define, by full name.

        Raises:
            Unusable: The schema is invalid or not safe; the message names the place and the rule.
        """
        # Only programs with schemas need its 1.2 MB.
        from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form  # noqa: PLC0415

        try:
            text = source if isinstance(source, str) else dumps(source).decode()
            if len(text) > TEXT_BYTES_MAX:
                raise Unusable(f"Avro schema: {len(text)} characters, at most {TEXT_BYTES_MAX}")
            raw = text if text in PRIMITIVES else loads(text)
        except (JSONDecodeError, TypeError) as error:
            raise Unusable(f"Avro schema: neither the name of a primitive nor JSON: {error}") from error
        _refuse_depth(raw)
        if references:
            raw = _with_references(raw, {name: _parsed(text) for name, text in references.items()})
            text = dumps(raw).decode()
        raw = _without_invalid_logical_types(raw)
        try:
            _refuse_growth(parse_schema(raw, _write_hint=False))
            tree = parse_schema(raw, expand=True, _write_hint=False)
            canonical = to_parsing_canonical_form(parse_schema(raw))
        except Unusable:
            raise
        except Exception as error:  # fastavro raises errors of any class on invalid schemas
            raise Unusable(f"Avro schema: {type(error).__name__}: {error}") from error
        size = measure(tree)
        if size.free > FREE_NODES_MAX:
            raise Unusable(f"Avro schema: {size.free} values without bytes, at most {FREE_NODES_MAX}")
        return cls(text, tree, canonical, bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO")))


def kind(node: Node) -> str:
    """The Avro type: "union" for a list; "record" also for the error type of protocol files."""
    if isinstance(node, str):
        return node
    if isinstance(node, list):
        return "union"
    return "record" if node["type"] == "error" else str(node["type"])


def logical(node: Node) -> str | None:
    """The logical type, if any; unsupported ones have no `logical.conversion`."""
    return node.get("logicalType") if isinstance(node, dict) else None


def simple_name(node: dict[str, Any]) -> str:
    return str(node["name"]).rpartition(".")[2]


def title(node: Node) -> str:
    """Return the kind, and the name if it has one, for error messages."""
    return f"{kind(node)} {node['name']}" if isinstance(node, dict) and "name" in node else kind(node)


def measure(node: Node, place: str = "schema", depth: int = 0) -> Size:
    """Check a tree and return its size. Raises `Unusable`."""
    if depth > DEPTH_MAX:
        raise Unusable(f"Avro {place}: nested more than {DEPTH_MAX} deep")
    name = kind(node)
    if name in _WIDTHS:
        return Size(_WIDTHS[name], 1, int(name == "null"))
    if isinstance(node, list):
        return _measure_union(node, place, depth)
    if isinstance(node, str):
        raise Unusable(f"Avro {place}: type {node!r} contains itself; recursive types are refused")
    if name in {"array", "map"}:
        return _measure_items(node["items" if name == "array" else "values"], place, depth)
    return _measure_named(node, depth)


def _measure_union(branches: list[Node], place: str, depth: int) -> Size:
    names = [
        branch["name"] if isinstance(branch, dict) and "name" in branch else kind(branch)
        for branch in branches
    ]
    if not branches or "union" in names or len(set(names)) != len(names):
        raise Unusable(f"Avro {place}: a union needs branches of different types, has {names}")
    sizes = [
        measure(branch, f"{place}|{name}", depth + 1) for branch, name in zip(branches, names, strict=True)
    ]
    nodes = _bounded(1 + sum(size.nodes for size in sizes), place)
    return Size(1 + min(size.width for size in sizes), nodes, max(size.free for size in sizes) - 1)


def _measure_items(items: Node, place: str, depth: int) -> Size:
    size = measure(items, f"{place}[]", depth + 1)
    if size.width == 0 or size.free > size.width * 8:
        raise Unusable(f"Avro {place}: items that take no bytes of their own would fill the memory")
    return Size(1, _bounded(1 + size.nodes, place), 0)


def _measure_named(node: dict[str, Any], depth: int) -> Size:
    name = node["name"]
    if not _FULL_NAME.fullmatch(name):
        raise Unusable(f"Avro {name!r}: not a name")
    if kind(node) == "enum":
        if not node["symbols"]:
            raise Unusable(f"Avro {name}: an enum without symbols")
        return Size(1, 1, 0)
    if kind(node) == "fixed":
        if type(node["size"]) is not int or not 0 <= node["size"] <= FIXED_BYTES_MAX:
            raise Unusable(f"Avro {name}: size {node['size']}, must be 0 to {FIXED_BYTES_MAX}")
        return Size(node["size"], 1, int(node["size"] == 0))
    seen: set[str] = set()
    width, nodes, free = 0, 1, 0
    for field in node["fields"]:
        for word in (field["name"], *field.get("aliases", ())):
            if not _NAME.fullmatch(word) or word in seen:
                raise Unusable(f"Avro {name}: field name or alias {word!r} is not a name, or is there twice")
            seen.add(word)
        size = measure(field["type"], f"{name}.{field['name']}", depth + 1)
        nodes = _bounded(nodes + size.nodes, name)
        width, free = width + size.width, free + size.free
    return Size(width, nodes, free + (width == 0))


def _parsed(text: str) -> Any:
    """Return the JSON of a schema that another one refers to. Raises `Unusable`."""
    if len(text) > TEXT_BYTES_MAX:
        raise Unusable(f"Avro schema: {len(text)} characters, at most {TEXT_BYTES_MAX}")
    try:
        raw = loads(text)
    except JSONDecodeError as error:
        raise Unusable(f"Avro schema: a schema that it refers to is not JSON: {error}") from error
    _refuse_depth(raw)
    return raw


def _with_references(raw: Any, references: Mapping[str, Any]) -> Any:
    """Return a schema that defines each referenced type where it is named first."""
    defined: set[str] = set()

    def inlined(node: Any, namespace: str) -> Any:
        if isinstance(node, str):
            name = node if "." in node or not namespace else f"{namespace}.{node}"
            name = name if name in references else node
            if name in references and name not in defined:
                return inlined(references[name], "")
            return name if name in references else node
        if isinstance(node, list):
            return [inlined(each, namespace) for each in node]
        if not isinstance(node, dict):
            return node
        kept = dict(node)
        own = kept.get("name")
        if isinstance(own, str):
            namespace = own.rpartition(".")[0] or str(kept.get("namespace") or namespace)
            defined.add(own if "." in own or not namespace else f"{namespace}.{own}")
        for word in ("type", "items", "values"):
            if word in kept:
                kept[word] = inlined(kept[word], namespace)
        if isinstance(fields := kept.get("fields"), list):
            kept["fields"] = [
                {**each, "type": inlined(each["type"], namespace)}
                if isinstance(each, dict) and "type" in each
                else each
                for each in fields
            ]
        return kept

    return inlined(raw, "")


def _without_invalid_logical_types(raw: Any) -> Any:
    """Return the JSON of a schema without the logical types that its types cannot carry, which readers must ignore."""
    if isinstance(raw, list):
        return [_without_invalid_logical_types(each) for each in raw]
    if not isinstance(raw, dict):
        return raw
    kept = {
        key: value if key == "default" else _without_invalid_logical_types(value)
        for key, value in raw.items()
    }
    if "logicalType" in kept and not _can_carry(kept, kept["logicalType"]):
        del kept["logicalType"]
    return kept


def _can_carry(node: Mapping[str, Any], logical_type: Any) -> bool:
    carrier = node.get("type")
    if not isinstance(logical_type, str) or not isinstance(carrier, str):
        return False
    if carrier not in _CARRIERS.get(logical_type, ()):
        return False
    if logical_type != "decimal":
        return True
    precision, scale, size = node.get("precision"), node.get("scale", 0), node.get("size")
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return False
    if precision > PRECISION_MAX:
        raise Unusable(f"Avro schema: a decimal of {precision} digits, at most {PRECISION_MAX}")
    # The digits that a fixed value of this size can hold, as the specification bounds them.
    return (
        type(size) is not int or size > PRECISION_MAX or len(str(2 ** max(8 * size - 1, 0) - 1)) > precision
    )


def _refuse_growth(parsed: Any) -> None:
    """Reject types that use each other so often that naming each by its definition would fill the memory."""
    sizes: dict[str, tuple[int, int]] = {}

    def size_of(node: Any, depth: int) -> tuple[int, int]:
        """Return the number of types in a node, and how deep they are nested, both with names replaced by definitions."""
        if isinstance(node, str):
            return sizes.get(node, (1, 1))
        if isinstance(node, list):
            parts = [size_of(each, depth + 1) for each in node]
        else:
            inner = [node.get(word) for word in ("items", "values")] + [
                field["type"] for field in node.get("fields", ())
            ]
            parts = [size_of(each, depth + 1) for each in inner if each is not None]
            if isinstance(node.get("type"), dict | list):
                parts.append(size_of(node["type"], depth + 1))
        total = 1 + sum(nodes for nodes, _ in parts), 1 + max((level for _, level in parts), default=0)
        if total[0] > NODES_MAX:
            raise Unusable(f"Avro schema: more than {NODES_MAX} types in one another")
        if total[1] > 2 * DEPTH_MAX:  # each level of a value is a type and perhaps its union
            raise Unusable(f"Avro schema: types nested more than {DEPTH_MAX} deep")
        if isinstance(node, dict) and "name" in node:
            sizes[node["name"]] = total
        return total

    size_of(parsed, 0)


def _bounded(nodes: int, place: str) -> int:
    """Return the number if it is within the limit. This also ends the walk of types that use each other exponentially often."""
    if nodes > NODES_MAX:
        raise Unusable(f"Avro {place}: more than {NODES_MAX} types in one another")
    return nodes


def _refuse_depth(raw: Any) -> None:
    """Reject deep nesting before fastavro recurses into it, as its C stack is not guarded."""
    level, depth = [raw], 0
    while level:
        depth += 1
        if depth > 4 * DEPTH_MAX:
            raise Unusable("Avro schema: JSON nested too deep")
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
