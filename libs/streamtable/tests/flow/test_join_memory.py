"""A join of streams finds the same wherever its records wait: in a dict, frozen, or in the table."""

from collections.abc import Iterator, Sequence
from time import process_time
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable import String
from streamtable.flow.joins.rules import LEFT, NEXT_KEY, RIGHT, Bounds, PlaceKey, Side, other_side
from streamtable.flow.joins.streams import JoinStep
from streamtable.flow.joins.waiting_records import WaitingRecords, record_of, times_of
from streamtable.flow.plan.columns import Columns
from streamtable.graph.state import State
from streamtable.store.memory import MemoryStores
from streamtable.tables.ordered_table import OrderedTable

BOUNDS = Bounds(10, 20, 5)
ON_DISK, FROZEN, IN_A_DICT, ALL_IN_DICTS = 0, 4_000, 1 << 20, 1 << 30
"""Bytes of memory that keep the records mostly there."""


class Event(NamedTuple):
    side: Side
    key: bytes
    time: int


EVENTS = st.builds(
    Event, st.sampled_from((LEFT, RIGHT)), st.sampled_from((b"a", b"ab", b"b")), st.integers(0, 60)
)


class Join:
    """A join over a table, without an engine.

    Args:
        memory_bytes: The memory for waiting records.
        unmatched: The sides whose records are followed.
    """

    def __init__(self, memory_bytes: int, *unmatched: Side) -> None:
        codec = WaitingRecords(String(), String())
        self._store = MemoryStores().open("t", 0)
        self._table = OrderedTable(self._store, codec, memory_bytes)
        state: State[Any, Any] = State("both", key=PlaceKey(String()), value=codec)
        self._step = JoinStep(state, codec, BOUNDS, lambda left, right: (left, right), frozenset(unmatched))
        self.count = 0

    def handle(self, events: Sequence[Event]) -> Columns:
        """Join records whose values are their numbers. Returns the pairs of values."""
        values = [str(number) for number in range(self.count, self.count + len(events))]
        self.count += len(events)
        sides, keys, times = zip(*events, strict=True)
        records = list(zip(sides, values, map(str.encode, values), strict=True))
        columns = Columns(String(), keys, None, records, times, [-1] * len(events), None)
        scope: Any = SimpleNamespace(table=lambda _: SimpleNamespace(raw=self._table, late=0, offered=0))
        return self._step.step(scope, columns)

    def commit(self) -> list[bytes]:
        """Commit. Returns the values of the records whose rows are written."""
        changes = self._table.changes(1 << 20)
        self._store.write(changes, b"")
        self._table.committed()
        return [(row or b"")[10:] for raw, row in changes if raw != NEXT_KEY]

    @property
    def in_memory_since(self) -> int:
        """The number of the first record that is certainly in memory."""
        (recent,) = self._table.notes.values()
        since: int = recent.since
        return since

    def waiting(self) -> Iterator[tuple[str, bool]]:
        """Yield the value of each record that waits, and whether its row says that it has matched."""
        for raw, row in self._table.scan():
            if raw != NEXT_KEY:
                yield row[10:].decode(), times_of(record_of(raw, row))[1]


def pairs_of(events: Sequence[Event]) -> list[tuple[tuple[str, str], int]]:
    """Return the pairs of these events by the definition, with their times, in order."""
    pairs = []
    for number, (side, key, time) in enumerate(events):
        since, until = BOUNDS.matching(side, time)
        there = sorted(
            (other.time, earlier)
            for earlier, other in enumerate(events[:number])
            if (other.side, other.key) == (other_side(side), key) and since <= other.time <= until
        )
        for other_time, earlier in there:
            pair = (str(number), str(earlier)) if side == LEFT else (str(earlier), str(number))
            pairs.append((pair, max(time, other_time)))
    return pairs


@given(
    st.lists(st.tuples(st.lists(EVENTS, min_size=1, max_size=30), st.booleans()), max_size=8),
    st.sampled_from((ON_DISK, FROZEN, IN_A_DICT)),
    st.sampled_from(((), (LEFT,), (LEFT, RIGHT))),
)
def test_all_pairs_are_found_in_order_wherever_their_records_wait(
    batches: list[tuple[list[Event], bool]], memory_bytes: int, unmatched: tuple[Side, ...]
) -> None:
    join = Join(memory_bytes, *unmatched)
    found: list[tuple[Any, int]] = []
    for events, committed in batches:
        made = join.handle(events)
        found.extend(zip(made.values, made.times or (), strict=True))
        if committed:
            join.commit()
    events = [event for each, _ in batches for event in each]
    expected = pairs_of(events)
    assert found == expected
    matched = {value for pair, _ in expected for value in pair}
    assert dict(join.waiting()) == {
        str(number): str(number) in matched and event.side in unmatched for number, event in enumerate(events)
    }


def test_committed_records_leave_a_memory_that_they_exceed() -> None:
    since = []
    for memory_bytes in (ON_DISK, IN_A_DICT):
        join = Join(memory_bytes)
        for _ in range(2):
            join.handle([Event(LEFT, b"a", 1)])
            join.commit()
        since.append(join.in_memory_since)
    assert since == [1, 0]


@pytest.mark.parametrize("memory_bytes", [FROZEN, IN_A_DICT], ids=("frozen", "dict"))
def test_a_record_that_has_matched_is_not_written_for_a_second_match(memory_bytes: int) -> None:
    join = Join(memory_bytes, LEFT)
    join.handle([Event(LEFT, b"a", 1), *(Event(LEFT, b"b", 1) for _ in range(10))])
    join.commit()
    written = []
    for _ in range(2):
        assert len(join.handle([Event(RIGHT, b"a", 1)])) == 1
        written.append(join.commit())
    assert written == [[b"0", b"11"], [b"12"]]


@pytest.mark.parametrize("memory_bytes", [ON_DISK, FROZEN, IN_A_DICT], ids=("disk", "frozen", "dict"))
def test_the_records_of_a_busy_key_come_out_in_the_order_of_time(memory_bytes: int) -> None:
    join = Join(memory_bytes)
    times = (5, 3, 4, 1, 2, 9, 8, 7, 6, 20, 40, 0)
    for time in times:
        join.handle([Event(RIGHT, b"a", time)])
        join.commit()
    join.handle([Event(LEFT, b"b", 5)])
    found = join.handle([Event(LEFT, b"a", 11), Event(LEFT, b"a", 30)])
    assert [times[int(right)] for left, right in found.values if left == "13"] == [*range(1, 10), 20]
    assert [times[int(right)] for left, right in found.values if left == "14"] == [20, 40]


def seconds_of(keys: Sequence[bytes], memory_bytes: int) -> float:
    """Return the CPU seconds of joining a left and a right record with each of these keys, two milliseconds apart."""
    join = Join(memory_bytes, LEFT, RIGHT)
    events = [Event(side, key, 2 * at) for at, key in enumerate(keys) for side in (LEFT, RIGHT)]
    began = process_time()
    for first in range(0, len(events), 1_000):
        join.handle(events[first : first + 1_000])
        if first % 4_000 == 0:
            join.commit()
    return process_time() - began


@pytest.mark.parametrize("memory_bytes", [ON_DISK, FROZEN, ALL_IN_DICTS])
def test_records_of_one_busy_key_cost_little_more_than_those_of_many_keys(memory_bytes: int) -> None:
    count = 10_000  # each matches eight or so; a search through all that wait takes a hundred times as long
    many = seconds_of([b"%d" % number for number in range(count // 8) for _ in range(8)], memory_bytes)
    assert seconds_of([b"busy"] * count, memory_bytes) < 10 * many
