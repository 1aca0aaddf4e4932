from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable.base.deadletter import OutputRecord
from streamtable.base.ports import Decoded, TopicInfo
from streamtable.base.topics import Stream
from streamtable.base.types import NextOffset, RecordBatch, TopicPartition
from streamtable.codec.plain import Json, Long, String
from streamtable.engine.basetask import Recovered
from streamtable.engine.calls.careful import CarefulMode
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.task import Task
from streamtable.errors import (
    GraphError,
    HandlerFailed,
    RetryLater,
    RewindNeeded,
    SerializationError,
    StoreBroken,
    StoreCorrupted,
    StreamtableError,
)
from streamtable.graph.aggregate import Count
from streamtable.graph.custom_task import AT_ONCE
from streamtable.graph.group import Group, Input, OnError, Output, Persist
from streamtable.handlers.context import BatchContext, Context
from streamtable.store.memory import MemoryStore, MemoryStores
from streamtable.tables.position import LocalPosition, TablePosition
from streamtable.tables.recovery import RecoveryPlan
from streamtable.tables.seen import SeenInputs

EVENTS = Stream("events", String(), String())
OUT = Stream("out", String(), String())
GIVE_UP = [OnError.DEAD_LETTER, OnError.SKIP]
Make = Callable[..., RecordBatch]
MakeTask = Callable[..., Task]
Rows = Sequence[tuple[bytes | None, bytes | None]]


def count(ctx: Context[str, int], event: str) -> None:
    ctx.set((ctx.value or 0) + 1)
    if event == "bad":
        ctx.emit(OUT, ctx.key, "a trace")
        raise ValueError("bad event")


def count_batch(records: BatchContext[str, str, int]) -> None:
    rows = records.get_many(records.keys)
    for key, event in zip(records.keys, records.events, strict=True):
        rows[key] = (rows[key] or 0) + 1
        if event == "bad":
            records.emit(OUT, key, "a trace")
            raise ValueError("bad event")
    records.put_many(rows)


class Counting(Count):
    """The built-in count, which a bad event stops."""

    def fold(self, rows: Any, keys: Sequence[bytes], events: Sequence[Any]) -> None:
        super().fold(rows, keys, events)
        if "bad" in events:
            raise ValueError("bad event")


HANDLERS: dict[str, Any] = {
    "per record": {"handler": count},
    "per batch": {"batch": count_batch},
    "aggregate": {"aggregate": Counting()},
}
KINDS = pytest.mark.parametrize("kind", list(HANDLERS))


def group_of(kind: str, on_error: OnError = OnError.STOP) -> Group[str, int]:
    return Group("g", Input(EVENTS, **HANDLERS[kind], on_error=on_error), Output(OUT), Persist(Long()))


def commit(task: Task) -> list[OutputRecord]:
    """As the checkpoint does, if Kafka accepts everything."""
    work = task.work()
    named = {name: at + len(work.named.get(name, ())) for name, at in task.named_positions.items()}
    task.committed(work, TablePosition(task.changelog_position + len(work.changes), exact=True, tables=named))
    return work.outputs


def work_through(task: Task, records: RecordBatch, cuts: Sequence[int]) -> list[OutputRecord]:
    """Process everything in batches that end at the cuts, commit after each, read again after a rewind."""
    outputs: list[OutputRecord] = []
    ends = sorted({min(cut, len(records)) for cut in cuts} | {len(records)})
    tries = 0
    while (at := task.next_offsets[records.topic]) < len(records):
        tries += 1
        assert tries < 10 * len(records) + 10, "it goes round in circles"
        try:
            task.process(records.part(at, next(end for end in ends if end > at)))
            outputs += commit(task)
        except RewindNeeded:
            task.rewind()
    return outputs


def rows_of(task: Task) -> dict[str, int]:
    with task.stores["g-table"].scan() as rows:
        return {key.decode(): Long().decode(value) for key, value in rows}


def offsets_of(outputs: Sequence[OutputRecord]) -> list[int]:
    return [int(dict(o.headers)["streamtable-origin-offset"] or b"") for o in outputs]


# ---- records in --------------------------------------------------------------------------------------------------------


