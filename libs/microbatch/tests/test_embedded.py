"""The embedded store, run by the Tester: rows in the group's own changelog and local stores."""

from collections.abc import Mapping
from typing import Any

import pytest

from microbatch import Batch, InMemoryStore, MicroBatch, Rows, Send
from microbatch.embedded import KeyOwners
from microbatch.stores.memory import MemoryDriver
from streamtable import Context, Group, Guarantee, Input, Long, OnError, Output, Stream, String, Timer
from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.base.types import TopicPartition
from streamtable.errors import GraphError, HandlerFailed, InputLost, StateLost, StoreCorrupted
from streamtable.store.memory import MemoryStore
from streamtable_testing import Tester
from streamtable_testing.instance import MakeTasks

EVENTS = Stream("events", String(), Long())
SUMS = Stream("sums", String(), Long())
TOTALS = Rows("totals", value=Long())
TEXTS = Rows("texts", value=String())


def add(batch: Batch, send: Send) -> None:
    rows = batch.rows(TOTALS)
    totals = rows.get_many(record.key for record in batch.records)
    for record in batch.of(EVENTS):
        totals[record.key] = totals.get(record.key, 0) + record.value
        send(SUMS, record.key, totals[record.key])
    rows.put_many(totals)


def group_of(process: Any = add, **settings: Any) -> MicroBatch:
    given: dict[str, Any] = {"inputs": [EVENTS], "outputs": [SUMS], "rows": [TOTALS, TEXTS], "max_wait": 1.0}
    return MicroBatch("add", process=process, **{**given, **settings})


def totals(tester: Tester, group: MicroBatch) -> Mapping[str, int]:
    return TOTALS.of(tester.table(group))


def sums(tester: Tester) -> list[int]:
    return sorted(record.value or 0 for record in tester.records(SUMS))


def latest(stores: list[Any]) -> MakeTasks:
    """Each process that starts finds the last of these stores."""

    def make(*given: Any) -> Any:
        return stores[-1](*given)

    return make


@pytest.mark.parametrize("disk", [True, False])
def test_a_restarted_process_continues_where_it_stopped(tester: Tester, *, disk: bool) -> None:
    group = group_of()
    tester.run(group)
    tester.emit_many(EVENTS, [("a", 1), ("b", 2), ("a", 3)])
    tester.stop(group)
    tester.start(group, disk=disk)
    tester.emit(EVENTS, "a", 5)
    assert totals(tester, group) == {"a": 9, "b": 2}
    assert sums(tester) == [1, 2, 4, 9]


@pytest.mark.parametrize("disk", [True, False])
@pytest.mark.parametrize("step", [*COMMIT_STEPS, "batch-processed", "new-partition-committed", "plan-made"])
def test_a_crash_between_any_two_steps_neither_loses_nor_doubles(step: str, *, disk: bool) -> None:
    group = group_of()
    with Tester(partitions=2) as tester:
        tester.crash(group, step, times=1)
        tester.run(group)
        for number in (1, 2, 3):
            tester.emit_many(EVENTS, [("a", number), ("b", 10)])
            tester.start(group, disk=disk)
        assert totals(tester, group) == {"a": 6, "b": 30}
        assert sums(tester) == [1, 3, 6, 10, 20, 30]


def test_at_least_once_a_crash_may_count_a_batch_again_and_loses_none() -> None:
    group = group_of()
    with Tester() as tester:
        tester.crash(group, "flushed", times=2)
        tester.run(group, guarantee=Guarantee.AT_LEAST_ONCE)
        tester.emit(EVENTS, "a", 1)
        tester.start(group)
        tester.emit(EVENTS, "a", 2)
        assert totals(tester, group)["a"] in {3, 4}


@pytest.mark.parametrize("standby", [False, True])
def test_rows_move_with_their_partitions(*, standby: bool) -> None:
    group, keys = group_of(), [f"key-{number}" for number in range(30)]
    with Tester(partitions=4) as tester:
        tester.run(group, members=2, standby=standby)
        tester.emit_many(EVENTS, [(key, 1) for key in keys])
        tester.join(group)
        tester.emit_many(EVENTS, [(key, 1) for key in keys])
        tester.leave(group, 0)
        tester.emit_many(EVENTS, [(key, 1) for key in keys])
        tester.join(group)
        tester.emit_many(EVENTS, [(key, 1) for key in keys])
        assert totals(tester, group) == dict.fromkeys(keys, 4)
        assert sums(tester) == sorted([1, 2, 3, 4] * 30)


def test_a_row_that_is_deleted_is_gone_after_a_restart_without_its_disk(tester: Tester) -> None:
    def toggle(batch: Batch, send: Send) -> None:
        for record in batch.records:
            rows = batch.rows(TOTALS)
            if rows.get(record.key) is None:
                rows.put(record.key, record.value)
            else:
                rows.delete(record.key)

    group = group_of(toggle)
    tester.run(group)
    tester.emit(EVENTS, "a", 1)
    tester.emit(EVENTS, "a", 2)
    tester.stop(group)
    tester.start(group, disk=False)
    assert totals(tester, group) == {}
    tester.emit(EVENTS, "a", 3)
    assert totals(tester, group) == {"a": 3}


