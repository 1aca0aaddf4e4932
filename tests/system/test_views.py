"""Views that share a connection, and read-your-writes, on a real broker."""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from statistics import quantiles
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from tests.faults.full_disk import BALLAST, fill, small_disk
from tests.system.bench import Bench, Running, count, until

from localkafka.broker import Broker
from localkafka.waiting import Deadline
from streamtable import (
    Ack,
    App,
    Context,
    Emitter,
    Group,
    Input,
    Kafka,
    Long,
    Lookup,
    Persist,
    Stream,
    String,
    View,
)
from streamtable.errors import NotReady, StoreBroken, TopicMismatch
from streamtable.tables.position import TablePosition

PARTITIONS = 4
WRITES_PER_SECOND = 500
SECONDS = 4
WARM_UP_SECONDS = 1


class Counting:
    """Kafka that counts the consumers of tables and the clients for questions that it makes."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.made: list[str] = []

    def table_reader(self, name: str) -> Any:
        self.made.append("reader")
        return self._kafka.table_reader(name)

    def cluster(self) -> Any:
        self.made.append("cluster")
        return self._kafka.cluster()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka, name)


def counted(bench: Bench, name: str, partitions: int = PARTITIONS) -> Group[str, int]:
    """A group with a table of that name, fed by the one stream."""
    group: Group[str, int] = Group(bench.name(name), Input(bench.stream(), count), Persist(Long()))
    bench.create(group, partitions)
    return group


def put(bench: Bench, group: Group[str, int], key: str, value: int) -> None:
    """Write a row by hand into partition 0, where only a scan looks for it."""
    bench.send(group.table.name, (key, Long().encode(value)))


def rows(view: View[str, int]) -> dict[str, int]:
    with view.snapshot(0) as snapshot:
        return dict(snapshot)


def test_views_of_one_process_share_one_consumer_and_one_client(bench: Bench) -> None:
    groups = [counted(bench, f"g{number}") for number in range(4)]
    kafka: Any = Counting(bench.kafka)
    for number, group in enumerate(groups):
        put(bench, group, "k", number)
    with App(kafka, bench.folder, name="views") as views:
        made = [views.view(group.table) for group in groups]
        for view in made:
            view.wait_ready(60)
        assert [rows(view) for view in made] == [{"k": number} for number in range(4)]
        put(bench, groups[2], "k", 20)
        until(lambda: rows(made[2]) == {"k": 20}, "a change is seen")
        assert sorted(kafka.made) == ["cluster", "reader"]
        names = [thread.name for thread in threading.enumerate()]
        assert len([name for name in names if name.startswith("views-")]) == 1
    folders = {path.parent.name for path in (bench.folder / "views" / "views").glob("*/*")}
    assert folders == {group.table.name for group in groups}


def test_a_table_that_is_missing_or_deleted_leaves_the_others_at_work(bench: Bench) -> None:
    there, goes = counted(bench, "there"), counted(bench, "goes")
    never: Group[str, int] = Group(bench.name("never"), Input(bench.stream(), count), Persist(Long()))
    with App(bench.kafka, bench.folder) as views:
        view, gone, missing = (views.view(group.table) for group in (there, goes, never))
        view.wait_ready(60)
        gone.wait_ready(60)
        with pytest.raises(TopicMismatch, match="there is no topic"):
            missing.wait_ready(60)
        _delete(bench, goes.table.name)
        for value in range(1, 6):
            put(bench, there, "k", value)
            until(lambda value=value: rows(view) == {"k": value}, "a change is seen", 10)  # type: ignore[misc] # bound now
            until(lambda: view.position()[0].age_seconds < 3, "it stays current", 10)


def closes(thing: View[str, int] | App) -> bool:
    """Return whether `close` returns in time."""
    closing_thread = threading.Thread(target=thing.close, daemon=True)
    closing_thread.start()
    closing_thread.join(20)
    return not closing_thread.is_alive()


def check_the_other_view(bench: Bench, group: Group[str, int], other: View[str, int]) -> None:
    put(bench, group, "k", 7)
    until(lambda: rows(other) == {"k": 7}, "the other view follows", 10)
    until(lambda: other.position()[0].age_seconds < 3, "the other view is current", 10)


def test_a_view_whose_folder_was_deleted_is_closed_and_the_others_stay_current(bench: Bench) -> None:
    gone, there = counted(bench, "gone", 1), counted(bench, "there", 1)
    put(bench, gone, "k", 1)
    with App(bench.kafka, bench.folder) as views:
        view, other = views.view(gone.table), views.view(there.table)
        view.wait_ready(60)
        other.wait_ready(60)
        put(bench, gone, "k", 2)
        until(lambda: rows(view) == {"k": 2}, "a row is in the memory table")
        shutil.rmtree(bench.folder / "views" / "view" / gone.table.name)
        assert closes(view)
        check_the_other_view(bench, there, other)
        again = views.view(gone.table)
        again.wait_ready(60)
        assert rows(again) == {"k": 2}
        assert closes(views)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_a_view_whose_disk_is_full_raises_it_and_is_made_again_when_there_is_room(bench: Bench) -> None:
    full, there = counted(bench, "full", 1), counted(bench, "there", 1)
    put(bench, full, "k", 1)
    with small_disk(12) as disk, App(bench.kafka, disk / "state") as views:
        view, other = views.view(full.table), views.view(there.table)
        view.wait_ready(60)
        other.wait_ready(60)
        fill(disk)
        until(lambda: _refused(bench, full, view), "the disk refuses a write")
        assert closes(view)
        (disk / BALLAST).unlink()
        check_the_other_view(bench, there, other)
        again = views.view(full.table)
        again.wait_ready(60)
        put(bench, full, "last", 2)
        until(lambda: rows(again).get("last") == 2, "it follows again")
        assert closes(views)


def _refused(bench: Bench, group: Group[str, int], view: View[str, int]) -> bool:
    bench.send(group.table.name, *((f"k{n}", os.urandom(1000)) for n in range(100)))
    try:
        return not view.ready
    except StoreBroken as error:
        assert "No space left" in str(error)  # noqa: PT017 - both outcomes are checked
        return True


def _delete(bench: Bench, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bench.kafka.bootstrap_servers, "log_level": 0})
    for future in admin.delete_topics([topic]).values():
        future.result(60)
    until(lambda: not bench.cluster.topics([topic]), "the topic is gone")


@pytest.fixture
def at_work(bench: Bench) -> Iterator[tuple[Running, View[str, int], Emitter[str, str]]]:
    """A processor that commits every 200 ms, a view of its table, and an emitter of its input."""
    group = counted(bench, "g")
    with ExitStack() as stack:
        running = stack.enter_context(bench.run(group, commit_interval=0.2))
        views = stack.enter_context(App(bench.kafka, bench.folder / "mine"))
        view = views.view(group.table)
        emitter = stack.enter_context(Emitter(bench.stream(), bench.kafka))
        view.wait_ready(60)
        until(lambda: running.processor.ready, "the group is ready")
        yield running, view, emitter


def test_hundreds_of_writers_a_second_can_wait_for_their_own_writes(
    at_work: tuple[Running, View[str, int], Emitter[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, view, emitter = at_work
    waited: list[float] = []
    asked: list[float] = []
    ask = view._updater.commits.ask

    def noted() -> None:
        asked.append(time.monotonic())
        ask()

    monkeypatch.setattr(view._updater.commits, "ask", noted)

    def write_and_read(number: int) -> None:
        ack = emitter.emit(f"k{number}", "x").result(60)
        began = time.monotonic()
        view.wait_for(ack, 60)
        assert view.get(f"k{number}") == 1
        if number >= WARM_UP_SECONDS * WRITES_PER_SECOND:
            waited.append(time.monotonic() - began)

    began = time.monotonic()
    with ThreadPoolExecutor(400) as pool:
        writes = []
        for number in range(WRITES_PER_SECOND * (WARM_UP_SECONDS + SECONDS)):
            time.sleep(max(0.0, began + number / WRITES_PER_SECOND - time.monotonic()))
            writes.append(pool.submit(write_and_read, number))
        for write in writes:
            write.result()
    p50, p99 = (quantiles(waited, n=100)[at] for at in (49, 98))
    print(
        f"own writes at {WRITES_PER_SECOND}/s: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, {len(asked)} questions"
    )
    # How long it takes is a matter of the machine, which may have other tests to run; that they share questions is not.
    assert len(asked) * 3 < len(writes)


def test_a_commit_of_one_partition_that_hangs_keeps_only_its_own_writers_waiting(bench: Bench) -> None:
    group = counted(bench, "g")
    with ExitStack() as stack:
        view = stack.enter_context(bench.view(group))
        emitter = stack.enter_context(Emitter(bench.stream(), bench.kafka))
        acks = {ack.partition: ack for ack in (emitter.emit_now(f"k{number}", "x") for number in range(20))}
        bench.work_off(group)
        view.wait_ready(60)
        for ack in acks.values():
            view.wait_for(ack, 60)
        hanging = bench.transaction("hanging")
        consumer = Consumer({"bootstrap.servers": bench.kafka.bootstrap_servers, "group.id": group.name})
        stack.callback(consumer.close)
        stack.callback(hanging.abort_transaction, 30)
        place = Partition(bench.stream().name, 0, 0)
        hanging.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
        with ThreadPoolExecutor() as pool:
            stuck = pool.submit(view.wait_for, acks[0], 8.0)
            until(
                lambda: view._updater.commits._alone, "the question about the partition that hangs has failed"
            )
            for partition in range(1, PARTITIONS):
                end = Deadline(3)
                view.wait_for(acks[partition], 60)
                assert not end.passed()
            with pytest.raises(NotReady, match="is not known"):
                stuck.result()


def test_writes_can_be_waited_for_again_after_the_broker_was_away(frail: Broker, frail_bench: Bench) -> None:
    bench = frail_bench
    group = counted(bench, "g", 1)
    settings = {"bootstrap.servers": bench.kafka.bootstrap_servers, "group.id": group.name, "log_level": 0}
    consumer = Consumer(settings)

    def handle(value: int) -> None:
        """Write what a processor commits for a record: a row, and the next offset with the table's position."""
        put(bench, group, "k", value)
        committed = Partition(bench.stream().name, 0, value, TablePosition(value, exact=True).encode())

        def commit() -> bool:
            with suppress(KafkaException):  # Kafka has just come back
                consumer.commit(offsets=[committed], asynchronous=False)
                return True
            return False

        until(commit, "it is committed")

    with closing(consumer), bench.view(group) as view:
        view.wait_ready(60)
        handle(1)
        view.wait_for(Ack(bench.stream().name, 0, 0), 30)
        frail.stop()
        with pytest.raises(NotReady, match="committed is not known"):
            view.wait_for(Ack(bench.stream().name, 0, 0), 2)
        assert rows(view) == {"k": 1}
        frail.start()
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(view.wait_for, Ack(bench.stream().name, 0, 1), 60)
            handle(2)
            waiting.result()
        assert rows(view) == {"k": 2}


def test_a_processor_looks_up_what_another_group_keeps_also_after_a_restart(bench: Bench) -> None:
    table = counted(bench, "g", 1)
    asked = Stream(bench.name("asked"), String(), String())

    def ask(ctx: Context[str, int], key: str) -> None:
        ctx.set(ctx.lookup(table.table, key) or 0)

    asking: Group[str, int] = Group(
        bench.name("asking"), Input(asked, ask), Lookup(table.table), Persist(Long())
    )
    bench.create(asking, 1)
    for number in (1, 2):
        bench.send(bench.stream().name, ("a", "x"))
        bench.work_off(table)
        bench.send(asked.name, (f"q{number}", "a"), (f"n{number}", "nobody"))
        bench.work_off(asking)
    assert bench.table(asking) == {"q1": 1, "n1": 0, "q2": 2, "n2": 0}
