"""What Schemathesis cannot know of our documents; it loads this module by the variable SCHEMATHESIS_HOOKS."""

from typing import Any

import schemathesis
from schemathesis.generation import GenerationMode


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Cursors and tokens are valid only if a service has made them: no made-up ones in requests that must be accepted."""
    if case.meta is not None and case.meta.generation.mode == GenerationMode.POSITIVE:
        for given, name in ((case.query, "cursor"), (case.headers, "Streamtable-Token")):
            if given:
                given.pop(name, None)
