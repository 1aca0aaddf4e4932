"""A flow over history that is there at the start gives the result of a batch over the same records.

The flows are drawn: repartitions between any streams, beside each other or not, chains of them, joins, and windows. All
records are in the topics before the first processor starts. The graces are as large as the disorder of the records, so no
record is late, and the batch needs no notion of time but the records' own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable import EventTime, Json, Stream, String
from streamtable.base.ports import Codec
from streamtable.flow import Flow, KeyedStream, Session, Tumbling
from streamtable_testing.tester import Tester

T = 1_699_000_000_000  # twelve days before the clock of the Tester begins
DAY = 86_400_000
SPAN = 60_000
KEYS = "abc"
JSON: Codec[Any] = Json()
PRIME = 10_007
RECORDS_MAX = 300

Record = tuple[str, int, int]
"""The key, the number and the event time."""


@dataclass(frozen=True)
class Draw:
    """A step of a drawn flow: its kind, two streams to choose by these numbers, and another number."""

    kind: str
    one: int
    other: int
    number: int
    beside: bool


@dataclass(frozen=True)
class History:
    """The records in the topics, and the order of reading them."""

    events: Sequence[tuple[int, str, int, int, int]]  # the source, the key, the number, the time, the delay
    names: Sequence[str]
    own_group: Sequence[bool]
    partitions: int
    partitions_of_others: int
    poll_records: int
    members: int
    silence: bool


@dataclass(frozen=True)
class Part:
    """A stream of the flow, the group it belongs to, its records in the batch, and by how much they may be late."""

    stream: KeyedStream[str, Any]
    group: str
    records: tuple[Record, ...]
    slack: int


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class Drawn:
    """A flow, built step by step together with what a batch makes of the same records."""

    def __init__(self, flow: Flow, parts: list[Part]) -> None:
        self.flow = flow
        self.parts = parts
        self.steps = 0

    def add(self, draw: Draw) -> None:
        one, other = (self.parts[each % len(self.parts)] for each in (draw.one, draw.other))
        self.steps += 1
        made: Part | None = getattr(self, draw.kind)(one, other, draw)
        if made is not None and len(made.records) <= RECORDS_MAX:
            self.parts.append(made)

    def name(self, kind: str) -> str:
        return f"{kind}{self.steps}"

    def key_by(self, one: Part, other: Part, draw: Draw) -> Part:
        name, beside = self.name("k"), other if draw.beside else None
        stream = one.stream.key_by(
            name, key_of, key=String(), value=JSON, beside=None if beside is None else beside.stream
        )
        records = tuple((key_of({"n": n}), n, at) for _, n, at in one.records)
        return Part(stream, beside.group if beside else f"f-{name}", records, one.slack)

    def repartition(self, one: Part, other: Part, draw: Draw) -> Part:
        name, beside = self.name("r"), other if draw.beside else None
        stream = one.stream.repartition(
            name, key=String(), value=JSON, beside=None if beside is None else beside.stream
        )
        return replace(one, stream=stream, group=beside.group if beside else f"f-{name}")

    def filter(self, one: Part, _: Part, draw: Draw) -> Part:
        stream = one.stream.filter(lambda value: value["n"] % 3 != draw.number % 3)
        records = tuple(each for each in one.records if each[1] % 3 != draw.number % 3)
        return replace(one, stream=stream, records=records)

    def merge(self, one: Part, other: Part, _: Draw) -> Part | None:
        if one.group != other.group or one is other:
            return None
        stream = one.stream.merge(other.stream)
        return Part(stream, one.group, one.records + other.records, max(one.slack, other.slack))

    def join(self, one: Part, other: Part, draw: Draw) -> Part:
        if one.group != other.group or one is other:
            move = self.key_by if draw.number % 2 else self.repartition
            other = move(other, one, replace(draw, beside=True))
        operator = ("join", "left_join", "outer_join")[draw.number % 3]
        before, after = draw.number % 7 * 500, draw.number % 5 * 1_000
        grace = max(one.slack, other.slack) + 1
        method: Callable[..., KeyedStream[str, Any]] = getattr(one.stream, operator)
        stream = method(
            self.name("j"), other.stream, joined, within=(ms(before), ms(after)), grace=ms(grace), value=JSON
        )
        made: list[Record] = []
        met: set[int] = set()
        for key, n, at in one.records:
            pairs = [
                (number, each)
                for number, each in enumerate(other.records)
                if each[0] == key and at - before <= each[2] <= at + after
            ]
            met |= {number for number, _ in pairs}
            made += [(key, mixed(n, each[1]), max(at, each[2])) for _, each in pairs]
            if not pairs and operator != "join":
                made.append((key, mixed(n, None), at))
        if operator == "outer_join":
            made += [
                (key, mixed(None, n), at)
                for number, (key, n, at) in enumerate(other.records)
                if number not in met
            ]
        return Part(
            stream, one.group, tuple(made), grace - 1
        )  # what comes out later than its time is not late

    def window(self, one: Part, other: Part, draw: Draw) -> Part:
        size, grace = 5_000 + draw.number % 4 * 5_000, one.slack + 1
        table = one.stream.group_by_key().window(Tumbling(ms(size), grace=ms(grace)))
        counts: Counter[tuple[str, int]] = Counter()
        for key, n, at in one.records:
            counts[key, at // size * size] += n
        records = tuple((key, n % PRIME, start + size - 1) for (key, start), n in counts.items())
        return self._final(table, other, draw, one.group, records)

    def session(self, one: Part, other: Part, draw: Draw) -> Part:
        gap, grace = 1_000 + draw.number % 4 * 2_000, one.slack + 1
        table = one.stream.group_by_key().window(Session(ms(gap), grace=ms(grace)))
        records: list[Record] = []
        for key in {key for key, _, _ in one.records}:
            open_: list[Record] = []
            for record in sorted((each for each in one.records if each[0] == key), key=lambda each: each[2]):
                if open_ and record[2] - open_[-1][2] > gap:
                    records.append(total(open_))
                    open_ = []
                open_.append(record)
            records.append(total(open_))
        return self._final(table, other, draw, one.group, tuple(records))

    def _final(self, windows: Any, other: Part, draw: Draw, group: str, records: tuple[Record, ...]) -> Part:
        name = self.name("w")
        closed = windows.sum(name, lambda value: value["n"]).final()
        stream = closed.map(lambda key, n: (key.key, {"n": n % PRIME}), value=JSON)
        again, beside = f"again-{name}", other if draw.beside else None
        moved = stream.repartition(again, key=String(), beside=None if beside is None else beside.stream)
        return Part(moved, beside.group if beside else f"f-{again}", records, 0)


def key_of(value: dict[str, int]) -> str:
    return KEYS[value["n"] % len(KEYS)]


def mixed(left: int | None, right: int | None) -> int:
    return (31 * (7 if left is None else left) + (11 if right is None else right)) % PRIME


def joined(left: Any, right: Any) -> dict[str, int]:
    return {"n": mixed(left and left["n"], right and right["n"])}


def total(session: Sequence[Record]) -> Record:
    return session[0][0], sum(n for _, n, _ in session) % PRIME, max(at for *_, at in session)


def built(history: History, draws: Iterable[Draw]) -> Drawn:
    idle_after = timedelta(seconds=20) if history.silence else None
    flow = Flow("f", event_time=EventTime(idle_after=idle_after))
    slack = max((delay for *_, delay in history.events), default=0)
    parts = []
    for number, name in enumerate(history.names):
        group = f"own-{number}" if history.own_group[number] else ""
        read = flow.stream(Stream(name, String(), JSON), time=lambda value: value["at"], group=group)
        stream = read.filter(lambda value: value["n"] is not None)
        records = tuple((key, n, T + at) for source, key, n, at, _ in history.events if source == number)
        parts.append(Part(stream, f"f-{group}" if group else "f", records, slack))
    drawn = Drawn(flow, parts)
    for draw in draws:
        drawn.add(draw)
    return drawn


def check(history: History, draws: Sequence[Draw]) -> None:
    drawn = built(history, draws)
    outs = [Stream(f"out-{number}", String(), JSON) for number in range(len(drawn.parts))]
    for part, out in zip(drawn.parts, outs, strict=True):
        part.stream.to(out)
    tester = Tester(partitions=history.partitions, work_on_request=True, poll_records=history.poll_records)
    with tester:
        for number, name in enumerate(history.names):
            source = Stream(name, String(), JSON)
            count = history.partitions_of_others if history.own_group[number] else history.partitions
            tester.create(source, partitions=count)
            events = [each for each in history.events if each[0] == number]
            for _, key, n, at, _ in sorted(events, key=lambda each: each[3] + each[4]):
                tester.emit(source, key, {"n": n, "at": T + at})
            if not history.silence:  # an event in each partition that closes all windows
                for partition in range(count):
                    data = JSON.encode({"n": None, "at": T + DAY})
                    tester.emit_raw(name, b"end", data, partition=partition)
        tester.run(drawn.flow, members=history.members)
        tester.work()
        if history.silence:
            tester.advance(60 * (2 + len(draws)))
        for part, out in zip(drawn.parts, outs, strict=True):
            found = [
                (each.key, each.value["n"], each.timestamp_ms) for each in tester.records(out) if each.value
            ]
            assert sorted(found, key=str) == sorted(part.records, key=str), out.name
        assert not any(tester.dead_letters(group) for group in drawn.flow.groups)


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(KEYS),
        st.integers(0, 50),
        st.integers(0, SPAN // 500).map(lambda step: step * 500),
        st.sampled_from([0, 0, 0, 700, 2_000]),
    ),
    min_size=1,
    max_size=25,
)
HISTORIES = st.builds(
    History,
    events=EVENTS,
    names=st.permutations(["a", "g", "z"]),
    own_group=st.tuples(*[st.booleans()] * 3),
    partitions=st.integers(1, 3),
    partitions_of_others=st.integers(1, 3),
    poll_records=st.sampled_from([1, 3, 10_000]),
    members=st.integers(1, 2),
    silence=st.booleans(),
)
KINDS = ["key_by", "repartition", "filter", "merge", "join", "join", "window", "session"]
DRAWS = st.lists(
    st.builds(
        Draw,
        kind=st.sampled_from(KINDS),
        one=st.integers(0, 9),
        other=st.integers(0, 9),
        number=st.integers(0, 60),
        beside=st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40)
@given(history=HISTORIES, draws=DRAWS)
def test_a_flow_over_history_gives_the_result_of_a_batch(history: History, draws: list[Draw]) -> None:
    check(history, draws)


@pytest.mark.faults_long("1,000 flows")
@settings(max_examples=1_000)
@given(history=HISTORIES, draws=DRAWS)
def test_any_flow_over_history_gives_the_result_of_a_batch(history: History, draws: list[Draw]) -> None:
    check(history, draws)
