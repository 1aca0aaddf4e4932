"""Event time on a real broker: the time committed with the offsets outlives a kill, and a silent topic is idle."""

import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest
from tests.system.bench import Bench, until
from tests.system.timed import WINDOW_MS, group_of

from streamtable import EventTime, Group
from streamtable.base.types import TopicPartition
from streamtable.tables.position import TablePosition

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.broker


def watermark_ms(bench: Bench, group: Group[str, int]) -> int:
    """The watermark that is committed."""
    committed = bench.commits(group).get(TopicPartition(bench.name("in1"), 0))
    position = TablePosition.decode(committed.metadata) if committed is not None else None
    return position.time.watermark_ms if position is not None and position.time is not None else -1


def test_the_same_records_are_late_however_often_the_process_is_killed(bench: Bench, tmp_path: Path) -> None:
    rng = Random(4)
    group = group_of(bench.name("")[:-1], EventTime(idle_after=None))
    bench.create(group)
    sent: dict[str, list[int]] = {"in1": [], "in2": []}
    state = tmp_path / "child"

    def send() -> None:
        for name, all_of_it in sent.items():
            begin = 10_000 + 1_500 * (len(all_of_it) // 20)
            new = [begin + rng.randrange(4_000) for _ in range(20)]
            all_of_it.extend(new)
            bench.send(bench.name(name), *(("k", str(time)) for time in new))

    # Killed before Kafka has committed, and after; the second commit is the first with records.
    for failpoint in ("committed:2", "offsets-sent:1", "committed:1"):
        send()
        command = [sys.executable, str(ROOT / "tests/system/timed.py"), bench.kafka.bootstrap_servers]
        command += [bench.name("")[:-1], str(state), failpoint]
        child = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, timeout=120, check=False)
        assert child.returncode == -signal.SIGKILL, failpoint
        if failpoint == "committed:1":
            shutil.rmtree(state)  # the next process finds an empty disk
    send()
    bench.work_off(group)
    expected = {
        f"{name}:{offset}:{'late' if time + WINDOW_MS <= greatest else 'in time'}"
        for name, times in sent.items()
        for offset, (time, greatest) in enumerate(zip(times, accumulate(times, max), strict=True))
    }
    assert {each.rpartition(":")[2] for each in expected} == {"late", "in time"}
    told = [(found.value or b"").decode() for found in bench.read(bench.name("out"))]
    assert len(told) == len(expected)
    assert set(told) == expected
    assert watermark_ms(bench, group) == min(map(max, sent.values()))


def test_a_silent_topic_that_ends_with_a_transaction_marker_does_not_hold_the_watermark_back(
    bench: Bench,
) -> None:
    group = group_of(bench.name("")[:-1], EventTime(idle_after=timedelta(seconds=1), max_ahead=None))
    bench.create(group)
    producer = bench.transaction("once")
    producer.produce(bench.name("in2"), "5000", "k", 0)
    producer.commit_transaction(60)
    bench.send(bench.name("in1"), ("k", "9000"))
    running = bench.run(group)
    # Both are silent after that: event time goes on as time passes, from the greatest of these times.
    until(lambda: watermark_ms(bench, group) > 10_000, "the watermark passes all events")
    bench.send(bench.name("in2"), ("k", "8500"))
    until(lambda: len(bench.read(bench.name("out"))) == 3, "the late record is handled")
    running.stop()
    told = [(found.value or b"").decode() for found in bench.read(bench.name("out"))]
    assert min(told) == "in1:0:in time"
    assert told[-1].startswith("in2:")
    assert told[-1].endswith(":late")
