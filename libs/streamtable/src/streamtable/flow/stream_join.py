"""Joins of two streams: each record waits in a state table until nothing can match it any more."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
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
    closing_times,
    is_of,
    next_row,
    place,
    span_of,
    time_of,
)
from streamtable.flow.key_filter import KeyFilter
from streamtable.flow.nodes import Closed, DueColumns, Node, Source, Step
from streamtable.flow.plan import Plan, copartitioned
from streamtable.ports import Codec
from streamtable.state import State, StateRows

Function = Callable[..., Any]
_FEW = 8  # that are looked at one by one
_FILTERS = b"filters"  # the name of what is remembered of a table


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
            return closing_times(self.bounds, [raw])[0]

        state: State[Any, Any] = State(
            self.name,
            key=PlaceKey(key),
            value=WaitingCodec(*values),
            due=Due(
                closes,
                expired,
                by_key=True,
                on_error=plan.on_error,
                holds=self.bounds.longest,
                times=partial(closing_times, self.bounds),
            ),
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
        if not records.values:
            return records
        joining = _Joining(self, scope.table(self.state).raw)
        joining.look_up(records)
        counts = [
            joining.join(key, time, bound, *of_side)
            for key, time, bound, of_side in zip(*records.keyed_times(), records.values, strict=True)
        ]
        joining.write()
        repeated = records.repeated(counts).with_values([value for value, _, _ in joining.pairs])
        repeated.times = [time for _, time, _ in joining.pairs]
        repeated.late_before = [bound for _, _, bound in joining.pairs]
        return repeated


@dataclass(slots=True)
class _Waits:
    """A waiting record: its event time, its key in the table, and its row."""

    time: int
    raw: bytes
    row: Waiting


class _Joining:
    """The records of a batch on their way through a join, of which nothing is written before `write`.

    Args:
        step: The join.
        table: The rows.

    Attributes:
        pairs: What was joined: the value, the event time and the `late_before` of each pair.
    """

    def __init__(self, step: JoinStep, table: StateRows[Any]) -> None:
        self.pairs: list[tuple[Any, int, int]] = []
        self._bounds = step.bounds
        self._lives = step.bounds.life_ms(LEFT), step.bounds.life_ms(RIGHT)
        self._function = step.function
        self._unmatched = step.unmatched
        self._table = table
        following = table.get(NEXT_KEY)
        self._number: int = 0 if following is None else following.late_before
        self._filters = _filters(table)
        # Of each side, by key and time: those that records of the batch may match.
        self._waiting: tuple[dict[bytes, list[_Waits]], ...] = {}, {}
        self._rows: dict[bytes, Waiting] = {}
        self._new: list[bytes] = []
        # Of each side: the keys of the records, and the time of the latest.
        self._keys: tuple[list[bytes], ...] = [], []
        self._latest = [0, 0]

    def look_up(self, records: Columns) -> None:
        """Read the waiting records that may match some of these, all of a side at once."""
        keys, times, _ = records.keyed_times()
        asked: tuple[dict[bytes, list[int]], ...] = {}, {}
        for key, time, (side, _) in zip(keys, times, records.values, strict=True):
            asked[side].setdefault(key, []).append(time)
        for side in (LEFT, RIGHT):
            self._read(other_side(side), side, asked[side])
            if asked[other_side(side)]:  # records of both sides may match each other
                for key in asked[side]:
                    self._waiting[other_side(side)].setdefault(key, [])

    def _read(self, waiting: Side, side: Side, asked: Mapping[bytes, list[int]]) -> None:
        """Read the waiting records of one side that may match records of the other, by whose keys their times are given."""
        keys = list(asked)
        there = self._filters[waiting].may_have(keys, self._table.gone_before_ms())
        ordered = sorted(compress(keys, there))
        spans = [(key, span) for key in ordered for span in self._bounds.all_matching(side, asked[key])]
        found = self._table.ranges([span_of(key, waiting, *span) for key, span in spans])
        for (key, _), rows in zip(spans, found, strict=True):
            if rows:
                waits = [_Waits(time_of(raw), raw, row) for raw, row in rows if is_of(key, raw)]
                self._waiting[waiting].setdefault(key, []).extend(waits)

    def join(self, key: bytes, time: int, bound: int, side: Side, value: Any) -> int:
        """Join a record with those that wait, and let it wait. Returns the number of pairs."""
        others = self._waiting[other_side(side)].get(key)
        count = self._match(others, time, bound, side, value) if others else 0
        raw = place(key, side, time, self._number)
        self._number += 1
        self._rows[raw] = row = Waiting(side, count > 0, bound, value)
        self._new.append(raw)
        self._keys[side].append(key)
        self._latest[side] = max(self._latest[side], time)
        if (same := self._waiting[side].get(key)) is not None:
            insort(same, _Waits(time, raw, row), key=_time)
        return count

    def _match(self, others: list[_Waits], time: int, bound: int, side: Side, value: Any) -> int:
        """Join a record with those of the other side. Returns the number of pairs."""
        since, until = self._bounds.matching(side, time)
        mine, theirs = self._lives[side], self._lives[other_side(side)]
        function, pairs = self._function, self.pairs
        before = len(pairs)
        if len(others) > _FEW:
            begin = bisect_left(others, since, key=_time)
            others = others[begin : bisect_right(others, until, begin, key=_time)]
        for other in others:
            row = other.row
            if not since <= other.time <= until:
                continue
            if time + mine <= row.late_before or other.time + theirs <= bound:
                continue  # the window of the one was closed when the other came
            if row.side in self._unmatched and not row.matched:
                other.row = self._rows[other.raw] = row._replace(matched=True)
            joined = function(value, row.value) if side == LEFT else function(row.value, value)
            pairs.append((joined, max(time, other.time), max(bound, row.late_before)))
        return len(pairs) - before

    def write(self) -> None:
        """Write the records that wait now, and those that have been matched."""
        gone_before_ms = self._table.gone_before_ms()
        for keys, each, latest, life in zip(
            self._keys, self._filters, self._latest, self._lives, strict=True
        ):
            if keys:
                each.add(keys, max(latest + life, gone_before_ms))
        self._table.replace((), self._rows, self._new)
        self._table.put(NEXT_KEY, next_row(self._number))


def _filters(table: StateRows[Any]) -> tuple[KeyFilter, KeyFilter]:
    """Return the filters of the keys of both sides, as they are remembered of a table or made for it."""
    notes = table.notes
    found: tuple[KeyFilter, KeyFilter] | None = notes.get(_FILTERS)
    if found is None:
        last_due_ms = table.last_due_ms()
        found = notes[_FILTERS] = KeyFilter(last_due_ms), KeyFilter(last_due_ms)
    return found


def _time(waits: _Waits) -> int:
    return waits.time


def other_side(side: Side) -> Side:
    """Return the side that records of this one are joined with."""
    return RIGHT if side == LEFT else LEFT


def has_expired(node: Node) -> bool:
    """Whether some of the records of a node are what has expired unmatched, and so come without a record of an input."""
    source = node.source
    return (source is not None and source.columns is not None) or any(map(has_expired, node.parents))
