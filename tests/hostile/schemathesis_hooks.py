"""Rules of our APIs that OpenAPI cannot express, for Schemathesis, which loads this module by SCHEMATHESIS_HOOKS."""

import json
import os
import re
import time
from typing import Any, Final

import schemathesis
from schemathesis.generation import GenerationMode

BIDIRECTIONAL: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
NAME: Final = "[a-z0-9][a-z0-9-]{0,62}"
BEGINNING: Final = re.compile(f"({NAME}(@({NAME})?)?)?")
"""The beginning of an item of the inventory, as far as a text is one."""
NOW_MS: Final = time.time_ns() // 1_000_000
KNOWN: Final[dict[str, str]] = json.loads(os.environ["SCHEMATHESIS_KNOWN"])


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Change requests that must be accepted, so that they can be.

    Cursors and tokens are valid only if a service has made them: there are no made-up ones. A place is given by its offset
    or by a time, not by both. Events are not from the far future, which no document can say. Ids of users without bidirectional
    control characters, what one word is, and how items begin, stand in descriptions: released documents have no pattern for them. Every other made-up name is that of something which there is.
    """
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    for given, name in ((case.query, "cursor"), (case.headers, "Streamtable-Token")):
        if given:
            given.pop(name, None)
    if case.query and "offset" in case.query:
        case.query.pop("since", None)
    for event in case.body if isinstance(case.body, list) else [case.body]:
        if isinstance(event, dict) and isinstance(event.get("at"), int | float):
            event["at"] = min(event["at"], NOW_MS)
        if isinstance(event, dict):
            _follow_descriptions(event)
    _follow_descriptions(case.path_parameters)
    _follow_descriptions(case.query)
    if case.path == "/stock" and isinstance((case.query or {}).get("prefix"), str):
        found = BEGINNING.match(case.query["prefix"])
        case.query["prefix"] = found[0] if found else ""
    for name, known in KNOWN.items():
        if name in (case.path_parameters or {}) and len(case.path_parameters[name]) % 2:
            case.path_parameters[name] = known


def _follow_descriptions(members: Any) -> None:
    for name, text in (members or {}).items():
        if isinstance(text, str):
            members[name] = BIDIRECTIONAL.sub("b", text)
    if isinstance((members or {}).get("word"), str):
        members["word"] = re.sub(r"\W", "w", members["word"])
