"""Bugs to plant in the engine: each breaks one rule of docs/explanation/engine.md, like a plausible mistake.

A plant is a function that patches the engine with pytest's `monkeypatch`, which reverts the patches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streamtable.base.event_time import NO_TIME, InputTime
from streamtable.base.types import NextOffset, RecordBatch, TopicPartition
from streamtable.base.watermarks import Mark
from streamtable.engine.assignment import Assignment
from streamtable.engine.basetask import BaseTask
from streamtable.engine.calls.handlers import HandlerCalls
from streamtable.engine.calls.undo import RowJournal
from streamtable.engine.commit.checkpoint import Checkpoint
from streamtable.engine.due.index import DueIndex
from streamtable.engine.firing.runner import DueRunner
from streamtable.engine.member import Member
from streamtable.engine.named.ids import AcceptedIds, IdTable
from streamtable.engine.named.meanings import StateRecords
from streamtable.engine.named.state import KeptState
from streamtable.engine.output.buffer import OutputBuffer
from streamtable.engine.records.dispatch import Dispatcher
from streamtable.engine.recovery.restore import Restorer
from streamtable.engine.task import Task
from streamtable.engine.time.event_time import EventClock
from streamtable.engine.time.passed_on import PassedOn
from streamtable.engine.time.producers import ProducerTimes
from streamtable.engine.time.silence import Silence
from streamtable.errors import OutcomeUnknown
from streamtable.graph.group import IDS
from streamtable.tables.joined import JoinedTable
from streamtable.tables.position import TablePosition
from streamtable.tables.recovery import plan_join
from streamtable.tables.working_table import WorkingTable
from streamtable_testing.consumer import VirtualGroupConsumer
from streamtable_testing.group import VirtualMembership
from streamtable_testing.topic import InMemoryMessage, Partition

Plant = Callable[[pytest.MonkeyPatch], None]


def store_written_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    flush = Checkpoint._flush

    def flush_and_write(self: Checkpoint, works: Any, context: Any) -> Any:
        positions = flush(self, works, context)
        for work in works:
            table, position = work.task.group.table.name, positions[work.task.partition]
            checkpoint = work.task._checkpoint(table, position.changelog, work.next_offsets)
            work.task.tables.own.store.write(work.changes, checkpoint)
        return positions

    patch.setattr(Checkpoint, "_flush", flush_and_write)


def recovery_to_the_last_stable_offset(patch: pytest.MonkeyPatch) -> None:
    take = Restorer._take

    def take_and_aim_short(self: Restorer, restore: Any, topic: Any, load: Any) -> None:
        partition = self._cluster._partition(  # type: ignore[attr-defined] # a VirtualCluster
            TopicPartition(topic.name, restore.partition)
        )
        short = max(load.read_from, min(load.read_to, partition.stable_end))
        take(self, restore, topic, replace(load, read_to=short))

    patch.setattr(Restorer, "_take", take_and_aim_short)


def no_recovery_after_an_unknown_outcome(patch: pytest.MonkeyPatch) -> None:
    renew = Member._renew

    def renew_and_go_on(self: Member) -> None:
        def go_on(tasks: Any) -> None:
            for task in tasks:
                self._seek(task)
                self._consumer.resume(self.assignment.places(task.partition))

        with pytest.MonkeyPatch.context() as within:
            within.setattr(self.assignment, "recover_again", go_on)
            renew(self)

    patch.setattr(Member, "_renew", renew_and_go_on)


def records_told_again_are_handled_again(patch: pytest.MonkeyPatch) -> None:
    process = Task.process

    def process_all(self: Task, records: RecordBatch, *more: Any) -> int:
        first = min(records.first_offset, self.next_offsets[records.topic])
        self._dispatcher.next_offsets[records.topic] = NextOffset(first)
        return process(self, records, *more)

    patch.setattr(Task, "process", process_all)


def producer_used_on_after_an_unknown_outcome(patch: pytest.MonkeyPatch) -> None:
    def renew_with_the_same(self: Member) -> None:
        for partition in self.assignment.tasks:
            self._consumer.pause(self.assignment.places(partition))
        self._checkpoint = Checkpoint(self._consumer, self._producer, self.settings.guarantee, self._reached)
        self._renew_needed = self._rewound = False
        self.assignment.recover_again(self.assignment.tasks.values())

    patch.setattr(Member, "_renew", renew_with_the_same)


def offsets_sent_with_the_first_membership(patch: pytest.MonkeyPatch) -> None:
    membership = VirtualGroupConsumer.membership

    def remembered(self: VirtualGroupConsumer) -> VirtualMembership:
        now = membership(self)
        if now.member_id and "first" not in vars(self):
            vars(self)["first"] = now
        return vars(self).get("first", now)  # type: ignore[no-any-return] # as it was put there

    patch.setattr(VirtualGroupConsumer, "membership", remembered)


def offsets_sent_without_a_membership(patch: pytest.MonkeyPatch) -> None:
    """The broker then accepts them from any client; the virtual one gets the name of a known member."""
    membership = VirtualGroupConsumer.membership

    def anybody(self: VirtualGroupConsumer) -> VirtualMembership:
        now = membership(self)
        members = self._group._members
        found = next(iter(members), now.member_id)
        return VirtualMembership(now.group, found, members[found].epoch if members else now.epoch)

    patch.setattr(VirtualGroupConsumer, "membership", anybody)


def rows_in_memory_kept_at_a_rewind(patch: pytest.MonkeyPatch) -> None:
    def forget_the_changed_ones_only(self: WorkingTable[Any]) -> None:
        self._changed = type(self._changed)()

    patch.setattr(WorkingTable, "forget", forget_the_changed_ones_only)


def offsets_committed_without_the_position(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TablePosition, "encode", lambda _: "")


def first_offsets_of_a_new_partition_not_committed(patch: pytest.MonkeyPatch) -> None:
    start_ready = Assignment.start_ready

    def start_as_if_committed(self: Assignment) -> list[BaseTask]:
        started = start_ready(self)
        for task in started:
            task.uncommitted = False
        return started

    patch.setattr(Assignment, "start_ready", start_as_if_committed)


def commit_in_lost(patch: pytest.MonkeyPatch) -> None:
    lost = Assignment.lost

    def commit_and_lose(self: Assignment, places: Sequence[TopicPartition]) -> None:
        self._commit()
        lost(self, places)

    patch.setattr(Assignment, "lost", commit_and_lose)


def input_not_read_again_after_a_rewind(patch: pytest.MonkeyPatch) -> None:
    settled = Member._settled

    def settled_without_a_seek(self: Member) -> bool:
        if self._rewound and not self._renew_needed:
            self._rewound = False
            return False
        return settled(self)

    patch.setattr(Member, "_settled", settled_without_a_seek)


def abort_without_an_answer_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    """The request may arrive later, and end the next transaction of the same producer."""
    abort = Checkpoint.abort

    def abort_and_hope(self: Checkpoint) -> None:
        try:
            abort(self)
        except OutcomeUnknown:
            self._open = False

    patch.setattr(Checkpoint, "abort", abort_and_hope)


def aborted_records_restored(patch: pytest.MonkeyPatch) -> None:
    read = Partition.read

    def read_uncommitted(self: Partition, start: int, limit: int) -> tuple[list[InMemoryMessage], int]:
        if not self.place.topic.endswith("-table"):
            return read(self, start, limit)
        found = [record for record in self.records if record.offset() >= start][:limit]
        return found, found[-1].offset() + 1 if len(found) == limit else max(start, self.high)

    patch.setattr(Partition, "read", read_uncommitted)


def position_said_one_too_low(patch: pytest.MonkeyPatch) -> None:
    flush = Checkpoint._flush

    def flush_off_by_one(self: Checkpoint, works: Any, context: Any) -> Mapping[int, TablePosition]:
        before = {work.task.partition: work.task.changelog_position for work in works}
        return {
            p: replace(at, changelog=max(before[p], at.changelog - 1))
            for p, at in flush(self, works, context).items()
        }

    patch.setattr(Checkpoint, "_flush", flush_off_by_one)


def outputs_sent_before_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """Emit with a producer without transactions."""
    produce = Checkpoint._produce

    def produce_outputs_at_once(self: Checkpoint, works: Any, context: Any) -> None:
        maker: Any = type(self._producer)  # a VirtualTransactionalProducer
        outbox = maker(
            None,
            *(
                getattr(self._producer, f"_{part}")
                for part in ("transactions", "topic", "group", "wire", "clock")
            ),
        )
        for work in works:
            for record in work.outputs:
                outbox.produce(*record[:3], partition=record.partition, headers=record.headers)
        outbox.flush(1)
        produce(self, [replace(work, outputs=[]) for work in works], context)

    patch.setattr(Checkpoint, "_produce", produce_outputs_at_once)


def revocation_without_a_release(patch: pytest.MonkeyPatch) -> None:
    """The task of a revoked partition is kept, and later resumes with its old state."""

    def revoked(self: Assignment, places: Sequence[TopicPartition]) -> None:
        if any(place.partition in self.tasks for place in places):
            self._commit()
        for place in places:
            self._owned[place.partition].discard(place.topic)

    patch.setattr(Assignment, "revoked", revoked)


# ---- joins, changes, loops, visits -----------------------------------------------------------------------------------


def joined_copy_written_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    flush = Checkpoint._flush

    def flush_and_write(self: Checkpoint, works: Any, context: Any) -> Any:
        positions = flush(self, works, context)
        for work in works:
            for name, joined in work.task.tables.joins.items():
                joined.store.write(joined.changes(), work.task._joined_checkpoint(name, work.next_offsets))
        return positions

    patch.setattr(Checkpoint, "_flush", flush_and_write)


def joined_copy_kept_at_a_rewind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JoinedTable, "forget", lambda _: None)


def changes_loaded_beyond_the_committed_offset(patch: pytest.MonkeyPatch) -> None:
    def to_the_end(partition: int, log: Any, local: Any, committed: Any, _: Any, now: float) -> Any:
        return plan_join(partition, log, local, committed, None, now)

    patch.setattr("streamtable.engine.recovery.restore.plan_join", to_the_end)


def changes_of_a_refused_record_not_taken_over(patch: pytest.MonkeyPatch) -> None:
    """Treat the joined row as the handler's work."""
    change, give_up = Dispatcher._change, HandlerCalls.give_up

    def note_andgive_up(self: HandlerCalls, *record: Any) -> bool:
        vars(self)["gave_up"] = True
        return give_up(self, *record)

    def take_back(self: Dispatcher, edge: Any, handler: Any, records: RecordBatch) -> int:
        table = self._joins[edge.table.name]
        for index, key in enumerate(records.keys):
            before = table.uncommitted(key or b"")
            if not change(self, edge, handler, records.part(index, index + 1)):
                return index
            if vars(self.calls).pop("gave_up", False) and key is not None:
                table.take_back(key, before)
        return len(records)

    patch.setattr(HandlerCalls, "give_up", note_andgive_up)
    patch.setattr(Dispatcher, "_change", take_back)


