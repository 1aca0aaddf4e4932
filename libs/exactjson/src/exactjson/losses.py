"""Values that come back as others: of subclasses, of unions without a tag, of no type, through functions that change something.

Which values do cannot be seen in a type, as a program can set any value: each written one is compared with the one that is read again.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from exactjson.names import NO_TYPES

_EXACT: Final = frozenset({"str", "int", "float", "bool", "none"})
"""Types whose values JSON tells apart."""
_SIMPLE: Final = frozenset({str, int, float, bool, type(None)})
_INSIDE: Final = {"dict": "values_schema", **dict.fromkeys(("list", "set", "frozenset"), "items_schema")}
"""The entry that has the type of the values in a value; without one they are of any type."""


def mixed(schema: Any) -> bool:
    """Return whether values of the type with this core schema may be equal and differ all the same."""
    parts = list(_parts(schema))
    # A member of an enum may equal a text, and where a type does not say which of them it is, be read as the text.
    return any(map(_may_lose, parts)) and any(part.get("type") == "enum" for part in parts)


def zoned(value: Any) -> str:
    """Return why a value with a datetime of a zone whose offset varies would be read as another one; "" for other values."""
    parts = [value]
    for part in parts:  # the parts of each are added
        kind: Any = type(part)
        if kind in _SIMPLE:
            continue
        if isinstance(part, datetime):
            zone = part.tzinfo
            if zone is not None and zone is not UTC and zone.utcoffset(None) is None:
                return f"{part} of {zone} would be read with a fixed offset: write .astimezone(UTC)"
        elif isinstance(part, dict | list | tuple):
            parts += part.values() if isinstance(part, dict) else part
        else:
            parts += [getattr(part, name) for name in _fields(kind)]
    return ""


def lost(value: Any, again: Any, path: str = "$", *, rows: bool = False) -> str:
    """Return the first place where a value differs from the one that was read again, with both types; "" if there is none."""
    kind: Any = type(value)
    other = f"{path}: {kind.__name__} would be read as {type(again).__name__}"
    if kind is type(again):
        other = f"{path}: the {kind.__name__} that is read again is another one"
    if rows and isinstance(value, tuple) and isinstance(again, list):
        return f"{other}: write list(...)"
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
    else:
        return "" if _instant(value) == _instant(again) else other
    return next(filter(None, (lost(one, other, path + place, rows=rows) for place, one, other in parts)), "")


@lru_cache
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
