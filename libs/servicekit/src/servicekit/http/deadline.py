"""The deadline of a request, and the report of its writes if it fails after it began to write."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Scope

_KEY: Final = "servicekit.http.deadline"


def _nothing() -> Mapping[str, Any]:
    return {}


@dataclass
class RequestDeadline:
    """The time at which the guard answers a request instead of its handler, and the report in that answer.

    Attributes:
        at: The time, on the clock of `time.monotonic`.
        report: Called once by the guard when it answers by itself. It ends the writing, and returns the members of
            the problem document with the outcome for each record. A handler sets it before it begins to write.
    """

    at: float
    report: Callable[[], Mapping[str, Any]] = _nothing

    def put(self, scope: Scope) -> None:
        """Attach the deadline to a request."""
        scope[_KEY] = self


def deadline_of(scope: Scope) -> RequestDeadline:
    """Return the deadline that the guard has attached to this request."""
    found: RequestDeadline = scope[_KEY]
    return found
