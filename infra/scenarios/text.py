"""Text that generated files are made of: YAML, comments, and regions between two marks."""

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

WIDTH: Final = 120
SOURCE: Final = "generated from services/*/scenario.toml"
HEADER: Final = f"# {SOURCE[0].upper()}{SOURCE[1:]} by `make gen`; edit those."
_PLAIN: Final = re.compile(r"[A-Za-z_./][\w./-]*(:[\w./-]+)*")
_RESERVED: Final = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


class MarkMissingError(ValueError):
    """A file lacks the marks of a region that is to be generated: write them again, or restore the file from Git."""


def scalar(value: object) -> str:
    """Return a value as YAML has it within a list or mapping of one line."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    plain = _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
    return value if plain else json.dumps(value, ensure_ascii=False)


def flow(value: object) -> str:
    """Return a value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(each)}".rstrip() for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def entry(key: str, value: Any, indent: int) -> list[str]:
    """Return the lines of a key of a mapping: one line where it fits, else one for each of its items."""
    line = f"{' ' * indent}{key}: {flow(value)}".rstrip()
    if len(line) <= WIDTH or not isinstance(value, Mapping | list | tuple):
        return [line]
    below = f"{' ' * indent}{key}:"
    if isinstance(value, Mapping):
        return [below, *(each for name in value for each in entry(name, value[name], indent + 2))]
    return [below, *(f"{' ' * (indent + 2)}- {flow(each)}" for each in value)]


def comment(text: str, indent: int = 0) -> list[str]:
    """Return a comment, wrapped; none for an empty text."""
    before = f"{' ' * indent}# "
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=before,
        subsequent_indent=before,
        break_long_words=False,
        break_on_hyphens=False,
    )


def with_region(text: str, region: str, lines: Sequence[str]) -> str:
    """Return a text whose lines between the two marks of a region are these.

    Args:
        text: The text. A line of it ends with the mark of the region's begin, and a later one has the mark of its end.
        region: The name of the region.
        lines: What is to stand between them.

    Raises:
        MarkMissingError: One of the marks is missing, or there twice.
    """
    begin, end = (f"{SOURCE}: {mark} {region}" for mark in ("begin", "end"))
    found = re.compile(
        rf"(^[^\n]*{re.escape(begin)}[^\n]*\n).*?(^[^\n]*{re.escape(end)}\b)", re.DOTALL | re.MULTILINE
    )
    body = "".join(f"{line}\n" for line in lines)
    made, count = found.subn(lambda match: match[1] + body + match[2], text)
    if count != 1:
        raise MarkMissingError(f"there is not one region '{begin}' to '{end}'")
    return made


def blocks(parts: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of all parts, with an empty line between two."""
    lines: list[str] = []
    for part in parts:
        lines += [*([""] if lines else []), *part]
    return lines
