"""The joins that the simulation runs, as flows, and their expected output, computed independently record by record.

An event is a number. A stream is joined with a stream, with a table as of each record's time, or a table with another one
by a foreign key; where a table is made of events, each fifth number deletes its row.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from tests.simulation.oracle import FAR_MS, Wrong
from tests.simulation.shape import JoinShape

from streamtable.base.topics import Stream
from streamtable.codec.plain import Json, Long, String
from streamtable.flow import Flow, KeyedStream
from streamtable.graph.group import EventTime

LEFT, RIGHT = "in0", "in1"
REACH_MS = 20_000
"""The longest time that a record waits."""
_JSON: Any = Json()


def flow_of(name: str, shape: JoinShape) -> Flow:
    """Return the flow of a join; it writes to `<name>-out`."""
    flow = Flow(name, event_time=EventTime(idle_after=None))
    streams = [Stream(topic, String(), Long()) for topic in (LEFT, RIGHT)]
    out: Stream[str, Any] = Stream(f"{name}-out", String(), _JSON)
    before, after, grace = (timedelta(milliseconds=each) for each in (shape.before, shape.after, shape.grace))
    made: KeyedStream[str, Any]
    if not shape.timed:
        rows, others = (
            flow.stream(stream, group=group).map_values(row_of, value=Long()).to_table(table, value=Long())
            for stream, group, table in zip(streams, ("", "right"), ("rows", "others"), strict=True)
        )
        join = rows.join if shape.kind == "key_join" else rows.left_join
        made = join("linked", others, pair, on=shape.foreign_key, value=_JSON).to_stream()
    elif shape.kind.endswith("as_of"):
        left = flow.stream(streams[0])
        table = flow.stream(streams[1]).map_values(row_of, value=Long()).to_table("rows", value=Long())
        made = getattr(left, shape.kind)("both", table, pair, history=before, grace=grace, value=_JSON)
    else:
        left, right = map(flow.stream, streams)
        made = getattr(left, shape.kind)("both", right, pair, within=(before, after), grace=grace)
    made.to(out)
    return flow


def pair(one: int | None, other: int | None) -> list[int | None]:
    """Return the joined value."""
    return [one, other]


def row_of(event: int) -> Any:
    """Return the row of an event, a number; None: it deletes the row."""
    return None if event % 5 == 0 else event


# ---- the expected output ----------------------------------------------------------------------------------------------------


class Made(NamedTuple):
    """A record that a join has written."""

    key: bytes
    left: int | None
    right: int | None
    time_ms: int

    @classmethod
    def read(cls, key: bytes, data: bytes | None, time_ms: int) -> "Made":
        """Return the parts of a record. A deleted row has no values."""
        left, right = (None, None) if data is None else _JSON.decode(data)
        return cls(key, left, right, time_ms)


@dataclass
class Event:
    """A committed event of one side: with the greatest event time of its input so far."""

    key: bytes
    value: int
    time_ms: int
    input_ms: int
    matched: bool = False


class Timed:
    """The expected output of a partition of a join in event time, from its committed inputs.

    Args:
        shape: The join.
    """

    def __init__(self, shape: JoinShape) -> None:
        self._shape = shape
        self._as_of = shape.kind.endswith("as_of")
        # The sides whose unmatched events are emitted when their time is over.
        self._alone = {"join": (), "left_join": (0,), "outer_join": (0, 1)}.get(shape.kind, (0,))
        self._events: tuple[list[Event], list[Event]] = ([], [])  # in the order of their offsets
        self._waiting: tuple[list[Event], list[Event]] = ([], [])  # their time is not over
        self._input_ms = [-1, -1]  # the greatest event time of both inputs
        self._pairs: Counter[Made] = Counter()  # must be written, and were not observed yet
        self._over: Counter[Made] = Counter()  # may be written now, and must be written at rest

    def apply(self, side: int, key: bytes, value: int, time_ms: int) -> bool:
        """Apply a committed event. Returns False for one that becomes a dead letter."""
        if time_ms >= FAR_MS:
            return False
        self._input_ms[side] = max(self._input_ms[side], time_ms)
        event = Event(key, value, time_ms, self._input_ms[side])
        if not self._as_of:
            self._match(side, event)
        self._events[side].append(event)
        if side in self._alone:
            self._waiting[side].append(event)
        return True

    def _match(self, side: int, event: Event) -> None:
        for other in self._events[1 - side]:
            left, right = (event, other) if side == 0 else (other, event)
            if (
                left.key == right.key
                and left.time_ms - self._shape.before <= right.time_ms <= left.time_ms + self._shape.after
                and right.input_ms < self._closes_ms(0, left)
                and left.input_ms < self._closes_ms(1, right)
            ):
                left.matched = right.matched = True
                self._pairs[Made(left.key, left.value, right.value, max(left.time_ms, right.time_ms))] += 1

    def _closes_ms(self, side: int, event: Event) -> int:
        """Return when its window closes: no later event matches it."""
        return event.time_ms + (self._shape.after, self._shape.before)[side] + self._shape.grace + 1

    def take(self, found: Sequence[Made]) -> None:
        """Compare the written records with those that are due, and those that may be written. Raises `Wrong`."""
        self._finish()
        for made in found:
            counted = self._pairs if self._pairs[made] else self._over
            if not counted[made]:
                raise Wrong(f"I2: {made} came out, which it must not, or too early, or not so often")
            counted[made] -= 1
        if missing := +self._pairs:
            raise Wrong(f"I1: both are committed, and their pair has not come out: {_one(missing)}")
        self._pairs.clear()

    def left(self) -> str:
        """Return the records that are missing although the watermark has passed their windows; empty if none is."""
        missing = +self._over
        return f"{missing.total()} must come out, for example {_one(missing)}" if missing else ""

    def _finish(self) -> None:
        """Find the events whose window has closed. The watermark is the time of the input that is behind, as none is ever idle."""
        watermark_ms = min(self._input_ms)
        for side in self._alone:
            over = [each for each in self._waiting[side] if self._ends_ms(side, each) <= watermark_ms]
            self._waiting[side][:] = [
                each for each in self._waiting[side] if self._ends_ms(side, each) > watermark_ms
            ]
            for each in over:
                if self._as_of:
                    row = self._row_of(each)
                    if row is not None or self._shape.kind == "left_join_as_of":
                        self._over[Made(each.key, each.value, row, each.time_ms)] += 1
                elif not each.matched:
                    left, right = (each.value, None) if side == 0 else (None, each.value)
                    self._over[Made(each.key, left, right, each.time_ms)] += 1

    def _ends_ms(self, side: int, event: Event) -> int:
        return event.time_ms + self._shape.grace + 1 if self._as_of else self._closes_ms(side, event)

    def _row_of(self, event: Event) -> int | None:
        """Return the row that the table had at the time of an event; None if there was none, or it is too long ago."""
        if event.input_ms >= event.time_ms + max(self._shape.before, self._shape.grace + 1):
            return None
        # A late change applies from the earliest time whose records still wait.
        known = [
            (each.time_ms, number, row_of(each.value))
            for number, each in enumerate(self._events[1])
            if each.key == event.key and max(each.time_ms, each.input_ms - self._shape.grace) <= event.time_ms
        ]
        return max(known)[2] if known else None


class Keyed:
    """The expected output of a foreign-key join, in all partitions.

    Args:
        shape: The join.
        sent: The sent events of both inputs, by key, in order; each event of a table sets a row.
    """

    def __init__(self, shape: JoinShape, sent: Mapping[str, Mapping[bytes, Sequence[int]]]) -> None:
        self._shape = shape
        self._sent = sent
        self._last: dict[bytes, Made] = {}
        self._at: dict[tuple[bytes, ...], int] = defaultdict(int)  # the last observed version of a row

    def take(self, found: Sequence[Made]) -> None:
        """Check the written records: each pair is of rows that refer to each other, and no row goes back to an older version. Raises `Wrong`."""
        for made in found:
            self._last[made.key] = made
            if made.left is None:
                continue
            self._follow((made.key,), LEFT, made.key, made.left)
            named = self._shape.foreign_key(made.left)
            if made.right is not None and named is None:
                raise Wrong(f"I2: {made} has a right row, and its left one names none")
            if made.right is not None and named is not None:
                self._follow((made.key, named.encode()), RIGHT, named.encode(), made.right)

    def _follow(self, what: tuple[bytes, ...], topic: str, key: bytes, value: int) -> None:
        versions = self._sent[topic].get(key, ())
        at = next((n for n in range(self._at[what], len(versions)) if versions[n] == value), None)
        if at is None:
            past = " any more" if value in versions else ""
            raise Wrong(f"I2: {value} of {what} came out, which {key!r} of {topic} is not{past}")
        self._at[what] = at

    def left(self) -> str:
        """Return how the written rows differ from the join of both tables as they are; empty if they do not."""
        rows, others = (
            {
                key: row
                for key, versions in self._sent[topic].items()
                if (row := row_of(versions[-1])) is not None
            }
            for topic in (LEFT, RIGHT)
        )
        expected = {}
        for key, row in rows.items():
            named = self._shape.foreign_key(row)
            other = None if named is None else others.get(named.encode())
            if other is not None or self._shape.kind == "key_left_join":
                expected[key] = (row, other)
        found = {key: (made.left, made.right) for key, made in self._last.items() if made.left is not None}
        wrong = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
        if not wrong:
            return ""
        return f"{len(wrong)} joined rows are wrong: {wrong[0]!r} is {found.get(wrong[0])}, must be {expected.get(wrong[0])}"


def _one(counted: Counter[Made]) -> Made:
    return min(counted, key=str)
