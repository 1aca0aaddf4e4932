"""The time of a remote query beside an empty call between the same processes, by turns."""

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from tests.faults import measured
from tests.faults.arena import ROOT
from tests.faults.aside import aside
from tests.system.bench import Bench, count

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.process import Child, reserve_port
from streamtable import App, Group, Input, Long, Persist
from streamtable_query import Query

KEYS = [f"user-{number}" for number in range(1_000)]
CALLS, ROUNDS = 4_000, 5


def seconds_of(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def slow(seconds: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(seconds)[len(seconds) * 99 // 100]


@pytest.mark.faults_long("measures thousands of calls")
@aside
def test_a_remote_query_takes_at_most_half_again_as_long_as_an_empty_call(
    broker: Broker, folder: Path, seed: int
) -> str:
    topics, rng = Topics(broker.bootstrap_servers), random.Random(seed)
    bench = Bench(broker.bootstrap_servers, topics, folder)
    group: Group[str, int] = Group(topics.name("g"), Input(bench.stream(), count), Persist(Long()))
    bench.create(group, partitions=6)
    with reserve_port() as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        own = [broker.bootstrap_servers, topics.name(""), str(folder / "measured"), address]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        child = Child([sys.executable, measured.__file__, *own], folder / "measured.log", env=environment)
        try:
            with App(bench.kafka, folder / "app").emitter(bench.stream()) as emitter:
                for key in KEYS:
                    emitter.emit(key, "event")
            with (
                Query(bench.kafka, group, group.table, timeout=60) as query,
                grpc.insecure_channel(address) as channel,
            ):
                query.get_many(KEYS)
                empty = channel.unary_unary("/measured/Empty", bytes, bytes)
                ratios = []
                for _ in range(ROUNDS):
                    pairs = [
                        (
                            seconds_of(lambda: empty(b"", timeout=60)),
                            seconds_of(lambda: query.get(rng.choice(KEYS))),
                        )
                        for _ in range(CALLS)
                    ]
                    ratios.append(slow([each for _, each in pairs]) / slow([each for each, _ in pairs]))
        finally:
            child.kill()
            bench.close()
            topics.delete_all()
    middle = sorted(ratios)[ROUNDS // 2]
    report = f"a query's 99th percentile is {middle:.2f} times an empty call's ({', '.join(f'{each:.2f}' for each in ratios)})"
    assert middle <= 1.5, report
    return report
