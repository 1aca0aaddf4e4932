"""The reports of a micro-batch task: its metrics, and the place that an error names."""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from microbatch import Batch, BatchMetrics, InMemoryStore, MicroBatch, Rows, Send
from microbatch.stores.memory import MemoryDriver, MemoryServer
from microbatch.stores.port import WriteResult
from microbatch.stores.versions import ledger_key
from microbatch.task import BatchTask, Surroundings
from microbatch.tasks import BatchTasks
from streamtable import Long, OnError, Stream, String
from streamtable.base.failpoint import no_failpoint
from streamtable.base.types import NextOffset, RecordBatch
from streamtable.errors import Fatal, HandlerFailed, RetryLater
from streamtable.graph.custom_task import AT_ONCE, CommitDue
from streamtable_testing import Tester
from streamtable_testing.clock import VirtualClock

EVENTS = Stream("events", String(), Long())
MORE = Stream("more", String(), Long())
OUT = Stream("out", String(), Long())
TOTALS = Rows("totals", value=Long())


def graph_of(process: Callable[[Batch, Send], Any], **settings: Any) -> MicroBatch:
    given: dict[str, Any] = {"inputs": [EVENTS, MORE], "outputs": [OUT], "rows": [TOTALS], "max_wait": 5.0}
    return MicroBatch("g", process=process, **given | settings)


def put_last(batch: Batch, send: Send) -> None:
    batch.rows(TOTALS).put_many({record.key: record.value for record in batch.records})


def refuse_negative(batch: Batch, send: Send) -> None:
    if any(record.value < 0 for record in batch.records):
        raise ValueError("negative")


class Measured:
    """The tasks of a graph over a store in memory, and the samples of their metrics."""

    def __init__(self, graph: MicroBatch) -> None:
        self._graph = graph
        self._registry = CollectorRegistry()

    def __call__(self, clock: Any, failpoint: Any) -> BatchTasks:
        metrics = BatchMetrics.register(self._registry)
        around = Surroundings(self._graph, clock, failpoint, metrics)
        return BatchTasks(around, MemoryDriver(MemoryServer(), tenant="g"))

    def sample(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"streamtable_{name}", {"group": "g", **labels})


def test_a_committed_batch_is_measured_with_its_records_and_its_age() -> None:
    graph = graph_of(put_last)
    measured = Measured(graph)
    with Tester(commit_on_request=True) as tester:
        tester.run(graph, tasks=measured)
        tester.emit_many(EVENTS, [("a", 1), ("b", 2)])
        tester.emit(MORE, "a", 3)
        tester.advance(5.0)
    assert measured.sample("microbatch_records_count") == 1
    assert measured.sample("microbatch_records_sum") == 3
    assert measured.sample("microbatch_seconds_count") == 1
    assert measured.sample("microbatch_age_seconds_count") == 1
    assert measured.sample("microbatch_age_seconds_sum") == pytest.approx(5.0, abs=1.0)


def test_each_batch_that_is_undone_is_counted_by_its_reason(tester: Tester) -> None:
    fail: list[Exception] = [RetryLater("away")]

    def process(batch: Batch, send: Send) -> None:
        refuse_negative(batch, send)
        if fail:
            raise fail.pop()

    graph = graph_of(process, on_error=OnError.DEAD_LETTER)
    measured = Measured(graph)
    tester.run(graph, tasks=measured)
    tester.emit(EVENTS, "a", -1)
    tester.emit(EVENTS, "a", 1)
    assert measured.sample("microbatch_failures_total", reason="RetryLater") == 1
    assert measured.sample("microbatch_failures_total", reason="ValueError") == 1


def test_a_failed_batch_of_one_record_names_its_offset_and_a_larger_one_its_topics(tester: Tester) -> None:
    tester.create(EVENTS, MORE)
    tester.emit(EVENTS, "a", 1)
    graph = graph_of(refuse_negative)
    tester.run(graph)
    with pytest.raises(HandlerFailed) as alone:
        tester.emit(EVENTS, "a", -1)
    assert (alone.value.topic, alone.value.partition, alone.value.offset) == ("events", 0, 1)


def test_a_failed_batch_of_several_records_names_all_of_its_topics_and_offsets(tester: Tester) -> None:
    tester.create(EVENTS, MORE)
    tester.emit_many(EVENTS, [("a", 1), ("a", -1)])
    tester.emit(MORE, "a", 1)
    with pytest.raises(HandlerFailed, match=r"batch of 3 records was .*events\[0\]@0\.\.1") as caught:
        tester.run(graph_of(refuse_negative))
    assert set((caught.value.topic or "").split(", ")) == {"events", "more"}
    assert caught.value.offset is None
    assert "more[0]@0..0" in caught.value.message


