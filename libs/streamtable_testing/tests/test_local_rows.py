"""Queries of the rows of the tasks of a process: `Processor.get`, `range` and `freshness`."""

from datetime import timedelta
from itertools import islice

import pytest

from streamtable import (
    Bytes,
    Context,
    Group,
    Input,
    Long,
    PartitionNotAssigned,
    Persist,
    State,
    Stream,
    String,
    Table,
    UnreadableRow,
)
from streamtable.engine import GroupProcessor
from streamtable.errors import ConfigurationError, GraphError, NotReady
from streamtable.flow import Flow, Tumbling, Windowed
from streamtable_testing import Tester

WORDS = Stream("words", key=String(), value=String())
LENGTHS = State("lengths", key=String(), value=Long())


def count(ctx: Context[str, int], word: str) -> None:
    ctx.set((ctx.value or 0) + 1)
    ctx.table(LENGTHS).put(word, len(word))


COUNTS = Group("counts", Input(WORDS, count), LENGTHS, Persist(Long()))


def test_a_row_is_answered_with_its_partition_and_the_offset_of_its_commit(tester: Tester) -> None:
    tester.run(COUNTS)
    tester.emit(WORDS, "ann", "x")
    tester.emit(WORDS, "ann", "y")
    processor = tester.processor(COUNTS)
    answer = processor.get(COUNTS.table, "ann")
    assert (answer.value, answer.partition) == (2, 0)
    assert answer.offset == processor.freshness(COUNTS.table)[0].offset > 0
    assert processor.get(COUNTS.table, "bob").value is None


def test_only_committed_rows_are_seen() -> None:
    with Tester(commit_on_request=True) as tester:
        tester.run(COUNTS)
        tester.emit(WORDS, "ann", "x")
        tester.commit()
        processor = tester.processor(COUNTS)
        before = processor.get(COUNTS.table, "ann")
        tester.emit(WORDS, "ann", "y")
        tester.emit(WORDS, "bob", "y")
        assert processor.get(COUNTS.table, "ann").value == 1
        assert list(processor.range(COUNTS.table)) == [("ann", 1)]
        tester.commit()
        after = processor.get(COUNTS.table, "ann")
        assert after.value == 2
        assert after.offset > before.offset


def test_the_age_is_the_time_since_the_last_commit() -> None:
    with Tester(commit_on_request=True) as tester:
        tester.run(COUNTS)
        tester.emit(WORDS, "ann", "x")
        tester.commit()
        processor = tester.processor(COUNTS)
        fresh = processor.freshness(COUNTS.table)[0].age_seconds
        tester.clock.advance(7.0)
        assert processor.get(COUNTS.table, "ann").age_seconds >= fresh + 7


def test_rows_come_in_the_order_of_keys_within_their_bounds(tester: Tester) -> None:
    tester.run(COUNTS)
    keys = [f"{number:04}" for number in range(600)]  # more than are read at once
    tester.emit_many(WORDS, [(key, "x") for key in reversed(keys)])
    processor = tester.processor(COUNTS)
    assert [key for key, _ in processor.range(COUNTS.table)] == keys
    assert [key for key, _ in processor.range(COUNTS.table, "0100", "0500")] == keys[100:500]
    assert list(processor.range(COUNTS.table, "0599", partition=0)) == [("0599", 1)]
    assert list(processor.range(COUNTS.table, "0600")) == []


def test_after_a_rebalance_each_process_answers_for_its_own_partitions_and_refuses_the_others() -> None:
    with Tester(partitions=4) as tester:
        tester.run(COUNTS)
        keys = [f"user-{number}" for number in range(40)]
        tester.emit_many(WORDS, [(key, "x") for key in keys])
        first = tester.processor(COUNTS, 0)
        assert sorted(first.working) == [0, 1, 2, 3]
        started = first.range(COUNTS.table)
        seen = list(islice(started, 3))
        assert len(seen) == 3
        tester.join(COUNTS)
        second = tester.processor(COUNTS, 1)
        assert sorted((*first.working, *second.working)) == [0, 1, 2, 3]
        assert second.working
        found = {**dict(first.range(COUNTS.table)), **dict(second.range(COUNTS.table))}
        assert found == dict.fromkeys(keys, 1)
        for key, _ in list(second.range(COUNTS.table)):
            assert second.get(COUNTS.table, key).value == 1
            with pytest.raises(PartitionNotAssigned) as caught:
                first.get(COUNTS.table, key)
            assert caught.value.partition in second.working
            assert caught.value.assigned == tuple(sorted(first.working))
            assert caught.value.topic == COUNTS.table.name
        moved = second.working[0]
        with pytest.raises(
            PartitionNotAssigned, match=f"partition {moved} of group 'counts' is not assigned"
        ):
            first.range(COUNTS.table, partition=moved)
        assert len(list(first.range(COUNTS.table))) + len(list(second.range(COUNTS.table))) == 40


