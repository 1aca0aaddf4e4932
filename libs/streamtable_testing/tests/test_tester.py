"""The behaviour that only the Tester has. tests/behaviour shows that groups behave on it as they do on Kafka."""

import subprocess
import sys
import time
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.base.topics import Stream, Table
from streamtable.base.types import Ack, Guarantee, TopicPartition
from streamtable.codec.plain import Bytes, Json, Long, String
from streamtable.errors import (
    ConfigurationError,
    DeserializationError,
    GraphError,
    HandlerFailed,
    NotReady,
    StateLost,
    TopicMismatch,
)
from streamtable.flow import Flow
from streamtable.graph.group import Changes, Group, Input, Join, Lookup, OnError, Output, Persist
from streamtable.graph.row_change import RowChange
from streamtable.graph.timer import Timer
from streamtable.handlers.context import BatchContext, Context
from streamtable_testing import Tester

EVENTS = Stream("events", String(), String())
COUNTS = Stream("counts", String(), Long())


def count(ctx: Context[str, int], event: str) -> None:
    if event == "fail":
        raise ZeroDivisionError("as ordered")
    ctx.set((ctx.value or 0) + 1)
    ctx.emit(COUNTS, ctx.key, ctx.value)


def add(ctx: Context[str, int], event: int) -> None:
    ctx.set((ctx.value or 0) + event)


COUNT = Group("count", Input(EVENTS, count), Output(COUNTS), Persist(Long()))
SUM = Group("sum", Input(COUNTS, add), Persist(Long()))


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


def test_five_lines_test_a_group(tester: Tester) -> None:
    tester.run(COUNT)
    assert tester.emit(EVENTS, "alice", "click") == Ack("events", 0, 0)
    assert tester.table(COUNT) == {"alice": 1}


def test_a_test_takes_milliseconds(tester: Tester) -> None:
    began = time.thread_time()  # its own, whatever else the machine does
    tester.run(COUNT)
    for _ in range(50):
        tester.emit(EVENTS, "alice", "click")
    assert time.thread_time() - began < 1.0
    assert tester.table(COUNT)["alice"] == 50


def test_groups_are_chained_by_their_topics(tester: Tester) -> None:
    tester.run(COUNT, SUM, partitions=3)
    tester.emit_many(EVENTS, [("alice", "click")] * 3 + [("bob", "click")])
    assert tester.table(SUM) == {"alice": 1 + 2 + 3, "bob": 1}


def test_what_was_there_before_the_group_is_read(tester: Tester) -> None:
    tester.create(EVENTS, partitions=2)
    tester.emit(EVENTS, "alice", "click")
    tester.run(COUNT)
    assert tester.table(COUNT) == {"alice": 1}
    assert tester.kafka.cluster().topics(["count-table"])["count-table"].partitions == 2


def test_records_are_typed_and_say_where_they_stand(tester: Tester) -> None:
    tester.run(COUNT)
    tester.emit(EVENTS, "alice", "click", headers=[("h", b"x")], timestamp_ms=77)
    (event,), (made,) = tester.records(EVENTS), tester.records(COUNTS)
    assert (event.key, event.value, event.partition, event.offset) == ("alice", "click", 0, 0)
    assert (event.timestamp_ms, event.headers) == (77, (("h", b"x"),))
    assert (made.key, made.value) == ("alice", 1)
    assert made.timestamp_ms == pytest.approx(tester.clock.now() * 1000, abs=1)
    tester.emit_raw("counts", None, None)
    assert (tester.records(COUNTS)[-1].key, tester.records(COUNTS)[-1].value) == (None, None)
    tester.emit_raw("counts", b"k", b"no long")
    with pytest.raises(DeserializationError):
        tester.records(COUNTS)


def test_the_table_that_is_shown_cannot_be_changed(tester: Tester) -> None:
    tester.run(COUNT)
    with pytest.raises(TypeError):
        tester.table(COUNT)["alice"] = 1  # type: ignore[index]  # shown to be impossible


