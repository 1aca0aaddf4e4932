"""Joins of a stream with the rows that a table had at the event time of each record.

The step keeps the versions of the table's rows, and the records that wait. A record waits until event time has passed its
own by the grace: then all versions up to its time are there. Versions that are older than the history become one, the
base: the row as it was when the history begins.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from streamtable.base.ports import Codec
from streamtable.flow.checks import check_duration
from streamtable.flow.joins.rules import (
    LEFT,
    NEXT_KEY,
    RIGHT,
    Place,
    PlaceKey,
    Waiting,
    WaitingCodec,
    bound_of,
    is_of,
    next_row,
    place,
    span_of,
)
from streamtable.flow.joins.streams import marked
from streamtable.flow.joins.tables import marked_changes
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.flow.plan.nodes import DueRecord, DueRecords, Node, Source
from streamtable.flow.plan.plan import Plan, copartitioned
from streamtable.graph.due import Due
from streamtable.graph.state import State
from streamtable.handlers.due_rows import DueRows
from streamtable.handlers.state_table import StateRows

_MS = timedelta(milliseconds=1)
_BASE = 3

Ahead = dict[bytes, deque[tuple[Place, Waiting]]]


@dataclass(frozen=True)
class AsOfJoin:
    """A join of a stream with the versions of a table.

    Args:
        operator: The name of the operator: "join_as_of" or "left_join_as_of".
        name: The name of the step.
        function: Called with the value and the row of its time; None where there was none.
        history_ms: The milliseconds that old versions are kept.
        grace_ms: The milliseconds that a record waits for late changes of the table.
    """

    operator: str
    name: str
    function: Callable[..., Any]
    history_ms: int
    grace_ms: int

    @classmethod
    def of(
        cls, operator: str, name: str, function: Callable[..., Any], history: timedelta, grace: timedelta
    ) -> "AsOfJoin":
        """Return the join with these arguments. Raises `GraphError` for invalid ones."""
        for argument, given in (("history", history), ("grace", grace)):
            check_duration(given, f"{operator}({name!r}) has {argument}")
        return cls(operator, name, function, history // _MS, grace // _MS)

    @property
    def meaning(self) -> str:
        """The meaning of the rows of the join, with their time of expiry. It is recorded with the state table."""
        return f"{self.operator} with a history of {self.history_ms} ms and a grace of {self.grace_ms} ms"

    @property
    def kept_ms(self) -> int:
        """The milliseconds from the time of a version until it becomes the base version: until all older records are joined."""
        return max(self.history_ms, self.grace_ms + 1)

    def added(
        self,
        plan: Plan,
        nodes: tuple[Node, Node],
        table: Node,
        key: Codec[Any],
        values: tuple[Codec[Any], Codec[Any]],
    ) -> Node:
        """Add the join of a stream and the versions of a table's rows to a flow. Returns the node of its output. Raises `GraphError`."""
        copartitioned(nodes, self.operator)
        plan.claim(self.name, self.operator)
        expired = DueRecords(key, lambda due: self._found(due, state))

        def due_at(raw: bytes, _: bytes) -> int | None:
            where = PlaceKey.split(raw)
            if where is None or where.side == _BASE:
                return None
            return where.time + (self.grace_ms + 1 if where.side == LEFT else self.kept_ms)

        holds, codec = timedelta(milliseconds=self.grace_ms + 1), WaitingCodec(*values)
        due: Due[Any, Any] = Due(due_at, expired, by_key=True, on_error=plan.on_error, holds=holds)
        state: State[Any, Any] = State(
            self.name, key=PlaceKey(key), value=codec, due=due, meaning=self.meaning
        )

        def step(scope: Scope, records: Columns) -> None:
            self._wait(scope, records, state)

        steps = marked(LEFT), marked_changes(RIGHT)
        sides = [
            plan.add(f"{side} of {self.name!r}", node, step=each)
            for side, node, each in zip(("stream", "table"), nodes, steps, strict=True)
        ]
        more: dict[str, Any] = {
            "edges": (state,),
            "grace_ms": self.grace_ms,
            "windowed": True,
            "follows": table,
        }
        plan.add(f"{self.meaning}: {self.name!r} waits", *sides, step=step, **more)
        source = Source(state, expired.edge, kind="closed", due=expired)
        label, group = f"{self.operator} {self.name!r}", nodes[0].group
        waited = plan.add(label, group=group, source=source, windowed=True)
        return plan.add(f"joined by {self.name!r}", waited)

    def _wait(self, scope: Scope, records: Columns, state: State[Any, Any]) -> None:
        """Buffer records until they are joined, and note versions; each is a pair of its side and the value or row."""
        raw, times, late_before = records.keyed_times()
        kept = scope.table(state)
        table = kept.raw
        kept.offered += len(times)
        following = table.get(NEXT_KEY)
        number: int = 0 if following is None else following.late_before
        for key, time, bound, (side, value) in zip(raw, times, late_before, records.values, strict=True):
            if side == LEFT:
                table.put(place(key, LEFT, time, number), Waiting(LEFT, False, bound, value))
            else:
                # A late version applies from the earliest time whose records would still wait if all inputs were this far.
                since = max(time, bound - self.grace_ms, 0)
                kept.late += bound - self.grace_ms > time
                table.put(place(key, RIGHT, since, number), Waiting(RIGHT, False, time, value))
            number += 1
        table.put(NEXT_KEY, next_row(number))

    def _found(self, due: DueRows[Any, Any], state: State[Any, Any]) -> list[DueRecord]:
        """Join the records that have waited; make versions that are too old the base of their key."""
        kept = due.table(state)
        table = kept.raw
        ahead: Ahead = defaultdict(deque)  # they have been deleted already
        for _, where, row in due.rows:
            if where.side == RIGHT:
                ahead[where.key].append((where, row))
        found: list[DueRecord] = []
        for (_, where, row), at in zip(due.rows, due.times_ms, strict=True):
            if where.side == RIGHT:
                ahead[where.key].popleft()
                self._make_base(table, where, row)
                continue
            too_old = row.late_before >= where.time + self.kept_ms
            kept.late += too_old
            version = None if too_old else self._as_of(table, where, ahead)
            if version is not None or self.operator == "left_join_as_of":
                made = self.function(row.value, version)
                found.append((where.key, made, where.time, bound_of(where.time, at, row.late_before)))
        return found

    def _make_base(self, table: StateRows[Any], where: Place, row: Waiting) -> None:
        raw = place(where.key, _BASE, 0, 0)
        base = table.get(raw)
        if base is None or _since(base) <= _since(row):
            # Of a deletion too: a change with an earlier time may still come, and must not count.
            table.put(raw, row)

    def _as_of(self, table: StateRows[Any], where: Place, ahead: Ahead) -> Any:
        """Return the row that the table had at the time of a record; None if there was none."""
        key, time = where.key, where.time
        base = table.get(place(key, _BASE, 0, 0))
        stored = table.scan(*span_of(key, RIGHT, 0, time))
        rows = [
            *([] if base is None else [base]),
            *(row for each, row in ahead[key] if each.time <= time),
            *(row for raw, row in stored if is_of(key, raw)),
        ]
        # Of several with the same time the last one counts. Versions of one time are in the order of arrival, as the rows
        # that are still stored are due after the rows ahead.
        return max(reversed(rows), key=_since).value if rows else None


def _since(version: Waiting) -> int:
    """Return the time of the change that made a version."""
    return version.late_before