def test_an_iteration_ends_when_its_partition_is_taken_away() -> None:
    with Tester(partitions=2) as tester:
        tester.run(COUNTS)
        tester.emit_many(WORDS, [(f"user-{number}", "x") for number in range(2000)])
        first = tester.processor(COUNTS)
        iterations = [first.range(COUNTS.table, partition=number) for number in (0, 1)]
        for each in iterations:
            next(each)
        tester.join(COUNTS)
        (left,) = first.working
        assert len(list(iterations[left])) > 500
        with pytest.raises(PartitionNotAssigned):
            list(iterations[1 - left])


def test_a_partition_that_is_being_restored_is_not_ready() -> None:
    with Tester(work_on_request=True) as tester:
        tester.run(COUNTS)
        tester.work()
        tester.emit(WORDS, "ann", "x")
        tester.work()
        tester.stop(COUNTS)
        tester.start(COUNTS, disk=False)
        processor = tester.processor(COUNTS)
        assert isinstance(processor, GroupProcessor)
        while not processor.recovering:
            processor.step()  # nothing is restored by this: that is done in the background
        with pytest.raises(NotReady, match="partition 0 of 'counts-table' is being restored here"):
            processor.get(COUNTS.table, "ann")
        tester.work()
        assert processor.get(COUNTS.table, "ann").value == 1


def test_a_process_that_has_stopped_says_so(tester: Tester) -> None:
    tester.run(COUNTS)
    tester.emit(WORDS, "ann", "x")
    processor = tester.processor(COUNTS)
    tester.stop(COUNTS)
    with pytest.raises(NotReady, match="has not joined its group, or has left it"):
        processor.get(COUNTS.table, "ann")
    with pytest.raises(ConfigurationError, match="start it again"):
        tester.processor(COUNTS)


def test_state_tables_are_asked_like_tables(tester: Tester) -> None:
    tester.run(COUNTS)
    tester.emit(WORDS, "ann", "abc")
    lengths = COUNTS.state_table(LENGTHS)
    processor = tester.processor(COUNTS)
    assert processor.get(lengths, "abc").value == 3
    assert list(processor.range(lengths)) == [("abc", 3)]


def test_windows_of_a_flow_are_asked_by_key_and_window() -> None:
    flow = Flow("minutes")
    minute = Tumbling(timedelta(minutes=1), grace=timedelta(0))
    per_minute = flow.stream(WORDS).group_by_key().window(minute).count("counted")
    with Tester(partitions=3) as tester:
        tester.run(flow)
        for key in ("ann", "bob", "cid", "ann"):
            tester.emit(WORDS, key, "x", timestamp_ms=1_699_999_980_000)
        processor = tester.processor(flow.group())
        window = Windowed("ann", 1_699_999_980_000, 1_700_000_040_000)
        assert processor.get(per_minute.table, window).value == 2
        assert {key.key for key, _ in processor.range(per_minute.table)} == {"ann", "bob", "cid"}


def test_a_table_that_the_group_does_not_keep_is_refused_with_those_that_it_keeps(tester: Tester) -> None:
    tester.run(COUNTS)
    other = Table("others", key=String(), value=Long())
    for ask in (
        lambda: tester.processor(COUNTS).get(other, "a"),
        lambda: tester.processor(COUNTS).range(other),
        lambda: tester.processor(COUNTS).freshness(other),
    ):
        with pytest.raises(GraphError, match="does not keep the table 'others': its tables are counts-table"):
            ask()


def test_a_row_that_cannot_be_decoded_is_an_error_with_its_place(tester: Tester) -> None:
    raw: Group[str, bytes] = Group(
        "counts", Input(WORDS, lambda ctx, word: ctx.set(word.encode())), Persist(Bytes())
    )
    tester.run(raw)
    tester.emit(WORDS, "ann", "no long")
    wrong = Table("counts-table", key=String(), value=Long())
    with pytest.raises(UnreadableRow) as caught:
        tester.processor(raw).get(wrong, "ann")
    assert (caught.value.topic, caught.value.partition, caught.value.key) == ("counts-table", 0, b"ann")