def test_a_failing_handler_raises_with_the_place_of_the_record_and_its_cause(tester: Tester) -> None:
    tester.run(COUNT)
    tester.emit(EVENTS, "alice", "click")
    with pytest.raises(HandlerFailed, match="as ordered") as caught:
        tester.emit(EVENTS, "alice", "fail")
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("events", 0, 1)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert tester.table(COUNT) == {"alice": 1}
    with pytest.raises(HandlerFailed):
        tester.start(COUNT)


def test_mistakes_of_the_graph_come_out_as_they_are(tester: Tester) -> None:
    group: Group[str, Any] = Group("g", Input(EVENTS, lambda ctx, _: ctx.emit(COUNTS, "a", 1)))
    tester.run(group)
    with pytest.raises(GraphError, match="not declared"):
        tester.emit(EVENTS, "alice", "click")


def test_dead_letters_say_where_they_come_from_and_can_be_sent_again(tester: Tester) -> None:
    broken = True

    def careful(ctx: Context[str, int], _: str) -> None:
        if broken:
            raise ZeroDivisionError("as ordered")
        ctx.set(1)

    group: Group[str, int] = Group("g", Input(EVENTS, careful, on_error=OnError.DEAD_LETTER), Persist(Long()))
    tester.run(group)
    tester.emit(EVENTS, "alice", "click", headers=[("h", b"x")])
    (letter,) = tester.dead_letters(group)
    assert (letter.key, letter.value, letter.error) == (b"alice", b"click", "ZeroDivisionError")
    assert "as ordered" in letter.reason
    assert letter.headers[0] == ("h", b"x")
    assert (letter.origin.topic, letter.origin.partition, letter.origin.offset) == ("events", 0, 0)
    broken = False
    tester.retry(group, letter)
    assert tester.table(group) == {"alice": 1}


def test_a_dead_letter_keeps_headers_that_are_no_text(tester: Tester) -> None:
    group = Group("g", Input(EVENTS, count, on_error=OnError.DEAD_LETTER), Persist(Long()), Output(COUNTS))
    tester.run(group)
    tester.emit_raw("events", b"a", b"fail", headers=[("id", b"\x01\xc1")])
    (letter,) = tester.dead_letters(group)
    assert ("id", b"\x01\xc1") in letter.headers
    assert "as ordered" in letter.reason


@pytest.mark.parametrize("batch", [False, True])
def test_a_dead_letter_is_dated_now_and_its_retry_is_handled_with_the_time_of_its_event(
    tester: Tester, *, batch: bool
) -> None:
    times: list[int] = []
    broken = True

    def handle(ctx: Context[str, int], _: str) -> None:
        times.append(ctx.timestamp_ms)
        if broken:
            raise ZeroDivisionError("as ordered")

    def whole(records: BatchContext[str, str, int]) -> None:
        times.extend(records.timestamps_ms)
        if broken:
            raise ZeroDivisionError("as ordered")

    edge: Input[str, str, int] = (
        Input(EVENTS, batch=whole, on_error=OnError.DEAD_LETTER)
        if batch
        else Input(EVENTS, handle, on_error=OnError.DEAD_LETTER)
    )
    group: Group[str, int] = Group("g", edge)
    tester.run(group)
    now_ms = int(tester.clock.now() * 1000)
    long_ago_ms = now_ms - 29 * 86_400_000
    tester.emit(EVENTS, "alice", "click", timestamp_ms=long_ago_ms)
    ((_, letter),) = tester.kafka.records(group.dead_letters)
    assert letter.timestamp()[1] >= now_ms
    tester.retry(group, tester.dead_letters(group)[0])
    second = tester.dead_letters(group)[1]  # it has failed again
    times.clear()
    broken = False
    tester.retry(group, second)
    ((_, retried), *_) = tester.kafka.records(group.retry)
    assert retried.timestamp()[1] >= now_ms
    assert times == [long_ago_ms]


