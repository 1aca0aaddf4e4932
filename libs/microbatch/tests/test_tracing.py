"""The spans of a micro-batch, where they differ from other groups' spans."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from microbatch import Batch, MicroBatch, Rows, Send
from microbatch.stores.memory import MemoryDriver, MemoryServer
from microbatch.task import Surroundings
from microbatch.tasks import BatchTasks
from streamtable import Long, Stream, String
from streamtable.base.tracing import contexts
from streamtable.base.types import Headers, RecordBatch
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
OUT = Stream("out", String(), Long())
TOTALS = Rows("totals", value=Long())
GIVEN = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)


class Span:
    """One of a `Listener`'s."""

    def __init__(self, number: int) -> None:
        self.headers: Headers = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-%016x-01" % number),)

    def note(self, **facts: Any) -> None: ...


class Listener:
    """Records the spans in the order they start, indented by nesting."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.sources: dict[str, Sequence[Headers]] = {}
        self.spans: dict[str, Span] = {}
        self._depth = 0

    def process(self, group: str, batches: Sequence[RecordBatch]) -> Any:
        return self._span("process", contexts(batches))

    def commit(self, group: str, sources: Sequence[Headers]) -> Any:
        return self._span("commit", sources)

    def ask(self, store: str, operation: str, keys: int) -> Any:
        return self._span(operation, [])

    @contextmanager
    def _span(self, what: str, sources: Sequence[Headers]) -> Iterator[Span]:
        self.reported.append("  " * self._depth + what)
        self.sources[what] = sources
        self.spans[what] = Span(len(self.reported))
        self._depth += 1
        yield self.spans[what]
        self._depth -= 1


def add(batch: Batch, send: Send) -> None:
    rows = batch.rows(TOTALS)
    totals = rows.get_many(record.key for record in batch.records)
    rows.put_many({record.key: totals.get(record.key, 0) + record.value for record in batch.records})
    for record in batch.records:
        send(OUT, record.key, record.value)


async def add_later(batch: Batch, send: Send) -> None:
    add(batch, send)


@pytest.mark.parametrize("process", [add, add_later])
def test_store_reads_are_spans_of_the_batch_and_writes_of_the_commit(process: Any) -> None:
    listener: Any = Listener()
    group = MicroBatch("g", inputs=[EVENTS], outputs=[OUT], rows=[TOTALS], process=process, max_wait=0.1)

    def tasks(clock: Any, failpoint: Any) -> BatchTasks:
        around = Surroundings(group, clock, failpoint, tracer=listener)
        return BatchTasks(around, MemoryDriver(MemoryServer(), tenant="g"))

    with Tester(partitions=1) as tester:
        tester.kafka.shared_tracer = listener
        tester.run(group, tasks=tasks)
        listener.reported.clear()
        tester.emit_raw("events", b"a", Long().encode(3), headers=GIVEN)
        assert listener.reported == ["process", "  read", "commit", "  write"]
        assert listener.sources["process"] == [GIVEN]
        assert listener.sources["commit"] == [listener.spans["process"].headers]
        (sent,) = tester.records(OUT)
        assert sent.headers == listener.spans["commit"].headers


def test_records_sent_ahead_of_the_commit_have_the_trace_context_of_the_batch() -> None:
    listener: Any = Listener()

    async def ahead(batch: Batch, send: Send) -> None:
        for record in batch.records:
            send(OUT, record.key, record.value)
        send.flush()

    group = MicroBatch("g", inputs=[EVENTS], outputs=[OUT], process=ahead, max_wait=0.1)

    def tasks(clock: Any, failpoint: Any) -> BatchTasks:
        around = Surroundings(group, clock, failpoint, tracer=listener)
        return BatchTasks(around, MemoryDriver(MemoryServer(), tenant="g"))

    with Tester(partitions=1) as tester:
        tester.kafka.shared_tracer = listener
        tester.run(group, tasks=tasks)
        tester.emit_raw("events", b"a", Long().encode(3), headers=GIVEN)
        (sent,) = tester.records(OUT)
        assert sent.headers == listener.spans["process"].headers
