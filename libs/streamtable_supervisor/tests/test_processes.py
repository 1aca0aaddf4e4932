"""`App.run(processes=)`: a program that starts itself in several processes, on a real broker."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from streamtable import App, Count, Group, Input, Long, Persist, Stream, String
from streamtable.errors import ConfigurationError, RetryLater
from streamtable_supervisor.processes import number_of_processes

PROGRAM = """
import sys
from streamtable import App, Count, Group, Input, Long, Persist, Stream, String
GROUP = Group({group!r}, Input(Stream({topic!r}, String(), Long()), aggregate=Count()), Persist(Long()))
app = App({servers!r}, "state")
print("imported", flush=True)
{end}
"""
GUARDED = "if __name__ == '__main__':\n    app.run(GROUP, processes={processes}, commit_interval=0.05)"


@pytest.fixture
def write(broker: Broker, topics: Topics, tmp_path: Path) -> Callable[[str], Group[str, int]]:
    def written(end: str) -> Group[str, int]:
        topic, name = topics.create("in", partitions=2), topics.name("g")
        topics.create("g-table", partitions=2, config={"cleanup.policy": "compact"})
        for suffix in ("dead-letters", "retry"):
            topics.create(f"g-{suffix}", partitions=2)
        text = PROGRAM.format(group=name, topic=topic, servers=broker.bootstrap_servers, end=end)
        (tmp_path / "program.py").write_text(text)
        return Group(name, Input(Stream(topic, String(), Long()), aggregate=Count()), Persist(Long()))

    return written


class Running:
    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = folder / "log"
        address = {"STREAMTABLE_METRICS_ADDRESS": f"127.0.0.1:{self.port}", "STREAMTABLE_INSTANCE_ID": "here"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "program.py"],
                cwd=folder,
                env={**os.environ, **address},
                stdout=log,
                stderr=log,
            )

    def page(self, path: str) -> str:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except (URLError, OSError):
            return ""

    def ready(self) -> None:
        def answered() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.page("/readyz") == "ok\n"

        wait_until(answered, 60, f"all are ready: {self.log}")

    def children(self) -> list[int]:
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(each) for each in found.split()]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[], Running]]:
    started = []

    def start() -> Running:
        started.append(Running(tmp_path))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.mark.broker
def test_a_program_runs_itself_in_several_processes_which_survive_a_kill(
    write: Callable[[str], Group[str, int]], run: Callable[[], Running], broker: Broker, tmp_path: Path
) -> None:
    group = write(GUARDED.format(processes=9))
    ran = run()
    ran.ready()
    assert "2 processes are started instead of 9: the inputs have 2 partitions" in ran.log.read_text()
    assert {each.name for each in (tmp_path / "state").iterdir()} == {"1", "2"}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"})

    def send() -> None:
        for n in range(200):
            producer.produce(group.inputs[0].stream.name, key=f"key-{n % 20}", value=Long().encode(1))
        producer.flush()

    with App(broker.bootstrap_servers, tmp_path / "views").view(group.table) as view:
        view.wait_ready()

        def total() -> int:
            return sum(view.get(f"key-{n}") or 0 for n in range(20))

        send()
        wait_until(lambda: total() == 200, 60, "all are counted")
        counted = re.compile(r'^streamtable_records_in_total\{.*process="([12])".*\} ', re.MULTILINE)
        assert set(counted.findall(ran.page("/metrics"))) == {"1", "2"}
        first = ran.children()[0]
        os.kill(first, signal.SIGKILL)
        wait_until(
            lambda: first not in ran.children() and len(ran.children()) == 2, 60, "it is started again"
        )
        ran.ready()
        send()
        wait_until(lambda: total() >= 400, 60, "all are counted")
        assert total() == 400
    ran.process.send_signal(signal.SIGTERM)
    assert ran.process.wait(30) == 0
    assert "instance=here-2" in ran.log.read_text()


@pytest.mark.broker
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("app.run(GROUP, processes=2)", "] error: app.run(processes=) is called again while"),
        (
            "def main():\n    app.run(GROUP, processes=2, around=lambda f: f)\nmain()",
            "give it to App(options=)",
        ),
        (
            "if __name__ == '__main__':\n    here = App(app.kafka, 'state')\n    here.run(GROUP, processes=2)",
            "'here' is not there",
        ),
        ("App(app.kafka, 'state').run(GROUP, processes=2)", "the App has no name by which other processes"),
    ],
)
def test_a_program_that_cannot_be_started_again_by_its_processes_is_told_why(
    end: str, said: str, write: Callable[[str], Group[str, int]], run: Callable[[], Running]
) -> None:
    write(end)
    ran = run()
    assert ran.process.wait(60) == 1
    assert said in ran.log.read_text()
    assert "ConfigurationError" in ran.log.read_text()


def test_there_are_at_most_as_many_processes_as_cores_or_partitions() -> None:
    said: list[str] = []
    assert number_of_processes(2, lambda: 4, said.append) == 2
    assert number_of_processes("auto", lambda: 1, said.append) == 1
    assert said == []
    assert number_of_processes(9, lambda: 4, said.append) == 4
    assert said == ["4 processes are started instead of 9: the inputs have 4 partitions"]


@pytest.mark.parametrize("asked", ["2", "many", 0, 1001, True, 1.5])
def test_anything_but_a_number_of_processes_is_refused(asked: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=f"processes={asked!r}: expected a number from 1 to 1000, or 'auto'"
    ):
        number_of_processes(asked, lambda: 4, print)


def test_while_kafka_is_away_as_many_processes_as_asked_for_wait_for_it() -> None:
    said: list[str] = []

    def away() -> int:
        raise RetryLater("no answer from Kafka at 127.0.0.1:1")

    assert number_of_processes(3, away, said.append) == 3
    assert "no answer from Kafka at 127.0.0.1:1" in said[0]