def joined_offset_committed_without_its_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JoinedTable, "changes", lambda _: [])


def loops_sent_again_after_a_rewind(patch: pytest.MonkeyPatch) -> None:
    """Records for the loop are not dropped with the other records."""
    forget = OutputBuffer.forget

    def keep_loops(self: OutputBuffer) -> None:
        kept = (
            [] if self.__dict__.pop("sent", False) else [r for r in self.records if r.topic.endswith("-loop")]
        )
        forget(self)
        self.records += kept

    committed = Dispatcher.committed

    def committed_all(self: Dispatcher, offsets: Any) -> None:
        self.outgoing.__dict__["sent"] = True
        committed(self, offsets)

    patch.setattr(OutputBuffer, "forget", keep_loops)
    patch.setattr(Dispatcher, "committed", committed_all)


def visit_carried_on_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """Emit with a producer without transactions, before the rows are committed."""
    produce = Checkpoint._produce

    def produce_cursors_at_once(self: Checkpoint, works: Any, context: Any) -> None:
        maker: Any = type(self._producer)  # a VirtualTransactionalProducer
        parts = ("transactions", "topic", "group", "wire", "clock")
        outbox = maker(None, *(getattr(self._producer, f"_{part}") for part in parts))
        rest = []
        for work in works:
            for record in work.outputs:
                if record.topic.endswith("-visits"):
                    outbox.produce(*record[:3], partition=record.partition)
            others = [record for record in work.outputs if not record.topic.endswith("-visits")]
            rest.append(replace(work, outputs=others))
        outbox.flush(1)
        produce(self, rest, context)

    patch.setattr(Checkpoint, "_produce", produce_cursors_at_once)


