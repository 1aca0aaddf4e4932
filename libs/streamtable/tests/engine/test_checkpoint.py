from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pytest

from streamtable.base.deadletter import OutputRecord
from streamtable.base.failpoint import COMMIT_STEPS, no_failpoint
from streamtable.base.ports import TopicInfo
from streamtable.base.topics import Stream
from streamtable.base.tracing import TRACEPARENT
from streamtable.base.types import Committed, Guarantee, Headers, NextOffset, RecordBatch, TopicPartition
from streamtable.codec.plain import Long, String
from streamtable.engine.basetask import BaseTask, Recovered, Work
from streamtable.engine.commit.checkpoint import Checkpoint, OutputRefused
from streamtable.engine.task import Task
from streamtable.errors import (
    Migrated,
    OutcomeUnknown,
    RetryLater,
    RewindNeeded,
    SerializationError,
    StateLost,
    StreamtableError,
)
from streamtable.graph.group import Group, Input, Output, Persist
from streamtable.store.memory import MemoryStores
from streamtable.tables.position import TablePosition
from streamtable.tables.recovery import RecoveryPlan

EVENTS = Stream("events", String(), String())
OUT = Stream("out", String(), String())
BOTH = pytest.mark.parametrize("guarantee", list(Guarantee))


def count_and_tell(ctx: Any, event: str) -> None:
    ctx.set((ctx.value or 0) + 1)
    ctx.emit(OUT, ctx.key, event)


GROUP: Group[str, int] = Group("g", Input(EVENTS, count_and_tell), Output(OUT), Persist(Long()))
TOPICS = {name: TopicInfo(name, 1, "id", False, 1_000, 1_000_000) for name in GROUP.input_topics}


@pytest.fixture
def worked(
    make_task: Callable[..., Task], batch: Callable[..., RecordBatch], stores: MemoryStores, steps: Any
) -> list[Task]:
    """Two tasks with work done, whose store writes are among the steps."""
    tasks = []
    for partition in (0, 1):
        store = stores.open("g-table", partition)
        task = make_task(GROUP, partition=partition, store=store, changelog_position=partition * 100)
        rows = [(b"a", b"x"), (b"b", b"x"), (b"a", b"x")]
        task.process(batch("events", rows, partition=partition, first=partition * 10))
        write = store.write

        def noted(*args: Any, write: Any = write, **kwargs: Any) -> None:
            steps("write store")
            write(*args, **kwargs)

        store.write = noted  # type: ignore[method-assign] # the test is of the steps
        tasks.append(task)
    return tasks


@pytest.fixture
def make(consumer: Any, outbox: Any) -> Callable[..., Checkpoint]:
    # The changelog of partition 1 holds 100 records already.
    outbox.ends[TopicPartition("g-table", 1)] = 100

    def make(
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE, failpoint: Callable[[str], None] = no_failpoint
    ) -> Checkpoint:
        return Checkpoint(consumer, outbox, guarantee, failpoint)

    return make


Make = Callable[..., Checkpoint]


def test_exactly_once_takes_its_steps_in_the_one_order_that_is_safe(
    make: Make, worked: list[Task], steps: Any
) -> None:
    make().commit(worked)
    assert steps.taken == [
        "begin",
        *["produce out"] * 6,
        *["produce g-table"] * 4,
        "flush",
        "send offsets",
        "commit",
        *["write store"] * 2,
    ]


def test_at_least_once_commits_offsets_only_after_every_report_was_looked_at(
    make: Make, worked: list[Task], steps: Any
) -> None:
    make(Guarantee.AT_LEAST_ONCE).commit(worked)
    assert steps.taken == [
        *["produce out"] * 6,
        *["produce g-table"] * 4,
        "flush",
        "commit offsets",
        *["write store"] * 2,
    ]


