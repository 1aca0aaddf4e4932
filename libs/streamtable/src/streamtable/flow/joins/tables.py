"""Joins of two tables with the same keys: a table that follows both, with retraction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streamtable.base.decoding import codec_name
from streamtable.base.mapped import mapped
from streamtable.base.ports import Codec, WindowedKeys
from streamtable.errors import GraphError
from streamtable.flow.joins.rules import LEFT, RIGHT, stored_values
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.flow.plan.nodes import DueRecord, Node, Step
from streamtable.flow.plan.plan import Plan, copartitioned
from streamtable.flow.sides import Part, Sides, SidesCodec
from streamtable.graph.due import Due
from streamtable.graph.state import State
from streamtable.handlers.due_rows import DueRows

Function = Callable[..., Any]


@dataclass(frozen=True)
class TableJoin:
    """A join of two tables.

    Args:
        operator: The name of the operator: "join", "left_join" or "outer_join".
        name: The name of the step.
        function: Called with the left and the right row; None for one that is not there.
        values: The codecs of the rows of both sides.
    """

    operator: str
    name: str
    function: Function
    values: tuple[Codec[Any], Codec[Any]]

    def added(
        self,
        plan: Plan,
        nodes: tuple[Node, Node],
        key: Codec[Any],
        due: Due[Any, Any] | None = None,
        windows: str = "",
    ) -> tuple[Node, State[Any, Sides]]:
        """Add the join to a flow. Returns the node of its changes, and the rows of both sides. Raises `GraphError`.

        Args:
            plan: The plan of the flow.
            nodes: The nodes of both tables.
            key: The codec of their keys.
            due: When the rows of a window are dropped; None: the tables have no windows.
            windows: The meaning of the windows.
        """
        copartitioned(nodes, self.operator)
        plan.claim(self.name, self.operator)
        codec, meaning = SidesCodec(*map(codec_name, self.values)), f"{self.operator} of tables{windows}"
        state: State[Any, Sides] = State(self.name, key=key, value=codec, due=due, meaning=meaning)
        sides = [
            plan.add(f"{side} of {self.name!r}", node, step=marked_changes(number))
            for number, side, node in zip((LEFT, RIGHT), ("left", "right"), nodes, strict=True)
        ]

        def step(scope: Scope, changes: Columns) -> Columns:
            return self._changes(scope, changes, state)

        label = f"{self.operator} {self.name!r}"
        return plan.add(label, *sides, step=step, edges=(state,)), state

    def closed_rows(self, due: DueRows[Any, Sides]) -> list[DueRecord]:
        """Return the joined rows of closed windows as records, with the last millisecond of each window."""
        rows = self._joined([sides for _, _, sides in due.rows])
        return [
            (raw, row, key.end_ms - 1, key.end_ms - 1)
            for (raw, key, _), row in zip(due.rows, rows, strict=True)
            if row is not None
        ]

    def _changes(self, scope: Scope, changes: Columns, state: State[Any, Sides]) -> Columns:
        """Put changes, each a pair of its side and the new row, beside the other side. Returns one change for each key.

        A key whose rows are as they were has none. Where records may be handled again, it has one: its rows may be of the
        first time, whose output was not written.
        """
        keys = changes.encoded_keys
        rows = scope.table(state).raw.changing(keys)
        last_of = dict(zip(keys, range(len(keys)), strict=True))
        before = {key: rows[key] for key in last_of}
        encode = [codec.encode for codec in self.values]
        for key, (side, row) in zip(keys, changes.values, strict=True):
            data = None if row is None else encode[side](row)
            there = rows[key] or Sides(None, None)
            after = Sides(data, there.right) if side == LEFT else Sides(there.left, data)
            rows[key] = None if after == (None, None) else after
        made = changes.at(
            sorted(at for key, at in last_of.items() if scope.repeats or rows[key] != before[key])
        )
        changed = made.raw_keys or ()
        news = self._joined([rows[key] for key in changed])
        olds = self._joined([before[key] for key in changed])
        return made.with_values(news, olds).only_changes()

    def _joined(self, rows: Sequence[Sides | None]) -> list[Any]:
        return joined_rows(self.function, self.values, [self._parts(sides) for sides in rows])

    def _parts(self, sides: Sides | None) -> Sides | None:
        """Return what the joined row is made of; None if there is none."""
        if sides is None or self.operator == "outer_join":
            return sides
        if sides.left is None or (sides.right is None and self.operator == "join"):
            return None
        return sides


def marked_changes(side: int) -> Step:
    """Return the step that makes records of changes or of other records, each the side and the new row or the value."""

    def step(_: Scope, changes: Columns) -> Columns:
        return changes.with_values([(side, row) for row in changes.values])

    return step


def joined_rows(
    function: Function, values: Sequence[Codec[Any]], rows: Sequence[tuple[Part, Part] | None]
) -> list[Any]:
    """Return the joined row of each left and right row; None where there are none. Raises `Fatal`: one cannot be decoded.

    Args:
        function: Called with both rows, decoded; None for one that is not there.
        values: The codecs of both.
        rows: The encoded rows.
    """
    there = [row for row in rows if row is not None]
    left, right = (_decoded(codec, [row[side] for row in there]) for side, codec in enumerate(values))
    made = iter(mapped(function, left, right))
    return [None if row is None else next(made) for row in rows]


def _decoded(codec: Codec[Any], data: Sequence[Part]) -> list[Any]:
    """Decode rows together; some may be missing."""
    there = [each for each in data if each is not None]
    if not there:
        return [None] * len(data)
    values = iter(stored_values(codec, there, "the row of a joined table"))
    return [None if each is None else next(values) for each in data]


def refuse_windowed(operator: str, *keys: Codec[Any]) -> None:
    """Raise `GraphError` for the keys of windowed tables."""
    if any(isinstance(key, WindowedKeys) for key in keys):
        raise GraphError(
            f"{operator}() of the rows of windows: they expire without a change that could be followed. Join the windowed "
            "tables themselves, before filter() and map_values(), or the stream that final() returns"
        )
