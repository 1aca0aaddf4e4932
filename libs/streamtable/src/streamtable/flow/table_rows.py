"""Joins of a stream with the rows that a table has now."""

from collections.abc import Callable, Sequence
from typing import Any

from streamtable.errors import GraphError
from streamtable.flow.columns import Columns, Scope
from streamtable.flow.nodes import Node, Step
from streamtable.state import State

Function = Callable[..., Any]
Find = Callable[[Scope, Sequence[bytes]], Sequence[Any]]
"""Returns the rows of encoded keys."""


def rows_of(node: Node, state: State[Any, Any] | None) -> Find:
    """Return the lookup of the rows of a table that the flow keeps or reads. Raises `GraphError`: no table keeps them."""
    if state is not None:
        return lambda scope, keys: scope.table(state).raw.get_many(keys)
    source = node.source
    if source is not None and source.kind == "table":
        topic: Any = source.topic
        return lambda scope, keys: list(map(scope.joined_rows(topic).get, keys))
    raise GraphError(
        f"join_table() with the rows of {node.label}(), which are not kept: join the table before it, or keep them by "
        "to_stream().to_table(name)"
    )


def join_rows(find: Find, function: Function, *, inner: bool) -> Step:
    """Return the step that calls a function with each value and the row of its key."""

    def step(scope: Scope, records: Columns) -> Columns:
        keys = records.raw_keys
        assert keys is not None, "the builder refuses joins after changed keys"
        rows = find(scope, keys)
        if inner:
            there = [row is not None for row in rows]
            records, rows = records.only(there), [row for row in rows if row is not None]
        return records.with_values(list(map(function, records.values, rows)))

    return step
