"""Questions about schemas: the schemas in one, the types of its unions, and whether bytes can be compared."""

from collections.abc import Iterator
from typing import Any

from exactavro.schema import Node, kind, simple_name


def parts(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Return a schema and all schemas in it, each with its path: the names of fields, and of the branches of a union of several."""
    yield path, node
    if isinstance(node, list):
        several = sum(branch != "null" for branch in node) > 1
        for branch in node:
            named = isinstance(branch, dict) and "name" in branch
            name = simple_name(branch) if named else kind(branch)
            yield from parts(branch, f"{path}.{name}" if several else path)
    elif isinstance(node, dict):
        for entry in node.get("fields", ()):
            yield from parts(entry["type"], f"{path}.{entry['name']}")
        for name in ("items", "values"):
            if name in node:
                yield from parts(node[name], f"{path}.{name}")


def unions(node: Node) -> dict[str, list[str]]:
    """Return the names of the branches of each union of several, in their order, by its path; null is none of them.

    Only types with a name have one; it is empty for others.
    """
    found = {
        path: [_branch(each) for each in part if each != "null"]
        for path, part in parts(node)
        if isinstance(part, list)
    }
    return {path: names for path, names in found.items() if len(names) > 1}


def _branch(node: Node) -> str:
    """Return the name of a branch; of one that was renamed the earlier one, which its aliases name. Namespaces may change."""
    if not isinstance(node, dict) or "name" not in node:
        return ""
    earlier = str(next(iter(node.get("aliases", ())), ""))
    return earlier.rpartition(".")[2] or simple_name(node)


def has_one_encoding(node: Node) -> bool:
    """Return whether equal values always have equal bytes.

    Arrays and maps may be cut into blocks anywhere. Decimals in more bytes than needed, and a number that could be of an earlier
    type of a union, are not written as a value's encoding has them.
    """
    return not any(not isinstance(part, list) and kind(part) in {"array", "map"} for _, part in parts(node))


def can_be_null(node: Node) -> bool:
    """Return whether null is a value of a schema."""
    return "null" in node if isinstance(node, list) else kind(node) == "null"


def alone(record: Any, field: str) -> dict[str, Any]:
    """Return the schema of a record with one of its fields alone."""
    return {**record, "fields": [each for each in record["fields"] if each["name"] == field]}
