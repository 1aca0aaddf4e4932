"""A processor that hangs, or works without ever committing, is not ready; and it exits where that is set."""

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.system.bench import Bench, until

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from servicekit_testing import Process
from streamtable import Group, Input, Long, Persist, Stream, String

ROOT = Path(__file__).resolve().parents[2]


class Stalling:
    """The program of `stalling.py`, and the file that holds it."""

    def __init__(self, bench: Bench, file: Path, kind: str, settings: dict[str, str]) -> None:
        self._bench, self._file = bench, file
        events = Stream(bench.name("in"), String(), String())
        group: Group[str, int] = Group(bench.name("g"), Input(events, lambda ctx, _: None), Persist(Long()))
        bench.create(group)
        self.events = events.name
        environment = {
            "PYTHONPATH": str(ROOT),
            "STREAMTABLE_BOOTSTRAP_SERVERS": bench.kafka.bootstrap_servers,
            "STREAMTABLE_METRICS_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_STATE_DIR": str(bench.folder),
            "STREAMTABLE_STALL_TIMEOUT": "1",
            "STALLING_GROUP": group.name,
            **settings,
        }
        self.process = Process("tests.system.stalling", [kind, group.name, events.name], environment)
        self._address = self.process.address()
        until(lambda: self.get("/readyz")[0] == 200, "the processor is ready")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self._address}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def hold(self, how: str) -> None:
        self._file.touch()
        self._bench.send(self.events, ("a", f"{how} {self._file}"))

    def release(self) -> None:
        self._file.unlink()


Start = Callable[..., Stalling]


@pytest.fixture
def start(broker: Broker, topics: Topics, tmp_path: Path) -> Iterator[Start]:
    bench = Bench(broker.bootstrap_servers, topics, tmp_path)
    started: list[Stalling] = []

    def start(kind: str = "group", **settings: str) -> Stalling:
        started.append(Stalling(bench, tmp_path / "held", kind, settings))
        return started[-1]

    yield start
    for each in started:
        each.process.close()
    bench.close()


@pytest.mark.broker
@pytest.mark.parametrize(
    ("kind", "how", "reason"),
    [
        ("group", "hang", "has been in one call of a handler, with {events}[0]@0..0, for"),
        ("group", "retry", "has work of partitions 0 that it could not commit for"),
        ("batch", "hang", "has "),
        ("batch", "retry", "has work of partitions 0 that it could not commit for"),
    ],
)
def test_a_processor_that_stalls_is_alive_and_not_ready_until_it_goes_on(
    start: Start, kind: str, how: str, reason: str
) -> None:
    program = start(kind)
    program.hold(how)
    until(lambda: program.get("/readyz")[0] == 503, "it is not ready")
    stalled = f"stalled: the processor {reason.format(events=program.events)}"
    until(lambda: stalled in program.get("/readyz")[1], "it says why")
    assert program.get("/livez")[0] == 200
    until(lambda: any("processor has stalled" in line for line in program.process.output), "it is logged")
    _, metrics = program.get("/metrics")
    (seconds,) = (
        line.split()[1] for line in metrics.splitlines() if line.startswith("streamtable_stall_seconds{")
    )
    assert float(seconds) > 1
    program.release()
    until(lambda: program.get("/readyz")[0] == 200, "it is ready again")
    assert program.process.stop() == 0
    logged = [line for line in program.process.output if "processor has stalled" in line]
    assert how == "retry" or any(
        "in hold" in line for line in logged
    )  # a busy machine may stall it once more


@pytest.mark.broker
def test_a_processor_that_stalls_exits_where_that_is_set(start: Start) -> None:
    program = start(STREAMTABLE_STALL_EXIT="2")
    program.hold("hang")
    assert program.process.ended() == 75
    assert any("process exits" in line for line in program.process.output)
