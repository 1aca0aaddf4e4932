import pytest

from microbatch import Batch, InMemoryStore, MicroBatch, Rows, Send
from streamtable import Long, Stream, String
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
