"""`streamtable visit`: a run is started once, watched to its end, and reported if it cannot finish."""

import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, until

from streamtable import OnError
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater
from streamtable.graph.group import Visit
from streamtable.graph.visiting import VisitProgress
from streamtable_cli.output import note


@pytest.fixture
def visits(world: World) -> str:
    """The visits topic of a group with two partitions and no members."""
    topic = world.topics.create("g-visits", partitions=2)
    admin = world.kafka.admin()

    def led() -> bool:
        try:
            admin.watermarks([TopicPartition(topic, number) for number in range(2)])
        except RetryLater:
            return False
        return True

    try:
        until(led, "the partitions have a leader that knows it")  # other brokers learn of it a moment earlier
    finally:
        admin.close()
    return topic


def records(world: World, topic: str) -> dict[int, list[VisitProgress]]:
    """Return all committed records, by partition."""
    admin = world.kafka.admin()
    marks = admin.watermarks([TopicPartition(topic, number) for number in range(2)])
    admin.close()
    reader = world.kafka.table_reader("test")
    reader.assign({place: mark.low for place, mark in marks.items()})
    found: dict[int, list[VisitProgress]] = {0: [], 1: []}
    while any(reader.position(place) < mark.high for place, mark in marks.items()):
        for batch in reader.poll(1000, 0.1):
            found[batch.partition] += [state for v in batch.values if (state := VisitProgress.decode(v))]
    reader.close()
    return found


def write(world: World, topic: str, partition: int, state: VisitProgress, visit: bytes = b"age") -> None:
    world.send(topic, (visit, state.encode()), partition=partition)


class Engine(threading.Thread):
    """Write the records of processors: they start each first record, and are done after 1,500 rows."""

    def __init__(self, world: World, topic: str) -> None:
        super().__init__()
        self.world, self.topic = world, topic

    def run(self) -> None:
        until(lambda: all(records(self.world, self.topic).values()), "the visit is started")
        for partition, (first, *_) in records(self.world, self.topic).items():
            further = first.went_on(b"k", 1000, done=False)
            write(self.world, self.topic, partition, further)
            write(self.world, self.topic, partition, VisitProgress("another", visited=9, done=True))
            write(self.world, self.topic, partition, further.went_on(b"z", 500 + partition, done=True))


def test_a_visit_is_followed_until_all_partitions_are_done(cli: Cli, world: World, visits: str) -> None:
    engine = Engine(world, visits)
    engine.start()
    ran = cli("visit", world.topics.name("g"), "age", "--argument", "7 d", "--json").good()
    engine.join()
    assert ran.json["visit"] == "age"
    assert ran.json["argument"] == "7 d"
    assert ran.json["visited"] == 3001
    assert ran.json["partitions"] == [
        {"partition": 0, "visited": 1500, "done": True, "cursor": b"z".hex()},
        {"partition": 1, "visited": 1501, "done": True, "cursor": b"z".hex()},
    ]
    assert "3001 rows visited" in ran.err
    # When it is done, a repeated command reports the same and starts nothing.
    again = cli("visit", world.topics.name("g"), "age", "--argument", "7 d", "--run", ran.json["run"]).good()
    assert "was started before" in again.err
    assert "1501" in again.out
    assert [len(each) for each in records(world, visits).values()] == [4, 4]


def age(ctx: Any, argument: str) -> None:
    if argument == "fail":
        ctx.fail("as told")
    ctx.set(ctx.value - int(argument))


def test_processors_visit_every_row(cli: Cli, world: World) -> None:
    group = world.group(Visit("age", age, on_error=OnError.DEAD_LETTER))
    world.send(world.topics.name("in"), *((b"k%04d" % n, NUMBER.encode(100)) for n in range(2500)))
    with world.running(group):
        until(lambda: len(cli("table", "scan", group.table.name, "--json").lines) == 2500, "all is counted")
        ran = cli("visit", group.name, "age", "--argument", "7", "--json").good()
        assert ran.json["visited"] == 2500
        assert all(part["visited"] > 1000 for part in ran.json["partitions"])
        lines = cli("table", "scan", group.table.name, "--json").lines
        assert {line["value"]["value"] for line in lines} == {93}
        # A failure of its handler ends the visit and the command.
        ran = cli("visit", group.name, "age", "--argument", "fail")
        assert ran.code == 1
        assert "in 2 partitions (0, 1): its handler failed" in ran.err
        ran = cli("visit", group.name, "unknown")
        assert ran.code == 1
        assert "has no visit 'unknown'" in ran.err


def test_a_run_is_started_once(cli: Cli, world: World, visits: str) -> None:
    group = world.topics.name("g")
    first = cli.process("visit", group, "age", "--run", "r1")
    second = cli.process("visit", group, "age", "--run", "r1")
    until(lambda: all(records(world, visits).values()), "it is started")
    for partition in range(2):
        write(world, visits, partition, VisitProgress("r1", visited=1, done=True))
    ends = [process.communicate(timeout=60) for process in (first, second)]
    # Of two concurrent starts, one may report that it was fenced, or that the broker, which has just ended its transaction
    # for the other one, cannot commit it; a repeated command reports the run.
    said = "".join(err for _, err in ends)
    assert sum(map(said.count, ("started", "was refused", "cannot be committed"))) >= 2
    cli("visit", group, "age", "--run", "r1").good()
    assert {
        partition: [state for state in states if not state.done]
        for partition, states in records(world, visits).items()
    } == {0: [VisitProgress("r1")], 1: [VisitProgress("r1")]}