def test_an_error_of_process_that_is_not_about_records_is_raised_unchanged_with_the_topic(
    tester: Tester,
) -> None:
    def process(batch: Batch, send: Send) -> None:
        raise Fatal("the answer is not for this program")

    tester.run(graph_of(process, on_error=OnError.DEAD_LETTER))
    with pytest.raises(Fatal, match="not for this program") as caught:
        tester.emit(EVENTS, "a", 1)
    assert (caught.value.topic, caught.value.partition) == ("events", 0)


def test_rows_and_output_of_an_async_process_are_committed(tester: Tester) -> None:
    async def process(batch: Batch, send: Send) -> None:
        await asyncio.sleep(0)
        put_last(batch, send)
        send(OUT, "a", 7)

    graph = graph_of(process)
    store = InMemoryStore(graph)
    tester.run(graph, tasks=store)
    tester.emit(EVENTS, "a", 3)
    assert store.rows(TOTALS, tester.kafka.committed("g")) == {"a": 3}
    assert [record.value for record in tester.records(OUT)] == [7]


def test_output_after_a_caught_store_error_is_not_committed(tester: Tester) -> None:
    away = [True]

    class Away(MemoryDriver):
        def read(self, keys: Any, timeout: float) -> Any:
            if away and ledger_key(0) not in keys:
                raise RetryLater("away")
            return super().read(keys, timeout)

    def careless(batch: Batch, send: Send) -> None:
        try:
            send(OUT, "a", len(batch.rows(TOTALS).get_many(["a"])))
        except RetryLater:
            away.clear()
            send(OUT, "a", -1)

    graph = graph_of(careless)
    store = InMemoryStore(graph, driver=lambda: Away(store.server, tenant="g"))
    tester.run(graph, tasks=store)
    tester.emit(EVENTS, "a", 1)
    assert [record.value for record in tester.records(OUT)] == [0]


def test_a_failed_write_of_the_ledger_after_the_first_commit_is_logged_and_retried(
    tester: Tester, logged: list[MutableMapping[str, Any]]
) -> None:
    to_fail = [True] * 40  # more than the retries of one call

    class Away(MemoryDriver):
        def write(
            self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float
        ) -> WriteResult:
            if to_fail and ledger_key(0) in rows:
                to_fail.pop()
                raise RetryLater("away")
            return super().write(rows, number, timeout)

    graph = graph_of(put_last)
    store = InMemoryStore(graph, driver=lambda: Away(store.server, tenant="g"))
    tester.run(graph, tasks=store)
    assert any(line["event"].startswith("ledger not written") for line in logged)
    tester.emit(EVENTS, "a", 1)
    assert store.rows(TOTALS, tester.kafka.committed("g")) == {"a": 1}


@dataclass
class Event:
    """A message as the Kafka client delivers it."""

    at: int

    def key(self) -> bytes:
        return b"a"

    def value(self) -> bytes:
        return b"x"

    def offset(self) -> int:
        return self.at

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)


def events(*offsets: int) -> RecordBatch:
    return RecordBatch("events", 0, [Event(at) for at in offsets])


def task_of(graph: MicroBatch, *, plain: bool) -> BatchTask:
    """The task of partition 0 at its start."""
    store = InMemoryStore(graph, plain=plain)
    task = store(VirtualClock(), no_failpoint).recover(0, {"events": None, "more": None})
    task.rewind({"events": NextOffset(0), "more": NextOffset(0)})
    return task


def test_a_batch_is_due_when_it_is_full_and_until_then_some_time_after_its_first_record() -> None:
    task = task_of(graph_of(put_last, max_records=3), plain=True)
    assert task.due() is None
    task.feed(events(0), 100.0)
    task.feed(events(1), 102.0)
    assert task.due() == CommitDue(105.0, alone=True)
    task.feed(events(2), 103.0)
    assert task.due() == CommitDue(AT_ONCE)


def test_the_epoch_is_committed_before_the_first_record_and_only_once() -> None:
    task = task_of(graph_of(put_last), plain=False)
    assert task.due() == CommitDue(AT_ONCE)
    assert task.applied({"events": NextOffset(0), "more": NextOffset(0)})
    assert task.due() is None


@pytest.mark.parametrize("plain", [True, False])
def test_a_commit_without_rows_is_not_ahead_of_kafka(*, plain: bool) -> None:
    written = task_of(graph_of(put_last), plain=plain).write()
    assert written is not None
    assert not written.ahead
