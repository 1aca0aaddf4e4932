"""The checks of the arguments of a flow's steps: each raises `GraphError` with the call to write instead."""

from datetime import timedelta
from typing import Any

from streamtable.errors import GraphError

_MS = timedelta(milliseconds=1)
_NONE = timedelta(0)
LONGEST = timedelta(days=1_000_000)
"""The maximum of a duration, so that sums of several, and of them and an event time, are times too."""
_INSTEAD = {
    "Stream": "read it by stream() of the flow",
    "Table": "read it by table() of the flow",
    "KeyedStream": "of a stream, to_table(name) makes a table, and group_by_key() groups it; join() joins it with a stream",
    "KeyedTable": "of a table, to_stream() makes a stream of its changes; join_table() joins it with a stream, and "
    "join_global() one that is kept, by its .table",
    "WindowedTable": "of a windowed table, final() and changes() make streams",
    "GroupedStream": "give the stream itself, as it was before group_by_key()",
    "timedelta": "write Tumbling(size, grace=...) for windows of one size",
}


def check_kind(given: Any, what: str, *kinds: type) -> None:
    """Check that an argument is of one of these kinds."""
    if isinstance(given, kinds):
        return
    if isinstance(given, type):
        shown, instead = f"the class {given.__name__}", f"write {given.__name__}() with its arguments"
    else:
        name = type(given).__name__
        shown, instead = f"a value of type {name}", _INSTEAD.get(name, "")
    raise GraphError(
        f"{what} takes a {' or a '.join(kind.__name__ for kind in kinds)}, not {shown}"
        + (f": {instead}" if instead else "")
    )


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