@pytest.mark.parametrize("name", COMMIT_STEPS)
@BOTH
def test_there_is_a_failpoint_between_any_two_steps(
    name: str, guarantee: Guarantee, make: Make, worked: list[Task], steps: Any
) -> None:
    make(guarantee, steps).commit(worked)
    taken = [step for step in steps.taken if step != "begin"]
    assert list(dict.fromkeys(step for step in taken if step in COMMIT_STEPS)) == list(COMMIT_STEPS)
    before, after = taken[: taken.index(name)], taken[taken.index(name) :]
    where = COMMIT_STEPS.index(name)
    assert ("produce g-table" in before) == (where >= COMMIT_STEPS.index("changelog-produced"))
    assert ("write store" in after) == (where <= COMMIT_STEPS.index("store-written"))


class Elsewhere(BaseTask):
    """A task whose rows are in another store. `parts`: what its work has besides one output."""

    def __init__(self, steps: Any, **parts: Any) -> None:
        begin = RecoveryPlan({"events": NextOffset(4)}, uncommitted=False)
        super().__init__(GROUP, Recovered(0, TOPICS, {}, {"g-table": 0}, begin))
        self._steps = steps
        self._parts = parts
        self.named_positions = dict.fromkeys(parts.get("named", ()), 7)
        self.position_after: TablePosition | None = None

    @property
    def next_offsets(self) -> Mapping[str, NextOffset]:
        return self.committed_offsets

    @property
    def dirty(self) -> bool:
        return True

    def process(self, records: RecordBatch, since: float | None = None, room: int = 0) -> int:
        return len(records)

    def passed(self, topic: str, offset: int, now: float) -> None: ...

    def work(self) -> Work:
        usual = Work(self, [OutputRecord("out", b"a", b"late")], [], self.next_offsets, ())
        return replace(usual, **self._parts)

    def write_ahead(self, work: Work) -> None:
        self._steps("write ahead")

    def offsets(self, work: Work, position: TablePosition) -> dict[TopicPartition, Committed]:
        return {TopicPartition("events", 0): Committed(NextOffset(4), "mine")}

    def committed(self, work: Work, position: TablePosition) -> None:
        self.position_after = position
        self._steps("committed")

    def rewind(self) -> Mapping[str, NextOffset]:
        return self.committed_offsets


def test_what_is_kept_elsewhere_is_written_before_the_transaction_with_metadata_of_its_own(
    make: Make, steps: Any, outbox: Any
) -> None:
    make().commit([Elsewhere(steps)])
    assert steps.taken == [
        "write ahead",
        "begin",
        "produce out",
        "flush",
        "send offsets",
        "commit",
        "committed",
    ]
    assert outbox.offsets == {TopicPartition("events", 0): (4, "mine")}


def test_what_is_sent_ahead_is_in_the_transaction_of_the_next_commit(make: Make, steps: Any) -> None:
    checkpoint = make()
    checkpoint.send_ahead([OutputRecord("out", b"a", b"early")])
    checkpoint.commit([Elsewhere(steps)])
    assert steps.taken[:4] == ["begin", "produce out", "flush", "write ahead"]
    assert steps.taken.count("begin") == 1
    steps.taken.clear()
    checkpoint.send_ahead([])
    checkpoint.abort()
    assert steps.taken == ["begin", "flush", "abort"]


def position_of(metadata: str) -> tuple[int, bool] | None:
    position = TablePosition.decode(metadata)
    return (position.changelog, position.exact) if position else None


@BOTH
def test_each_changed_key_is_one_record_and_each_offset_carries_the_position_behind_it(
    guarantee: Guarantee, make: Make, worked: list[Task], outbox: Any, consumer: Any
) -> None:
    make(guarantee).commit(worked)
    table = [r for r in outbox.produced if r["topic"] == "g-table"]
    assert {(r["partition"], r["key"], r["value"]) for r in table} == {
        (p, key, Long().encode(n)) for p in (0, 1) for key, n in ((b"a", 2), (b"b", 1))
    }
    exact = guarantee is Guarantee.EXACTLY_ONCE
    assert {
        place: (offset, position_of(metadata))
        for place, (offset, metadata) in (outbox.offsets or consumer.committed).items()
    } == {
        TopicPartition("events", 0): (3, (2, exact)),
        TopicPartition("g-retry", 0): (0, (2, exact)),
        TopicPartition("events", 1): (13, (102, exact)),
        TopicPartition("g-retry", 1): (0, (102, exact)),
    }