def test_nothing_is_in_the_store_before_the_commit_and_all_of_it_after(
    make_task: MakeTask, batch: Make
) -> None:
    task = make_task(group_of("per record"))
    task.process(batch("events", [(b"a", b"x"), (b"b", b"x"), (b"a", b"x")]))
    assert rows_of(task) == {}
    assert task.dirty
    commit(task)
    assert rows_of(task) == {"a": 2, "b": 1}
    assert not task.dirty


def test_the_store_says_where_it_stands_in_the_same_write(make_task: MakeTask, batch: Make) -> None:
    task = make_task(group_of("per record"), changelog_position=7)
    task.process(batch("events", [(b"a", b"x"), (b"b", b"x")]))
    commit(task)
    assert LocalPosition.decode(task.stores["g-table"].checkpoint() or b"") == LocalPosition(
        9, "id-1", 1_000_000.0, {"events": 2, "g-retry": 0}, partitions=1
    )


def test_records_below_the_next_offset_are_dropped(make_task: MakeTask, batch: Make) -> None:
    task = make_task(group_of("per record"))
    records = batch("events", [(b"a", b"x")] * 4)
    task.process(records.part(0, 2))
    task.process(records.part(0, 2))
    task.process(records)
    commit(task)
    assert rows_of(task) == {"a": 4}


def test_gaps_between_offsets_are_normal(make_task: MakeTask, batch: Make) -> None:
    task = make_task(group_of("per record"))
    for first in (0, 10, 27):
        task.process(batch("events", [(b"a", b"x")], first=first))
    assert task.next_offsets["events"] == 28


def test_all_inputs_are_committed_with_the_tables_position(make_task: MakeTask, batch: Make) -> None:
    task = make_task(group_of("per record"), partition=3)
    task.process(batch("events", [(b"a", b"x")], partition=3))
    task.ends = {"events": 7}
    offsets = task.offsets(task.work(), TablePosition(12, exact=True))
    seen = SeenInputs.ids_of({"events": "id-1"}, {"events": NextOffset(1)})  # of the retries nothing was read
    assert offsets == {
        TopicPartition("events", 3): (1, TablePosition(12, exact=True, seen=SeenInputs(7, seen)).encode()),
        TopicPartition("g-retry", 3): (0, TablePosition(12, exact=True, seen=SeenInputs(0, seen)).encode()),
    }


def test_a_position_that_passed_markers_is_committed_with_the_next_records_or_after_a_second(
    make_task: MakeTask, batch: Make
) -> None:
    task = make_task(group_of("per record"))
    task.passed("events", 5, 100.0)
    assert (task.dirty, task.commit_due.at, task.next_offsets["events"]) == (True, 101.0, 5)
    task.passed("events", 6, 100.5)
    assert task.commit_due.at == 101.0
    task.process(batch("events", [(b"a", b"x")], first=6))
    assert task.commit_due.at == AT_ONCE
    task.passed("events", 3, 102.0)  # of long ago
    assert task.next_offsets["events"] == 7
    assert task.rewind()["events"] == 0
    assert not task.dirty


def test_a_partition_without_a_committed_offset_has_one_to_commit(make_task: MakeTask) -> None:
    task = make_task(group_of("per record"), uncommitted=True)
    assert task.dirty
    commit(task)
    assert not task.dirty


# ---- poison ------------------------------------------------------------------------------------------------------------

POISON: Rows = [(None, b"x"), (b"a", None), (b"\xff", b"x"), (b"a", b"\xff")]


@KINDS
def test_records_that_cannot_be_decoded_never_reach_a_handler(
    kind: str, make_task: MakeTask, batch: Make
) -> None:
    task = make_task(group_of(kind))
    task.process(batch("events", [(b"a", b"x"), *POISON, (b"", b""), (b"a", b"x")]))
    outputs = commit(task)
    assert rows_of(task) == {"": 1, "a": 2}
    assert offsets_of(outputs) == [1, 2, 3, 4]
    assert [(o.key, o.value) for o in outputs] == POISON
    assert {(o.topic, o.partition) for o in outputs} == {("g-dead-letters", 0)}