# ---- failing records -------------------------------------------------------------------------------------------------


def outputs_of_an_undone_record_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputBuffer, "back_to", lambda *_: None)


def rows_of_an_undone_record_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RowJournal, "undo", lambda _: None)


def condemned_records_forgotten_at_a_rewind(patch: pytest.MonkeyPatch) -> None:
    rewind = Dispatcher.rewind

    def rewind_and_forget(self: Dispatcher, offsets: Any) -> None:
        rewind(self, offsets)
        self._mode._condemned.clear()

    patch.setattr(Dispatcher, "rewind", rewind_and_forget)


# ---- named tables: ids of events that count once, and the last rows given to handlers of changes ----------------------


def ids_not_written_to_the_changelog(patch: pytest.MonkeyPatch) -> None:
    """Only to the local store: they are missing after a lost disk, and in another process."""
    work = Task.work

    def work_without_ids(self: Task) -> Any:
        made = work(self)
        return replace(made, named={name: rows for name, rows in made.named.items() if name != IDS})

    patch.setattr(Task, "work", work_without_ids)


def ids_kept_after_a_rewind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IdTable, "forget", lambda _: None)


def ids_expired_early(patch: pytest.MonkeyPatch) -> None:
    """Chunks are deleted when half of the horizon has passed."""
    expired = AcceptedIds._expired

    def expired_at_half(self: AcceptedIds, limit: int) -> Any:
        within, self._within_ms = self._within_ms, self._within_ms // 2
        try:
            yield from list(expired(self, limit))
        finally:
            self._within_ms = within

    patch.setattr(AcceptedIds, "_expired", expired_at_half)