def test_events_emitted_together_come_in_one_batch(tester: Tester) -> None:
    sizes = []

    def whole(records: BatchContext[str, str, int]) -> None:
        sizes.append(len(records.events))

    tester.run(Group("g", Input(EVENTS, batch=whole)))
    tester.emit_many(EVENTS, [("a", "1"), ("b", "2"), ("c", "3")])
    assert sizes == [3]


def test_on_request_nothing_is_committed_until_it_is_asked_for() -> None:
    with Tester(commit_on_request=True) as tester:
        tester.run(COUNT, SUM)
        tester.emit(EVENTS, "alice", "click")
        tester.emit(EVENTS, "alice", "click")
        assert tester.table(COUNT) == {}
        assert tester.records(COUNTS) == []
        tester.commit()
        assert [record.value for record in tester.records(COUNTS)] == [1, 2]
        assert len(tester.kafka.records("count-table")) == 1
        assert tester.table(SUM) == {}
        tester.commit()
        assert tester.table(SUM) == {"alice": 3}


def test_on_request_no_process_works_until_work_is_called() -> None:
    with Tester(work_on_request=True) as tester:
        tester.run(COUNT)
        tester.emit(EVENTS, "alice", "click")
        tester.emit(EVENTS, "alice", "click")
        assert tester.table(COUNT) == {}
        tester.work()
        assert tester.table(COUNT) == {"alice": 2}


@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("disk", [True, False])
def test_a_crash_between_any_two_steps_of_a_commit_counts_everything_once(
    step: str,
    disk: bool,  # noqa: FBT001 - a parameter of the test
    tester: Tester,
) -> None:
    tester.run(COUNT, SUM)
    tester.emit(EVENTS, "alice", "click")
    tester.crash(COUNT, at=step)
    tester.emit(EVENTS, "alice", "click")
    tester.start(COUNT, disk=disk)
    tester.emit(EVENTS, "alice", "click")
    assert tester.table(COUNT) == {"alice": 3}
    assert tester.table(SUM) == {"alice": 6}


@pytest.mark.parametrize("step", ["plan-made", "copy-loading", "copy-loaded"])
def test_a_crash_in_the_middle_of_recovery_is_recovered_from(step: str, tester: Tester) -> None:
    tester.run(COUNT)
    tester.emit_many(EVENTS, [(key, "click") for key in "abc"])
    tester.crash(COUNT)
    tester.crash(COUNT, at=step)
    tester.start(COUNT, disk=False)
    tester.start(COUNT)
    tester.emit(EVENTS, "a", "click")
    assert tester.table(COUNT) == {"a": 2, "b": 1, "c": 1}


def test_a_crash_after_a_new_partitions_first_commit_is_recovered_from(tester: Tester) -> None:
    tester.crash(COUNT, at="new-partition-committed")
    tester.run(COUNT)
    tester.emit(EVENTS, "a", "click")
    assert tester.table(COUNT) == {}
    tester.start(COUNT)
    assert tester.table(COUNT) == {"a": 1}


@pytest.mark.parametrize("step", ["closing", "store-closed"])
def test_a_crash_on_the_way_out_is_recovered_from(step: str, tester: Tester) -> None:
    tester.run(COUNT)
    tester.emit(EVENTS, "a", "click")
    tester.crash(COUNT, at=step)
    tester.stop(COUNT)
    tester.start(COUNT)
    tester.emit(EVENTS, "a", "click")
    assert tester.table(COUNT) == {"a": 2}


def test_a_crash_in_a_revocation_leaves_the_partitions_until_the_session_has_ended(tester: Tester) -> None:
    tester.run(COUNT, partitions=4)
    tester.emit_many(EVENTS, [(key, "click") for key in "abcdefgh"])
    tester.crash(COUNT, at="revoked-committed")
    tester.join(COUNT)
    tester.emit_many(EVENTS, [(key, "click") for key in "abcdefgh"])
    assert set(tester.table(COUNT).values()) == {1}
    tester.advance(50)
    assert tester.table(COUNT) == dict.fromkeys("abcdefgh", 2)


