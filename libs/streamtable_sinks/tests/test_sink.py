"""A sink on the Tester: batches, crashes, resets, dead letters, other owners."""

import json
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamtable import Avro, Group, Input, Long, OnError, Persist, Stream, String
from streamtable.base.deadletter import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TIMESTAMP, ORIGIN_TOPIC
from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable.errors import HandlerFailed, InputLost, Rejected, RetryLater, StateLost
from streamtable_codecs import Confluent, FileRegistry
from streamtable_sinks import BatchTooSlow, MemoryTarget, Sink, SinkChange, SinkPartition, TakenPartition
from streamtable_sinks.lane import LaneStage
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())


def add(ctx: Any, event: int) -> None:
    if event:
        ctx.set(event)
    else:
        ctx.delete()


TOTALS = Group("totals", Input(EVENTS, add), Persist(Long()))


def values(target: MemoryTarget) -> list[Any]:
    return [change.value for _, change in target.applied]


def test_a_stream_is_written_record_by_record_in_the_order_of_its_partition(tester: Tester) -> None:
    target = MemoryTarget()
    tester.run(Sink("out", EVENTS, target, max_records=3, max_wait=0.0), partitions=1)
    tester.emit_many(EVENTS, [("a", number) for number in range(10)])
    assert values(target) == list(range(10))


def test_a_table_is_written_with_the_last_change_of_each_key_and_its_deletions(tester: Tester) -> None:
    target = MemoryTarget()
    out = Sink("out", TOTALS.table, target)
    tester.run(TOTALS, partitions=1)
    tester.emit_many(EVENTS, [("a", 1), ("b", 1)])
    tester.emit_many(EVENTS, [("a", 2), ("b", 0), ("c", 3)])
    tester.run(out)
    tester.advance(2)
    assert {change.key: change.value for _, change in target.applied} == {"a": 2, "b": None, "c": 3}
    assert len(target.applied) == 3
    tester.emit(EVENTS, "a", 0)
    tester.advance(2)
    assert [(change.key, change.value) for _, change in target.applied][3:] == [("a", None)]


@pytest.mark.parametrize(
    ("step", "times"),
    [("ledger-read", 1), ("ledger-written", 1), ("new-partition-committed", 1)]
    + [(step, times) for step in ("batch-processed", "rows-written", "begun", "offsets-sent", "committed")
       for times in (1, 2, 3)],
)  # fmt: skip
def test_a_crash_between_any_two_steps_neither_loses_nor_doubles(step: str, times: int) -> None:
    with Tester() as tester:
        target = MemoryTarget()
        out = Sink("out", EVENTS, target, max_records=2, max_wait=0.0)
        tester.crash(out, step, times=times)
        tester.run(out, partitions=1)
        for number in range(0, 9, 3):
            tester.emit_many(EVENTS, [("a", number + each) for each in range(3)])
            tester.start(out)
        tester.emit(EVENTS, "a", 9)
        tester.start(out)
        assert values(target) == list(range(10))
        assert tester.kafka.committed("out")[TopicPartition("events", 0)].next_offset >= 10


class Picky(MemoryTarget):
    """Refuses values that are divisible by 7; names the offset if it is told to."""

    def __init__(self, *, names: bool) -> None:
        super().__init__()
        self.names = names
        self.calls = 0

    def write(
        self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Sequence[SinkChange]
    ) -> None:
        self.calls += 1
        for change in changes:
            if change.value % 7 == 0:
                raise Rejected("divisible by 7", offset=change.offset if self.names else None)
        super().write(place, epoch, start, end, changes)


@pytest.mark.parametrize("names", [True, False])
def test_only_the_records_that_the_target_refuses_go_to_the_dead_letters(
    tester: Tester, *, names: bool
) -> None:
    target = Picky(names=names)
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", number) for number in range(30)])
    out = Sink("out", EVENTS, target)
    tester.run(out)
    tester.advance(2)
    assert values(target) == [number for number in range(30) if number % 7]
    letters = tester.dead_letters(out)
    assert [letter.origin.offset for letter in letters] == [0, 7, 14, 21, 28]
    assert {letter.reason for letter in letters} == {"divisible by 7"}