def test_a_partition_that_changed_nothing_repeats_its_position(
    make: Make, make_task: Callable[..., Task], outbox: Any
) -> None:
    task = make_task(GROUP, uncommitted=True, changelog_position=55)
    make().commit([task])
    assert outbox.produced == []
    assert position_of(outbox.offsets[TopicPartition("events", 0)].metadata) == (55, True)


def test_no_transaction_begins_when_a_row_cannot_be_encoded(
    make: Make, make_task: Callable[..., Task], batch: Any, steps: Any
) -> None:
    group: Group[str, Any] = Group("g", Input(EVENTS, lambda ctx, event: ctx.set("no long")), Persist(Long()))
    task = make_task(group)
    task.process(batch("events", [(b"a", b"x")]))
    checkpoint = make()
    with pytest.raises(RewindNeeded):
        checkpoint.commit([task])
    checkpoint.abort()
    assert steps.taken == []


@pytest.mark.parametrize("step", ["produce out", "produce g-table", "flush", "send offsets", "commit"])
@pytest.mark.parametrize("error", [RewindNeeded("x"), Migrated("x"), OutcomeUnknown("x")], ids=repr)
def test_after_any_failure_before_the_end_the_store_is_not_written_and_the_transaction_can_be_aborted(
    step: str, error: StreamtableError, make: Make, worked: list[Task], steps: Any
) -> None:
    steps.fail(step, error)
    checkpoint = make()
    with pytest.raises(type(error)):
        checkpoint.commit(worked)
    checkpoint.abort()
    assert "write store" not in steps.taken
    assert steps.taken[-1] == "abort"
    assert all(task.dirty for task in worked)


def test_a_transaction_that_is_over_is_not_aborted(make: Make, worked: list[Task], steps: Any) -> None:
    checkpoint = make()
    checkpoint.commit(worked)
    checkpoint.abort()
    assert "abort" not in steps.taken


def test_an_abort_of_unknown_outcome_is_reported(make: Make, worked: list[Task], steps: Any) -> None:
    steps.fail("flush", RewindNeeded("x"))
    steps.fail("abort", OutcomeUnknown("x"))
    checkpoint = make()
    with pytest.raises(RewindNeeded):
        checkpoint.commit(worked)
    with pytest.raises(OutcomeUnknown):
        checkpoint.abort()


def test_at_least_once_commits_no_offset_when_one_report_is_bad(
    make: Make, worked: list[Task], steps: Any, consumer: Any
) -> None:
    steps.fail("flush", RewindNeeded("one of the records failed"))
    with pytest.raises(RewindNeeded):
        make(Guarantee.AT_LEAST_ONCE).commit(worked)
    assert consumer.committed == {}


def test_at_least_once_repeats_a_commit_that_was_not_answered(
    make: Make, worked: list[Task], steps: Any
) -> None:
    steps.fail("commit offsets", RetryLater("x"), RetryLater("x"))
    make(Guarantee.AT_LEAST_ONCE).commit(worked)
    assert steps.taken.count("commit offsets") == 3
    assert steps.taken[-1] == "write store"


def test_at_least_once_says_in_the_end_that_it_does_not_know(
    make: Make, worked: list[Task], steps: Any
) -> None:
    steps.fail("commit offsets", *[RetryLater("x")] * 5)
    with pytest.raises(OutcomeUnknown, match="not acknowledged"):
        make(Guarantee.AT_LEAST_ONCE).commit(worked)
    assert "write store" not in steps.taken


