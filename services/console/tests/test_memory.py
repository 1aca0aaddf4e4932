"""The console's memory stays below its limit in the stack while large records and forged processes are shown."""

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest
import yaml
from confluent_kafka import Producer
from services.console.tests.world import status_with

from contracts.records import PROCESS_STATUS
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from streamtable import Avro

pytestmark = [
    pytest.mark.broker,
    # It writes and reads hundreds of megabytes; that large values are cut, and scans hold few rows, is tested elsewhere.
    pytest.mark.faults_long,
]
ROOT = Path(__file__).resolve().parents[3]
STACK = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["console"]
LIMIT_MB = int(STACK["deploy"]["resources"]["limits"]["memory"].removesuffix("m"))
TOKEN = "a-token-of-the-tests-of-memory"
PROCESSES = 5000
LARGE = 1_000_000
RECORDS = 200
CALLERS = 8
ROUNDS = 10


def fill(servers: str, status: str, table: str, letters: str) -> None:
    producer = Producer(
        {
            "enable.idempotence": True,
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "message.max.bytes": 2 * LARGE,
        }
    )
    report = Avro(PROCESS_STATUS).encode(status_with(at=4_000_000_000_000, started_at=4_000_000_000_000))
    for number in range(PROCESSES):
        producer.produce(status, report, f"forged/query/{number:05}".encode())
        producer.poll(0)
    for number in range(RECORDS):
        value = f'{{"number": {number}, "text": "{"é" * (LARGE // 2 - 50)}"}}'.encode()
        producer.produce(table, value, f"key-{number:04}".encode())
        producer.produce(letters, value, f"key-{number:04}".encode())
        producer.poll(0)
        if number % 20 == 0:
            producer.flush(60)
    assert producer.flush(120) == 0


def peak_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def ask(url: str, paths: list[str]) -> Counter[int]:
    """Ask for all pages again and again, several callers at a time."""
    statuses: Counter[int] = Counter()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:

        async def caller(number: int) -> None:
            for turn in range(ROUNDS):
                path = paths[(number + turn) % len(paths)]
                async with client.stream("GET", path) as answer:
                    async for _ in answer.aiter_raw():
                        pass
                    statuses[answer.status_code] += 1

        await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    return statuses


def test_large_records_and_forged_processes_do_not_fill_the_console_s_memory(
    broker: Broker, tmp_path: Path
) -> None:
    topics = Topics(broker.bootstrap_servers)
    status = topics.create("status", partitions=1, config={"cleanup.policy": "compact"})
    table = topics.create("large-table", partitions=2, config={"cleanup.policy": "compact"})
    letters = topics.create("large-dead-letters", partitions=2)
    fill(broker.bootstrap_servers, status, table, letters)
    environment = {
        "STREAMTABLE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
        "STREAMTABLE_STATE_DIR": str(tmp_path),
        "SERVICEKIT_STATUS_TOPIC": status,
        "CONSOLE_TOKEN": TOKEN,
        "MALLOC_ARENA_MAX": STACK["environment"]["MALLOC_ARENA_MAX"],
    }
    paths = [
        f"/api/tables/{table}/rows?limit=500",
        f"/api/topics/{letters}/records?limit=500",
        "/api/fleet",
        f"/api/topics/{table}/records?limit=500&offset=0&partition=0",
    ]
    # Not forked from a process that has read its environment already: the C library reads MALLOC_ARENA_MAX at its start.
    command = [sys.executable, "-m", "console.main"]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = next(line for line in process.stdout if line.startswith("listening on ")).split()[-1]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        before = peak_mb(process.pid)

        def loaded() -> bool:
            return httpx.get(f"{url}{paths[0]}", headers=headers, timeout=120).status_code == 200

        wait_until(loaded, 120)
        one = peak_mb(process.pid)
        statuses = asyncio.run(ask(url, paths))
        most = peak_mb(process.pid)
        sys.stdout.write(
            f"console: {before:.0f} MB at its start, {one:.0f} MB after a page of large rows, {most:.0f} MB at most;"
            f" answers {dict(statuses)}\n"
        )
        assert process.poll() is None
        assert statuses[200] > 0
        assert statuses.keys() <= {200, 429, 503}
        assert most < LIMIT_MB
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
        topics.delete_all()
