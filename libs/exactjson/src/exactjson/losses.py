"""Values of pydantic that come back as others: of subclasses, of unions without a tag, through serializers that lose something.

Which values do cannot be seen in a type. Where its core schema says that it may happen, each written value is compared with the
one that is read again.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from exactjson.names import NO_TYPES

_EXACT: Final = frozenset({"str", "int", "float", "bool", "none"})
"""Types whose values JSON tells apart."""


def comparison(schema: Any) -> Callable[[Any, Any], str] | None:
    """Return a function that says where a value differs from the one that is read again; None if no value of a type does.

    Args:
        schema: The core schema of the type.
    """
    parts = list(_parts(schema))
    kinds = {part.get("type") for part in parts}
    always = any(map(_may_lose, parts))
    # A subclass may be defined later than the type: asking costs less than comparing.
    classes = {part["cls"] for part in parts if part.get("type") in {"model", "dataclass"}}

    def compare(value: Any, again: Any) -> str:
        if not always and not any(each.__subclasses__() for each in classes):
            return ""
        # Most are equal; a member of an enum may equal a text, and be another value all the same.
        return "" if "enum" not in kinds and value == again else lost(value, again)

    return compare if always or classes else None


def lost(value: Any, again: Any, path: str = "$") -> str:
    """Return the first place where a value differs from the one that was read again, with both types; "" if there is none."""
    kind = type(value)
    if (_fields(kind) or isinstance(value, Enum)) and kind is not type(again):
        return f"{path}: {kind.__name__} would be read as {type(again).__name__}"
    if fields := _fields(kind):
        parts = ((f".{name}", getattr(value, name), getattr(again, name)) for name in fields)
    elif isinstance(value, dict) and isinstance(again, dict) and value.keys() == again.keys():
        parts = ((f".{name}", value[name], again[name]) for name in value)
    elif isinstance(value, list | tuple) and isinstance(again, list | tuple) and len(value) == len(again):
        parts = ((f"[{at}]", each, again[at]) for at, each in enumerate(value))
    else:
        return "" if value == again else f"{path}: the {kind.__name__} that is read again is another one"
    return next(filter(None, (lost(one, other, path + place) for place, one, other in parts)), "")


def _fields(kind: Any) -> list[str]:
    """Return the names of the fields of a model or dataclass that are written; of others none."""
    if not hasattr(kind, "__pydantic_fields__"):
        return list(getattr(kind, "__dataclass_fields__", ()))
    return [name for name, field in kind.__pydantic_fields__.items() if not field.exclude]


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, Mapping):
        yield schema
        schema = [each for name, each in schema.items() if name not in NO_TYPES]
    for each in schema if isinstance(schema, list | tuple) else ():
        yield from _parts(each)


def _may_lose(part: Mapping[str, Any]) -> bool:
    """Return whether a part is a union without a tag, has a serializer of its own, or writes a type otherwise than by default."""
    if part.get("type") == "union":
        types = [each.get("type") for each in part["choices"] if isinstance(each, Mapping)]
        return len({*types} & _EXACT) < len(part["choices"]) or part.get("mode") == "left_to_right"
    written = (part.get("serialization") or {}).get("type")
    return written in {"function-plain", "function-wrap"} or any(name.startswith("ser_") for name in part)