@BOTH
def test_a_changelog_that_has_gone_back_stops_before_anything_is_committed(
    guarantee: Guarantee, make: Make, worked: list[Task], steps: Any, outbox: Any
) -> None:
    outbox.ends[TopicPartition("g-table", 1)] = 0  # deleted and created again while the processor works
    with pytest.raises(StateLost, match=r"table stands at 100.*g-table\[1\]@1"):
        make(guarantee).commit(worked)
    assert not {"commit", "commit offsets", "write store"} & set(steps.taken)


def test_a_record_that_the_client_refuses_after_all_is_an_error_of_its_own(
    make: Make, worked: list[Task], steps: Any
) -> None:
    steps.fail("produce out", SerializationError("too large for the client"))
    with pytest.raises(OutputRefused) as caught:
        make().commit(worked)
    assert isinstance(caught.value.reason, SerializationError)


# ---- named tables and marks ----------------------------------------------------------------------------------------

NAMED = {"named": {"seen": [(b"a", b"1"), (b"b", None)]}}
MARKS = {"marks": [OutputRecord("mark", None, None)]}


def test_exactly_once_has_named_rows_and_marks_in_the_one_flush_of_the_transaction(
    make: Make, steps: Any, outbox: Any
) -> None:
    outbox.ends[TopicPartition("g-seen", 0)] = 7
    task = Elsewhere(steps, **NAMED, **MARKS)
    (work,) = make().commit([task])
    assert steps.taken == [
        "write ahead",
        "begin",
        "produce out",
        "produce mark",
        *["produce g-seen"] * 2,
        "flush",
        "send offsets",
        "commit",
        "committed",
    ]
    assert task.position_after == TablePosition(0, True, {"seen": 9})
    assert work.task is task


@pytest.mark.parametrize(
    ("parts", "sent"),
    [(NAMED, ["produce g-seen"] * 2), (MARKS, ["produce mark"])],
    ids=["named rows", "marks"],
)
def test_at_least_once_sends_named_rows_and_marks_only_after_the_outputs_were_delivered(
    parts: dict[str, Any], sent: list[str], make: Make, steps: Any, outbox: Any
) -> None:
    outbox.ends[TopicPartition("g-seen", 0)] = 7
    make(Guarantee.AT_LEAST_ONCE).commit([Elsewhere(steps, **parts)])
    assert steps.taken == [
        "write ahead",
        "produce out",
        "flush",
        *sent,
        "flush",
        "commit offsets",
        "committed",
    ]


def test_the_first_row_behind_the_position_of_its_table_is_no_gap(
    make: Make, steps: Any, outbox: Any
) -> None:
    outbox.ends[TopicPartition("g-seen", 0)] = 7
    task = Elsewhere(steps, named={"seen": [(b"a", b"1")]})
    make().commit([task])
    assert task.position_after == TablePosition(0, True, {"seen": 8})


# ---- records that Kafka refuses ------------------------------------------------------------------------------------


def test_the_output_that_the_client_refuses_is_named_by_its_index_and_only_for_its_own_commit(
    make: Make, steps: Any
) -> None:
    outputs = [OutputRecord("out", b"a", value) for value in (b"0", b"1", b"2")]
    task = Elsewhere(steps, outputs=outputs, traced=True)
    checkpoint = make()
    too_large = SerializationError("too large", topic="out", partition=3)
    for index in (1, 0):
        steps.taken.clear()
        steps.fail("produce out", *[None] * index, too_large)
        with pytest.raises(OutputRefused, match="too large") as caught:
            checkpoint.commit([task])
        checkpoint.abort()
        assert caught.value.outputs == {0: [index]}
        assert (caught.value.topic, caught.value.partition) == ("out", 3)
        assert steps.taken == ["write ahead", "begin", *["produce out"] * (index + 1), "abort"]


