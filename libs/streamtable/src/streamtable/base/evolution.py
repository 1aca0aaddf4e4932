"""The evolution of rows: the JSON schemas of codecs in the text that is recorded for a table.

A codec puts its schema between two marks into the text that is recorded for it. The text around the marks must stay the
same, and the schema may change as long as it accepts all that the recorded ones accept.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from exactjson import unreadable

_MARKED = re.compile("⟨([^⟩]*)⟩")  # the text between the marks is ASCII


def marked(schema: Mapping[str, Any]) -> str:
    """Return a schema as it stands in the text that is recorded for a codec."""
    return f"⟨{json.dumps(schema, default=repr)}⟩"


def has_schema(text: str) -> bool:
    """Return whether a schema stands in the text that is recorded for a codec."""
    return _MARKED.search(text) is not None


def without_schemas(text: str) -> str:
    """Return the text that is recorded for a codec without its schemas."""
    return _MARKED.sub("", text)


def evolved(recorded: str, declared: str) -> tuple[str, str]:
    """Compare the text that is recorded for a table with the one that a program declares.

    Returns:
        The text to record from now on, which has all schemas that rows were written with; and the reason why the declared
        schemas cannot read those rows, "" if they can.
    """
    if _MARKED.sub("⟨⟩", recorded) != _MARKED.sub("⟨⟩", declared):
        return recorded, "its codecs or its rules have changed"
    texts = []
    for before, now in zip(_MARKED.findall(recorded), _MARKED.findall(declared), strict=True):
        schema, found = json.loads(now), json.loads(before)
        written = found if isinstance(found, list) else [found]
        for each in written:
            if each != schema and (reason := unreadable(each, schema)):
                return recorded, reason
        texts.append(json.dumps([*(each for each in written if each != schema), schema]))
    left = iter(texts)
    return _MARKED.sub(lambda _: f"⟨{next(left)}⟩", declared), ""