def time_of_a_failed_record_taken_back(patch: pytest.MonkeyPatch) -> None:
    take_back = AcceptedIds.take_back
    patch.setattr(AcceptedIds, "take_back", lambda self, begin, **_: take_back(self, begin))


def old_values_taken_from_the_joined_copy(patch: pytest.MonkeyPatch) -> None:
    change = Dispatcher._change

    def change_by_the_copy(self: Dispatcher, edge: Any, handler: Any, records: RecordBatch) -> int:
        table, handled = self._joins[edge.table.name], self._handled
        assert handled is not None
        put = table.put

        def put_and_note(key: bytes, data: Any, row: Any, timestamp_ms: int) -> None:
            old = table.get(key)
            vars(handled)["last"] = lambda *_: old
            put(key, data, row, timestamp_ms)

        table.put = put_and_note  # type: ignore[method-assign] # for a while
        try:
            return change(self, edge, handler, records)
        finally:
            del table.put
            vars(handled).pop("last", None)

    patch.setattr(Dispatcher, "_change", change_by_the_copy)


# ---- event time ------------------------------------------------------------------------------------------------------


def watermark_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Only the watermark is lost: stream times are restored."""
    init = EventClock.__init__

    def without_watermark(self: EventClock, group: Any, partition: int, committed: Any, clock: Any) -> None:
        streams = {topic: InputTime(at.stream_ms) for topic, at in committed.items()}
        init(self, group, partition, streams, clock)

    patch.setattr(EventClock, "__init__", without_watermark)


def stream_times_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    init = EventClock.__init__

    def without_streams(self: EventClock, group: Any, partition: int, committed: Any, clock: Any) -> None:
        watermarks = {topic: InputTime(NO_TIME, at.watermark_ms) for topic, at in committed.items()}
        init(self, group, partition, watermarks, clock)

    patch.setattr(EventClock, "__init__", without_streams)


def watermark_of_the_input_that_is_ahead(patch: pytest.MonkeyPatch) -> None:
    def advance_to_the_greatest(self: EventClock) -> None:
        self._watermarks = [max(self.watermark_ms, *self._streams.values())]

    patch.setattr(EventClock, "_advance", advance_to_the_greatest)


def watermark_goes_back_when_an_idle_input_comes_back(patch: pytest.MonkeyPatch) -> None:
    def follow(self: EventClock) -> None:
        idle = self._idle_inputs()
        active = [at for topic, at in self._streams.items() if topic not in idle]
        self._watermarks = [min(active, default=self.watermark_ms)]

    patch.setattr(EventClock, "_advance", follow)


def inputs_never_idle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EventClock, "observe", lambda *_: None)


def inputs_always_idle(patch: pytest.MonkeyPatch) -> None:
    """An input is idle as soon as its end is reached, however recent its last record."""
    observe = Silence.observe

    def observe_at_once(self: Silence, observed: Any, next_offsets: Any) -> None:
        seconds, self._idle_after = self._idle_after, -1.0
        self._ends = {
            t: (m.high, 0.0) for t in self._seen_at if (m := observed.ends.get((t, self._partition)))
        }
        try:
            observe(self, observed, next_offsets)
        finally:
            self._idle_after = seconds

    patch.setattr(Silence, "observe", observe_at_once)


def silence_taken_for_the_time_of_the_clock(patch: pytest.MonkeyPatch) -> None:
    """Old events behind a silence are then all late."""

    def by_the_clock(self: EventClock, _: int, idle_after_ms: int, __: float) -> int:
        return int(self._silence._clock.now() * 1000) - idle_after_ms

    patch.setattr(EventClock, "_in_silence", by_the_clock)


def idle_producers_waited_for(patch: pytest.MonkeyPatch) -> None:
    marked = ProducerTimes.marked

    def marked_as_active(self: ProducerTimes, mark: Mark) -> None:
        marked(self, mark._replace(idle=False))

    patch.setattr(ProducerTimes, "marked", marked_as_active)


def event_time_kept_at_a_rewind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EventClock, "rewind", lambda _: None)


def mark_counted_for_another_producer(patch: pytest.MonkeyPatch) -> None:
    marked = ProducerTimes.marked

    def marked_for_the_one_before(self: ProducerTimes, mark: Mark) -> None:
        marked(self, mark._replace(producer=max(mark.producer - 1, 0)))

    patch.setattr(ProducerTimes, "marked", marked_for_the_one_before)


def watermark_of_the_producer_that_is_ahead(patch: pytest.MonkeyPatch) -> None:
    greatest = property(lambda self: max(self.watermarks_ms, default=NO_TIME))
    patch.setattr(ProducerTimes, "least_ms", greatest)


def producers_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Only these are lost: the least of them is restored, as the stream time."""
    init = EventClock.__init__

    def without_producers(self: EventClock, group: Any, partition: int, committed: Any, clock: Any) -> None:
        least = {topic: at._replace(producers_ms=(), idle=frozenset()) for topic, at in committed.items()}
        init(self, group, partition, least, clock)

    patch.setattr(EventClock, "__init__", without_producers)


