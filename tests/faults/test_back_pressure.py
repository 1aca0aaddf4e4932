"""Backpressure: a processor whose handler emits more than the broker accepts waits, stays in the group, and loses nothing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.faults.arena import LOST
from tests.faults.quota import set_quota
from tests.system.bench import Bench, until

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable import Kafka
from streamtable.codec.plain import Long
from streamtable.graph.group import Group, Input, Output, Persist

RECORDS = 100
OUTPUTS = 100  # of each record
OUTPUT_BYTES = 1_000  # 10 MB in all: half a minute of the quota
BYTES_PER_SECOND = 300_000


# Half a minute under the quota, and two runs of the tool that sets it.
@pytest.mark.faults_long
@pytest.mark.timeout(300)
def test_a_handler_that_amplifies_beyond_the_quota_of_its_client_stays_in_its_group_and_makes_progress(
    fault_broker: Broker, folder: Path, tell: Callable[[str], None]
) -> None:
    topics = Topics(fault_broker.bootstrap_servers)
    bench = Bench(fault_broker.bootstrap_servers, topics, folder)
    try:
        out = bench.stream("out")

        def amplify(ctx: Any, _: str) -> None:
            ctx.set((ctx.value or 0) + 1)
            for number in range(OUTPUTS):
                ctx.emit(out, f"{ctx.key}-{number}", os.urandom(OUTPUT_BYTES // 2).hex())

        group: Group[str, int] = Group(
            bench.name("g"), Input(bench.stream(), amplify), Output(out), Persist(Long())
        )
        bench.create(group)
        client = bench.name("throttled")
        set_quota(fault_broker, client, BYTES_PER_SECOND)
        bench.send(bench.name("in"), *((f"k{number % 10}", "x") for number in range(RECORDS)))
        place = bench.places(group)[0]
        with capture_logs() as lines:
            running = bench.run(
                group, log=Kafka(fault_broker.bootstrap_servers, {"client.id": client}), commit_interval=0.2
            )

            def progress() -> int:
                if running.error is not None:
                    raise running.error
                return bench.committed(group).get(place, 0)

            until(lambda: progress() > 0, "a first commit")
            first = progress()
            until(lambda: progress() > first, "a second commit")
            throttled = progress()
            set_quota(fault_broker, client, None)
            until(lambda: progress() >= RECORDS, "all is handled", 120)
            running.stop()
        assert throttled < RECORDS, "the quota had no effect"
        said = [line["event"] for line in lines]
        assert said.count("partitions assigned") == 1
        assert LOST not in said
        assert sum(bench.rows(group).values()) == RECORDS
        assert len(bench.read(out.name)) == RECORDS * OUTPUTS
        tell(
            f"{throttled} of {RECORDS} records under the quota, {said.count('commit aborted')} commits undone"
        )
    finally:
        bench.close()
        topics.delete_all()