@KINDS
@pytest.mark.parametrize("on_error", list(OnError))
def test_a_batch_of_poison_alone_moves_the_offsets_on(
    kind: str, on_error: OnError, make_task: MakeTask, batch: Make
) -> None:
    task = make_task(group_of(kind, on_error))
    task.process(batch("events", POISON))
    assert (len(commit(task)), task.committed_offsets["events"]) == (4, 4)


# ---- handlers that fail ------------------------------------------------------------------------------------------------


def test_a_failing_handler_stops_with_the_place_and_the_cause(make_task: MakeTask, batch: Make) -> None:
    task = make_task(group_of("per record"))
    records = batch("events", [(b"a", b"x"), (b"b", b"bad")], first=5)
    with pytest.raises(RewindNeeded):
        task.process(records)
    task.rewind()
    with pytest.raises(HandlerFailed, match=r"ValueError: bad event.*\(events\[0\]@6\)") as caught:
        task.process(records)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "'streamtable group skip g events 0 6'" in str(caught.value)
    commit(task)
    assert (rows_of(task), task.committed_offsets["events"]) == ({"a": 1}, 6)


@KINDS
@pytest.mark.parametrize("on_error", GIVE_UP)
def test_a_record_that_is_given_up_leaves_no_trace_and_stops_no_other(
    kind: str, on_error: OnError, make_task: MakeTask, batch: Make
) -> None:
    task = make_task(group_of(kind, on_error))
    records = batch("events", [(b"a", b"x"), (b"b", b"bad"), (b"a", b"x"), (b"b", b"x"), (b"c", b"bad")])
    outputs = work_through(task, records, [2, 4])
    assert rows_of(task) == {"a": 2, "b": 1}
    assert {o.topic for o in outputs} <= {"g-dead-letters"}
    assert offsets_of(outputs) == ([1, 4] if on_error is OnError.DEAD_LETTER else [])


@KINDS
def test_what_is_remembered_of_failures_is_forgotten_with_their_commit(
    kind: str, make_task: MakeTask, batch: Make
) -> None:
    task = make_task(group_of(kind, OnError.SKIP))
    work_through(task, batch("events", [(b"a", b"bad"), (b"a", b"x")] * 50), range(100))
    mode = task._dispatcher._mode
    assert {key: found for key, found in mode._condemned.items() if found} == {}
    assert mode._commit_at == {}


def test_values_changed_in_place_are_as_before_after_a_rewind(make_task: MakeTask, batch: Make) -> None:
    def append(ctx: Context[str, Any], event: str) -> None:
        row = ctx.value or []
        row.append(event)
        ctx.set(row)
        if event == "bad":
            raise ValueError

    group: Group[str, Any] = Group(
        "g", Input(EVENTS, append, on_error=OnError.DEAD_LETTER), Output(OUT), Persist(Json())
    )
    task = make_task(group)
    work_through(task, batch("events", [(b"a", b"1"), (b"a", b"2"), (b"a", b"bad"), (b"a", b"3")]), [1])
    assert task.stores["g-table"].get(b"a") == b'["1","2","3"]'


def test_an_error_in_the_graph_is_never_blamed_on_a_record(make_task: MakeTask, batch: Make) -> None:
    group: Group[str, int] = Group(
        "g",
        Input(EVENTS, lambda ctx, event: ctx.emit(OUT, ctx.key, event), on_error=OnError.SKIP),
        Persist(Long()),
    )
    with pytest.raises(GraphError, match="'out', which is not declared"):
        make_task(group).process(batch("events", [(b"a", b"x")]))


class Registry(String):
    """A codec whose registry does not answer."""

    def decode(self, data: bytes) -> str:
        raise RetryLater("the registry does not answer")

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[str]:
        raise RetryLater("the registry does not answer")


@pytest.mark.parametrize("away", ["events", "rows"])
def test_a_registry_that_is_away_condemns_no_record(away: str, make_task: MakeTask, batch: Make) -> None:
    stream: Stream[str, str] = EVENTS if away == "rows" else Stream("events", String(), Registry())
    group: Group[str, str] = Group(
        "g", Input(stream, lambda ctx, event: ctx.set(ctx.value or event), on_error=OnError.SKIP),
        Persist(Registry() if away == "rows" else String()),
    )  # fmt: skip
    task = make_task(group)
    task.stores["g-table"].write([(b"a", b"1")], b"")
    with pytest.raises(RetryLater, match="registry"):
        task.process(batch("events", [(b"a", b"x")]))
    assert task.rewind() == {"events": 0, "g-retry": 0}


