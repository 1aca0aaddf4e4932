"""The branches of a union that a Python value alone does not tell apart: records, enums and fixed values carry their name.

A dict may be a record of either of two types with the same fields, a text a string or a symbol, bytes a fixed value. Where a
union has several branches of one Python type, the values of its named branches are read as subclasses with the full name of
their type, and written as that branch again. They equal plain values.
"""

from collections.abc import Sequence
from typing import Any, overload

from exactavro.schema import Node, kind, logical

_PYTHON_TYPES = {"record": dict, "map": dict, "enum": str, "string": str, "fixed": bytes, "bytes": bytes}


class NamedRecord(dict[str, Any]):
    """A dict with the full name of its Avro record."""

    avro_name = ""


class NamedSymbol(str):  # noqa: SLOT000 - the name is set on a value that exists
    """A text with the full name of its Avro enum."""

    avro_name = ""


class NamedBytes(bytes):
    """Bytes with the full name of their Avro fixed type."""

    avro_name = ""


Named = NamedRecord | NamedSymbol | NamedBytes


@overload
def avro_branch(name: str, value: dict[str, Any]) -> NamedRecord: ...
@overload
def avro_branch(name: str, value: str) -> NamedSymbol: ...
@overload
def avro_branch(name: str, value: bytes) -> NamedBytes: ...
def avro_branch(name: str, value: dict[str, Any] | str | bytes) -> Named:
    """Return a value that is written as the branch of this name, in a union with several branches that it fits.

    Args:
        name: The full name of a record, enum or fixed type, "acme.UserDeleted"; or its simple name, if only one branch has it.
        value: A dict for a record, a str for an enum, bytes for a fixed type.

    Raises:
        TypeError: The value is of another type.
    """
    made: Named
    match value:
        case dict():
            made = NamedRecord(value)
        case str():
            made = NamedSymbol(value)
        case bytes():
            made = NamedBytes(value)
        case _:
            raise TypeError(
                f"named({name!r}): a dict, a str or bytes is needed, not a value of type {type(value).__name__}"
            )
    made.avro_name = name
    return made


def avro_branch_of(value: object) -> str | None:
    """Return the full name of the branch that a value was read from; None if its union has no other branch of its type."""
    return value.avro_name if isinstance(value, NamedRecord | NamedSymbol | NamedBytes) else None


def is_ambiguous(branch: Node, branches: Sequence[Node]) -> bool:
    """Return whether values of a named branch must carry their name: another branch has the same Python type."""
    of = _python_type(branch)
    return of is not None and has_name(branch) and [_python_type(each) for each in branches].count(of) > 1


def has_name(node: Node) -> bool:
    """Return whether a type is a record, an enum or fixed."""
    return isinstance(node, dict) and kind(node) in {"record", "enum", "fixed"}


def full_names(node: Node) -> list[str]:
    """Return the full name of a named type, then its aliases."""
    assert isinstance(node, dict), "a named type is an object"
    namespace = str(node["name"]).rpartition(".")[0]
    aliases = (str(each) for each in node.get("aliases", ()))
    return [
        str(node["name"]),
        *(each if "." in each or not namespace else f"{namespace}.{each}" for each in aliases),
    ]


def _python_type(node: Node) -> type | None:
    return None if logical(node) else _PYTHON_TYPES.get(kind(node))
