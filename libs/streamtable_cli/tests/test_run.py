"""`streamtable run`: real processes on a real broker, which die and are stopped."""

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from libs.streamtable_cli.tests.bench import MODULES, Cli, World, until

from localkafka.broker import Broker
from servicekit_testing.prefork import prefork_of
from streamtable import App, Count, Group, Input, Long, Persist, Stream, String

PROGRAM = """
from streamtable import Count, Group, Input, Long, Persist, Stream, String
GROUP = Group({group!r}, Input(Stream({topic!r}, String(), Long()), aggregate=Count()), Persist(Long()))
NUMBER = 7
def needs(text):
    pass
def wrong():
    from streamtable.errors import ConfigurationError
    raise ConfigurationError("the moon is not full")
def waits():
    import time
    print("it waits", flush=True)
    time.sleep(60)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Running:
    """The command in the test's folder."""

    def __init__(self, servers: str, folder: Path, *arguments: str) -> None:
        self.port = free_port()
        self.log = folder / "log"
        environment = {
            **os.environ,
            "STREAMTABLE_BOOTSTRAP_SERVERS": servers,
            "STREAMTABLE_STATE_DIR": str(folder / "state"),
            "STREAMTABLE_INSTANCE_ID": "here",
            "STREAMTABLE_METRICS_ADDRESS": f"127.0.0.1:{self.port}",
            "STREAMTABLE_COMMIT_INTERVAL": "0.05",
        }
        with self.log.open("wb") as log, chdir(folder):
            self.process = prefork_of(*MODULES).start(["run", *arguments], environment, log.fileno())

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
        except (URLError, OSError):
            return 0, ""

    def ready(self) -> None:
        def answered() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.page("/readyz")[0] == 200

        until(answered, f"all are ready: {self.log}")

    def children(self) -> list[int]:
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(each) for each in found.split()]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


Run = Callable[..., Running]


@pytest.fixture
def run(broker: Broker, tmp_path: Path) -> Iterator[Run]:
    with ExitStack() as stack:

        def start(*arguments: str) -> Running:
            found = Running(broker.bootstrap_servers, tmp_path, *arguments)
            stack.callback(found.process.wait)
            stack.callback(found.process.kill)
            return found

        yield start


@pytest.fixture
def group(world: World, tmp_path: Path) -> Group[str, int]:
    topic = world.create("in", partitions=2)
    stream = Stream(topic, String(), Long())
    made: Group[str, int] = Group(world.topics.name("g"), Input(stream, aggregate=Count()), Persist(Long()))
    world.create("g-table", partitions=2, config={"cleanup.policy": "compact"})
    for name in ("g-dead-letters", "g-retry"):
        world.create(name, partitions=2)
    (tmp_path / "shop.py").write_text(PROGRAM.format(group=made.name, topic=topic))
    return made


def send(world: World, group: Group[str, int], count: int) -> None:
    one = Long().encode(1)
    world.send(group.inputs[0].stream.name, *((f"key-{n % 20}".encode(), one) for n in range(count)))


@contextmanager
def total(world: World, group: Group[str, int], folder: Path) -> Iterator[Callable[[], int]]:
    with App(world.kafka, folder / "views").view(group.table) as view:
        view.wait_ready()
        yield lambda: sum(view.get(f"key-{n}") or 0 for n in range(20))


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_two_processes_share_the_partitions_survive_a_kill_and_stop_in_order(
    run: Run, world: World, group: Group[str, int], tmp_path: Path
) -> None:
    ran = run("shop:GROUP", "--processes", "2")
    ran.ready()
    with total(world, group, tmp_path) as sum_of_counts:
        send(world, group, 1000)
        until(lambda: sum_of_counts() == 1000, "all are counted")
        counted = re.compile(r'^streamtable_records_in_total\{.*process="([12])".*\} ', re.MULTILINE)
        assert set(counted.findall(ran.page("/metrics")[1])) == {"1", "2"}
        assert ran.page("/livez")[0] == 200
        assert {each.name for each in (tmp_path / "state").iterdir()} == {"1", "2"}
        first, *others = ran.children()
        os.kill(first, signal.SIGKILL)
        send(world, group, 1000)
        until(lambda: len(set(ran.children()) - {first, *others}) == 1, "it is started again")
        ran.ready()
        send(world, group, 1000)
        until(lambda: sum_of_counts() >= 3000, "all are counted")
        assert sum_of_counts() == 3000
    assert ran.stop() == 0
    said = ran.log.read_text()
    assert "is started again in 1 s" in said
    assert '{"process": 2, ' in said


def test_no_child_outlives_a_killed_supervisor(run: Run, group: Group[str, int]) -> None:
    ran = run("shop:GROUP", "--processes", "2")
    ran.ready()
    children = ran.children()
    assert len(children) == 2
    ran.process.kill()
    until(lambda: not any(map(alive, children)), "the children have ended")


def test_fewer_processes_than_asked_for_are_started_for_few_partitions(
    run: Run, group: Group[str, int]
) -> None:
    ran = run("shop:GROUP", "--processes", "9")
    ran.ready()
    assert len(ran.children()) == 2
    assert "2 processes are started instead of 9: the inputs have 2 partitions" in ran.log.read_text()
    assert ran.stop() == 0


def test_one_process_runs_here(run: Run, group: Group[str, int]) -> None:
    ran = run("shop:GROUP")
    ran.ready()
    assert ran.children() == []
    assert "streamtable_" in ran.page("/metrics")[1]
    ran.process.send_signal(signal.SIGINT)
    assert ran.process.wait(30) == 0


def test_wrong_settings_of_a_child_stop_all(run: Run, group: Group[str, int]) -> None:
    ran = run("shop:wrong", "--processes", "2")
    assert ran.process.wait(30) == 2
    assert "] error: the moon is not full" in ran.log.read_text()


def test_a_program_is_started_again_when_its_source_changes(
    run: Run, group: Group[str, int], tmp_path: Path
) -> None:
    ran = run("shop:waits", "--reload")
    until(lambda: "[1] it waits" in ran.log.read_text(), "it runs")
    with (tmp_path / "shop.py").open("a") as source:
        source.write("\nprint('changed')\n")
    until(lambda: "[1] changed" in ran.log.read_text(), "it is started again")
    assert ran.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none_of_ours:GROUP",), "cannot be imported"),
        (("shop:NONE",), "its groups and flows are GROUP"),
        (("shop:NUMBER",), "no Group and no Flow, but a int"),
        (("shop:needs",), "takes arguments: name a function without any"),
        (("shop:GROUP", "--processes", "0"), "expected a number from 1 to 1000, or auto"),
    ],
)
def test_what_cannot_be_run_is_refused(
    arguments: tuple[str, ...], said: str, nowhere: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM.format(group="g", topic="in"))
    monkeypatch.chdir(tmp_path)
    ran = nowhere.run("run", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())