# ---- too large ---------------------------------------------------------------------------------------------------------


def enlarge(ctx: Context[str, str], event: str) -> None:
    ctx.set("x" * int(event))


def emit_large(ctx: Context[str, str], event: str) -> None:
    ctx.set("seen")
    ctx.emit(OUT, ctx.key, "x" * int(event))


@pytest.mark.parametrize("handler", [enlarge, emit_large])
@pytest.mark.parametrize("on_error", GIVE_UP)
def test_what_is_too_large_for_its_topic_is_as_if_the_handler_had_failed(
    handler: Any, on_error: OnError, make_task: MakeTask, batch: Make, topic_infos: Any
) -> None:
    group: Group[str, str] = Group(
        "g", Input(EVENTS, handler, on_error=on_error), Output(OUT), Persist(String())
    )
    task = make_task(group, topics=topic_infos(group, max_message_bytes=1_000))
    outputs = work_through(task, batch("events", [(b"a", b"10"), (b"b", b"5000"), (b"c", b"10")]), [])
    assert [task.stores["g-table"].get(key) is not None for key in (b"a", b"b", b"c")] == [True, False, True]
    letters = [o for o in outputs if o.topic == "g-dead-letters"]
    assert offsets_of(letters) == ([1] if on_error is OnError.DEAD_LETTER else [])
    assert all(dict(letter.headers)["streamtable-error"] == b"SerializationError" for letter in letters)


@pytest.mark.parametrize("handler", [enlarge, emit_large])
def test_what_is_too_large_stops_the_process_with_the_offset_that_made_it(
    handler: Any, make_task: MakeTask, batch: Make, topic_infos: Any
) -> None:
    group: Group[str, str] = Group("g", Input(EVENTS, handler), Output(OUT), Persist(String()))
    task = make_task(group, topics=topic_infos(group, max_message_bytes=1_000))
    with pytest.raises(HandlerFailed, match=r"more than the [\d,]+ that its topic accepts.*@1"):
        work_through(task, batch("events", [(b"a", b"10"), (b"b", b"5000"), (b"c", b"10")]), [])


def test_a_row_that_becomes_too_large_and_small_again_before_the_commit_is_fine(
    make_task: MakeTask, batch: Make, topic_infos: Any
) -> None:
    group: Group[str, str] = Group("g", Input(EVENTS, enlarge), Output(OUT), Persist(String()))
    task = make_task(group, topics=topic_infos(group, max_message_bytes=1_000))
    assert work_through(task, batch("events", [(b"a", b"5000"), (b"a", b"10")]), []) == []


def test_a_record_whose_output_is_refused_together_with_an_earlier_one_of_its_key_is_tried_without_that_one(
    make_task: MakeTask, batch: Make
) -> None:
    def add(ctx: Context[str, str], event: str) -> None:
        ctx.set((ctx.value or "") + event)
        ctx.emit(OUT, ctx.key, "made of this row")

    group: Group[str, str] = Group(
        "g", Input(EVENTS, add, on_error=OnError.SKIP), Output(OUT), Persist(String())
    )
    task, records = make_task(group), batch("events", [(b"a", b"1"), (b"a", b"2"), (b"b", b"3")])
    too_large = SerializationError("too large for the broker")
    for _ in range(2):  # at first it is not known whose they are
        task.process(records)
        assert task.refused([0, 1], too_large)
        task.rewind()
    task.process(records)
    commit(task)
    with task.stores["g-table"].scan() as rows:
        assert dict(rows) == {b"a": b"2", b"b": b"3"}


# ---- retries -----------------------------------------------------------------------------------------------------------

ORIGIN = [
    ("streamtable-origin-topic", b"events"),
    ("streamtable-origin-partition", b"0"),
    ("streamtable-origin-offset", b"42"),
]


def retried(record: Any, value: bytes, headers: Any) -> RecordBatch:
    return RecordBatch("g-retry", 0, [record(b"a", value, 0, headers)])


