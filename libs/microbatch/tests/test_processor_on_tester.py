import pytest

from microbatch import Batch, InMemoryStore, MicroBatch, Rows, Send
from streamtable import Long, Stream, String
from streamtable.errors import ConfigurationError
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
SUMS = Stream("sums", String(), Long())
TOTALS = Rows("totals", value=Long())


def add(batch: Batch, send: Send) -> None:
    rows = batch.rows(TOTALS)
    totals = rows.get_many(record.key for record in batch.records)
    for record in batch.of(EVENTS):
        totals[record.key] = totals.get(record.key, 0) + record.value
        send(SUMS, record.key, totals[record.key])
    rows.put_many(totals)


ADD = MicroBatch("add", inputs=[EVENTS], process=add, outputs=[SUMS], rows=[TOTALS], max_wait=1.0)


def test_a_batch_keeps_its_rows_and_sends(tester: Tester) -> None:
    store = InMemoryStore(ADD)
    tester.run(ADD, tasks=store)
    tester.emit_many(EVENTS, [("a", 1), ("b", 2), ("a", 3)])
    tester.emit(EVENTS, "a", 5)
    assert store.rows(TOTALS, tester.kafka.committed(ADD.name)) == {"a": 9, "b": 2}
    assert [(r.key, r.value) for r in tester.records(SUMS)] == [("a", 1), ("b", 2), ("a", 4), ("a", 9)]


@pytest.mark.parametrize(
    "step",
    ["ledger-read", "ledger-written", "batch-processed", "rows-written", "begun", "outputs-produced", "flushed",
     "offsets-sent", "committed", "new-partition-committed"],
)  # fmt: skip
def test_a_crash_between_any_two_steps_neither_loses_nor_doubles(step: str) -> None:
    with Tester() as tester:
        store = InMemoryStore(ADD)
        tester.crash(ADD, step, times=1)
        tester.run(ADD, tasks=store)
        for number in (1, 2, 3):
            tester.emit_many(EVENTS, [("a", number), ("b", 10)])
            tester.start(ADD)
        assert store.rows(TOTALS, tester.kafka.committed(ADD.name)) == {"a": 6, "b": 30}
        assert sorted(r.value or 0 for r in tester.records(SUMS)) == [1, 3, 6, 10, 20, 30]


def adding(factor: int, max_wait: float = 0.1) -> MicroBatch:
    def process(batch: Batch, send: Send) -> None:
        rows = batch.rows(TOTALS)
        for record in batch.of(EVENTS):
            rows.put(record.key, (rows.get(record.key) or 0) + factor * record.value)

    return MicroBatch("adding", inputs=[EVENTS], process=process, rows=[TOTALS], max_wait=max_wait)


def test_the_next_version_joins_and_starts_with_its_own_process(tester: Tester) -> None:
    first, second, third = adding(1), adding(1000), adding(1_000_000)
    tester.run(first)
    tester.emit(EVENTS, "a", 1)
    tester.join(second)
    tester.leave(first, 0)
    tester.emit(EVENTS, "a", 1)
    tester.stop(second)
    tester.start(third)
    tester.emit(EVENTS, "a", 1)
    assert TOTALS.of(tester.table(third)) == {"a": 1_001_001}


def test_the_next_version_over_a_store_in_memory_needs_a_store_of_its_own(tester: Tester) -> None:
    first, second = adding(1), adding(1000)
    store = InMemoryStore(first)
    tester.run(first, tasks=store)
    tester.emit(EVENTS, "a", 1)
    tester.stop(first)
    with pytest.raises(ConfigurationError, match="give tasks= of this one"):
        tester.start(second)
    tester.start(second, tasks=store.of(second))
    tester.emit(EVENTS, "a", 1)
    assert store.rows(TOTALS, tester.kafka.committed("adding")) == {"a": 1001}


@pytest.mark.parametrize("max_wait", [5.0, 3600.0])
def test_the_clock_goes_on_until_a_batch_is_due(max_wait: float, tester: Tester) -> None:
    group = adding(1, max_wait)
    tester.run(group)
    begun = tester.clock.now()
    tester.emit(EVENTS, "a", 1)
    assert TOTALS.of(tester.table(group)) == {"a": 1}
    assert tester.clock.now() - begun == pytest.approx(max_wait, abs=0.2)
