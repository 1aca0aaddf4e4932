from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from streamtable.base.failpoint import no_failpoint
from streamtable.base.topics import Stream
from streamtable.base.types import Committed, Guarantee, NextOffset, RecordBatch, TopicPartition, Watermarks
from streamtable.codec.plain import Long, String
from streamtable.engine.member import Member
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.task import Task
from streamtable.engine.watch.metrics import EngineMetrics
from streamtable.errors import (
    AuthenticationFailed,
    ConfigurationError,
    Fenced,
    HandlerFailed,
    InputLost,
    Migrated,
    OutcomeUnknown,
    RetryLater,
    RewindNeeded,
    StoreCorrupted,
    StreamtableError,
    TransactionTimeoutRefused,
)
from streamtable.graph.custom_task import CommitDue
from streamtable.graph.group import Group, Input, OnError, Persist
from streamtable.observe import Metrics, SilentProgress
from streamtable.store.memory import MemoryStores
from streamtable.tables.position import LocalPosition


def count(ctx: Any, event: str) -> None:
    if event == "away":
        raise RetryLater("the registry does not answer")
    if event == "bad":
        raise ValueError(event)
    ctx.set((ctx.value or 0) + 1)


GROUP: Group[str, int] = Group(
    "g", Input(Stream("events", String(), String()), count, on_error=OnError.DEAD_LETTER), Persist(Long())
)
EVENTS, RETRY = TopicPartition("events", 0), TopicPartition("g-retry", 0)


class Rig:
    """A member on doubles of the log."""

    steps: Any
    consumer: Any
    reader: Any
    stores: Any
    clock: Any
    batch: Any
    record: Any
    make_outbox: Any
    cluster: Any

    def __init__(self, guarantee: Guarantee, doubles: dict[str, Any]) -> None:
        self.__dict__ |= doubles
        self.outboxes: list[Any] = []
        self.guarantee = guarantee
        settings = ProcessorSettings("i", guarantee=guarantee, commit_interval=1.0)
        meters = EngineMetrics(GROUP, Metrics.register(CollectorRegistry()), SilentProgress())
        self.member = Member(
            GROUP, self, self.cluster, self.cluster.infos, self.stores, settings, self.clock, meters, no_failpoint  # type: ignore[arg-type] # a double
        )  # fmt: skip

    # ---- ports.Log ----

    def transactional_producer(
        self, transactional_id: str | None, batch_bytes: int, transaction_seconds: float
    ) -> Any:
        made = self.make_outbox(self.steps)
        made.transactional_id, made.transaction_seconds = transactional_id, transaction_seconds
        self.outboxes.append(made)
        return made

    def group_consumer(self, group: str, instance_id: str) -> Any:
        return self.consumer

    def table_reader(self, name: str) -> Any:
        return self.reader

    # ---- what a test does ----

    def join(self, *partitions: int) -> None:
        places = [TopicPartition(t, p) for p in partitions or (0,) for t in ("events", "g-retry")]
        self.consumer.paused.update(places)
        self.consumer.listener.assigned(places)
        self.recover()

    def join_two(self) -> None:
        for topic in ("events", "g-retry"):
            self.cluster.committed[TopicPartition(topic, 1)] = self.cluster.committed[
                TopicPartition(topic, 0)
            ]
        self.join(0, 1)

    def recover(self) -> None:
        for _ in range(5):
            self.member.restorer.step(0)
            self.clock.sleep(0.3)
        self.member.step()
        self.member._committed_at = self.clock.monotonic()  # the next commit is due in a second
        self.consumer.seeks.clear()

    def deliver(self, rows: list[tuple[bytes, bytes]], first: int = 0, partition: int = 0) -> None:
        self.consumer.batches.append([self.batch("events", rows, first=first, partition=partition)])

    def turn(self, *, commit: bool = False) -> None:
        if commit:
            self.clock.sleep(1.1)
        self.member.step()

    @property
    def rows(self) -> dict[bytes, int]:
        store = self.member.assignment.tasks[0].stores[GROUP.table.name]
        with store.scan() as rows:
            return {key: Long().decode(value) for key, value in rows}


