"""Joins of two streams: each record waits in a state table until nothing can match it any more."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, repeat
from typing import Any

from streamtable.base.mapped import mapped
from streamtable.base.ports import Codec
from streamtable.flow.joins.recent_records import RecentRecords
from streamtable.flow.joins.rules import (
    LEFT,
    NEXT_KEY,
    RIGHT,
    Bounds,
    PlaceKey,
    Side,
    bound_of,
    closing_times,
    other_side,
)
from streamtable.flow.joins.waiting_lookup import WaitingLookup
from streamtable.flow.joins.waiting_records import (
    WaitingRecords,
    as_matched,
    record_of,
    records_of,
    rows_of,
    times_of,
)
from streamtable.flow.plan.columns import Columns, Scope, same_bytes
from streamtable.flow.plan.nodes import DueRecord, DueRecords, Node, Source, Step
from streamtable.flow.plan.plan import Plan, copartitioned
from streamtable.graph.due import Due
from streamtable.graph.state import State
from streamtable.handlers.due_rows import DueRows
from streamtable.handlers.state_table import StateRows

Function = Callable[..., Any]
_FEW = 8  # that are looked at one by one
_RECENT = b"recent"  # the name of the note that holds a table's recent records


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
        rows = WaitingRecords(*values)
        expired = DueRecords(key, partial(self._waited, rows))

        def closes(raw: bytes, _: bytes) -> int | None:
            return closing_times(self.bounds, [raw])[0]

        meaning = f"{self.operator} {self.bounds.meaning}"
        times, holds = partial(closing_times, self.bounds), self.bounds.longest
        due = Due(closes, expired, by_key=True, on_error=plan.on_error, holds=holds, times=times)
        state: State[Any, Any] = State(self.name, key=PlaceKey(key), value=rows, due=due, meaning=meaning)
        sides = [
            plan.add(f"{name} of {self.name!r}", node, step=encoded(side, codec, rows))
            for side, name, node, codec in zip((LEFT, RIGHT), ("left", "right"), nodes, values, strict=True)
        ]
        label = f"{self.operator} {self.name!r} {self.bounds.meaning}"
        step = JoinStep(state, rows, self.bounds, self.function, self.unmatched).step
        joined = plan.add(
            label, *sides, step=step, edges=(state,), windowed=True, grace_ms=self.bounds.grace_ms
        )
        if not self.unmatched:
            return joined
        waited = Source(state, expired.edge, kind="closed", due=expired)
        source = plan.add(f"expired of {self.name!r}", group=joined.group, source=waited, windowed=True)
        alone = plan.add(f"unmatched of {self.name!r}", source, step=self._alone)
        return plan.add(f"all of {self.name!r}", joined, alone)

    def _waited(self, rows: WaitingRecords, due: DueRows[Any, Any]) -> list[DueRecord]:
        """Return the records that have expired and are to come out: they have not been matched."""
        records = [record_of(raw, row) for raw, _, row in due.rows]
        alone: Any = [
            (where.key, where.side, record, where.time, bound_of(where.time, at, late_before))
            for (_, where, _), record, at in zip(due.rows, records, due.times_ms, strict=True)
            for _, matched, late_before in [times_of(record)]
            if where.side in self.unmatched and not matched
        ]
        keys, sides, waited, times, late_before = zip(*alone, strict=True) if alone else ((), (), (), (), ())
        values = rows.values_of_both(sides, waited)
        return list(zip(keys, zip(sides, values, strict=True), times, late_before, strict=True))

    def _alone(self, _: Scope, records: Columns) -> Columns:
        pairs = [(value, None) if side == LEFT else (None, value) for side, value in records.values]
        return records.with_values([self.function(*pair) for pair in pairs])


def marked(side: Side) -> Step:
    """Return the step that tags records with their side. Records without a value match nothing and are dropped."""

    def step(_: Scope, records: Columns) -> Columns:
        there = records.only([value is not None for value in records.values])
        return there.with_values([(side, value) for value in there.values])

    return step


def encoded(side: Side, codec: Codec[Any], rows: WaitingRecords) -> Step:
    """Return the step that turns each value into its side, itself, and its bytes. Drops records without a value.

    Args:
        side: Of the join.
        codec: The codec of the values.
        rows: Encodes them.
    """

    def step(_: Scope, records: Columns) -> Columns:
        there = records.only([value is not None for value in records.values])
        read = there.raw_values
        if read is not None and same_bytes(read[0], codec):
            data: Sequence[Any] = read[1]
        else:
            data = rows.encoded(side, there.values)
        return there.with_values(list(zip(repeat(side), there.values, data)))

    return step


@dataclass(frozen=True)
class JoinStep:
    """The step that joins records with the waiting records of the other stream, and then lets them wait, too.

    Args:
        state: The table of waiting records.
        rows: The codec of its rows.
        bounds: Which records match.
        function: Makes the joined value.
        unmatched: The sides whose records are followed, as they come out if nothing matches them.
    """

    state: State[Any, Any]
    rows: WaitingRecords
    bounds: Bounds
    function: Function
    unmatched: frozenset[Side]

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Join the records, each a tuple of its side, its value and its bytes. Returns one record for each pair that matches."""
        if not records.values:
            return records
        table = scope.table(self.state)
        joining = _Joining(self, table.raw)
        keys, times, late_before = records.keyed_times()
        sides, values, data = zip(*records.values, strict=True)
        table.offered += len(times)
        life = {side: self.bounds.life_ms(side) for side in (LEFT, RIGHT)}
        if min(times) + min(life.values()) <= max(late_before):  # some may be late, if both are of one record
            each = zip(sides, times, late_before, strict=True)
            table.late += sum(time + life[side] <= bound for side, time, bound in each)
        joining.lookup.look_up(sides, keys, times)
        for side, begin, end in _runs(sides):
            run = slice(begin, end)
            joining.join(side, begin, keys[run], times[run], late_before[run], values[run], data[run])
        joining.write()
        return records.paired(joining.indexes, joining.values, joining.times, joining.late_before)