def test_the_id_of_a_run_belongs_to_its_visit_and_argument(cli: Cli, world: World, visits: str) -> None:
    group = world.topics.name("g")
    for partition in range(2):
        write(world, visits, partition, VisitProgress("r1", "x", visited=1, done=True))
    for arguments in (("drop", "--argument", "x"), ("age",)):
        ran = cli("visit", group, *arguments, "--run", "r1")
        assert ran.code == 2
        assert "run 'r1' is of visit 'age' with the argument 'x'" in ran.err
    cli("visit", group, "age", "--argument", "x", "--run", "r1").good()


def test_a_run_whose_records_have_expired_in_some_partitions_is_not_reported_as_done(
    cli: Cli, world: World, visits: str
) -> None:
    write(world, visits, 0, VisitProgress("r1", visited=3, done=True))
    ran = cli("visit", world.topics.name("g"), "age", "--run", "r1")
    assert ran.code == 2
    assert "no record of run 'r1' in partitions 1 any more" in " ".join(ran.err.split())
    assert not records(world, visits)[1]


def test_after_ctrl_c_the_visit_continues_and_the_command_to_watch_it_is_shown(
    cli: Cli, world: World, visits: str
) -> None:
    group = world.topics.name("g")
    process = cli.process("visit", group, "age", "--run", "run 1", "--argument", "it's")
    assert process.stderr is not None
    shown = ""
    while "no member of group" not in shown:
        line = process.stderr.readline()
        assert line, shown
        shown += line
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 130, rest
    assert f"no member of group '{group}' is alive" in rest
    advised = next(line for line in rest.splitlines() if "streamtable visit" in line)
    assert shlex.split(advised)[1:] == ["visit", group, "age", "--run", "run 1", "--argument", "it's"]
    assert [len(each) for each in records(world, visits).values()] == [1, 1]


def test_ctrl_c_while_the_reason_is_printed_prints_it_again(
    cli: Cli, world: World, visits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note_and_interrupt(text: str) -> None:
        note(text)
        if text.startswith("no member of group") and not interrupted:
            interrupted.append(text)
            raise KeyboardInterrupt

    interrupted: list[str] = []
    monkeypatch.setattr("streamtable_cli.visit.note", note_and_interrupt)
    ran = cli("visit", world.topics.name("g"), "age", "--run", "r1")
    assert ran.code == 130
    assert ran.err.count(interrupted[0]) == 2


def test_a_partition_that_was_given_up_ends_the_command_with_an_error(
    cli: Cli, world: World, visits: str
) -> None:
    """The group has advanced past the record without progress, as it does when the handler is skipped."""
    group = world.topics.name("g")
    write(world, visits, 0, VisitProgress("r1", visited=1, done=True))
    write(world, visits, 1, VisitProgress("r1"))
    world.commit(group, {TopicPartition(visits, 0): 1, TopicPartition(visits, 1): 1})
    ran = cli("visit", group, "age", "--run", "r1", "--json")
    assert ran.code == 1
    assert "in 1 partition (1)" in ran.err
    assert [each["done"] for each in ran.json["partitions"]] == [True, False]


@pytest.fixture
def module(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = world.topics.name("g")
    (tmp_path / "visited_shop.py").write_text(
        "from streamtable import *\nfrom streamtable.graph.group import Visit\n"
        "IN = Stream('in', String(), Long())\n"
        "def handler(ctx, event): ...\n"
        f"GROUP = Group({name!r}, Input(IN, aggregate=Count()), Persist(Long()), Visit('age', handler))\n"
        f"NONE = Group({name!r}, Input(IN, aggregate=Count()), Persist(Long()))\n"
    )
    yield "visited_shop"
    del sys.modules["visited_shop"]


def test_an_unknown_visit_is_an_error(cli: Cli, world: World, visits: str, module: str) -> None:
    ran = cli("visit", f"{module}:GROUP", "drop")
    assert ran.code == 1
    assert "has no visit 'drop': it has age" in ran.err
    assert "its graph has no Visit edge" in cli("visit", f"{module}:NONE", "age").err
    assert [len(each) for each in records(world, visits).values()] == [0, 0]
    for partition in range(2):
        write(world, visits, partition, VisitProgress("r1", visited=1, done=True))
    cli("visit", f"{module}:GROUP", "age", "--run", "r1").good()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("none-of-ours", "age"), 1, "declare `visits: true`"),
        (("a/b", "age"), 2, "cannot be a topic name"),
        (("g", "a b"), 2, "cannot be a topic name"),
        (("g", "age", "--run", ""), 2, "1 to 100"),
        (("g", "age", "--run", "a\nb"), 2, "1 to 100"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: tuple[str, ...], code: int, said: str, cli: Cli) -> None:
    ran = cli("visit", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert said in " ".join(ran.err.split())


def test_an_unreachable_broker_is_reported_quickly(nowhere: Cli) -> None:
    ran: Any = nowhere("visit", "g", "age")
    assert ran.code == 1
    assert "no answer from Kafka at 127.0.0.1:9" in ran.err
