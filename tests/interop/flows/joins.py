"""Random joins with their inputs, as flows on the Tester; the Java program runs the same in Kafka Streams.

A program has a `join` (`of`, `op`, and for streams `before`, `after`, `grace`) and `inputs`, [topic, key, value, time], of the
topics `a` (left) and `b` (right). The joined value is 1,000 times the left one and the right one, 900 standing for none.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any

from streamtable import Long, Stream, String, Table
from streamtable.flow import Flow, KeyedStream
from streamtable.graph.group import EventTime
from streamtable_testing.tester import Tester

Program = dict[str, Any]
Output = list[Any]
"""A record: [the bytes of the key, in hex; the value; the timestamp]."""

KINDS = [
    *(("streams", op) for op in ("join", "left_join", "outer_join")),
    *(("tables", op) for op in ("join", "left_join", "outer_join")),
    *((of, op) for of in ("stream_table", "as_of", "foreign_key") for op in ("join", "left_join")),
]
SEEDS = range(3 * len(KINDS))
END_MS = 1_000_000
_TOPICS = {name: Stream(name, String(), Long()) for name in "ab"}


def random_join(seed: int) -> Program:
    """Return the program of a seed; it is always the same."""
    random, (of, op) = Random(seed), KINDS[seed % len(KINDS)]
    join: dict[str, Any] = {"of": of, "op": op}
    disorder = 0
    if of == "streams":
        # Within the grace all pairs count, here and there.
        before, after = random.choice([0, 10, 25]), random.choice([0, 10, 25])
        disorder = random.choice([0, 20, 60])
        if op != "join":
            # Kafka Streams would write records alone that are matched later: see JOINS of `differences`.
            disorder = min(disorder, before, after)
        join |= {"before": before, "after": after, "grace": disorder + 200}
    inputs: list[list[Any]] = []
    now, keys = 1_000, "wxyz"[: random.randint(1, 4)]
    deleted = {"tables": "ab", "foreign_key": "ab", "stream_table": "b", "as_of": "b"}.get(of, "")
    for _ in range(random.randint(12, 30)):
        now += random.choice([1, 3, 5, 10, 15]) if of == "as_of" else random.choice([0, 1, 3, 5, 10, 15, 60])
        topic = random.choice("ab")
        value = None if topic in deleted and random.random() < 0.25 else random.randint(0, 30)
        inputs.append([topic, random.choice(keys), value, max(1, now - random.randint(0, disorder))])
    if of in {"streams", "as_of"}:
        inputs += [["a", "end of a", 1, END_MS], ["b", "end of b", 1, END_MS]]
        inputs += [["a", "end of a", 1, END_MS + 1], ["b", "end of b", 1, END_MS + 1]]
    return {"name": f"{of}-{op}-{seed}", "kind": "join", "join": join, "inputs": inputs}


# ---- ours -----------------------------------------------------------------------------------------------------------------


def run(program: Program) -> list[list[Output]]:
    """Run a program, with a commit for each input. Returns the records that each input has led to."""
    with Tester() as tester:
        _start(tester, program, EventTime(idle_after=None))
        made: list[list[Output]] = []
        number = 0
        for each in program["inputs"]:
            _append(tester, *each)
            tester.work()
            written = _written(tester)
            made.append(written[number:])
            number = len(written)
        return made


def run_until_idle(program: Program) -> list[Output]:
    """Run a program, and let time pass until its inputs count as idle. Returns the records that it has written."""
    with Tester() as tester:
        _start(tester, program, EventTime(idle_after=timedelta(seconds=1)))
        for each in program["inputs"]:
            _append(tester, *each)
        tester.advance(5)
        return _written(tester)


def _start(tester: Tester, program: Program, event_time: EventTime) -> None:
    tester.create(*_TOPICS.values())
    tester.run(flow_of(program["join"], event_time))
    tester.work()


def _append(tester: Tester, topic: str, key: str, value: int | None, time: int) -> None:
    data = None if value is None else Long().encode(value)
    tester.emit_raw(topic, String().encode(key), data, timestamp_ms=time)


def _written(tester: Tester) -> list[Output]:
    return [
        [
            (record.key() or b"").hex(),
            None if (data := record.value()) is None else Long().decode(data),
            record.timestamp()[1],
        ]
        for _, record in tester.kafka.records("out")
    ]


def flow_of(join: dict[str, Any], event_time: EventTime) -> Flow:
    """Return the flow of a join."""
    flow = Flow("f", event_time=event_time)
    of, op = join["of"], join["op"]
    made: KeyedStream[str, Any]
    if of == "streams":
        method: Callable[..., Any] = getattr(flow.stream(_TOPICS["a"]), op)
        within = timedelta(milliseconds=join["before"]), timedelta(milliseconds=join["after"])
        grace = timedelta(milliseconds=join["grace"])
        made = method("j", flow.stream(_TOPICS["b"]), joined, within=within, grace=grace)
    elif of in {"stream_table", "as_of"}:
        table = flow.table(Table("b", String(), Long()))
        left = flow.stream(_TOPICS["a"])
        if of == "stream_table":
            made = (left.join_table if op == "join" else left.left_join_table)(table, joined)
        else:
            hour, none = timedelta(hours=1), timedelta(0)
            as_of = left.join_as_of if op == "join" else left.left_join_as_of
            made = as_of("j", table, joined, history=hour, grace=none)
    else:
        rows = [flow.table(Table(name, String(), Long())) for name in "ab"]
        method = getattr(rows[0], op)
        on = {"on": lambda value: "wxyz"[value % 4]} if of == "foreign_key" else {}
        made = method("j", rows[1], joined, **on, value=Long()).to_stream()
    made.to(Stream("out", String(), Long()))
    return flow


def joined(one: int | None, other: int | None) -> int:
    """Return the joined value."""
    return (900 if one is None else one) * 1_000 + (900 if other is None else other)


# ---- compared -------------------------------------------------------------------------------------------------------------


def differences(
    program: Program, ours: Sequence[Sequence[Output]], theirs: Sequence[Sequence[Output]]
) -> list[str]:
    """Return how the two differ: input by input, but for what comes out when a time is over, as this is not in one order."""
    of = program["join"]["of"]
    if of in {"streams", "as_of"}:
        one, other = (
            Counter(tuple(each) for step in made for each in step if each[2] < END_MS)
            for made in (ours, theirs)
        )
        return [] if one == other else [f"only we write {one - other}, only Kafka Streams {other - one}"]
    seen = (_last(ours), _last(theirs)) if of != "stream_table" else (ours, theirs)
    return [
        f"input {number}, {program['inputs'][number]}: we write {one}, Kafka Streams {other}"
        for number, (one, other) in enumerate(zip(*seen, strict=True))
        if one != other
    ]


def _last(made: Sequence[Sequence[Output]]) -> list[dict[str, int | None]]:
    """Return what each input has changed: the row of each key, None for one that is gone."""
    rows: dict[str, int] = {}
    changes = []
    for step in made:
        before = dict(rows)
        for key, value, _ in step:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        keys = sorted(before.keys() | rows.keys())
        changes.append({key: rows.get(key) for key in keys if rows.get(key) != before.get(key)})
    return changes
