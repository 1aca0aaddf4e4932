"""What Schemathesis cannot know of our documents; it loads this module by the variable SCHEMATHESIS_HOOKS."""

import json
import os
import time
from typing import Any, Final

import schemathesis
from schemathesis.generation import GenerationMode

NOW_MS: Final = time.time_ns() // 1_000_000
KNOWN: Final[dict[str, str]] = json.loads(os.environ["SCHEMATHESIS_KNOWN"])


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Change requests that must be accepted, so that they can be.

    Cursors and tokens are valid only if a service has made them: there are no made-up ones. A place is given by its offset
    or by a time, not by both. Events are not from the far future, which no document can say. Every other made-up name is that of something which there is.
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
    for name, known in KNOWN.items():
        if name in (case.path_parameters or {}) and len(case.path_parameters[name]) % 2:
            case.path_parameters[name] = known