def test_a_crash_at_the_nth_time_happens_then(tester: Tester) -> None:
    tester.run(COUNT)
    tester.crash(COUNT, at="begun", times=3)
    for _ in range(4):
        tester.emit(EVENTS, "a", "click")
    assert tester.table(COUNT) == {"a": 2}
    tester.start(COUNT)
    assert tester.table(COUNT) == {"a": 4}


def test_a_crash_that_does_not_happen_is_an_error() -> None:
    def test() -> None:
        with Tester() as tester:
            tester.run(COUNT)
            tester.crash(COUNT, at="copy-loaded")
            tester.emit(EVENTS, "a", "click")

    with pytest.raises(AssertionError, match="'copy-loaded' has not happened"):
        test()


def test_a_crash_of_a_group_that_never_runs_is_an_error_too() -> None:
    def test() -> None:
        with Tester() as tester:
            tester.crash(COUNT, at="copy-loaded")

    with pytest.raises(AssertionError, match="'copy-loaded' has not happened"):
        test()


def test_at_least_once_repeats_after_a_crash(tester: Tester) -> None:
    tester.run(COUNT, guarantee=Guarantee.AT_LEAST_ONCE)
    tester.crash(COUNT, at="flushed")
    tester.emit(EVENTS, "a", "click")
    tester.start(COUNT)
    assert [record.value for record in tester.records(COUNTS)] == [1, 2]


def test_members_share_the_partitions_and_give_them_back(tester: Tester) -> None:
    tester.run(COUNT, members=2, partitions=4)
    keys = [(f"k{number}", "click") for number in range(20)]
    tester.emit_many(EVENTS, keys)
    owned = {len(places) for places in tester.kafka.group("count").members.values()}
    assert owned == {4}  # two partitions of two topics each
    tester.join(COUNT)
    tester.emit_many(EVENTS, keys)
    tester.leave(COUNT, 0)
    tester.leave(COUNT)
    tester.emit_many(EVENTS, keys)
    assert set(tester.table(COUNT).values()) == {3}
    assert len(tester.table(COUNT)) == 20


def test_a_dead_members_partitions_move_when_its_session_has_ended(tester: Tester) -> None:
    tester.run(COUNT, members=2, partitions=2)
    tester.crash(COUNT, member=0)
    tester.emit_many(EVENTS, [(f"k{number}", "click") for number in range(20)])
    assert 0 < len(tester.table(COUNT)) < 20
    tester.advance(50)
    assert len(tester.table(COUNT)) == 20


def test_time_passes_only_when_it_is_let(tester: Tester) -> None:
    tester.run(COUNT)
    before = tester.clock.now()
    for _ in range(100):
        tester.emit(EVENTS, "a", "click")
    assert tester.clock.now() - before < 0.01
    tester.advance(3600)
    assert tester.clock.now() - before == pytest.approx(3600, abs=1)


def test_a_view_is_ready_and_follows(tester: Tester) -> None:
    tester.run(COUNT, partitions=3)
    tester.emit(EVENTS, "alice", "click")
    view = tester.view(COUNT.table)
    view.wait_ready(0)
    changes = view.watch()
    assert view.get("alice") == 1
    tester.emit_many(EVENTS, [("alice", "click"), ("bob", "click")])
    assert view.range() == [("alice", 2), ("bob", 1)]
    assert view.answer("alice").age_seconds < 1
    assert {next(changes).key, next(changes).key} == {"alice", "bob"}
    view.close()
    tester.emit(EVENTS, "alice", "click")


def test_errors_of_recovery_come_out(tester: Tester) -> None:
    tester.run(COUNT)
    tester.emit(EVENTS, "alice", "click")
    tester.stop(COUNT)
    tester.kafka.group("count").offsets.forget()
    with pytest.raises(StateLost):
        tester.start(COUNT)