@pytest.mark.parametrize(
    ("step", "times"),
    [("rows-written", 1), ("rows-written", 2), *((step, times) for step in ("begun", "offsets-sent", "committed")
                                                  for times in (1, 2, 3, 4))],
)  # fmt: skip
def test_a_crash_around_a_dead_letter_neither_loses_nor_doubles_it(step: str, times: int) -> None:
    with Tester() as tester:
        target = Picky(names=True)
        out = Sink("out", EVENTS, target, max_wait=0.0)
        tester.create(EVENTS, partitions=1)
        tester.emit_many(EVENTS, [("a", number) for number in (1, 7, 2, 3)])
        tester.crash(out, step, times=times)
        tester.run(out)
        tester.start(out)
        tester.emit(EVENTS, "a", 4)
        tester.start(out)
        assert values(target) == [1, 2, 3, 4]
        assert [letter.origin.offset for letter in tester.dead_letters(out)] == [1]


def test_records_that_cannot_be_decoded_go_to_the_dead_letters_alone(tester: Tester) -> None:
    target = MemoryTarget()
    tester.create(EVENTS, partitions=1)
    broken = Stream("events", String(), String())
    tester.emit(EVENTS, "a", 1)
    tester.emit_many(broken, [("a", "no number"), ("a", "and this is none")])
    tester.emit(EVENTS, "a", 2)
    out = Sink("out", EVENTS, target)
    tester.run(out)
    tester.advance(2)
    assert values(target) == [1, 2]
    assert [letter.origin.offset for letter in tester.dead_letters(out)] == [1, 2]


def test_a_refused_record_stops_the_sink_if_it_is_to_stop(tester: Tester) -> None:
    out = Sink("out", EVENTS, Picky(names=False), on_error=OnError.STOP, max_wait=0.0)
    tester.run(out, partitions=1)
    with pytest.raises(HandlerFailed, match="divisible by 7") as caught:
        tester.emit_many(EVENTS, [("a", 1), ("a", 7)])
    assert (caught.value.topic, caught.value.offset) == ("events", 1)


class Away(MemoryTarget):
    """Does not answer; of a write it may be unknown that it has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.lost_answers = self.lost_requests = 0

    def write(
        self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Sequence[SinkChange]
    ) -> None:
        if changes and self.lost_requests:
            self.lost_requests -= 1
            raise RetryLater("no answer")
        super().write(place, epoch, start, end, changes)
        if changes and self.lost_answers:
            self.lost_answers -= 1
            raise RetryLater("no answer")


def test_a_target_that_is_away_is_tried_again_and_lost_answers_double_nothing(tester: Tester) -> None:
    target = Away()
    tester.run(Sink("out", EVENTS, target, max_wait=0.0), partitions=1)
    target.lost_answers, target.lost_requests = 2, 2
    for number in range(5):
        tester.emit_many(EVENTS, [("a", 2 * number), ("a", 2 * number + 1)])
        tester.advance(10)
    assert values(target) == list(range(10))
    assert (target.lost_answers, target.lost_requests) == (0, 0)


class Slow(MemoryTarget):
    """Takes too long for more than three records, and at first for a single one."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def write(
        self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Sequence[SinkChange]
    ) -> None:
        self.sizes.append(len(changes))
        if len(changes) > 3 or (changes and len(self.sizes) < 8):
            raise BatchTooSlow("statement timeout")
        super().write(place, epoch, start, end, changes)


def test_a_batch_that_takes_the_target_too_long_is_halved_and_a_record_alone_is_no_dead_letter(
    tester: Tester,
) -> None:
    target = Slow()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", number) for number in range(20)])
    tester.run(out)
    tester.advance(1)
    assert target.sizes[1:11] == [20, 10, 5, 2, 1, 1, 1, 2, 4, 2]
    assert values(target) == list(range(20))
    assert tester.dead_letters(out) == []