def test_a_dead_letter_that_is_sent_again_is_handled_by_its_origins_handler(
    make_task: MakeTask, record: Any
) -> None:
    task = make_task(group_of("per record"))
    task.process(retried(record, b"x", ORIGIN))
    assert commit(task) == []
    assert rows_of(task) == {"a": 1}
    assert task.committed_offsets == {"events": 0, "g-retry": 1}


@KINDS
def test_one_that_fails_again_keeps_its_origin_and_counts_the_attempt(
    kind: str, make_task: MakeTask, record: Any
) -> None:
    task = make_task(group_of(kind, OnError.DEAD_LETTER))
    outputs = work_through(task, retried(record, b"bad", ORIGIN), [])
    assert offsets_of(outputs) == [42]
    assert dict(outputs[0].headers)["streamtable-attempt"] == b"2"
    assert rows_of(task) == {}


def test_one_that_is_fine_is_not_blamed_for_a_row_that_a_record_before_it_made_too_large(
    make_task: MakeTask, batch: Make, record: Any, topic_infos: Any
) -> None:
    def append(ctx: Context[str, str], event: str) -> None:
        ctx.set((ctx.value or "") + "x" * int(event))

    group: Group[str, str] = Group(
        "g", Input(EVENTS, append, on_error=OnError.DEAD_LETTER), Persist(String())
    )
    task = make_task(group, topics=topic_infos(group, max_message_bytes=1_000))
    large, fine = batch("events", [(b"a", b"5000")]), retried(record, b"10", ORIGIN)
    task.process(large)
    task.process(fine)
    with pytest.raises(RewindNeeded):
        task.work()
    task.rewind()
    letters = [*work_through(task, large, []), *work_through(task, fine, [])]
    assert [(letter.value, dict(letter.headers)["streamtable-error"]) for letter in letters] == [
        (b"5000", b"SerializationError")
    ]
    assert task.stores["g-table"].get(b"a") == b"x" * 10


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (None, b"no origin headers"),
        ([("streamtable-origin-topic", b"other"), *ORIGIN[1:]], b"no input of group 'g'"),
        ([ORIGIN[0], ("streamtable-origin-partition", b"1"), ORIGIN[2]], b"from partition 1"),
    ],
)
def test_a_record_in_the_retry_topic_that_is_no_dead_letter_of_ours_becomes_one(
    headers: Any, reason: bytes, make_task: MakeTask, record: Any
) -> None:
    task = make_task(group_of("per record"))
    task.process(retried(record, b"x", headers))
    (letter,) = commit(task)
    assert reason in (dict(letter.headers)["streamtable-message"] or b"")
    assert rows_of(task) == {}


# ---- outputs -----------------------------------------------------------------------------------------------------------


def test_outputs_are_encoded_at_once_and_forgotten_by_a_rewind(make_task: MakeTask, batch: Make) -> None:
    def handle(ctx: Context[str, int], event: str) -> None:
        ctx.emit(OUT, ctx.key, event, headers=[("h", b"1")], timestamp_ms=5)
        ctx.emit(OUT, ctx.key, None)

    group: Group[str, int] = Group("g", Input(EVENTS, handle), Output(OUT))
    task = make_task(group)
    task.process(batch("events", [(b"a", b"x")]))
    assert task.work().outputs == [
        OutputRecord("out", b"a", b"x", [("h", b"1")], 5),
        OutputRecord("out", b"a", None),
    ]
    assert task.changed.bytes > 0
    task.rewind()
    assert (task.work().outputs, task.changed.bytes, task.dirty) == ([], 0, False)


# ---- a store that fails ------------------------------------------------------------------------------------------------


class Failing(MemoryStore):
    """A store whose next write fails."""

    error: StreamtableError | None = None

    def write(self, changes: Any, checkpoint: bytes, *, bulk: bool = False) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        super().write(changes, checkpoint, bulk=bulk)


@pytest.fixture
def failing(stores: MemoryStores) -> Failing:
    store = stores.open("g-table", 0)
    store.__class__ = Failing
    assert isinstance(store, Failing)
    return store


