"""A thousand callers who keep the query service waiting cost an honest one nothing."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path

import pytest
from tests.hostile.rest_world import Service

from localkafka.waiting import wait_until
from servicekit.http.connections import HEAD_TOO_SLOW, TOO_MANY

SLOW = 1000
SECONDS = 12
EVERY_SECONDS = 0.02
PATHS = ("/clicks/alice", "/clicks?limit=100", "/top", "/clicks/bob")
MANY = [f"127.0.1.{n}" for n in range(1, 51)]
THE_HONEST_ONES = ["127.0.0.1"]


@contextmanager
def slow_clients(service: Service, addresses: list[str]) -> Iterator[None]:
    host, port = service.address
    program = Path(__file__).with_name("slow_clients.py")
    process = subprocess.Popen(
        [sys.executable, str(program), host, str(port), str(SLOW), *addresses],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield
        assert process.poll() is None
        process.communicate("", timeout=30)


def ask(service: Service, path: str) -> tuple[int | str, float]:
    """One request on a connection of its own: its status, or what became of it, and its seconds."""
    begun = time.monotonic()
    connection = HTTPConnection(*service.address, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
    except OSError as error:
        return repr(error), time.monotonic() - begun
    finally:
        connection.close()
    return answer.status, time.monotonic() - begun


def dropped(service: Service, reason: str) -> int:
    """Return the number of connections that the service has dropped for this reason."""
    connection = HTTPConnection(*service.address, timeout=20)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(rf'^http_connections_dropped_total{{reason="{reason}"}} (\S+)$', text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


@pytest.mark.faults_long("it measures times, and needs the machine for itself")
@pytest.mark.parametrize(
    ("addresses", "reason"),
    [(MANY, HEAD_TOO_SLOW), (THE_HONEST_ONES, TOO_MANY)],
    ids=["many addresses", "the honest one's"],
)
def test_honest_requests_are_answered_while_a_thousand_slow_clients_hold_on(
    query: Service, addresses: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in PATHS:
        assert ask(query, path)[0] == 200
    files, memory, dropped_before = query.open_files(), query.memory_mb(), dropped(query, reason)
    files_most = 0
    with ThreadPoolExecutor(32) as pool:
        asked = []
        with slow_clients(query, addresses):
            end = time.monotonic() + SECONDS
            for path in cycle(PATHS):
                if time.monotonic() > end:
                    break
                asked.append(pool.submit(ask, query, path))
                files_most = max(files_most, query.open_files()) if len(asked) % 20 == 0 else files_most
                time.sleep(EVERY_SECONDS)
            answers = [future.result() for future in asked]
    wait_until(lambda: query.open_files() <= files + 5)
    seconds = sorted(seconds for _, seconds in answers)
    p50, p99 = seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]
    with capsys.disabled():
        print(
            f"\n{len(answers)} honest requests in {SECONDS} s: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, "
            f"worst {seconds[-1] * 1000:.0f} ms; open files {files}, at most {files_most}, then "
            f"{query.open_files()}; memory {memory:.0f} MB, then {query.memory_mb():.0f} MB"
        )
    assert {status for status, _ in answers} == {200}
    assert len(answers) > 10 * SECONDS
    assert dropped(query, reason) - dropped_before > SLOW / 4
    assert p99 < 1
    assert query.memory_mb() < memory + 60
    query.check_sound()
