"""Numbers, times and values as text for people."""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID


def at(milliseconds: int) -> str:
    """Return a Kafka timestamp as ISO 8601 in UTC; empty if the record has none."""
    if milliseconds < 0:
        return ""
    try:
        text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return text.replace("+00:00", "Z")


def count(number: int, one: str, many: str = "") -> str:
    """Return `1 partition`, `2 partitions`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Return a duration in its largest unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def one_line(document: object) -> str:
    """Return a document as JSON in one line, without control characters."""
    return printable(json.dumps(document, ensure_ascii=False, default=as_json))


def printable(text: str) -> str:
    """Replace control characters, which a terminal would obey, by their JSON escapes: also C1 and bidirectional ones."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def printable_lines(text: str) -> str:
    """Replace control characters of a text, and keep its line ends."""
    return "\n".join(map(printable, text.split("\n")))


def as_json(value: Any) -> Any:
    """Return a JSON value in place of a value that JSON cannot express; bytes become hexadecimal digits."""
    match value:
        case bytes():
            return value.hex()
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case Mapping():
            return dict(value)
    return repr(value)
