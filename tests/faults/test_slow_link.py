"""A link that is slower than a processor's output: commits shrink until they succeed. A far broker: they are given time."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.bench import Bench, until

from localkafka.broker import Broker
from localkafka.fixtures import BRISK, Topics
from localkafka.link import SlowLink
from localkafka.wire import WireProxy
from streamtable import Kafka
from streamtable.codec.plain import Long
from streamtable.graph.group import Group, Input, Output, Persist

pytestmark = [pytest.mark.faults_long("a link of half a minute, and a broker behind it"), pytest.mark.broker]

RECORDS = 4_000
OUTPUT_BYTES = 4_000  # 16 MB in all: half a minute of the link
SLOW = 500_000.0
LATENCY_SECONDS = 2.0  # a commit takes five requests, one after another


@pytest.fixture
def link() -> Iterator[SlowLink]:
    with SlowLink() as made:
        yield made


@pytest.fixture
def slow_bench(link: SlowLink, tmp_path: Path) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="streamtable-slow-") as folder:
        broker = Broker(Path(folder), overrides=BRISK | link.overrides, brief=True)
        try:
            link.connect(broker.node.port)
            broker.start()
            bench = Bench(link.bootstrap_servers, Topics(link.bootstrap_servers), tmp_path)
            yield bench
            link.bytes_per_second = None
            bench.close()
        finally:
            broker.kill()
            broker.close()


def test_a_processor_makes_progress_over_a_link_that_is_slower_than_its_output(
    slow_bench: Bench, link: SlowLink
) -> None:
    bench = slow_bench
    out = bench.stream("out")

    def amplify(ctx: Any, event: str) -> None:
        ctx.set((ctx.value or 0) + 1)
        ctx.emit(out, ctx.key, event * OUTPUT_BYTES)

    group: Group[str, int] = Group(
        bench.name("g"), Input(bench.stream(), amplify), Output(out), Persist(Long())
    )
    bench.create(group)
    bench.send(bench.name("in"), *((f"k{number % 50}", "x") for number in range(RECORDS)))
    place = bench.places(group)[0]
    running = bench.run(group, commit_interval=0.2)
    until(lambda: running.processor.working, "the processor has a running task")
    link.bytes_per_second = SLOW
    began = time.monotonic()

    def progress() -> int:
        if running.error is not None:
            raise running.error
        return bench.committed(group).get(place, 0)

    until(lambda: progress() > 0, "a first commit", 40)
    first, at = time.monotonic() - began, progress()
    until(lambda: progress() > at, "a second commit", 40)
    print(f"first commit after {first:.1f} s, {at} records")
    link.bytes_per_second = None
    until(lambda: progress() >= RECORDS, "all is handled")
    running.stop()
    assert sum(bench.rows(group).values()) == RECORDS
    assert len(bench.read(out.name)) == RECORDS


def test_a_record_whose_outputs_take_longer_than_a_commit_may_is_given_more_time(
    slow_bench: Bench, link: SlowLink
) -> None:
    bench = slow_bench
    out = bench.stream("out")

    def amplify(ctx: Any, event: str) -> None:
        ctx.set((ctx.value or 0) + 1)
        for _ in range(5):
            ctx.emit(
                out, ctx.key, event * 600_000
            )  # 3 MB per record: 6 seconds on the link, where 4 are usual

    group: Group[str, int] = Group(
        bench.name("g"), Input(bench.stream(), amplify), Output(out), Persist(Long())
    )
    bench.create(group)
    running = bench.run(group, commit_interval=0.2)
    until(lambda: running.processor.working, "the processor has a running task")
    link.bytes_per_second = SLOW
    place = bench.places(group)[0]
    bench.send(bench.name("in"), ("a", "x"), ("a", "x"))

    def progress() -> int:
        if running.error is not None:
            raise running.error
        return bench.committed(group).get(place, 0)

    until(lambda: progress() >= 2, "both records are committed", 90)
    link.bytes_per_second = None
    running.stop()
    assert bench.rows(group) == {"a": 2}


@pytest.mark.timeout(400)
def test_commits_are_given_the_time_they_take_where_every_answer_takes_seconds(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="streamtable-far-") as folder, WireProxy() as wire:
        # Kafka's default: the client gives up a heartbeat that is not answered within the interval.
        overrides = {
            "group.consumer.heartbeat.interval.ms": "5000",
            "group.consumer.session.timeout.ms": "45000",
        }
        broker = Broker(Path(folder), overrides=overrides, brief=True, listeners=[wire.listener])
        bench = None
        try:
            broker.start()
            bench = Bench(broker.bootstrap_servers, Topics(broker.bootstrap_servers), tmp_path)
            group: Group[str, int] = Group(
                bench.name("g"),
                Input(bench.stream(), lambda ctx, _: ctx.set((ctx.value or 0) + 1)),
                Persist(Long()),
            )
            bench.create(group)
            place = bench.places(group)[0]
            running = bench.run(group, log=Kafka(wire.bootstrap_servers), commit_interval=0.2)
            until(lambda: running.processor.working, "the processor has a running task")
            member = running.processor.member
            assert member is not None
            wire.latency_seconds = LATENCY_SECONDS
            began, undone = time.monotonic(), []
            for sent in range(RECORDS, 4 * RECORDS, RECORDS):
                bench.send(bench.name("in"), *((f"k{number % 50}", "x") for number in range(RECORDS)))
                until(lambda: bench.committed(group).get(place, 0) >= sent, "all is committed", 120)  # noqa: B023 - called at once
                undone.append(member.undone)
                print(f"{sent} records committed after {time.monotonic() - began:.1f} s")
            assert undone[0] <= 3
            assert undone[1:] == undone[:1] * 2
            wire.latency_seconds = 0.0
            running.stop()
            assert sum(bench.rows(group).values()) == 3 * RECORDS
        finally:
            wire.latency_seconds = 0.0
            if bench is not None:
                bench.close()
            broker.kill()
            broker.close()