def test_a_disk_that_refused_the_commit_is_never_said_to_hold_it(
    failing: Failing, make_task: MakeTask, batch: Make
) -> None:
    task = make_task(group_of("per record"), store=failing)
    task.process(batch("events", [(b"a", b"x")]))
    failing.error = StoreBroken("disk full")
    with pytest.raises(StoreBroken):
        commit(task)
    # The process stops now, and notes in the stores of idle tasks that they are current.
    assert task.dirty


def test_a_damaged_store_does_not_undo_a_commit_that_kafka_has(
    failing: Failing, make_task: MakeTask, batch: Make
) -> None:
    task = make_task(group_of("per record"), store=failing)
    task.process(batch("events", [(b"a", b"x")]))
    failing.error = StoreCorrupted("bit flip")
    commit(task)
    assert isinstance(task.failure, StoreCorrupted)
    assert (task.dirty, task.committed_offsets["events"]) == (False, 1)


def test_damage_that_is_found_right_after_a_commit_does_not_undo_it(
    make_task: MakeTask, batch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of due rows asks the store for rows that are left to be deleted."""
    task = make_task(group_of("per record"))
    task.process(batch("events", [(b"a", b"x")]))

    def damaged(_: object) -> None:
        raise StoreCorrupted("bit flip")

    monkeypatch.setattr(task._dispatcher, "committed", damaged)
    commit(task)
    assert isinstance(task.failure, StoreCorrupted)
    assert (task.dirty, task.committed_offsets["events"]) == (False, 1)


# ---- exactly once is what a batch says ---------------------------------------------------------------------------------

VALUES = [b"x", b"x", b"bad", b"\xff", None]
EVENT = st.tuples(st.sampled_from([b"a", b"b", b"c", None, b"\xff"]), st.sampled_from(VALUES))


def expected(events: Rows) -> tuple[dict[str, int], set[int]]:
    """The table and the dead letters' offsets, computed over the whole stream at once."""
    table: dict[str, int] = {}
    dead = set()
    for offset, (key, value) in enumerate(events):
        if key in {None, b"\xff"} or value in {None, b"\xff", b"bad"}:
            dead.add(offset)
        elif key is not None:
            table[key.decode()] = table.get(key.decode(), 0) + 1
    return table, dead


@KINDS
@settings(max_examples=150, deadline=None)
@given(events=st.lists(EVENT, max_size=25), cuts=st.lists(st.integers(1, 25), max_size=5), data=st.data())
def test_any_cut_into_batches_gives_the_table_and_the_dead_letters_of_the_whole_stream(
    kind: str, events: Rows, cuts: list[int], data: st.DataObject
) -> None:
    topics = {
        name: TopicInfo(name, 1, "id", name == "g-table", 1_000, 1_000_000)
        for name in ("events", "g-retry", "g-dead-letters", "g-table", "out")
    }
    store = MemoryStores().open("g-table", 0)
    clock: Any = type("Clock", (), {"now": lambda self: 0.0, "monotonic": lambda self: 0.0})()
    begin = RecoveryPlan({"events": NextOffset(0), "g-retry": NextOffset(0)}, uncommitted=False)
    recovered = Recovered(0, topics, {"g-table": store}, {"g-table": 0}, begin)
    sized = ProcessorSettings("here", cache_bytes=data.draw(st.sampled_from([1, 1 << 20])))
    task = Task(group_of(kind, OnError.DEAD_LETTER), recovered, sized, clock, {}, CarefulMode())

    def records(start: int, stop: int) -> RecordBatch:
        return RecordBatch("events", 0, [_Record(*events[n], n) for n in range(start, stop)])

    outputs: list[OutputRecord] = []
    ends = sorted({min(cut, len(events)) for cut in cuts} | {len(events)})
    while (at := task.next_offsets["events"]) < len(events):
        try:
            task.process(records(at, next(end for end in ends if end > at)))
            if data.draw(st.booleans(), label="commit"):
                outputs += commit(task)
        except RewindNeeded:
            task.rewind()
    outputs += commit(task)
    table, dead = expected(events)
    assert rows_of(task) == table
    assert sorted(offsets_of(outputs)) == sorted(dead)


class _Record:
    def __init__(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        self._fields = (key, value, offset)

    def key(self) -> bytes | None:
        return self._fields[0]

    def value(self) -> bytes | None:
        return self._fields[1]

    def offset(self) -> int:
        return self._fields[2]

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (0, -1)
