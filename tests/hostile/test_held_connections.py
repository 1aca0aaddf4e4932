"""The latency of other callers while clients hold 12,000 connections to REST and 2,000 to gRPC; figures are printed."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.hostile.grpc_world import serving
from tests.hostile.rest_world import Service, query_service

from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from localkafka.broker import Broker
from localkafka.waiting import slowdown

pytestmark = pytest.mark.faults_long  # it measures times, and needs the machine for itself
REST_CONNECTIONS = 12_000
GRPC_CONNECTIONS = 2_000
ADDRESSES = [f"127.0.1.{number}" for number in range(1, 121)]
NO_BODY = b"POST /clicks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
"""A head without its body is what a server waits longest for: ten seconds."""
SECONDS = 20
EVERY_SECONDS = 0.02
HELD_SHARE_MIN = 0.5  # the server ends each after five or ten seconds, and it is opened again
P99_SECONDS_MAX = 2.0


@contextmanager
def holding(address: tuple[str, int], count: int, beginning: bytes) -> Iterator[None]:
    program = Path(__file__).with_name("held_connections.py")
    command = [sys.executable, str(program), address[0], str(address[1]), str(count), beginning.hex()]
    with subprocess.Popen(
        [*command, *ADDRESSES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        assert process.poll() is None
        process.communicate("", timeout=60)


def judged(title: str, ask: Callable[[], Any], files: Callable[[], int], count: int) -> str:
    """Ask for some time, check what came, and return the figures."""
    open_files: list[int] = []
    stopped = threading.Event()

    def look() -> None:
        while not stopped.wait(0.5):
            open_files.append(files())

    def timed() -> tuple[Any, float]:
        begun = time.monotonic()
        return ask(), time.monotonic() - begun

    looking = threading.Thread(target=look)
    looking.start()
    try:
        with ThreadPoolExecutor(32) as pool:
            asked = []
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                asked.append(pool.submit(timed))
                time.sleep(EVERY_SECONDS)
            answers = [future.result() for future in asked]
    finally:
        stopped.set()
        looking.join()
    seconds = sorted(seconds for _, seconds in answers)
    p50, p99 = seconds[len(seconds) // 2], seconds[len(seconds) * 99 // 100]
    held = sorted(open_files)[len(open_files) // 2]
    figures = (
        f"{title}: {held:,} open files of the server, {len(answers)} honest requests, p50 {p50 * 1000:.0f} ms, "
        f"p99 {p99 * 1000:.0f} ms, longest {seconds[-1] * 1000:.0f} ms, "
        f"{sum(not answer for answer, _ in answers)} not answered"
    )
    # The promise is about the 99th percentile.
    assert sum(not answer for answer, _ in answers) <= len(answers) // 100, figures
    assert held > count * HELD_SHARE_MIN, figures
    assert p99 < P99_SECONDS_MAX * slowdown(), figures
    return figures


def asks_rest(service: Service) -> bool:
    connection = HTTPConnection(*service.address, timeout=5)
    try:
        connection.request("GET", "/clicks/alice")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_honest_requests_are_answered_while_twelve_thousand_connections_are_held(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        query_service(broker, SERVICEKIT_CONNECTIONS=str(REST_CONNECTIONS + 500)) as service,
        holding(service.address, REST_CONNECTIONS, NO_BODY),
    ):
        figures = judged("REST", lambda: asks_rest(service), service.open_files, REST_CONNECTIONS)
        service.check_sound()
    with capsys.disabled():
        print(f"\n{figures}")


def test_honest_calls_are_answered_while_two_thousand_connections_are_held(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(broker, {"SERVICEKIT_GRPC_CONNECTIONS": str(GRPC_CONNECTIONS + 500)}) as world:
        host, _, port = world.address.rpartition(":")
        with grpc.insecure_channel(world.address) as channel:
            stub: Any = ClickCountsStub(channel)

            def ask() -> bool:
                try:
                    return bool(stub.Get(pb.GetRequest(user_id="alice"), timeout=5).count)
                except grpc.RpcError:
                    return False

            def files() -> int:
                return len(list(Path(f"/proc/{world.process.pid}/fd").iterdir()))

            assert ask()
            with holding((host, int(port)), GRPC_CONNECTIONS, b""):
                figures = judged("gRPC", ask, files, GRPC_CONNECTIONS)
    with capsys.disabled():
        print(f"\n{figures}")
