"""Query services whose disk or log takes nothing more end with a reason, or go on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.faults.full_disk import fill, small_disk
from tests.hostile.rest_world import produce
from tests.system.bench import until

from click_count import topics as click_topics
from localkafka.broker import Broker
from localkafka.fixtures import Topics

LINE = "listening on http://"


@contextmanager
def query(
    broker: Broker, group: str, state: Path, log: Path
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A query service and its address. Standard output says where it listens; the log goes to a file of its own."""
    settings: Mapping[str, str] = {
        "STREAMTABLE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "STREAMTABLE_STATE_DIR": str(state),
        "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
        "STREAMTABLE_LOG_FORMAT": "json",
        "SERVICEKIT_CONNECTIONS": "100",
        "CLICK_COUNT_GROUP": group,
    }
    command = [sys.executable, "-m", "click_count.main", "query"]
    with log.open("w") as written:
        process = subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=subprocess.PIPE, stderr=written, text=True
        )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(LINE), line
            url = line.split()[-1]
            until(lambda: httpx.get(f"{url}/readyz").status_code == 200, "the service is ready")
            yield process, url
        finally:
            process.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_a_query_service_whose_disk_is_full_ends_with_status_1_and_the_reason(
    broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    group = topics.name("count")
    topics.create("count-table", partitions=2, config={"cleanup.policy": "compact"})
    table = click_topics.by_count(group).table
    with small_disk(24) as disk, query(broker, group, disk / "state", tmp_path / "log") as (process, _):
        fill(disk)
        for turn in range(5):  # more than what RocksDB has preallocated
            produce(broker, table, {f"k{turn}-{n}-{'x' * 200}": n for n in range(4_000)})
        assert process.wait(60) == 1
        assert "No space left on device" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_query_service_whose_log_is_full_answers_counts_lost_lines_and_stops_on_a_signal(
    broker: Broker, topics: Topics, tmp_path: Path, number: signal.Signals
) -> None:
    group = topics.name("count")
    topics.create("count-table", partitions=2, config={"cleanup.policy": "compact"})
    table = click_topics.by_count(group).table
    with query(broker, group, tmp_path / "state", Path("/dev/full")) as (process, url):
        produce(broker, table, {"bob": 5})
        until(lambda: httpx.get(f"{url}/clicks/bob").status_code == 200, "the view follows")
        lost = [
            line
            for line in httpx.get(f"{url}/metrics").text.splitlines()
            if line.startswith("streamtable_log_writes_lost_total ")
        ]
        assert float(lost[0].split()[1]) > 0
        process.send_signal(number)
        assert process.wait(60) == 0