def _runs(sides: Sequence[Side]) -> list[tuple[Side, int, int]]:
    """Return the stretches of records of the same side: the side, and where each begins and ends."""
    if len(set(sides)) == 1:
        return [(sides[0], 0, len(sides))]
    runs, begin = [], 0
    for side, run in groupby(sides):
        end = begin + len(list(run))
        runs.append((side, begin, end))
        begin = end
    return runs


class _Joining:
    """The records of a batch on their way through a join. Nothing is written before `write`.

    Args:
        step: The join.
        table: The rows.

    Attributes:
        indexes: Of each pair: the index of the record in the batch.
        values: Of each pair: the joined value.
        times: Of each pair: its event time.
        late_before: Of each pair: its `late_before`.
        lookup: The waiting records that records of the batch may match, but for those in dicts.
    """

    def __init__(self, step: JoinStep, table: StateRows[Any]) -> None:
        self.indexes: list[int] = []
        self.values: list[Any] = []
        self.times: list[int] = []
        self.late_before: list[int] = []
        self._bounds = step.bounds
        self._lives = step.bounds.life_ms(LEFT), step.bounds.life_ms(RIGHT)
        self._function = step.function
        self._rows = step.rows
        self._unmatched = step.unmatched
        self._table, self._log = table, table.log
        self._recent = _recent(table, step.rows)
        self.lookup = WaitingLookup(table.log, self._recent, step.bounds, step.unmatched)
        self._new: list[tuple[list[bytes], list[bytes], list[int]]] = []
        self._matched: dict[bytes, bytes] = {}

    def join(
        self,
        side: Side,
        first: int,
        keys: Sequence[bytes],
        times: Sequence[int],
        late_before: Sequence[int],
        values: Sequence[Any],
        data: Sequence[bytes],
    ) -> None:
        """Join records of one side with the waiting records of the other, and let them wait, too.

        Args:
            side: Their side.
            first: The index of the first of them in the batch.
            keys: Their keys.
            times: Their event times.
            late_before: Windows that close at this time or before are closed for them.
            values: Their values.
            data: Their encoded values.
        """
        before = len(self.indexes)
        others = self._match(side, first, keys, times, late_before)
        indexes = [index - first for index in self.indexes[before:]]
        if indexes:
            mine = [values[index] for index in indexes]
            theirs = self._rows.values(other_side(side), others)
            self.values += mapped(self._function, *((mine, theirs) if side == LEFT else (theirs, mine)))
        matched: Iterable[bool] = repeat(False)
        if side in self._unmatched:
            hits = set(indexes)
            matched = [index in hits for index in range(len(keys))]
        self._add(side, keys, times, records_of(side, times, self._recent.next, matched, late_before, data))

    def _match(
        self, side: Side, first: int, keys: Sequence[bytes], times: Sequence[int], late_before: Sequence[int]
    ) -> list[bytes]:
        """Find what matches records, and note the pairs but for their values. Returns the other record of each pair."""
        theirs, found = other_side(side), self._recent.of(other_side(side), keys)
        older = self.lookup.found[theirs]
        my_life, their_life = self._lives[side], self._lives[theirs]
        before, after = self._bounds.matching(side, 0)
        earliest = self.lookup.earliest[theirs]
        followed = theirs in self._unmatched
        matches: list[bytes] = []
        for index, (recent, more) in enumerate(zip(found, map(older.get, keys), strict=True)):
            if recent is None and more is None:
                continue
            time, bound = times[index], late_before[index]
            since, until = max(time + before, earliest), time + after
            records: Sequence[bytes] = (
                () if recent is None else (recent,) if isinstance(recent, bytes) else recent
            )
            if len(records) > _FEW:
                records = _within(records, since, until)
            if more is not None:
                records = sorted([*_within(more, since, until), *records])
            for record in records:
                other_time, matched, other_bound = times_of(record)
                if not since <= other_time <= until:
                    continue
                if time + my_life <= other_bound or other_time + their_life <= bound:
                    continue  # the window of the one was closed when the other came
                if followed and not matched:
                    self._note_match(theirs, keys[index], record)
                matches.append(record)
                self.indexes.append(first + index)
                self.times.append(time if time > other_time else other_time)  # noqa: FURB136 - for each pair
                self.late_before.append(bound if bound > other_bound else other_bound)  # noqa: FURB136 - the same
        return matches

    def _note_match(self, side: Side, key: bytes, record: bytes) -> None:
        """Note that a waiting record has been matched for the first time."""
        new = as_matched(record)
        self._recent.replace(side, key, record, new)
        self.lookup.replace(side, key, record, new)
        (raw,), (row,) = rows_of(side, [key], [new])
        self._matched[raw] = row

    def _add(self, side: Side, keys: Sequence[bytes], times: Sequence[int], records: list[bytes]) -> None:
        """Buffer records until they match or expire."""
        life = self._lives[side]
        due_ms = max(max(times) + life, self._log.gone_before_ms())
        self._recent.add(side, keys, records, due_ms, self._log.commits)
        self._new.append((*rows_of(side, keys, records), [time + life for time in times]))

    def write(self) -> None:
        """Write the records that wait now, and those that have been matched."""
        for new in self._new:
            self._log.append(*new)
        if self._matched:
            self._table.replace((), self._matched, ())
        self._table.put(NEXT_KEY, self._rows.next_row(self._recent.next))


def _within(records: Sequence[bytes], since: int, until: int) -> Sequence[bytes]:
    """Return the records, of some in order, that are between two times."""
    begin = bisect_left(records, max(since, 0).to_bytes(8))
    return records[begin : bisect_left(records, max(until + 1, 0).to_bytes(8), begin)]


def _recent(table: StateRows[Any], rows: WaitingRecords) -> RecentRecords:
    """Return the recent records, as they are remembered of a table or begun for it."""
    notes = table.log.notes
    found: RecentRecords | None = notes.get(_RECENT)
    if found is None:
        number = rows.next_number(table.get(NEXT_KEY))
        found = notes[_RECENT] = RecentRecords(number, table.log.last_due_ms())
    return found