def test_unchanged_rows_are_not_written(tester: Tester) -> None:
    group = group_of(lambda batch, _: batch.rows(TOTALS).put("same", batch.rows(TOTALS).get("same") or 7))
    tester.run(group)
    for _ in range(3):
        tester.emit(EVENTS, "a", 1)
    written = [record.key() for _, record in tester.kafka.records("add-table")]
    assert written == [b"\0kinds/0", b"totals/same"]


def test_a_row_too_large_for_its_topic_fails_the_batch(tester: Tester) -> None:
    def grow(batch: Batch, send: Send) -> None:
        for record in batch.records:
            batch.rows(TEXTS).put(record.key, "x" * record.value)

    group = group_of(grow, on_error=OnError.DEAD_LETTER)
    tester.run(group)
    tester.emit_many(EVENTS, [("a", 10), ("b", 2_000_000), ("c", 20)])
    tester.advance(5)
    assert TEXTS.of(tester.table(group)) == {"a": "x" * 10, "c": "x" * 20}
    (letter,) = tester.dead_letters(group)
    assert "row b'texts/b' of the changelog 'add-table' has 2,000,007 bytes" in letter.reason


def test_by_default_a_row_too_large_ends_the_process(tester: Tester) -> None:
    group = group_of(lambda batch, _: batch.rows(TEXTS).put("a", "x" * 2_000_000))
    tester.run(group)
    with pytest.raises(HandlerFailed, match="more than the"):
        tester.emit(EVENTS, "a", 1)