def marks_only_for_the_own_partition(patch: pytest.MonkeyPatch) -> None:
    """Readers of the other partitions wait for this producer for ever."""
    marks = PassedOn.marks

    def own_only(self: PassedOn, *reached: Any) -> Any:
        found = marks(self, *reached)
        return [mark for mark in found if mark.partition == Mark.read(mark.headers).producer]  # type: ignore[union-attr]

    patch.setattr(PassedOn, "marks", own_only)


def marks_before_the_records_of_their_commit(patch: pytest.MonkeyPatch) -> None:
    produce = Checkpoint._produce

    def marks_first(self: Checkpoint, works: Any, context: Any) -> None:
        for work in works:
            self._send(work.marks)
        produce(self, [replace(work, marks=()) for work in works], context)

    patch.setattr(Checkpoint, "_produce", marks_first)


# ---- rows that fall due, and timers ----------------------------------------------------------------------------------


def timers_left_after_they_have_fired(patch: pytest.MonkeyPatch) -> None:
    """Fired rows stay in the changelog: a task fires them again after a move or a restart."""
    changes = KeptState.changes

    def changes_without_deletions(self: KeptState) -> Any:
        found = changes(self)
        return [row for row in found if row[1] is not None] if "timers" in self.state.name else found

    patch.setattr(KeptState, "changes", changes_without_deletions)


def timers_that_are_due_wait_for_the_batch(patch: pytest.MonkeyPatch) -> None:
    """A timer for a time that has passed does not interrupt the records that are being handled."""
    patch.setattr(DueRunner, "_interrupt_up_to", lambda *_: None)


def due_rows_noted_nowhere(patch: pytest.MonkeyPatch) -> None:
    """The time of the clock is not committed: kept rows fire again after a crash."""
    patch.setattr(StateRecords, "note", lambda *_: None)


def expired_rows_without_tombstones(patch: pytest.MonkeyPatch) -> None:
    changes = KeptState.changes

    def changes_without_deletions(self: KeptState) -> Any:
        found = changes(self)
        return [row for row in found if row[1] is not None] if self.state.name == "kept" else found

    patch.setattr(KeptState, "changes", changes_without_deletions)


def index_entry_left_after_a_delete(patch: pytest.MonkeyPatch) -> None:
    rows = KeptState.rows

    def rows_with_entries(self: KeptState, changes: Any) -> Any:
        found = rows(self, changes)
        return [each for each in found if each[1] is not None or not each[0].startswith(b"d")]

    patch.setattr(KeptState, "rows", rows_with_entries)


def due_rows_of_an_undone_batch_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeptState, "forget", lambda _: None)

    def go_back_and_keep_the_rest(self: DueIndex, fired_from: bytes, kept_from: bytes) -> None:
        self.fired_from, self.kept_from = fired_from, kept_from

    patch.setattr(DueIndex, "forget", go_back_and_keep_the_rest)
