"""The checks of the arguments of a flow's steps: each raises `GraphError` with the call to write instead."""

from datetime import timedelta
from typing import Any

from streamtable.base.topics import check_kind
from streamtable.errors import GraphError

_MS = timedelta(milliseconds=1)
_NONE = timedelta(0)
LONGEST = timedelta(days=1_000_000)
"""The maximum of a duration, so that sums of several, and of them and an event time, are times too."""


def check_part(plan: object, part: Any, what: str, *kinds: type) -> None:
    """Check that a second stream or table of a step is of one of these kinds, and of the same flow as the first."""
    check_kind(part, what, *kinds)
    if part._plan is not plan:  # noqa: SLF001 - of this package
        raise GraphError(
            f"{what} with {part._node.label!r}, which is of another Flow: build both with the same Flow object"  # noqa: SLF001 - the same
        )


def check_duration(given: object, what: str, least: timedelta = _NONE) -> None:
    """Check that an argument is a duration of whole milliseconds, of at least this length."""
    if not isinstance(given, timedelta) or given % _MS or not least <= given <= LONGEST:
        raise GraphError(
            f"{what}={given!r}: give a timedelta of whole milliseconds, at least {least or 0} and at most {LONGEST.days:,} days"
        )


def check_function(given: object, what: str, meaning: str) -> None:
    """Check that an argument can be called."""
    if not callable(given):
        raise GraphError(f"{what}={given!r}: give a function that {meaning}")