def test_partitions_that_move_between_processes_lose_and_double_nothing(tester: Tester) -> None:
    target = MemoryTarget()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=4)
    for number in range(6):
        tester.emit_many(EVENTS, [(str(key), number * 10 + key) for key in range(10)])
        if number % 2:
            tester.leave(out, 0)
        else:
            tester.join(out)
    tester.advance(2)
    assert sorted(values(target)) == list(range(60))
    for partition in range(4):
        offsets = [change.offset for each, change in target.applied if each == partition]
        assert offsets == sorted(set(offsets))


def test_a_target_that_was_restored_from_a_backup_goes_on_at_its_own_position(
    tester: Tester, logged: list[MutableMapping[str, Any]]
) -> None:
    target = MemoryTarget()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit_many(EVENTS, [("a", 0), ("a", 1)])
    tester.advance(2)
    backup = target.backup()
    tester.emit_many(EVENTS, [("a", 2), ("a", 3)])
    tester.advance(2)
    tester.stop(out)
    target.restore(backup)
    tester.emit(EVENTS, "a", 4)
    tester.start(out)
    tester.advance(2)
    assert values(target) == list(range(5))
    assert any(line["event"] == "target is behind, its records are written again" for line in logged)


@pytest.mark.parametrize("step", ["begun", "offsets-sent", "committed"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_crash_while_the_sink_goes_back_to_a_restored_target_loses_nothing(step: str, times: int) -> None:
    with Tester() as tester:
        target = MemoryTarget()
        out = Sink("out", EVENTS, target, max_wait=0.0)
        tester.run(out, partitions=1)
        tester.emit_many(EVENTS, [("a", 0), ("a", 1)])
        tester.advance(2)
        backup = target.backup()
        tester.emit_many(EVENTS, [("a", 2), ("a", 3)])
        tester.advance(2)
        tester.stop(out)
        target.restore(backup)
        tester.crash(out, step, times=times)
        tester.start(out)
        tester.start(out)
        tester.advance(2)
        assert values(target) == list(range(4))


def test_a_commit_that_fails_while_the_sink_goes_back_loses_nothing(tester: Tester) -> None:
    target = MemoryTarget()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit_many(EVENTS, [("a", 0), ("a", 1)])
    tester.advance(2)
    member: Any = tester._of(out)[0].running.member
    (task,) = member.assignment.tasks.values()
    lane = task.task._lanes["events"]
    lane._stage, lane._committed_mark, lane.mark = LaneStage.MOVE, lane.mark, 0
    before = lane._committed_mark
    lane.rewind(NextOffset(2))  # the commit at offset 0 was aborted
    assert (lane._stage, lane.mark) == (LaneStage.PROVE, before)


def test_a_target_that_is_behind_the_end_of_its_topic_is_refused(tester: Tester) -> None:
    target = MemoryTarget()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit(EVENTS, "a", 0)
    tester.advance(2)
    tester.stop(out)
    target.held["out", "events", 0] = replace(target.held["out", "events", 0], position=9)
    with pytest.raises(StateLost, match="has lost its end"):
        tester.start(out)


def test_a_backup_that_is_older_than_the_topic_is_refused_with_the_gap(tester: Tester) -> None:
    target = MemoryTarget()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit(EVENTS, "a", 0)
    tester.advance(2)
    backup = target.backup()
    tester.emit_many(EVENTS, [("a", 1), ("a", 2)])
    tester.advance(2)
    tester.stop(out)
    target.restore(backup)
    tester.kafka.delete_records(TopicPartition("events", 0), 3)
    with pytest.raises(StateLost, match="lacks the records from"):
        tester.start(out)


def test_a_target_without_any_position_is_refused(tester: Tester) -> None:
    target = MemoryTarget()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit(EVENTS, "a", 0)
    tester.advance(2)
    tester.stop(out)
    target.held = {}
    with pytest.raises(StateLost, match="no position of sink 'out'"):
        tester.start(out)


PLACE = TopicPartition("events", 0)


def set_offset(tester: Tester, offset: int) -> None:
    """As `streamtable group reset` does."""
    tester.kafka.group("out").offsets.committed[PLACE] = Committed(NextOffset(offset))


def test_the_target_follows_an_offset_that_a_tool_has_set(tester: Tester) -> None:
    target = MemoryTarget()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit_many(EVENTS, [("a", 0), ("a", 1), ("a", 2)])
    tester.stop(out)
    set_offset(tester, 1)
    tester.start(out)
    tester.advance(2)
    assert values(target) == [0, 1, 2, 1, 2]


@pytest.mark.parametrize(
    ("step", "times"),
    [("ledger-read", 1), ("ledger-written", 1)]
    + [(step, times) for step in ("begun", "offsets-sent", "committed", "rows-written") for times in (1, 2)],
)
def test_a_crash_while_an_offset_is_set_repeats_nothing_more(step: str, times: int) -> None:
    with Tester() as tester:
        target = MemoryTarget()
        out = Sink("out", EVENTS, target, max_records=1, max_wait=0.0)
        tester.run(out, partitions=1)
        tester.emit_many(EVENTS, [("a", 0), ("a", 1), ("a", 2)])
        tester.stop(out)
        set_offset(tester, 1)
        tester.crash(out, step, times=times)
        tester.start(out)
        tester.start(out)
        tester.advance(2)
        assert values(target) == [0, 1, 2, 1, 2]


def test_a_sink_whose_offsets_have_expired_goes_on_at_the_position_of_the_target(tester: Tester) -> None:
    target = MemoryTarget()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit_many(EVENTS, [("a", 0), ("a", 1)])
    tester.advance(2)
    tester.stop(out)
    tester.kafka.group("out").offsets.forget()
    tester.emit(EVENTS, "a", 2)
    tester.start(out)
    tester.advance(2)
    assert values(target) == [0, 1, 2]


def test_a_topic_that_was_created_again_is_refused_until_the_offset_is_set(tester: Tester) -> None:
    target = MemoryTarget()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit_many(EVENTS, [("a", 0), ("a", 1)])
    tester.advance(2)
    tester.stop(out)
    tester.kafka.delete_topic("events")
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", 10), ("a", 11), ("a", 12)])
    with pytest.raises(InputLost, match="deleted and created again"):
        tester.start(out)
    set_offset(tester, 0)
    tester.start(out)
    tester.advance(2)
    assert values(target) == [0, 1, 10, 11, 12]


class Corrected(Picky):
    """Refuses values that are divisible by 7 until it is corrected."""

    corrected = False

    def write(
        self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Sequence[SinkChange]
    ) -> None:
        if self.corrected:
            MemoryTarget.write(self, place, epoch, start, end, changes)
        else:
            super().write(place, epoch, start, end, changes)


def test_a_replayed_dead_letter_of_a_stream_is_written(tester: Tester) -> None:
    target = Corrected(names=True)
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit_many(EVENTS, [("a", 1), ("a", 7)])
    tester.advance(2)
    (letter,) = tester.dead_letters(out)
    target.corrected = True
    tester.retry(out, letter)
    tester.emit_raw("out-retry", b"a", b"\0" * 7 + b"\1", partition=0)  # from nowhere
    tester.advance(2)
    assert values(target) == [1, 7]
    assert "does not come from this partition" in tester.dead_letters(out)[-1].reason


def test_a_replayed_dead_letter_with_its_schema_id_in_a_header_is_written(
    tester: Tester, tmp_path: Path
) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    registry = tmp_path / "registry.json"
    registry.write_text(json.dumps({"schemas": {"7": schema}, "subjects": {"orders-value": 7}}))
    orders: Stream[str, Any] = Stream("orders", String(), Avro(schema, Confluent(FileRegistry(registry))))
    target = MemoryTarget()
    out = Sink("out", orders, target, max_wait=0.0)
    tester.run(out, partitions=1)
    schema_id = ("__value_schema_id", b"\0\0\0\0\7")
    origin = [
        (ORIGIN_TOPIC, b"orders"),
        (ORIGIN_PARTITION, b"0"),
        (ORIGIN_OFFSET, b"0"),
        (ORIGIN_TIMESTAMP, b"5"),
    ]
    tester.emit_raw("orders", b"k", b"\2a", headers=[schema_id])
    tester.emit_raw("out-retry", b"k", b"\2a", headers=[schema_id, *origin])  # as from the origin
    tester.advance(2)
    assert values(target) == [{"id": "a"}, {"id": "a"}]
    assert tester.dead_letters(out) == []


def test_a_replayed_dead_letter_has_the_place_and_the_time_of_its_record(tester: Tester) -> None:
    target = Corrected(names=True)
    out = Sink("out", EVENTS, target, max_wait=0.0)
    tester.run(out, partitions=1)
    for number in range(1, 9):
        tester.emit(EVENTS, "a", 7 * number, timestamp_ms=1_600_000_000_000 + number)
    tester.advance(2)
    letters = tester.dead_letters(out)
    for at in (5, 2):
        tester.retry(out, letters[at])  # refused again
    tester.advance(2)
    again = tester.dead_letters(out)[-2:]
    assert sorted(each.origin.offset for each in again) == [2, 5]
    target.corrected = True
    for at in (5, 2):
        tester.retry(out, letters[at])
    tester.advance(2)
    assert [(change.value, change.offset, change.timestamp_ms) for _, change in target.applied] == [
        (42, 5, 1_600_000_000_006),
        (21, 2, 1_600_000_000_003),
    ]


def test_a_replayed_change_of_a_table_is_refused_as_the_row_may_have_changed_since(tester: Tester) -> None:
    target = Corrected(names=True)
    out = Sink("out", TOTALS.table, target, max_wait=0.0)
    tester.run(TOTALS, out, partitions=1)
    tester.emit(EVENTS, "a", 7)
    tester.advance(2)
    (letter,) = tester.dead_letters(out)
    tester.emit(EVENTS, "a", 8)
    target.corrected = True
    tester.retry(out, letter)
    tester.advance(2)
    assert values(target) == [8]
    assert "reset out --to earliest" in tester.dead_letters(out)[-1].reason


class Gone(MemoryTarget):
    """Does not answer while it is gone, and counts how often it is asked."""

    gone = False
    asked = 0

    def take(self, place: SinkPartition, owner: str) -> TakenPartition:
        self._ask()
        return super().take(place, owner)

    def write(
        self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Sequence[SinkChange]
    ) -> None:
        self._ask()
        super().write(place, epoch, start, end, changes)

    def _ask(self) -> None:
        self.asked += 1
        if self.gone:
            raise RetryLater("no answer")


def test_a_target_that_is_gone_is_asked_ever_less_often_and_the_sink_is_not_ready_meanwhile() -> None:
    target = Gone()
    out = Sink("out", EVENTS, target, max_wait=0.0)
    with Tester(work_on_request=True) as tester:
        tester.run(out, partitions=1)
        tester.work()
        tester.emit(EVENTS, "a", 0)
        tester.advance(1)
        processor = tester._of(out)[0].running
        assert processor.ready
        target.gone, target.asked = True, 0
        tester.emit(EVENTS, "a", 1)
        until = tester.clock.monotonic() + 600
        while tester.clock.monotonic() < until:
            processor.step()
            processor.step_background(0)
            tester.clock.advance(0.25)
        assert 600 / 35 < target.asked < 600 / 30 + 15  # every 30 s, after some shorter pauses
        assert "work of partitions 0 that it could not commit" in processor.not_ready
        target.gone = False
        tester.advance(60)
        assert values(target) == [0, 1]
        assert processor.ready