@pytest.fixture
def doubles(
    steps: Any, consumer: Any, reader: Any, stores: MemoryStores, clock: Any, batch: Any,
    record: Any, make_outbox: Any, make_cluster: Any, topic_infos: Callable[..., Any],
    metadata_of: Callable[..., str],
) -> dict[str, Any]:  # fmt: skip
    cluster = make_cluster(topic_infos(GROUP))
    for place in (EVENTS, RETRY):
        cluster.committed[place] = Committed(NextOffset(0), metadata_of(GROUP, place.topic, 0))
    cluster.marks[EVENTS] = Watermarks(0, 1_000)
    return {
        "steps": steps, "consumer": consumer, "reader": reader, "stores": stores, "clock": clock,
        "batch": batch, "record": record, "make_outbox": make_outbox, "cluster": cluster,
    }  # fmt: skip


@pytest.fixture
def rig(doubles: dict[str, Any]) -> Any:
    return Rig(Guarantee.EXACTLY_ONCE, doubles)


class Timetable:
    """The due times of the tasks of a test, and the time since when the records that they got may have waited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, alone: bool) -> None:
        self.due: dict[int, float] = {}
        self.since: list[float | None] = []
        handle = Task.process

        def process(task: Task, records: RecordBatch, since: float | None = None, room: int = 1) -> int:
            self.since.append(since)
            return handle(task, records, since)

        monkeypatch.setattr(Task, "process", process)
        due = property(lambda task: CommitDue(self.due[task.partition], alone))
        monkeypatch.setattr(Task, "commit_due", due)


@pytest.mark.parametrize(("alone", "left"), [(True, [{0, 1}, {0}, set()]), (False, [{0, 1}, set(), set()])])
def test_tasks_that_work_alone_are_committed_one_by_one_the_longest_due_first(
    rig: Any, monkeypatch: pytest.MonkeyPatch, *, alone: bool, left: list[set[int]]
) -> None:
    rig.join_two()
    times = Timetable(monkeypatch, alone=alone)
    now = rig.clock.monotonic()
    times.due = {0: now + 3.0, 1: now + 2.0}
    rig.deliver([(b"a", b"x")])
    rig.deliver([(b"b", b"x")], partition=1)
    rig.turn()
    found = []
    for seconds in (0.0, 4.0, 0.0):
        rig.clock.sleep(seconds)
        rig.turn()
        found.append({number for number, task in rig.member.assignment.tasks.items() if task.dirty})
    assert found == left


def test_what_is_polled_may_have_waited_since_the_poll_before(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.join()
    times = Timetable(monkeypatch, alone=True)
    times.due = {0: 0.0}
    rig.turn()
    before = rig.clock.monotonic()
    rig.clock.sleep(0.7)
    rig.deliver([(b"a", b"x")])
    rig.turn()
    assert times.since == [before]


def test_partitions_are_resumed_where_they_go_on_once_they_are_recovered(rig: Any) -> None:
    places = [EVENTS, RETRY]
    rig.consumer.paused.update(places)
    rig.consumer.listener.assigned(places)
    rig.member.step()
    assert (rig.consumer.paused, rig.member.ready) == (set(places), False)
    rig.member.restorer.step(0)
    rig.member.step()
    assert (rig.consumer.paused, rig.member.ready) == (set(), True)
    assert rig.consumer.seeks == [(EVENTS, 0), (RETRY, 0)]


def test_a_member_that_is_given_nothing_is_ready_after_a_while_as_a_spare_one(rig: Any) -> None:
    rig.turn()
    assert not rig.member.ready
    rig.clock.sleep(16)
    assert rig.member.ready


def test_work_is_committed_when_its_time_has_come(rig: Any) -> None:
    rig.join()
    rig.deliver([(b"a", b"x")])
    rig.turn()
    assert "commit" not in rig.steps.taken
    rig.turn(commit=True)
    assert rig.steps.taken.count("commit") == 1
    assert rig.rows == {b"a": 1}


def test_nothing_is_committed_when_there_is_nothing_to_commit(rig: Any) -> None:
    rig.join()
    for _ in range(3):
        rig.turn(commit=True)
    assert rig.steps.taken == ["open"]


def test_many_changes_force_a_commit_before_its_time(doubles: dict[str, Any]) -> None:
    rig = Rig(Guarantee.EXACTLY_ONCE, doubles)
    rig.member._budget.bytes = 100
    rig.join()
    rig.deliver([(b"%d" % n, b"x") for n in range(10)])
    rig.turn()
    assert "commit" in rig.steps.taken


def test_changed_rows_that_take_a_quarter_of_the_memory_of_rows_force_a_commit_before_its_time(
    doubles: dict[str, Any],
) -> None:
    rig = Rig(Guarantee.EXACTLY_ONCE, doubles)
    rig.member.settings = ProcessorSettings("i", commit_interval=1.0, cache_bytes=400_000)
    rig.join()
    keys = [b"%04d" % number for number in range(1_000)]
    rig.deliver([(key, b"x") for key in keys[:100]])
    rig.turn()
    assert "commit" not in rig.steps.taken
    rig.deliver([(key, b"x") for key in keys[100:]], first=100)
    rig.turn()
    assert "commit" in rig.steps.taken


def test_offsets_of_a_new_partition_are_committed_before_its_first_record(rig: Any) -> None:
    rig.cluster.committed = {}
    rig.join()
    assert rig.steps.taken == ["open", "begin", "flush", "send offsets", "commit"]
    assert rig.outboxes[0].offsets[EVENTS].next_offset == 0


@pytest.mark.parametrize("error", [RewindNeeded("x"), Migrated("x")], ids=repr)
@pytest.mark.parametrize("step", ["flush", "send offsets", "commit"])
def test_a_commit_that_was_refused_is_aborted_and_its_records_are_read_again(
    step: str, error: StreamtableError, rig: Any
) -> None:
    rig.join()
    rig.steps.fail(step, error)
    rig.deliver([(b"a", b"x")])
    rig.turn()
    rig.turn(commit=True)
    assert rig.steps.taken[-1] == "abort"
    assert (rig.consumer.seeks, rig.rows) == ([(EVENTS, 0), (RETRY, 0)], {})
    rig.deliver([(b"a", b"x"), (b"a", b"x")])
    rig.turn(commit=True)
    assert rig.rows == {b"a": 2}
    assert len(rig.outboxes) == 1


def slow(rig: Any, seconds: float) -> None:
    """Let the next transactions take this long."""
    outbox = rig.outboxes[-1]
    flush = outbox.flush

    def flushed_late(timeout: float) -> Any:
        rig.clock.sleep(seconds)
        return flush(timeout)

    outbox.flush = flushed_late


def commit_one(rig: Any, first: int) -> None:
    rig.deliver([(b"a", b"x")], first=first)
    rig.turn()
    rig.turn(commit=True)


def test_after_a_slow_commit_a_new_producer_has_a_longer_transaction_timeout_and_no_table_recovers(
    rig: Any,
) -> None:
    rig.join()
    task = rig.member.assignment.tasks[0]
    slow(rig, 9.0)
    commit_one(rig, 0)
    assert [outbox.transaction_seconds for outbox in rig.outboxes] == [10, 40]
    assert [outbox.closed for outbox in rig.outboxes] == [True, False]
    assert (rig.rows, rig.member.ready, rig.member.undone) == ({b"a": 1}, True, 0)
    assert rig.member.assignment.tasks[0] is task
    rig.outboxes[1].ends = rig.outboxes[0].ends  # the log goes on
    commit_one(rig, 1)
    assert rig.rows == {b"a": 2}
    assert len(rig.outboxes) == 2


def test_after_two_commits_in_a_row_that_failed_for_their_time_the_next_one_is_given_more(rig: Any) -> None:
    rig.join()
    slow(rig, 4.1)
    rig.steps.fail("flush", RewindNeeded("x"), RewindNeeded("x"))
    for _ in range(2):
        commit_one(rig, 0)
    rig.turn()
    assert [outbox.transaction_seconds for outbox in rig.outboxes] == [10, 20]


def test_where_the_broker_refuses_a_longer_transaction_timeout_the_one_before_is_kept(rig: Any) -> None:
    rig.join()
    slow(rig, 9.0)
    rig.steps.fail("open", TransactionTimeoutRefused("too long"))
    commit_one(rig, 0)
    rig.turn()
    assert [outbox.transaction_seconds for outbox in rig.outboxes] == [10, 40, 20]
    rig.recover()
    assert rig.member.ready


def test_records_that_were_polled_before_a_rewind_are_not_handled_behind_it(rig: Any) -> None:
    rig.join()
    rig.deliver([(b"a", b"x")])
    rig.turn()
    rig.steps.fail("flush", RewindNeeded("x"))
    rig.member.commit()  # as a rebalance callback does, from within the poll that then returns offset 1
    rig.deliver([(b"a", b"x")], first=1)
    rig.turn()
    assert rig.member.assignment.tasks[0].next_offsets["events"] == 0
    assert rig.consumer.seeks == [(EVENTS, 0), (RETRY, 0)]


def test_refusals_one_after_the_other_make_it_slower_but_not_without_end(rig: Any) -> None:
    rig.join()
    rig.steps.fail("flush", *[RewindNeeded("x")] * 1_100)
    waits = []
    for _ in range(1_100):
        rig.deliver([(b"a", b"x")])
        before = rig.clock.slept
        rig.turn()
        rig.member.commit()
        waits.append(round(rig.clock.slept - before, 3))
        rig.turn()
    assert waits[0] < 0.2
    assert waits == sorted(waits)
    assert waits[-1] == 5.0


@pytest.mark.parametrize("step", ["commit", "send offsets"])
def test_after_an_unknown_outcome_every_task_recovers_with_a_new_producer(
    step: str, rig: Any, metadata_of: Callable[..., str]
) -> None:
    rig.join()
    rig.steps.fail(step, OutcomeUnknown("no answer"))
    rig.deliver([(b"a", b"x")])
    rig.turn()
    old = rig.member.assignment.tasks[0]
    rig.turn(commit=True)
    assert "abort" not in rig.steps.taken
    assert [outbox.closed for outbox in rig.outboxes] == [True, False]
    assert {outbox.transactional_id for outbox in rig.outboxes} == {"g-i"}
    assert rig.steps.taken[-2:] == ["close outbox", "open"]
    assert (rig.member.ready, rig.consumer.paused) == (False, {EVENTS, RETRY})
    # It did happen: the broker knows, and so do the changelog and the offsets.
    rig.cluster.committed[EVENTS] = Committed(NextOffset(1), metadata_of(GROUP, EVENTS.topic, 1))
    rig.cluster.marks[TopicPartition("g-table", 0)] = Watermarks(0, 2)
    rig.reader.logs[TopicPartition("g-table", 0)] = [rig.record(b"a", Long().encode(1), 0)]
    rig.recover()
    assert rig.rows == {b"a": 1}
    assert rig.member.assignment.tasks[0] is not old
    assert rig.member.assignment.tasks[0].next_offsets["events"] == 1


def test_an_abort_of_unknown_outcome_is_an_unknown_outcome(rig: Any) -> None:
    rig.join()
    rig.steps.fail("flush", RewindNeeded("x"))
    rig.steps.fail("abort", OutcomeUnknown("no answer"))
    rig.deliver([(b"a", b"x")])
    rig.turn()
    rig.turn(commit=True)
    assert [outbox.closed for outbox in rig.outboxes] == [True, False]
    assert not rig.member.ready


def test_while_no_new_producer_can_be_had_nothing_is_handled_or_committed(rig: Any) -> None:
    rig.join()
    rig.steps.fail("commit", OutcomeUnknown("no answer"))
    rig.steps.fail("open", RetryLater("x"), RetryLater("x"))
    rig.deliver([(b"a", b"x")])
    rig.turn()
    rig.turn(commit=True)
    rig.deliver([(b"a", b"x")], first=1)
    rig.turn(commit=True)
    rig.consumer.listener.revoked([])
    assert rig.steps.taken.count("commit") == 1
    rig.turn()
    assert [outbox.closed for outbox in rig.outboxes] == [True, True, True, False]
    rig.recover()
    assert rig.member.ready


def test_while_no_client_can_be_made_for_the_new_producer_it_is_tried_again(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_a_token(*_: object) -> None:
        raise AuthenticationFailed("gave no token")

    rig.join()
    rig.steps.fail("commit", OutcomeUnknown("no answer"))
    rig.deliver([(b"a", b"x")])
    rig.turn()
    with monkeypatch.context() as patch:
        patch.setattr(rig, "transactional_producer", without_a_token)
        rig.turn(commit=True)
        rig.turn()
        assert [outbox.closed for outbox in rig.outboxes] == [False]
    rig.turn()
    assert [outbox.closed for outbox in rig.outboxes] == [True, False]
    rig.recover()
    assert rig.member.ready


def test_a_partition_that_is_revoked_while_its_outcome_is_unknown_is_not_said_to_be_current(
    rig: Any,
) -> None:
    rig.join()
    rig.steps.fail("commit", OutcomeUnknown("no answer"))
    rig.deliver([(b"a", b"x")])
    rig.turn()
    rig.consumer.listener.revoked([EVENTS, RETRY])
    checkpoint = LocalPosition.decode(rig.stores.open("g-table", 0).checkpoint() or b"")
    assert checkpoint.changelog == 0


def test_a_newer_process_with_the_same_id_ends_this_one(rig: Any) -> None:
    rig.join()
    rig.steps.fail("commit", Fenced("another process"))
    rig.deliver([(b"a", b"x")])
    rig.turn()
    with pytest.raises(Fenced):
        rig.turn(commit=True)


def test_a_failing_handler_sends_its_own_partition_back_and_no_other(rig: Any) -> None:
    rig.join_two()
    rig.consumer.batches.append(
        [
            rig.batch("events", [(b"a", b"x"), (b"a", b"bad"), (b"a", b"x")]),
            rig.batch("events", [(b"b", b"x")], partition=1),
        ]
    )
    rig.turn()
    assert rig.consumer.seeks == [(EVENTS, 0), (RETRY, 0)]
    assert rig.member.assignment.tasks[1].next_offsets["events"] == 1
    rig.deliver([(b"a", b"x"), (b"a", b"bad"), (b"a", b"x")])
    rig.turn(commit=True)
    assert rig.rows == {b"a": 2}
    assert [r["topic"] for r in rig.outboxes[0].produced].count("g-dead-letters") == 1


def test_an_outside_that_does_not_answer_makes_a_partition_wait_not_stop(rig: Any) -> None:
    rig.join()
    rig.deliver([(b"a", b"x"), (b"a", b"away")])
    rig.turn()
    assert rig.clock.slept > 0
    assert rig.consumer.seeks == [(EVENTS, 0), (RETRY, 0)]
    rig.deliver([(b"a", b"x"), (b"a", b"x")])
    rig.turn(commit=True)
    assert rig.rows == {b"a": 2}


def test_a_damaged_store_is_loaded_again_while_the_member_goes_on(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.join()
    store = rig.member.assignment.tasks[0].stores[GROUP.table.name]

    def fail(*_: Any) -> None:
        raise StoreCorrupted("bit flip")

    monkeypatch.setattr(store, "get", fail)
    rig.deliver([(b"a", b"x")])
    rig.turn()
    assert rig.consumer.paused == {EVENTS, RETRY}
    rig.recover()
    rig.deliver([(b"a", b"x")])
    rig.turn(commit=True)
    assert rig.rows == {b"a": 1}
    assert rig.member.assignment.tasks[0].stores[GROUP.table.name] is not store


def test_damage_that_an_idle_partition_shows_when_it_is_noted_as_current_is_mended(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.join()
    store = rig.member.assignment.tasks[0].stores[GROUP.table.name]

    def fail(*_: Any) -> None:
        raise StoreCorrupted("bit flip")

    monkeypatch.setattr(store, "write", fail)
    rig.clock.sleep(61)
    rig.turn()
    assert rig.consumer.paused == {EVENTS, RETRY}
    rig.recover()
    rig.turn()
    assert rig.member.assignment.tasks[0].stores[GROUP.table.name] is not store


def test_after_an_error_nothing_more_is_committed_on_the_way_out(doubles: dict[str, Any]) -> None:
    rig: Any = Rig(Guarantee.EXACTLY_ONCE, doubles)
    rig.join()
    rig.deliver([(b"a", b"x")])
    rig.turn()
    rig.member.abandon()
    rig.consumer.listener.revoked([EVENTS, RETRY])
    rig.member.close()
    assert "begin" not in rig.steps.taken
    assert rig.outboxes[0].closed
    assert rig.reader.closed


def test_at_least_once_has_no_transactional_id(doubles: dict[str, Any]) -> None:
    rig: Any = Rig(Guarantee.AT_LEAST_ONCE, doubles)
    rig.join()
    rig.deliver([(b"a", b"x")])
    rig.turn()
    rig.turn(commit=True)
    assert rig.outboxes[0].transactional_id is None
    assert rig.rows == {b"a": 1}


def test_idle_partitions_are_noted_as_current_every_minute(rig: Any) -> None:
    rig.join()
    for _ in range(3):
        rig.clock.sleep(61)
        rig.turn()
    checkpoint = rig.member.assignment.tasks[0].stores[GROUP.table.name].checkpoint()
    assert LocalPosition.decode(checkpoint).current_at == rig.clock.now()


def test_state_of_partitions_that_left_long_ago_is_removed_unless_it_is_a_warm_copy(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.join()
    long_ago, lately = rig.clock.now() - 90_000, rig.clock.now()
    present = {
        ("g-table", 0): long_ago,
        ("g-table", 1): long_ago,
        ("g-table", 2): lately,
        ("g-table", 3): long_ago,
    }
    monkeypatch.setattr(rig.member.restorer.standby, "keeps", lambda _, partition: partition == 3)
    destroyed: list[Any] = []
    monkeypatch.setattr(rig.stores, "present", lambda: present)
    monkeypatch.setattr(rig.stores, "destroy", lambda *place: destroyed.append(place))
    rig.clock.sleep(61)
    rig.turn()
    assert destroyed == [("g-table", 1)]


def test_a_broker_that_does_not_let_a_producer_begin_leaves_nothing_open(doubles: dict[str, Any]) -> None:
    doubles["steps"].fail("open", RetryLater("x"))
    with pytest.raises(RetryLater):
        Rig(Guarantee.EXACTLY_ONCE, doubles)
    assert doubles["steps"].taken == ["open", "close outbox"]


@pytest.mark.parametrize(
    "wrong", [{"commit_interval": 0}, {"poll_records": -1}, {"cache_bytes": 0}, {"instance_id": ""}]
)
def test_settings_that_cannot_work_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        ProcessorSettings(**{"instance_id": "i"} | wrong)


def test_a_handler_whose_input_says_stop_ends_the_turn_with_the_place(
    doubles: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig: Any = Rig(Guarantee.EXACTLY_ONCE, doubles)
    rig.join()
    routes = rig.member.assignment.tasks[0]._dispatcher
    stop = Input(GROUP.inputs[0].stream, count)
    monkeypatch.setitem(routes._routes, "events", routes._route_of(stop))
    rig.deliver([(b"a", b"x"), (b"a", b"bad")])
    rig.turn()
    rig.deliver([(b"a", b"x"), (b"a", b"bad")])
    with pytest.raises(HandlerFailed, match=r"events\[0\]@1"):
        rig.turn()
    assert rig.rows == {b"a": 1}, "the good records before it are committed"


def test_a_batch_of_another_partition_than_ours_is_dropped(
    rig: Any, batch: Callable[..., RecordBatch]
) -> None:
    rig.join()
    rig.deliver([(b"a", b"x")], partition=7)
    rig.turn(commit=True)
    assert "begin" not in rig.steps.taken


def lose(rig: Any, monkeypatch: pytest.MonkeyPatch, *, purged: bool) -> None:
    """The next poll finds that the records at the reading position are gone."""
    monkeypatch.setattr("streamtable.engine.member.purged_topics", lambda _: ("events",) if purged else ())

    def poll(max_records: int, timeout: float) -> list[Any]:
        monkeypatch.setattr(rig.consumer, "poll", lambda *_: [])
        raise InputLost("gone").at(*EVENTS, 0)

    monkeypatch.setattr(rig.consumer, "poll", poll)


def test_a_member_whose_input_another_one_has_committed_and_purged_waits_to_lose_the_partition(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.join()
    rig.deliver([(b"a", b"x")])
    rig.turn()
    rig.cluster.committed[EVENTS] = Committed(NextOffset(9), "")  # of the member that has taken over
    lose(rig, monkeypatch, purged=True)
    rig.turn(commit=True)
    assert not rig.member.assignment.tasks[0].dirty
    assert rig.member.undone == 1
    rig.turn()
    assert (
        EVENTS,
        0,
    ) in rig.consumer.seeks  # and what it finds there says the same, until the partition is lost


@pytest.mark.parametrize(
    ("purged", "committed"), [(True, 0), (False, 9)], ids=["not committed", "not purged"]
)
def test_an_input_that_has_lost_records_which_nobody_has_handled_ends_the_member(
    purged: bool,  # noqa: FBT001 - a parameter of the test
    committed: int,
    rig: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig.join()
    rig.cluster.committed[EVENTS] = Committed(NextOffset(committed), "")
    lose(rig, monkeypatch, purged=purged)
    with pytest.raises(InputLost):
        rig.turn()