def test_what_fails_in_the_background_ends_a_member_without_a_commit() -> None:
    with Tester(commit_on_request=True) as tester:
        tester.run(COUNT)
        tester.emit(EVENTS, "alice", "click")
        tester.kafka.delete_topic("count-dead-letters")
        with pytest.raises(TopicMismatch):
            tester.advance(60)
        assert tester.table(COUNT) == {}


def test_a_group_that_reads_what_it_emits_is_stopped(monkeypatch: pytest.MonkeyPatch, tester: Tester) -> None:
    monkeypatch.setattr("streamtable_testing.tester._TURNS_MAX", 50)
    group: Group[str, Any] = Group(
        "g", Input(EVENTS, lambda ctx, event: ctx.emit(EVENTS, ctx.key, event)), Output(EVENTS)
    )
    tester.run(group)
    with pytest.raises(AssertionError, match="read what it emits"):
        tester.emit(EVENTS, "alice", "click")


def test_mistakes_are_reported_with_what_to_do(tester: Tester) -> None:
    with pytest.raises(ConfigurationError, match=r"no topic 'events'.*There are: none"):
        tester.emit(EVENTS, "alice", "click")
    with pytest.raises(ConfigurationError, match=r"call tester\.run"):
        tester.stop(COUNT)
    tester.run(COUNT)
    with pytest.raises(ConfigurationError, match="is already running"):
        tester.run(COUNT)
    with pytest.raises(ValueError, match="no failpoint is named 'here'; there are begun"):
        tester.crash(COUNT, at="here")
    with pytest.raises(ConfigurationError, match=r"no topic 'sum-table'.*There are: count-dead-letters"):
        tester.view(SUM.table)


