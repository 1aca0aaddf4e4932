"""Runs the programs of `programs` as flows, on the Tester."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from tests.interop.flows.programs import Program, Step

from streamtable import Group, Long, Stream, String, Table
from streamtable.flow import Flow, Hopping, KeyedStream, KeyedTable, Session, Sliding, Tumbling
from streamtable.graph.group import EventTime
from streamtable_testing.tester import Tester

PRIME = 1_000_003
_TOPICS = {name: Stream(name, String(), Long()) for name in "ab"}
_NEVER_IDLE = EventTime(idle_after=None)
Output = list[Any]
"""A record: [the bytes of the key, in hex; the value; the timestamp]."""


def run(program: Program) -> list[list[Output]]:
    """Run a program, with a commit for each input. Returns the records that each input has led to."""
    with Tester() as tester:
        _start(tester, program)
        made: list[list[Output]] = []
        number = 0
        for topic, key, value, time in program["inputs"]:
            _append(tester, topic, key, value, time)
            tester.work()
            written = _written(tester)
            made.append(written[number:])
            number = len(written)
        _nothing_failed(tester)
        return made


def run_at_once(program: Program) -> list[Output]:
    """Run a program with all inputs in one batch. Returns the records that it has written."""
    with Tester(work_on_request=True) as tester:
        _start(tester, program)
        for topic, key, value, time in program["inputs"]:
            _append(tester, topic, key, value, time)
        tester.work()
        _nothing_failed(tester)
        return _written(tester)


def run_until_idle(program: Program) -> list[Output]:
    """Run a program, and let time pass until its inputs count as idle. Returns the records that it has written."""
    with Tester() as tester:
        _start(tester, program, EventTime(idle_after=timedelta(seconds=1)))
        for topic, key, value, time in program["inputs"]:
            _append(tester, topic, key, value, time)
        tester.advance(5)
        return _written(tester)


def dead_letters(program: Program) -> list[str]:
    """Run a program. Returns the name of the group for each dead letter."""
    with Tester() as tester:
        groups = _start(tester, program)
        for topic, key, value, time in program["inputs"]:
            _append(tester, topic, key, value, time)
        return [group.name for group in groups for _ in tester.dead_letters(group)]


def _start(
    tester: Tester, program: Program, event_time: EventTime = _NEVER_IDLE
) -> Sequence[Group[Any, Any]]:
    flow = _Builder(program, event_time).flow
    tester.create(*_TOPICS.values())
    tester.run(flow)
    tester.work()
    return flow.groups


def _append(tester: Tester, topic: str, key: str, value: int | None, time: int) -> None:
    data = None if value is None else Long().encode(value)
    tester.emit_raw(topic, String().encode(key), data, timestamp_ms=time)


def _written(tester: Tester) -> list[Output]:
    found = tester.kafka.records("out")
    return [
        [
            (record.key() or b"").hex(),
            None if (data := record.value()) is None else Long().decode(data),
            record.timestamp()[1],
        ]
        for _, record in found
    ]


def _nothing_failed(tester: Tester) -> None:
    letters = [
        name for name in tester.kafka.topics if name.endswith("-dead-letters") and tester.kafka.records(name)
    ]
    assert not letters, f"records have failed: {letters}"


class _Builder:
    """Builds the flow of a program.

    Args:
        program: The program.
        event_time: The event time settings of the flow.
    """

    def __init__(self, program: Program, event_time: EventTime) -> None:
        self.flow = Flow("f", event_time=event_time)
        self._names = 0
        a: KeyedStream[str, Any] | KeyedTable[str, Any]
        if program["kind"] == "table":
            a = self.flow.table(Table("a", String(), Long()))
        else:
            a = self.flow.stream(_TOPICS["a"])
        made = self._follow(a, program["steps"])
        stream = made.to_stream() if isinstance(made, KeyedTable) else made
        key: Any = stream._key or String()
        stream.to(Stream("out", key, Long()))

    def _name(self) -> str:
        self._names += 1
        return f"step-{self._names}"

    def _follow(self, made: Any, steps: Sequence[Step]) -> Any:
        for step in steps:
            made = self._of_table(made, step) if isinstance(made, KeyedTable) else self._of_stream(made, step)
        return made

    def _of_stream(self, stream: KeyedStream[Any, Any], step: Step) -> Any:  # noqa: PLR0911 - one for each operator
        match step["op"]:
            case "filter":
                return stream.filter(test(step["by"]))
            case "map_values":
                return stream.map_values(change(step["by"]), value=Long())
            case "flat_map_values":
                return stream.flat_map_values(copies(step["by"]), value=Long())
            case "map":
                new_key, new_value = key(step["key"]), change(step["by"])
                return stream.map(lambda _, value: (new_key(value), new_value(value)), value=Long())
            case "key_by":
                return stream.key_by(self._name(), key(step["by"]), key=String(), value=Long())
            case "repartition":
                return stream.repartition(self._name(), value=Long())
            case "merge":
                other = self.flow.stream(_TOPICS[step["with"]])
                return stream.merge(self._follow(other, step["steps"]))
            case "split":
                then, other = stream.split(test(step["by"]))
                return self._follow(then, step["then"]).merge(self._follow(other, step["else"]))
            case "to_table":
                return stream.to_table(self._name(), value=Long())
            case "window":
                table = self._into(
                    stream.group_by_key().window(window(step)),
                    step["into"],
                    sessions=step["kind"] == "session",
                )
                return table.final() if step["emit"] == "final" else table.changes()
            case _:
                return self._into(stream.group_by_key(), step)

    def _of_table(self, table: KeyedTable[str, Any], step: Step) -> Any:
        match step["op"]:
            case "filter":
                return table.filter(test(step["by"]))
            case "map_values":
                return table.map_values(change(step["by"]), value=Long())
            case "to_stream":
                return table.to_stream()
            case _:
                grouped = table.group_by(self._name(), key(step["by"]), key=String(), value=Long())
                name, into = self._name(), step["into"]
                if into["op"] == "count":
                    return grouped.count(name)
                if into["op"] == "sum":
                    return grouped.sum(name, lambda value: value)
                return grouped.aggregate(
                    name,
                    lambda: into["initial"],
                    lambda row, value: row + 10_000 + value,
                    lambda row, value: row + 1 - value,
                    value=Long(),
                )

    def _into(self, grouped: Any, step: Step, *, sessions: bool = False) -> Any:
        name, combine = self._name(), combined(step)
        match step["op"]:
            case "count":
                return grouped.count(name)
            case "reduce":
                return grouped.reduce(name, combine, value=Long())
            case "aggregate":
                merge = [lambda one, two: (one * 7 + two) % PRIME] if sessions else []
                return grouped.aggregate(name, lambda: step["initial"], combine, *merge, value=Long())
            case operator:
                return getattr(grouped, operator)(name, lambda value: value, value=Long())


def window(step: Step) -> Any:
    """Return the windows of a step."""

    def ms(name: str) -> timedelta:
        return timedelta(milliseconds=step[name])

    match step["kind"]:
        case "tumbling":
            return Tumbling(ms("size"), grace=ms("grace"))
        case "hopping":
            return Hopping(ms("size"), ms("every"), grace=ms("grace"))
        case "sliding":
            return Sliding(ms("size"), grace=ms("grace"))
        case _:
            return Session(ms("gap"), grace=ms("grace"))


# ---- functions ----------------------------------------------------------------------------------------------------------


def test(by: Step) -> Callable[[int | None], bool]:
    """Return a predicate."""

    def predicate(value: int | None) -> bool:
        if value is None:
            return bool(by.get("none"))
        return bool(value < by["n"] if by["fn"] == "below" else value % by["n"] != by["r"])

    return predicate


def change(by: Step) -> Callable[[int | None], int | None]:
    """Return a function of values."""

    def function(value: int | None) -> int | None:
        if value is None:
            return None
        if by["fn"] == "add":
            return value + int(by["n"])
        if by["fn"] == "times":
            return value * int(by["n"]) % PRIME
        return None if value % by["n"] == by["r"] else value

    return function


def copies(by: Step) -> Callable[[int | None], list[int]]:
    """Return a function that makes several values of one."""
    return lambda value: [] if value is None else [value + each for each in range(value % by["n"])]


def key(by: Step) -> Callable[[int | None], str]:
    """Return a function that makes a key of a value."""
    return lambda value: "none" if value is None else f"{by['p']}{value % by['n']}"


def combined(step: Step) -> Callable[[int, int], int | None]:
    """Return the function of a reduce or an aggregate."""

    def function(row: int, value: int) -> int | None:
        if step.get("fn") == "last":
            return value
        made = (row * 31 + value) % PRIME
        return None if step.get("fn") == "hash_drop" and made % 3 == 0 else made

    return function
