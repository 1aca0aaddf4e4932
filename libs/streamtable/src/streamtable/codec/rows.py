"""Values that a codec of rows refuses, as it would read them as others."""

from enum import Enum
from types import NoneType
from typing import Any
from uuid import UUID

from streamtable.errors import SerializationError

_SIMPLE = frozenset({str, int, float, bool, NoneType})
_READ_AS: dict[type[Any], str] = {
    tuple: "a tuple, which would be read as a list: write list(...)",
    UUID: "a UUID, which would be read as a text: write str(...)",
    Enum: "an enum, which would be read as its value: write .value",
}


def refuse_unlike(codec: object, row: Any) -> None:
    """Refuse a row of dicts and lists that has a value which would be read as another one.

    Raises:
        SerializationError: With the type, and what to write instead.
    """
    parts = [row]
    for part in parts:  # the parts of dicts and lists are added
        if isinstance(part, dict | list):
            inner: Any = part.values() if isinstance(part, dict) else part
            if not _SIMPLE.issuperset(map(type, inner)):
                parts += inner
        elif isinstance(part, tuple(_READ_AS)):
            kind = next(kind for kind in _READ_AS if isinstance(part, kind))
            raise SerializationError(f"{codec!r}: a row cannot have {_READ_AS[kind]}")
