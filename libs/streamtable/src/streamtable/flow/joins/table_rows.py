"""Joins of a stream with the rows that a table has now: of the record's own key, or of any key of a global table."""

from collections.abc import Callable, Sequence
from typing import Any

from streamtable.base.mapped import mapped
from streamtable.base.topics import Table
from streamtable.errors import GraphError
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.flow.plan.nodes import Node, Step
from streamtable.graph.state import State

Function = Callable[..., Any]
Find = Callable[[Scope, Columns], Sequence[Any]]
"""Returns the row that belongs to each record; None: there is none."""


def rows_of(node: Node, state: State[Any, Any] | None) -> Find:
    """Return the lookup of the rows of a table that the flow keeps or reads. Raises `GraphError`: no table keeps them."""
    if state is not None:
        return lambda scope, records: scope.table(state).raw.get_many(records.encoded_keys)
    source = node.source
    if source is not None and source.kind == "table":
        topic: Any = source.topic
        return lambda scope, records: list(map(scope.joined_rows(topic).get, records.encoded_keys))
    raise GraphError(
        f"join_table() with the rows of {node.label}(), which are not kept: join the table before it, or keep them by to_stream().to_table(name)"
    )


def global_rows_of(table: Table[Any, Any], on: Function) -> Find:
    """Return the lookup of the rows of a table that each process has a full copy of.

    Args:
        table: The table.
        on: Takes the key of the row from the value of a record; None: there is no row.
    """

    def find(scope: Scope, records: Columns) -> Sequence[Any]:
        return [None if key is None else scope.lookup(table, key) for key in mapped(on, records.values)]

    return find


def join_rows(find: Find, function: Function, *, inner: bool) -> Step:
    """Return the step that calls a function with each value and the row that belongs to it."""

    def step(scope: Scope, records: Columns) -> Columns:
        rows = find(scope, records)
        if inner:
            there = [row is not None for row in rows]
            records, rows = records.only(there), [row for row in rows if row is not None]
        return records.with_values(mapped(function, records.values, rows))

    return step
