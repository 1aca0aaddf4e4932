"""Calls of a real HTTP API from a real process, over bad answers and over kills at each step."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import httpx
import pytest
from tests.system import calling, retrying
from tests.system.bench import Bench, until

ROOT = Path(__file__).resolve().parents[2]
SEED = int(os.environ.get("FAULTS_SEED", "20260"))
ROUNDS = int(os.environ.get("FAULTS_ROUNDS", "20"))
LONG = pytest.mark.faults_long("each takes a start of three processes")


class Calling:
    """A group that calls the API, and the API.

    Args:
        bench: Its broker and topics.
        url: The API.
        program: The program of the group, started as a process; it has the function `group_of`.
    """

    def __init__(self, bench: Bench, url: str, program: ModuleType = calling) -> None:
        self.bench = bench
        self.url = url
        self.program = program.__name__
        self.group = program.group_of(bench.name("c"), url, bench.folder)
        bench.create(self.group)
        self.requests: list[dict[str, Any]] = []
        self.children: list[subprocess.Popen[bytes]] = []

    def send(self, *requests: dict[str, Any]) -> None:
        made = [{**request, "n": len(self.requests) + n} for n, request in enumerate(requests)]
        self.requests += made
        self.bench.send(
            self.bench.name("c") + "-in", *((request["key"], json.dumps(request)) for request in made)
        )

    def start(self, failpoint: str = "", instance: str = "") -> None:
        folder = self.bench.folder / instance
        folder.mkdir(exist_ok=True)
        argv = [self.bench.kafka.bootstrap_servers, self.bench.name("c"), str(folder), self.url, failpoint]
        argv += [instance] if instance else []
        self.children.append(subprocess.Popen([sys.executable, "-m", self.program, *argv], cwd=ROOT))

    def kept_alive(self) -> bool:
        """Return whether the process lives; starts another one if it does not."""
        if self.children[-1].poll() is None:
            return True
        self.start()
        return False

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()

    def seen(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(self.url, timeout=60).json()["seen"]
        return found

    def results(self) -> list[dict[str, Any]]:
        found = self.bench.read(self.bench.name("c") + "-results")
        return [json.loads(record.value or b"") | {"key": (record.key or b"").decode()} for record in found]

    def finish(self) -> list[dict[str, Any]]:
        """Wait until each request has a result. Raises if one has two, an id is not its own, or the order is another one."""
        until(lambda: self.kept_alive() and len(self.results()) >= len(self.requests), "all have results")
        results, seen = self.results(), self.seen()
        assert Counter(result["n"] for result in results) == Counter(r["n"] for r in self.requests)
        for key in {request["key"] for request in self.requests}:
            asked = [request["n"] for request in self.requests if request["key"] == key]
            assert [result["n"] for result in results if result["key"] == key] == asked, key
        ids = {(each["id"], each["n"]) for each in seen}
        assert len(ids) == len(self.requests) == len({call_id for call_id, _ in ids})
        assert {(result["id"], result["n"]) for result in results} == ids
        return seen


@pytest.fixture
def url() -> Iterator[str]:
    server = subprocess.Popen([sys.executable, "-m", "tests.system.api"], cwd=ROOT, stdout=subprocess.PIPE)
    assert server.stdout is not None
    yield f"http://127.0.0.1:{int(server.stdout.readline())}/"
    server.kill()
    server.communicate()


@pytest.fixture(name="calling")
def calls(bench: Bench, url: str) -> Iterator[Calling]:
    made = Calling(bench, url)
    yield made
    made.close()


@pytest.fixture(name="retrying")
def retries(bench: Bench, url: str) -> Iterator[Calling]:
    made = Calling(bench, url, retrying)
    yield made
    made.close()


def test_each_request_gets_one_result_in_the_order_of_its_key_whatever_the_api_does(calling: Calling) -> None:
    bad = [["503", "503"], ["429"], ["hang"], ["half"], ["0.3"], [], ["503", "half", "429"]]
    calling.send(*({"key": f"k{n % 5}", "do": bad[n % len(bad)]} for n in range(35)))
    calling.start()
    calling.finish()


@pytest.mark.parametrize("where", ["before", "after", pytest.param("handler", marks=LONG)])
def test_a_process_that_dies_around_a_call_repeats_it_with_the_same_id(calling: Calling, where: str) -> None:
    calling.send(*({"key": f"k{n % 3}", "die": where if n == 4 else ""} for n in range(12)))
    calling.start()
    seen = calling.finish()
    assert len(calling.children) > 1
    attempts = Counter(each["n"] for each in seen)
    assert attempts[4] == (1 if where == "before" else 2)


@pytest.mark.parametrize(
    "step",
    [
        "committed",
        *(
            pytest.param(step, marks=LONG)
            for step in ("outputs-produced", "changelog-produced", "flushed", "offsets-sent", "store-written")
        ),
    ],
)
def test_a_process_that_is_killed_in_a_commit_loses_and_doubles_no_result(
    calling: Calling, step: str
) -> None:
    calling.send(*({"key": f"k{n % 3}", "do": ["503"] if n % 2 else []} for n in range(9)))
    for times in (2, 3):
        calling.start(f"{step}:{times}")
        until(lambda: calling.children[-1].poll() is not None, "it is killed")
    calling.start()
    calling.finish()


def test_a_process_that_is_frozen_beyond_its_session_adds_no_result_when_it_goes_on(calling: Calling) -> None:
    slow = ["0.3", "503"]
    calling.send(*({"key": f"k{n % 9}", "do": slow if n % 2 else []} for n in range(60)))
    calling.start(instance="a")
    until(lambda: len(calling.results()) >= 5, "it handles results")
    frozen = calling.children[-1]
    frozen.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED)
    known = len(calling.results())
    assert known < 60, "calls were pending when it was frozen"
    calling.start(instance="b")
    calling.send(*({"key": f"k{n % 9}", "do": slow if n % 2 else []} for n in range(60)))
    until(lambda: len(calling.results()) > known, "the other one has taken over", seconds=60)
    frozen.send_signal(signal.SIGCONT)
    calling.finish()


def test_records_that_fail_are_handled_once_in_the_order_of_their_key_over_a_kill(retrying: Calling) -> None:
    retrying.send(*({"key": f"k{n % 4}", "do": ["503", "503"] if n % 5 == 0 else []} for n in range(40)))
    retrying.start("committed:3")
    until(lambda: retrying.children[-1].poll() is not None, "it is killed")
    retrying.finish()


@pytest.mark.parametrize("kind", ["calling", "retrying"])
@pytest.mark.faults_long("each round takes a start of a process")
def test_the_same_holds_over_many_kills_at_any_time(kind: str, request: pytest.FixtureRequest) -> None:
    group: Calling = request.getfixturevalue(kind)
    rng = Random(SEED)
    bad = [["503", "503"], ["half"], [], ["0.05"], ["503"], []]
    for _ in range(ROUNDS):
        group.send(*({"key": f"k{rng.randrange(20)}", "do": rng.choice(bad)} for _ in range(200)))
        before = len(group.results())
        group.start()
        until(lambda before=before: len(group.results()) > before, "it handles records")  # type: ignore[misc]
        time.sleep(rng.random() * 2)
        group.children[-1].kill()
        group.children[-1].wait()
    group.start()
    group.finish()
