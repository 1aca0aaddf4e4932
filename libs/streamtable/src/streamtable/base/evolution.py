"""The evolution of rows: the schemas of codecs in the text that is recorded for a table.

A codec puts its schema between two marks into the text that is recorded for it, a JSON schema or the schema of Avro. The text
around the marks must stay the same, and the schema may change as long as it accepts all that the recorded ones accept.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from exactavro.versions import fingerprint, unknown, unresolvable
from exactjson import unreadable

_MARKED = re.compile("⟨([^⟩]*)⟩")  # the text between the marks is ASCII
_AVRO = re.compile('⟨({"avro":[^⟩]*)⟩')


def marked(schema: Mapping[str, Any]) -> str:
    """Return a schema as it stands in the text that is recorded for a codec.

    Args:
        schema: A JSON schema. For Avro an object, with the text of the schema in `avro`, and in `versions` the texts of the
            schemas that are known by fingerprint: rows of others cannot be read. Empty if rows name the schemas of a registry.
    """
    return f"⟨{json.dumps(schema, default=repr)}⟩"


def has_schema(text: str) -> bool:
    """Return whether a JSON schema stands in the text that is recorded for a codec."""
    return _MARKED.search(without_avro(text)) is not None


def without_avro(text: str) -> str:
    """Return the text that is recorded for a codec without its schemas of Avro."""
    return _AVRO.sub("", text)


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
        # One that is recorded last was accepted, by these rules or by earlier ones, and has written rows since.
        for each in () if written[-1] == schema else written:
            if each != schema and (reason := _fault(each, schema)):
                return recorded, reason
        texts.append(json.dumps([*(each for each in written if each != schema), schema]))
    left = iter(texts)
    return _MARKED.sub(lambda _: f"⟨{next(left)}⟩", declared), ""


def versions_in(text: str) -> str:
    """Return the fingerprint of each schema of Avro in the text that is recorded for a codec, with spaces between."""
    return " ".join(fingerprint(json.loads(each)["avro"]) for each in _AVRO.findall(text))


def unknown_version(recorded: str, declared: str) -> str:
    """Return why rows cannot be read by a codec; "" if they can.

    Args:
        recorded: The fingerprints that the rows were written with, as `versions_in` returns them.
        declared: The text that is recorded for the codec.
    """
    known = (json.loads(each)["versions"] for each in _AVRO.findall(declared))
    return next(filter(None, map(unknown, recorded.split(), known)), "")


def _fault(written: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return why a schema does not accept all that was written with another one; "" if it does."""
    if "avro" not in schema:
        return unreadable(written, schema)
    return unresolvable(written["avro"], schema["avro"]) or unknown(
        fingerprint(written["avro"]), schema["versions"]
    )
