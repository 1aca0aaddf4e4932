"""Values that come back as others: of subclasses, of unions without a tag, of no type, through functions that change something.

Which values do cannot be seen in a type. Where its core schema, or what msgspec knows of it, says that it may happen, each written
value is compared with the one that is read again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, get_origin

from msgspec import inspect as types

from exactjson.names import NO_TYPES

_EXACT: Final = frozenset({"str", "int", "float", "bool", "none"})
"""Types whose values JSON tells apart."""
_INSIDE: Final = {"dict": "values_schema", **dict.fromkeys(("list", "set", "frozenset"), "items_schema")}
"""The entry that has the type of the values in a value; without one they are of any type."""


def comparison(schema: Any) -> Callable[[Any, Any], str] | None:
    """Return a function that says where a value differs from the one that is read again; None if no value of a type does.

    Args:
        schema: The core schema of the type.
    """
    parts = list(_parts(schema))
    # A member of an enum may equal a text, and be another value all the same.
    equal = not any(part.get("type") == "enum" for part in parts)
    classes = {part["cls"] for part in parts if part.get("type") in {"model", "dataclass"}}
    return _comparing(classes, always=any(map(_may_lose, parts)), equal=equal)


def comparison_of(parts: Sequence[Any]) -> Callable[[Any, Any], str] | None:
    """Return the same as `comparison` for a type that msgspec reads, given all types that it is made of."""
    classes = {get_origin(part.cls) or part.cls for part in parts if hasattr(part, "cls")}
    # A TypedDict may hold more than its fields.
    always = any(isinstance(part, types.AnyType | types.TypedDictType) for part in parts)
    return _comparing(classes, always=always, equal=True)


def _comparing(classes: set[Any], *, always: bool, equal: bool) -> Callable[[Any, Any], str] | None:
    def compare(value: Any, again: Any) -> str:
        # A subclass may be defined later than the type: asking costs less than comparing.
        if not always and not any(each.__subclasses__() for each in classes):
            return ""
        return "" if equal and value == again else lost(value, again)

    return compare if always or classes else None


def lost(value: Any, again: Any, path: str = "$") -> str:
    """Return the first place where a value differs from the one that was read again, with both types; "" if there is none."""
    kind = type(value)
    other = f"{path}: {kind.__name__} would be read as {type(again).__name__}"
    if (_fields(kind) or isinstance(value, Enum)) and kind is not type(again):
        return other
    if fields := _fields(kind):
        parts = ((f".{name}", getattr(value, name), getattr(again, name)) for name in fields)
    elif isinstance(value, dict) and isinstance(again, dict):
        if value.keys() != again.keys():
            return f"{path}.{next(iter(value.keys() ^ again.keys()))} would not be read again"
        parts = ((f".{name}", value[name], again[name]) for name in value)
    elif isinstance(value, list | tuple) and isinstance(again, list | tuple) and len(value) == len(again):
        parts = ((f"[{at}]", each, again[at]) for at, each in enumerate(value))
    elif _instant(value) == _instant(again):
        return ""
    else:
        return (
            f"{path}: the {kind.__name__} that is read again is another one" if kind is type(again) else other
        )
    return next(filter(None, (lost(one, other, path + place) for place, one, other in parts)), "")


def _fields(kind: Any) -> list[str]:
    """Return the names of the fields of a struct, model or dataclass that are written; of others none."""
    if not hasattr(kind, "__pydantic_fields__"):
        return [*getattr(kind, "__struct_fields__", ()), *getattr(kind, "__dataclass_fields__", ())]
    return [name for name, field in kind.__pydantic_fields__.items() if not field.exclude]


def _instant(value: Any) -> Any:
    # In the hour that a change of the clocks repeats, a time equals none of another zone.
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, Mapping):
        yield schema
        schema = [each for name, each in schema.items() if name not in NO_TYPES]
    for each in schema if isinstance(schema, list | tuple) else ():
        yield from _parts(each)


def _may_lose(part: Mapping[str, Any]) -> bool:
    """Return whether a part is a union without a tag or of no type, or has a function or serializer that may change a value."""
    kind = str(part.get("type"))
    if kind == "union":
        kinds = [each.get("type") for each in part["choices"] if isinstance(each, Mapping)]
        return len({*kinds} & _EXACT) < len(part["choices"]) or part.get("mode") == "left_to_right"
    if kind == "any" or kind.startswith("function-") or (kind in _INSIDE and not part.get(_INSIDE[kind])):
        return True
    written = (part.get("serialization") or {}).get("type")
    return written in {"function-plain", "function-wrap"} or any(name.startswith("ser_") for name in part)
