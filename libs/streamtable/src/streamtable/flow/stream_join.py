"""Joins of two streams: each record waits in a state table until nothing can match it any more."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

from streamtable.due import Due, DueRows
from streamtable.flow.columns import Columns, Scope
from streamtable.flow.joins import (
    LEFT,
    NEXT_KEY,
    RIGHT,
    Bounds,
    PlaceKey,
    Side,
    Waiting,
    WaitingCodec,
    is_of,
    next_row,
    place,
    span_of,
    time_of,
)
from streamtable.flow.nodes import Closed, DueColumns, Node, Source, Step
from streamtable.flow.plan import Plan, copartitioned
from streamtable.ports import Codec
from streamtable.state import State, StateRows

Function = Callable[..., Any]


@dataclass(frozen=True)
class StreamJoin:
    """A join of two streams, before it is added to a flow.

    Args:
        operator: What it is called: "join", "left_join" or "outer_join".
        name: The name of the step.
        bounds: Which records match.
        function: Called with the left and the right value; None for one that has not been matched.
    """

    operator: str
    name: str
    bounds: Bounds
    function: Function

    @property
    def unmatched(self) -> frozenset[Side]:
        """The streams whose records come out if nothing has matched them."""
        kinds: dict[str, frozenset[Side]] = {
            "left_join": frozenset({LEFT}),
            "outer_join": frozenset({LEFT, RIGHT}),
        }
        return kinds.get(self.operator, frozenset())

    def added(
        self, plan: Plan, nodes: tuple[Node, Node], key: Codec[Any], values: tuple[Codec[Any], Codec[Any]]
    ) -> Node:
        """Add the join to a flow. Returns the node of what it makes. Raises `GraphError`."""
        copartitioned(nodes, self.operator)
        plan.claim(self.name, self.operator)
        group, expired = nodes[0].group, Closed()

        def closes(raw: bytes, _: bytes) -> int | None:
            where = PlaceKey.split(raw)
            return None if where is None else where.time + self.bounds.life_ms(where.side)

        state: State[Any, Any] = State(
            self.name,
            key=PlaceKey(key),
            value=WaitingCodec(*values),
            due=Due(closes, expired, by_key=True, on_error=plan.on_error, holds=self.bounds.longest),
            meaning=f"{self.operator} {self.bounds.meaning}",
        )
        sides = [
            plan.add(group, f"{side} of {self.name!r}", node, step=marked(number))
            for number, side, node in zip((LEFT, RIGHT), ("left", "right"), nodes, strict=True)
        ]
        label = f"{self.operator} {self.name!r} {self.bounds.meaning}"
        step = JoinStep(state, self.bounds, self.function, self.unmatched).step
        joined = plan.add(group, label, *sides, step=step, edges=(state,), timed=True, windowed=True)
        if not self.unmatched:
            return joined
        due = DueColumns(key, self._waited)
        source = plan.add(
            group,
            f"expired of {self.name!r}",
            source=Source(state, expired.edge, kind="closed", columns=due),
            timed=True,
            windowed=True,
        )
        alone = plan.add(group, f"unmatched of {self.name!r}", source, step=self._alone)
        return plan.add(group, f"all of {self.name!r}", joined, alone)

    def _waited(
        self, due: DueRows[Any, Any]
    ) -> tuple[Sequence[bytes], Sequence[Any], Sequence[int], Sequence[int]]:
        """Return the columns of records that have expired and are to come out: they have not been matched."""
        found = [
            (where.key, row, where.time, max(row.late_before, at))
            for (_, where, row), at in zip(due.rows, due.times_ms, strict=True)
            if row.side in self.unmatched and not row.matched
        ]
        keys, rows, times, late_before = zip(*found, strict=True) if found else ((), (), (), ())
        return keys, rows, times, late_before

    def _alone(self, _: Scope, records: Columns) -> Columns:
        function = self.function
        return records.with_values(
            [
                function(row.value, None) if row.side == LEFT else function(None, row.value)
                for row in records.values
            ]
        )


def marked(side: Side) -> Step:
    """Return the step that says of which side records are. Those without a value match nothing and are left out."""

    def step(_: Scope, records: Columns) -> Columns:
        there = records.only([value is not None for value in records.values])
        return there.with_values([(side, value) for value in there.values])

    return step


@dataclass(slots=True)
class _Other:
    """A waiting record of the other stream."""

    raw: bytes
    time: int
    row: Waiting


@dataclass(frozen=True)
class JoinStep:
    """The step that joins records with those of the other stream that wait, and lets them wait in their turn.

    Args:
        state: The table of waiting records.
        bounds: Which records match.
        function: Makes the joined value.
        unmatched: The sides whose records are followed, as they come out if nothing matches them.
    """

    state: State[Any, Any]
    bounds: Bounds
    function: Function
    unmatched: frozenset[Side]

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Join the records, each a pair of its side and its value. Returns one record for each pair that matches."""
        raw, times, late_before = records.keyed_times()
        table = scope.table(self.state).raw
        following = table.get(NEXT_KEY)
        number: int = 0 if following is None else following.late_before
        made: list[list[tuple[Any, int, int]]] = []
        # Records of one side do not match each other: what waits on the other side is read once for all of them.
        for side, run in groupby(
            zip(raw, times, late_before, records.values, strict=True), lambda each: each[3][0]
        ):
            part = list(run)
            others = self._others(table, side, part)
            for key, time, bound, (_, value) in part:
                pairs = list(self._matches(table, side, others[key], time, bound, value))
                made.append(pairs)
                table.put(place(key, side, time, number), Waiting(side, bool(pairs), bound, value))
                number += 1
        if records.values:
            table.put(NEXT_KEY, next_row(number))
        joined = list(chain.from_iterable(made))
        repeated = records.repeated(map(len, made)).with_values([value for value, _, _ in joined])
        repeated.times = [time for _, time, _ in joined]
        repeated.late_before = [bound for _, _, bound in joined]
        return repeated

    def _others(
        self, table: StateRows[Any], side: Side, part: Sequence[tuple[bytes, int, int, Any]]
    ) -> dict[bytes, list[_Other]]:
        """Return, for each key, the waiting records of the other side that may match one of these, by time."""
        spans: dict[bytes, tuple[int, int]] = {}
        for key, time, _, _ in part:
            since, until = self.bounds.matching(side, time)
            if key in spans:
                first, last = spans[key]
                since, until = min(since, first), max(until, last)
            spans[key] = since, until
        return {
            key: [
                _Other(raw, time_of(raw), row)
                for raw, row in table.scan(*span_of(key, other_side(side), *span))
                if is_of(key, raw)
            ]
            for key, span in spans.items()
        }

    def _matches(
        self, table: StateRows[Any], side: Side, others: list[_Other], time: int, bound: int, value: Any
    ) -> Iterator[tuple[Any, int, int]]:
        """Yield the joined value, the time and the `late_before` of each pair that a record makes."""
        bounds, function = self.bounds, self.function
        since, until = bounds.matching(side, time)
        mine, theirs = bounds.life_ms(side), bounds.life_ms(other_side(side))
        begin = bisect_left(others, since, key=_time)
        for other in others[begin : bisect_right(others, until, begin, key=_time)]:
            row = other.row
            if time + mine <= row.late_before or other.time + theirs <= bound:
                continue  # the window of the one was closed when the other came
            if row.side in self.unmatched and not row.matched:
                other.row = row._replace(matched=True)
                table.put(other.raw, other.row)
            pair = (value, row.value) if side == LEFT else (row.value, value)
            yield function(*pair), max(time, other.time), max(bound, row.late_before)


def _time(other: _Other) -> int:
    return other.time


def other_side(side: Side) -> Side:
    """Return the side that records of this one are joined with."""
    return RIGHT if side == LEFT else LEFT


def has_expired(node: Node) -> bool:
    """Whether some of the records of a node are what has expired unmatched, and so come without a record of an input."""
    source = node.source
    return (source is not None and source.columns is not None) or any(map(has_expired, node.parents))