def test_outputs_that_the_broker_refuses_later_are_named_by_their_indexes(
    make: Make, steps: Any, outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce, callbacks = outbox.produce, []

    def keep(*args: Any, refused: Callable[[StreamtableError], None], **given: Any) -> None:
        callbacks.append(refused)
        produce(*args, **given)

    def answer(timeout: float) -> Mapping[TopicPartition, int]:
        for number in (2, 0):
            callbacks[number](too_large)
        raise too_large

    too_large = SerializationError("too large for the broker")
    monkeypatch.setattr(outbox, "produce", keep)
    monkeypatch.setattr(outbox, "flush", answer)
    outputs = [OutputRecord("out", b"a", value) for value in (b"0", b"1", b"2")]
    with pytest.raises(OutputRefused) as caught:
        make().commit([Elsewhere(steps, outputs=outputs, traced=True)])
    assert caught.value.outputs == {0: [2, 0]}
    assert [each["value"] for each in outbox.produced] == [b"0", b"1", b"2"]


# ---- the span of a commit ------------------------------------------------------------------------------------------

CONTEXT: Headers = ((TRACEPARENT, b"of the commit"),)


class CommitSpans:
    """A tracer of commits, and the span of each: it keeps all notes."""

    headers: Headers = CONTEXT

    def __init__(self) -> None:
        self.sources: list[Sequence[Headers]] = []
        self.noted: list[dict[str, Any]] = []

    def commit(self, group: str, sources: Sequence[Headers]) -> Self:
        self.sources.append(sources)
        return self

    def note(self, **facts: Any) -> None:
        self.noted.append(facts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


@pytest.fixture
def spans() -> CommitSpans:
    return CommitSpans()


@pytest.fixture
def traced(consumer: Any, outbox: Any, spans: Any) -> Checkpoint:
    return Checkpoint(consumer, outbox, Guarantee.EXACTLY_ONCE, no_failpoint, tracer=spans)


def test_the_span_of_a_commit_has_the_counts_and_bytes_of_its_work(
    traced: Checkpoint, spans: CommitSpans, steps: Any, outbox: Any
) -> None:
    outbox.ends[TopicPartition("g-seen", 0)] = 7
    outputs = [OutputRecord("out", b"key", b"value")]
    rows = {"changes": [(b"ab", b"cde")], "named": {"seen": [(b"f", None)]}}
    traced.commit([Elsewhere(steps, outputs=outputs, dead_letters=["events"], **rows)])
    assert spans.noted == [
        {"outcome": "committed", "offsets": ["events[0]@4"], "rows": 1, "outputs": 1, "dead_letters": 1}
        | {"bytes": len("keyvalueabcdef")}
    ]


@pytest.mark.parametrize(
    ("step", "error", "outcome"),
    [
        ("flush", RewindNeeded("x"), "undone"),
        ("produce out", SerializationError("x"), "undone"),
        ("commit", OutcomeUnknown("x"), "unknown"),
    ],
)
def test_the_span_of_a_commit_that_failed_says_whether_it_may_have_happened(
    step: str, error: StreamtableError, outcome: str, traced: Checkpoint, spans: CommitSpans, steps: Any
) -> None:
    steps.fail(step, error)
    with pytest.raises(StreamtableError):
        traced.commit([Elsewhere(steps)])
    assert spans.noted == [{"outcome": outcome}]


def test_a_commit_is_linked_to_its_own_work_and_each_of_its_outputs_to_the_commit(
    traced: Checkpoint, spans: CommitSpans, steps: Any, outbox: Any
) -> None:
    task = Elsewhere(steps, traced=True)
    source: Headers = ((TRACEPARENT, b"of a record"),)
    task.traced.append(source)
    traced.commit([task])
    traced.commit([task])
    assert spans.sources == [[source], []]
    assert [each["headers"] for each in outbox.produced] == [CONTEXT, CONTEXT]
