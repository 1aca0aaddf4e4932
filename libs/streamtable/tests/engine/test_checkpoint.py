from collections.abc import Callable, Mapping
from typing import Any

import pytest

from streamtable.codec.plain import Long, String
from streamtable.deadletter import OutputRecord
from streamtable.engine.basetask import BaseTask, Work
from streamtable.engine.checkpoint import Checkpoint, OutputRefused
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
from streamtable.failpoint import COMMIT_STEPS, no_failpoint
from streamtable.graph import Group, Input, Output, Persist
from streamtable.store.memory import MemoryStores
from streamtable.tables.position import TablePosition
from streamtable.topics import Stream
from streamtable.types import Committed, Guarantee, NextOffset, RecordBatch, TopicPartition

EVENTS = Stream("events", String(), String())
OUT = Stream("out", String(), String())
BOTH = pytest.mark.parametrize("guarantee", list(Guarantee))


def count_and_tell(ctx: Any, event: str) -> None:
    ctx.set((ctx.value or 0) + 1)
    ctx.emit(OUT, ctx.key, event)


GROUP: Group[str, int] = Group("g", Input(EVENTS, count_and_tell), Output(OUT), Persist(Long()))


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

        store.write = noted  # type: ignore[method-assign] # the steps are what is tested
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
    """A task whose rows are in another store."""

    def __init__(self, steps: Any) -> None:
        super().__init__(
            GROUP,
            0,
            stores={},
            changelog_position=0,
            next_offsets={"events": NextOffset(4)},
            uncommitted=False,
        )
        self._steps = steps

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
        return Work(self, [OutputRecord("out", b"a", b"late")], [], self.next_offsets, 0)

    def write_ahead(self, work: Work) -> None:
        self._steps("write ahead")

    def offsets(self, work: Work, position: TablePosition) -> dict[TopicPartition, Committed]:
        return {TopicPartition("events", 0): Committed(NextOffset(4), "mine")}

    def committed(self, work: Work, position: TablePosition) -> None:
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
