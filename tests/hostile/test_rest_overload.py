"""Five times as much is asked as can be answered, for half a minute."""

import asyncio
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.overloaded import SECONDS, THREADS

from localkafka.waiting import slowdown

LOAD = 5 * THREADS / SECONDS
LOAD_SECONDS = 30


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    command = [sys.executable, str(Path(__file__).with_name("overloaded.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().rpartition("//")[2].partition(":")
        yield host, int(port)
        process.communicate("", timeout=60)


async def ask(address: tuple[str, int], path: str, found: dict[str, list[float]]) -> None:
    """One request on a connection of its own; its seconds are kept by path and status."""
    begun = time.monotonic()
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    try:
        answer = await reader.read()
    finally:
        writer.close()
    head = answer.partition(b"\r\n\r\n")[0].lower()
    status = head[9:12].decode() or "none"
    assert status != "503" or b"retry-after: 1" in head
    found[f"{path} {status}"].append(time.monotonic() - begun)


async def load(address: tuple[str, int]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    tasks = []
    begun = time.monotonic()
    for number in range(int(LOAD * LOAD_SECONDS)):
        await asyncio.sleep(max(0.0, begun + number / LOAD - time.monotonic()))
        path = "/livez" if number % 40 == 0 else "/work"
        tasks.append(asyncio.create_task(ask(address, path, found)))
    await asyncio.gather(*tasks)
    return found


@pytest.mark.faults_long  # it measures times, and needs the machine for itself
def test_at_five_times_the_load_what_is_not_answered_in_time_is_refused_in_time(
    address: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    found = asyncio.run(load(address))
    p99 = {}
    with capsys.disabled():
        for name, seconds in sorted(found.items()):
            seconds.sort()
            p99[name] = seconds[len(seconds) * 99 // 100]
            p50 = seconds[len(seconds) // 2]
            print(
                f"\n{name}: {len(seconds)}, p50 {p50 * 1000:.0f} ms, p99 {p99[name] * 1000:.0f} ms, "
                f"longest {seconds[-1] * 1000:.0f} ms"
            )
    assert p99.keys() == {"/livez 200", "/work 200", "/work 503"}
    assert p99["/livez 200"] < 1 * slowdown()
    assert p99["/work 200"] < 2 * slowdown()
    assert p99["/work 503"] < 1 * slowdown()
    # It works at its full rate meanwhile, and not for callers who have gone.
    assert len(found["/work 200"]) > 0.7 * LOAD_SECONDS * THREADS / SECONDS