def test_a_plugin_that_pytest_loads_at_every_start_imports_nothing_of_the_library() -> None:
    program = (
        "import sys, streamtable_pytest; print([m for m in sys.modules if m.split('.')[0] == 'streamtable'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


LETTER = """
from streamtable import Group, Input, OnError, Persist, Stream, String
from streamtable_testing import Tester
def handle(ctx, event):
    raise ValueError("no")
events = Stream("events", String(), String())
with Tester() as tester:
    tester.run(Group("g", Input(events, handle, on_error=OnError.DEAD_LETTER), Persist(String())))
    tester.emit(events, "a", "hunter2" * 100_000)
"""


def test_a_program_that_configures_no_log_gets_tracebacks_without_records_on_standard_error() -> None:
    done = subprocess.run([sys.executable, "-c", LETTER], capture_output=True, text=True, check=True)
    assert "ValueError: no" in done.stderr
    assert "hunter2" not in done.stderr
    assert done.stdout == ""


# ---- lookups and views -------------------------------------------------------------------------------------------------

ASKED = Stream("asked", String(), String())


def remember(ctx: Context[str, int], other: str) -> None:
    ctx.set(ctx.lookup(COUNT.table, other) or 0)


ASK = Group("ask", Input(ASKED, remember), Lookup(COUNT.table), Persist(Long()))


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_handler_looks_up_any_row_of_a_table_that_was_there_before(tester: Tester, partitions: int) -> None:
    tester.run(COUNT, partitions=partitions)
    tester.emit_many(EVENTS, [("alice", "x"), ("alice", "x"), ("bob", "x")])
    tester.run(ASK)
    tester.emit_many(ASKED, [("q1", "alice"), ("q2", "bob"), ("q3", "nobody")])
    assert tester.table(ASK) == {"q1": 2, "q2": 1, "q3": 0}


def test_what_is_looked_up_follows_its_table(tester: Tester) -> None:
    tester.run(COUNT, ASK, members=2, partitions=4)
    for number in range(1, 4):
        tester.emit(EVENTS, "alice", "x")
        tester.emit(ASKED, f"q{number}", "alice")
    assert tester.table(ASK) == {"q1": 1, "q2": 2, "q3": 3}


def test_lookups_are_there_again_after_a_crash_with_the_disk_and_without(tester: Tester) -> None:
    tester.run(COUNT, ASK)
    tester.emit(EVENTS, "alice", "x")
    for disk in (True, False):
        tester.crash(ASK)
        tester.emit(EVENTS, "alice", "x")
        tester.start(ASK, disk=disk)
        tester.emit(ASKED, f"{disk}", "alice")
    assert tester.table(ASK) == {"True": 2, "False": 3}


def test_a_process_goes_to_work_when_the_tables_that_it_looks_up_are_ready(tester: Tester) -> None:
    tester.run(COUNT)
    tester.emit(EVENTS, "alice", "x")
    tester.kafka.create_topics_of(ASK)
    tester.emit(ASKED, "q", "alice")
    tester.crash(ASK, at="plan-made")
    tester.run(ASK)
    assert tester.table(ASK) == {}
    tester.start(ASK)
    assert tester.table(ASK) == {"q": 1}


def test_a_view_shows_the_effect_of_an_event_that_was_waited_for(tester: Tester) -> None:
    tester.run(COUNT, partitions=4)
    view = tester.view(COUNT.table)
    ack = tester.emit(EVENTS, "alice", "x")
    view.wait_for(ack)
    assert view.get("alice") == 1
    with pytest.raises(NotReady, match="not yet past the event"):
        view.wait_for(Ack(ack.topic, ack.partition, ack.offset + 1))


def test_a_view_waits_for_what_is_not_committed_yet() -> None:
    with Tester(commit_on_request=True) as tester:
        tester.run(COUNT)
        view = tester.view(COUNT.table)
        ack = tester.emit(EVENTS, "alice", "x")
        with pytest.raises(NotReady, match="not yet past the event"):
            view.wait_for(ack)
        tester.commit()
        view.wait_for(ack)
        assert view.get("alice") == 1


def test_with_copies_for_one_loss_each_partition_has_one_where_it_goes_if_its_owner_dies(
    tester: Tester, logged: list[MutableMapping[str, Any]]
) -> None:
    keys = [f"k{number}" for number in range(40)]
    tester.run(COUNT, members=4, partitions=12, standby=1)
    tester.advance(15)
    for key in keys * 5:
        tester.emit(EVENTS, key, "x")
    tester.advance(5)
    members = tester._of(COUNT)
    copies = [place for member in members for place in member.processor.member.restorer.standby.positions]  # type: ignore[union-attr]
    assert set(copies) == {TopicPartition(COUNT.table.name, number) for number in range(12)}
    assert len(copies) <= 2 * 12, "with `all` there are 36"
    tester.crash(COUNT)
    logged.clear()
    tester.emit_many(EVENTS, [(key, "x") for key in keys])
    tester.advance(60)
    assert tester.table(COUNT) == dict.fromkeys(keys, 6)
    read = sum(line["offsets"] for line in logged if line["event"] == "table is loading")
    assert read <= 30, "of some four hundred: the last commits, and markers"


@pytest.mark.parametrize("at", [None, "changelog-produced", "offsets-sent", "committed", "store-written"])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_member_with_warm_copies_takes_over_what_a_dead_one_had_and_reads_next_to_nothing(
    guarantee: Guarantee, at: str | None, tester: Tester, logged: list[MutableMapping[str, Any]]
) -> None:
    keys = [f"k{number}" for number in range(20)]
    tester.run(COUNT, members=2, partitions=4, guarantee=guarantee, standby=True)
    for key in keys * 5:
        tester.emit(EVENTS, key, "x")
    tester.crash(COUNT, at)
    logged.clear()
    tester.emit_many(EVENTS, [(key, "x") for key in keys])
    tester.crash(COUNT)
    tester.advance(60)
    if guarantee is Guarantee.EXACTLY_ONCE:
        assert tester.table(COUNT) == dict.fromkeys(keys, 6)
    else:
        assert all(count in {6, 7} for count in tester.table(COUNT).values())
    read = sum(line["offsets"] for line in logged if line["event"] == "table is loading")
    assert read <= 10  # of some hundred: the last commit, and markers


def test_a_member_that_has_warm_copies_gives_them_back_and_forth(tester: Tester) -> None:
    tester.run(COUNT, partitions=3, standby=True)
    for number in range(1, 6):
        tester.emit_many(EVENTS, [(f"k{key}", "x") for key in range(9)])
        if number % 2:
            tester.join(COUNT)
        else:
            tester.leave(COUNT)
        tester.advance(5)
        assert tester.table(COUNT) == {f"k{key}": number for key in range(9)}


@pytest.mark.parametrize("handled", [False, True])
def test_warm_copies_of_joined_tables_let_no_change_of_them_go_by(
    handled: bool,  # noqa: FBT001 - a parameter of the test
    tester: Tester,
) -> None:
    def look(ctx: Context[str, int], _: str) -> None:
        ctx.set(ctx.join(COUNT.table) or 0)

    def note(ctx: Context[str, int], change: RowChange[int]) -> None:
        ctx.set((ctx.value or 0) + (change.new or 0) - (change.old or 0))

    edge: Any = Changes(COUNT.table, note) if handled else Input(ASKED, look)
    group = Group("copying", edge, *([] if handled else [Join(COUNT.table)]), Persist(Long()))
    keys = [f"k{number}" for number in range(9)]
    tester.run(COUNT, partitions=3)
    tester.create(ASKED, partitions=3)
    tester.run(group, members=2, partitions=3, standby=True)
    tester.emit_many(EVENTS, [(key, "x") for key in keys] * 2)
    tester.advance(5)
    tester.crash(group)
    tester.emit_many(EVENTS, [(key, "x") for key in keys])
    tester.advance(60)
    tester.emit_many(ASKED, [(key, key) for key in keys])
    assert tester.table(group) == dict.fromkeys(keys, 3)


def adding(factor: int, *outputs: Output) -> Group[str, int]:
    def add(ctx: Context[str, int], event: int) -> None:
        ctx.set((ctx.value or 0) + factor * event)
        for output in outputs:
            ctx.emit(output.stream, ctx.key, factor)

    return Group("adding", Input(COUNTS, add), *outputs, Persist(Long()))


def test_the_next_version_may_join_and_its_new_topics_are_created(tester: Tester) -> None:
    first, second = adding(1), adding(1000, Output(Stream("added", String(), Long())))
    tester.run(first)
    tester.emit(COUNTS, "a", 1)
    tester.join(second)
    tester.leave(first, 0)
    tester.emit(COUNTS, "a", 1)
    assert tester.table(second) == {"a": 1001}
    assert [each.value for each in tester.records(second.outputs[0].stream)] == [1000]


def test_the_next_version_of_a_group_with_tasks_is_started_with_tasks_of_its_own(tester: Tester) -> None:
    first, second = adding(1), adding(1000)
    asked: list[Group[str, int]] = []

    def tasks_of(group: Group[str, int]) -> Any:
        def make(clock: object, failpoint: object) -> None:
            asked.append(group)

        return make

    tester.run(first, tasks=tasks_of(first))
    with pytest.raises(ConfigurationError, match=r"'adding' was run with tasks=.* give tasks= of this one"):
        tester.join(second)
    tester.join(second, tasks=tasks_of(second))
    tester.stop(first)
    with pytest.raises(ConfigurationError, match="give tasks= of this one"):
        tester.start(second)
    tester.start(second, tasks=tasks_of(second))
    assert asked == [first, second, second, second]


def test_after_its_last_member_has_left_a_group_runs_again(tester: Tester) -> None:
    tester.run(COUNT)
    tester.emit(EVENTS, "a", "x")
    tester.leave(COUNT)
    with pytest.raises(ConfigurationError, match=r"last member of group 'count' has left: call tester\.run"):
        tester.join(COUNT)
    tester.stop(COUNT)
    tester.start(COUNT)  # there is none
    tester.run(COUNT)
    tester.emit(EVENTS, "a", "x")
    assert tester.table(COUNT) == {"a": 2}


def test_a_flow_is_no_group_to_stop_or_start(tester: Tester) -> None:
    flow: Any = Flow("flow")
    flow.stream(EVENTS).group_by("by-event", lambda event: event, key=String()).count("per-event")
    tester.run(flow)
    with pytest.raises(
        ConfigurationError, match=r"Flow\('flow'\) is no group, .*: flow, flow-by-event\. Give one"
    ):
        tester.stop(flow)


def test_a_view_is_ready_and_current_whatever_the_size_of_its_table(tester: Tester) -> None:
    table = Table("numbers", String(), Long())
    rows = Stream("numbers", String(), Long())
    tester.create(rows)
    tester.emit_many(rows, [(f"k{number}", number) for number in range(40_000)])
    view = tester.view(table)
    assert view.get("k39999") == 39_999
    tester.emit_many(rows, [(f"k{number}", number + 1) for number in range(40_000)])
    assert view.get("k39999") == 40_000


def test_a_table_with_keys_that_are_equal_in_python_is_refused(tester: Tester) -> None:
    events = Stream("events", Json(), String())
    group = Group("counted", Input(events, count_events), Persist(Long()))
    tester.run(group)
    tester.emit(events, 1, "x")
    assert tester.table(group) == {1: 1}
    tester.emit(events, True, "x")
    with pytest.raises(ConfigurationError, match=r"keys b'1' and b'true', which are equal in Python"):
        tester.table(group)


def count_events(ctx: Context[Any, int], _: object) -> None:
    ctx.set((ctx.value or 0) + 1)


def test_a_value_that_was_too_large_for_its_dead_letter_is_replayed_from_its_origin(tester: Tester) -> None:
    repaired = False

    def measure(ctx: Context[str, int], event: bytes | None) -> None:
        if not repaired:
            raise ValueError("as ordered")
        ctx.set(-1 if event is None else len(event))

    events = Stream("events", String(), Bytes())
    edge = Input(events, measure, on_error=OnError.DEAD_LETTER, tombstones=True)
    group = Group("measured", edge, Persist(Long()))
    tester.run(group)
    tester.emit_raw("events", b"a", b"x" * 1_048_400, headers=[("trace", b"1")])
    (letter,) = tester.dead_letters(group)
    assert letter.value is None
    repaired = True
    tester.retry(group, letter)
    assert tester.table(group) == {"a": 1_048_400}
    ((_, retried),) = tester.kafka.records(group.retry)
    assert ("trace", b"1") in (retried.headers() or ())
    tester.kafka.delete_records(TopicPartition("events", 0), 1)
    with pytest.raises(ConfigurationError, match="events-0@0 does not hold it any more"):
        tester.retry(group, letter)


def test_the_dead_letter_of_a_timer_cannot_be_retried(tester: Tester) -> None:
    def fail(ctx: Context[str, int], payload: object) -> None:
        raise ValueError("as ordered")

    timer: Timer[str, Any, int] = Timer("due", fail, Json(), clock="wall", on_error=OnError.DEAD_LETTER)
    edge: Input[str, str, int] = Input(
        EVENTS, lambda ctx, event: ctx.timers.at(timer, 1_700_000_000_500, event)
    )
    group = Group("timed", edge, Persist(Long()), timer)
    tester.run(group)
    tester.emit(EVENTS, "a", "x")
    tester.advance(2)
    (letter,) = tester.dead_letters(group)
    with pytest.raises(ConfigurationError, match="holds a timer or another row that fell due"):
        tester.retry(group, letter)
    assert tester.dead_letters(group) == [letter]