def test_a_corrupt_local_store_is_restored_again(tester: Tester, monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of()
    tester.run(group)
    tester.emit(EVENTS, "a", 1)
    get, damaged, failed = MemoryStore.get, list[MemoryStore](), list[bytes]()

    def read(self: MemoryStore, key: bytes) -> bytes | None:
        if not damaged and key == b"totals/a":
            damaged.append(self)
        if self in damaged:
            failed.append(key)
            raise StoreCorrupted("a file is damaged").at("add-table", 0)
        return get(self, key)

    monkeypatch.setattr(MemoryStore, "get", read)
    tester.emit(EVENTS, "a", 2)
    tester.advance(5)
    assert failed == [b"totals/a"]  # it is not read again
    assert totals(tester, group) == {"a": 3}
    assert sums(tester) == [1, 3]


def test_a_changelog_that_was_lost_is_refused(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    tester.emit(EVENTS, "a", 1)
    tester.stop(group)
    tester.kafka.delete_topic("add-table")
    tester.kafka.create_topic("add-table", compacted=True)
    with pytest.raises(StateLost, match="changelog ends at 0"):
        tester.start(group)
    assert sums(tester) == [1]


def test_missing_offsets_are_an_error_while_the_rows_exist(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    tester.emit(EVENTS, "a", 1)
    tester.stop(group)
    tester.kafka.group("add").offsets.forget()
    with pytest.raises(StateLost, match="Starting over would count everything twice"):
        tester.start(group)


def test_a_group_with_rows_in_a_central_store_does_not_run_without_it() -> None:
    group = group_of()
    with Tester() as tester:
        stores: list[Any] = [InMemoryStore(group)]
        tester.run(group, tasks=latest(stores))
        tester.emit(EVENTS, "a", 1)
        tester.stop(group)
        stores.append(group.custom_tasks)
        with pytest.raises(StateLost, match="committed with a central store"):
            tester.start(group)
        assert sums(tester) == [1]


def test_a_group_with_embedded_rows_does_not_run_with_a_central_store() -> None:
    group = group_of()
    for plain in (False, True):
        with Tester() as tester:
            stores: list[Any] = [group.custom_tasks]
            tester.run(group, tasks=latest(stores))
            tester.emit(EVENTS, "a", 1)
            tester.stop(group)
            stores.append(InMemoryStore(group, plain=plain))
            with pytest.raises(StateLost, match="committed with the embedded store"):
                tester.start(group)
            assert sums(tester) == [1]


@pytest.mark.parametrize("plain", [True, False])
def test_rows_with_versions_are_not_read_as_plain_ones_nor_plain_ones_as_versions(*, plain: bool) -> None:
    group = group_of()
    with Tester() as tester:
        stores: list[Any] = [InMemoryStore(group, plain=plain)]
        tester.run(group, tasks=latest(stores))
        tester.emit(EVENTS, "a", 1)
        tester.stop(group)
        server = stores[0].server
        stores.append(
            InMemoryStore(group, plain=not plain, driver=lambda: MemoryDriver(server, tenant="add"))
        )
        with pytest.raises(StateLost, match=f"plain_writes={plain}.*or clear the tenant"):
            tester.start(group)
        assert sums(tester) == [1]


def test_a_group_with_plain_rows_in_a_central_store_does_not_run_without_it() -> None:
    group = group_of()
    with Tester() as tester:
        stores: list[Any] = [InMemoryStore(group, plain=True)]
        tester.run(group, tasks=latest(stores))
        tester.emit(EVENTS, "a", 1)
        tester.stop(group)
        stores.append(group.custom_tasks)
        with pytest.raises(StateLost, match="committed with a central store"):
            tester.start(group)
        assert sums(tester) == [1]


# ---- truncated inputs, empty stores --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["embedded", "central", "plain"])
def test_a_first_start_over_truncated_inputs_is_an_error(tester: Tester, kind: str) -> None:
    group = group_of()
    tester.create(EVENTS)
    for number in (1, 2, 4):
        tester.emit(EVENTS, "a", number)
    tester.kafka.delete_records(TopicPartition("events", 0), 2)
    tasks = None if kind == "embedded" else InMemoryStore(group, plain=kind == "plain")
    with pytest.raises(InputLost, match="the topic begins at 2: records were deleted") as caught:
        tester.run(group, tasks=tasks)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("events", 0, 0)
    assert sums(tester) == []


def test_a_first_start_at_the_end_of_truncated_inputs_is_allowed(tester: Tester) -> None:
    group = group_of(start="latest")
    tester.create(EVENTS)
    tester.emit(EVENTS, "a", 1)
    tester.kafka.delete_records(TopicPartition("events", 0), 1)
    tester.run(group)
    tester.emit(EVENTS, "a", 2)
    assert totals(tester, group) == {"a": 2}


def test_a_group_without_rows_needs_no_table_and_may_start_over_truncated_inputs(tester: Tester) -> None:
    def copy(batch: Batch, send: Send) -> None:
        for record in batch.records:
            send(SUMS, record.key, record.value)

    group = group_of(copy, rows=[])
    tester.create(EVENTS)
    for number in (1, 2):
        tester.emit(EVENTS, "a", number)
    tester.kafka.delete_records(TopicPartition("events", 0), 1)
    tester.run(group)
    tester.stop(group)
    tester.start(group)
    tester.emit(EVENTS, "a", 3)
    assert sums(tester) == [2, 3]
    assert "add-table" not in tester.kafka.topics


@pytest.mark.parametrize("plain", [True, False])
def test_an_emptied_store_is_an_error_and_nothing_is_sent(*, plain: bool) -> None:
    group = group_of()
    with Tester() as tester:
        stores: list[Any] = [InMemoryStore(group, plain=plain)]
        tester.run(group, tasks=latest(stores))
        tester.emit(EVENTS, "a", 1)
        tester.stop(group)
        stores.append(InMemoryStore(group, plain=plain))
        with pytest.raises(StateLost, match="from the beginning of its input"):
            tester.start(group)
        assert sums(tester) == [1]


# ---- rows of two partitions ----------------------------------------------------------------------------------------


def test_a_row_that_two_partitions_write_is_refused() -> None:
    group = group_of(lambda batch, _: batch.rows(TOTALS).put("one for all", batch.records[0].value))
    with Tester(partitions=4) as tester:
        tester.run(group)
        with pytest.raises(
            GraphError, match=r"is written by partition \d and by partition \d: in the embedded"
        ):
            tester.emit_many(EVENTS, [(key, number) for number, key in enumerate("abcdefgh")])


def test_the_sampled_keys_are_the_same_in_every_partition_and_limited_in_number() -> None:
    owners = KeyOwners()
    keys = [b"%d" % number for number in range(100_000)]
    for start in range(0, 100_000, 500):
        owners.check(0, keys[start : start + 500])
    with pytest.raises(GraphError):
        owners.check(1, keys[-500:])
    assert len(owners._owners) <= 8_192


def test_a_timer_beside_a_batch_that_waits_fires_in_time(tester: Tester) -> None:
    def fire(ctx: Context[str, Any], due_ms: str) -> None:
        ctx.emit(SUMS, ctx.key, ctx.timers.now_ms - int(due_ms))

    timer = Timer("t", fire, payload=String(), clock="wall")

    def handle(ctx: Context[str, Any], _: Any) -> None:
        due_ms = ctx.timers.now_ms + 1_000
        ctx.timers.at(timer, due_ms, str(due_ms))

    waiting = MicroBatch(
        "waiting", inputs=[EVENTS], process=lambda batch, send: None, rows=[TOTALS], max_wait=30.0
    )
    tester.run(waiting, Group("timed", Input(EVENTS, handle), Output(SUMS), timer))
    tester.emit(EVENTS, "a", 1)
    (late_ms,) = (record.value for record in tester.records(SUMS))
    assert late_ms is not None
    assert late_ms < 200
