"""Views of tables on a real broker and disk: what they answer, when they refuse, and what they outlive."""

import random
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
)
from tests.system.bench import Bench, until

from localkafka.broker import Broker
from streamtable import App, Bytes, Long, String, Table, View
from streamtable.base.partitioner import partition_for
from streamtable.base.ports import TopicDescription
from streamtable.base.types import TopicPartition as Place
from streamtable.errors import NotReady, TopicMismatch, UnreadableRow
from streamtable.views.watch import CopyReloaded, TooSlow

PARTITIONS = 3


class Written:
    """A table that a test writes itself, and views of it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.table = Table(bench.name("t"), String(), Long())
        self.create()

    def create(self, partitions: int = PARTITIONS, policy: str = "compact") -> None:
        topic = TopicDescription(self.table.name, partitions, 1, {"cleanup.policy": policy})

        def created() -> bool:
            self.bench.cluster.create_topics([topic])
            return bool(self.bench.cluster.topics([topic.name]))

        until(created, "the table's topic exists")
        self.partitions = partitions

    def delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bench.kafka.bootstrap_servers, "log_level": 0})
        for future in admin.delete_topics([self.table.name]).values():
            future.result(60)
        until(lambda: not self.bench.cluster.topics([self.table.name]), "the topic is gone")

    def put(self, **rows: int | None) -> None:
        for key, value in rows.items():
            place = partition_for(key.encode(), self.partitions)
            data = None if value is None else Long().encode(value)
            self.bench.send(self.table.name, (key, data), partition=place)

    def let_rows_expire(self) -> None:
        """Retention deletes all that was written until now; what comes later stays."""
        places = [Place(self.table.name, each) for each in range(self.partitions)]
        self._keep_ms(500)

        def gone() -> bool:
            return all(mark.low == mark.high for mark in self.bench.cluster.watermarks(places).values())

        until(gone, "retention has deleted the rows")
        self._keep_ms(-1)

    def _keep_ms(self, retention_ms: int) -> None:
        self.bench.cluster.alter_topic(self.table.name, {"retention.ms": str(retention_ms)})

    def delete_rows_written_until_now(self) -> None:
        """Delete records with DeleteRecords, on all partitions."""
        admin = AdminClient({"bootstrap.servers": self.bench.kafka.bootstrap_servers, "log_level": 0})
        places = [TopicPartition(self.table.name, each, OFFSET_END) for each in range(self.partitions)]
        for future in admin.delete_records(places).values():
            future.result(60)

    def view(self) -> View[str, int]:
        return App(self.bench.kafka, self.bench.folder).view(self.table)


@pytest.fixture
def written(bench: Bench) -> Written:
    """A table."""
    return Written(bench)


@pytest.fixture
def full(written: Written) -> Iterator[tuple[Written, View[str, int]]]:
    """A table with rows, and a view of it that is ready."""
    written.put(al=1, alan=2, alice=3, bob=4, carol=5, gone=6)
    written.put(gone=None, alice=30)
    with written.view() as view:
        view.wait_ready(60)
        yield written, view


Full = tuple[Written, View[str, int]]


def test_a_whole_view_answers_every_kind_of_question(full: Full) -> None:
    _, view = full
    assert (view.get("alice"), view.get("gone"), view.get("nobody")) == (30, None, None)
    assert view.get_many(["bob", "gone", "al"]) == {"bob": 4, "al": 1}
    assert view.range("alan", "bob") == [("alan", 2), ("alice", 30)]
    assert [key for key, _ in view.range(limit=3)] == ["al", "alan", "alice"]
    assert [key for key, _ in view.iterate(prefix="al", after="al")] == ["alan", "alice"]
    assert [key for key, _ in view.iterate(after="alice")] == ["bob", "carol"]
    answer = view.answer("bob")
    assert (answer.value, answer.partition, answer.stale) == (4, partition_for(b"bob", PARTITIONS), False)
    assert answer.offset == view.position()[answer.partition].offset
    assert sum(position.offset for position in view.position().values()) == 8
    assert all(position.ready for position in view.position().values())
    assert view.lag() == 0


def test_a_watch_yields_changes_as_they_come_and_ends_if_they_are_not_taken(full: Full) -> None:
    written, view = full
    with view.watch("bob") as bob, view.watch(prefix="al") as al, view.watch(capacity=5) as slow:
        written.put(bob=40, alan=None)
        change = bob.next(10)
        assert change is not None
        assert (change.key, change.value, change.partition) == ("bob", 40, partition_for(b"bob", PARTITIONS))
        assert view.get("bob") == 40
        change = al.next(10)
        assert change is not None
        assert (change.key, change.value) == ("alan", None)
        written.put(**{f"carol{n}": n for n in range(10)})  # rows of one key may come as one change
        until(lambda: slow.ended, "the slow watch is ended")
        with pytest.raises(TooSlow):
            slow.next(1)
        assert bob.next(0.05) is None


def test_nothing_is_answered_while_a_transaction_hides_part_of_the_table(written: Written) -> None:
    written.put(alice=1)
    foreign = written.bench.transaction("foreign")
    place = partition_for(b"bob", PARTITIONS)
    foreign.produce(written.table.name, Long().encode(2), b"bob", partition=place)
    foreign.flush()
    with written.view() as view:
        with pytest.raises(NotReady, match="1 of 3 partitions are loading, 1 records to go"):
            view.wait_ready(3)
        with pytest.raises(NotReady):
            view.get("alice")
        assert not view.ready
        foreign.commit_transaction(60)
        view.wait_ready(60)
        assert (view.get("alice"), view.get("bob")) == (1, 2)


def test_an_open_transaction_makes_a_whole_view_older_but_not_silent(full: Full) -> None:
    written, view = full
    foreign = written.bench.transaction("foreign")
    place = partition_for(b"bob", PARTITIONS)
    foreign.produce(written.table.name, Long().encode(99), b"bob", partition=place)
    foreign.flush()
    until(lambda: view.lag() == 1, "the view sees that it is behind")
    until(lambda: view.answer("bob").age_seconds > 1.0, "its answers grow older")
    assert view.get("bob") == 4
    foreign.abort_transaction(60)
    until(lambda: view.lag() == 0 and view.answer("bob").age_seconds < 2.5, "it is current again")
    assert view.get("bob") == 4


def test_a_table_follows_its_processor(bench: Bench) -> None:
    group = bench.counting()
    with bench.run(group) as running, bench.view(group) as view:
        view.wait_ready(60)
        for n in (1, 2, 3):
            bench.send(bench.name("in"), ("a", "x"))
            until(lambda n=n: view.get("a") == n, "the view has it")  # type: ignore[misc] # n is bound now
        bench.send(bench.name("in"), ("a", "delete"))
        until(lambda: view.get("a") is None, "the row is gone")
        bench.wait_handled(group, running)


def test_a_restarted_view_is_not_ready_before_it_holds_what_was_committed_while_it_was_closed(
    frail: Broker, frail_bench: Bench
) -> None:
    written = Written(frail_bench)
    written.put(alice=1)
    with written.view() as view:
        view.wait_ready(60)
    written.put(alice=2)
    frail.pause()
    try:
        with written.view() as view:
            with pytest.raises(
                NotReady, match=r"is not ready after 4 s: Kafka (has not answered yet|does not answer)"
            ):
                view.wait_ready(4)  # twice the time after which it once took the copy on disk for the table
            with pytest.raises(NotReady):
                view.get("alice")
            with pytest.raises(NotReady):
                view.range()
            assert not any(position.ready for position in view.position().values())
            old = view.answer("alice", stale_ok=True)
            assert (old.value, old.stale) == (1, True)
            frail.resume()
            view.wait_ready(60)
            assert view.get("alice") == 2
            assert not view.answer("alice", stale_ok=True).stale
    finally:
        frail.resume()


def test_a_restarted_view_answers_stale_rows_to_who_accepts_them_and_catches_up_later(
    frail: Broker, frail_bench: Bench
) -> None:
    written = Written(frail_bench)
    written.put(alice=1)
    with written.view() as view:
        view.wait_ready(60)
    written.put(alice=2)
    frail.stop()
    with written.view() as view:
        old = view.answer("alice", stale_ok=True)  # at once
        assert (old.value, old.stale) == (1, True)
        with view.snapshot(old.partition, stale_ok=True) as rows:
            assert (rows.stale, dict(rows)) == (True, {"alice": 1})
        until(
            lambda: view.answer("alice", stale_ok=True).age_seconds > old.age_seconds + 0.5, "it grows older"
        )
        frail.start()
        view.wait_ready(60)
        assert (view.get("alice"), view.answer("alice").stale) == (2, False)
        # The leader epochs of the new topic begin at 0 again, and the client knows the higher ones of the restarted broker.
        written.delete()
        written.create()
        written.put(carol=3)
        until(
            lambda: view.ready and view.range() == [("carol", 3)], "it shows the topic that was created again"
        )


def test_a_view_that_never_was_whole_refuses_while_the_broker_is_away(
    frail: Broker, frail_bench: Bench
) -> None:
    written = Written(frail_bench)
    written.put(alice=1)
    frail.pause()
    try:
        with written.view() as view:
            with pytest.raises(NotReady, match=r"Kafka (has not answered yet|does not answer)"):
                view.wait_ready(0.5)
            frail.resume()
            view.wait_ready(30)
            assert view.get("alice") == 1
    finally:
        frail.resume()


@pytest.mark.parametrize("partitions", [PARTITIONS, PARTITIONS - 1, PARTITIONS + 1])
def test_a_recreated_topic_is_loaded_again(written: Written, partitions: int) -> None:
    written.put(alice=1, bob=2)
    with written.view() as view:
        view.wait_ready(60)
    written.delete()
    written.create(partitions)
    written.put(carol=3)
    for _ in range(2):  # the second one finds nothing left of the first topic
        with written.view() as view:
            until(lambda: view.ready and view.get("carol") == 3, "the new rows are there")
            assert view.range() == [("carol", 3)]
            assert len(view.position()) == partitions


def test_a_topic_that_is_recreated_under_a_running_view_is_loaded_again(full: Full) -> None:
    written, view = full
    written.delete()
    written.create()
    written.put(dora=7)
    until(lambda: view.ready and view.range() == [("dora", 7)], "only the new rows are there")


@pytest.mark.parametrize("behind", [False, True], ids=["at its position", "beyond it"])
@pytest.mark.parametrize("delete", [Written.delete_rows_written_until_now, Written.let_rows_expire])
def test_a_restarted_view_shows_no_rows_that_the_topic_has_lost(
    delete: Callable[[Written], None], behind: bool, written: Written  # noqa: FBT001 - a parameter
) -> None:  # fmt: skip
    written.delete()
    written.create(policy="compact,delete")
    written.put(a=1, b=2, c=3)
    with written.view() as view:
        view.wait_ready(60)
    if behind:
        written.put(a=None, d=4)
    delete(written)
    written.put(x=9)
    with written.view() as view:
        view.wait_ready(60)
        assert view.range() == [("x", 9)]


def test_a_running_view_drops_rows_that_the_topic_loses_and_ends_its_watches(written: Written) -> None:
    written.delete()
    written.create(policy="compact,delete")
    written.put(a=1, b=2, c=3)
    with written.view() as view:
        view.wait_ready(60)
        watch = view.watch()
        written.delete_rows_written_until_now()
        until(lambda: watch.ended, "the watch is ended")
        with pytest.raises(CopyReloaded, match="records were deleted"):
            watch.next(0)
        written.put(x=9)
        until(lambda: view.ready and view.range() == [("x", 9)], "only the new row is there")


def test_a_row_of_another_program_stops_neither_lists_nor_watches(full: Full) -> None:
    written, view = full
    watch = view.watch()
    place = partition_for(b"bob", PARTITIONS)
    written.bench.send(written.table.name, (b"bob", b"\0"), partition=place)
    written.put(zoe=7)
    until(lambda: view.get("zoe") == 7, "what came later is there")
    until(lambda: view.position()[place].lag == 0, "the view has read the row")
    rows = view.range()
    assert ([key for key, _ in rows], rows.unreadable) == (["al", "alan", "alice", "carol", "zoe"], 1)
    with pytest.raises(UnreadableRow, match="cannot be decoded") as caught:
        view.get("bob")
    assert (caught.value.topic, caught.value.partition) == (written.table.name, place)
    assert (change := watch.next(10)) is not None
    assert change.key == "zoe"


def test_a_table_that_got_more_partitions_is_an_error_with_both_numbers(
    written: Written, broker: Broker
) -> None:
    written.put(alice=1, bob=2, carol=3)
    with written.view() as view:
        view.wait_ready(60)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for future in admin.create_partitions([NewPartitions(written.table.name, 7)]).values():
        future.result(60)
    until(lambda: written.bench.cluster.topics([written.table.name])[written.table.name].partitions == 7, "7")
    with written.view() as view:

        def refused() -> bool:
            try:
                view.get("alice")
            except TopicMismatch as error:
                return "had 3 partitions and has 7 now" in str(error)
            return False

        until(refused, "it says so")


@pytest.mark.parametrize("noticed", ["when it is opened", "when it is read"])
def test_a_damaged_file_is_noticed_and_the_partition_loaded_again(bench: Bench, noticed: str) -> None:
    table = Table(Written(bench).table.name, String(), Bytes())
    rows = {f"key-{n:05}": random.Random(n).randbytes(200) for n in range(3_000)}
    for place in range(PARTITIONS):
        mine = [row for row in rows.items() if partition_for(row[0].encode(), PARTITIONS) == place]
        bench.send(table.name, *mine, partition=place)
    with App(bench.kafka, bench.folder).view(table) as view:
        view.wait_ready(60)
    rows_in = [file for file in bench.folder.rglob("*.sst") if file.stat().st_size > 100_000]
    assert len(rows_in) == PARTITIONS
    for file in rows_in:
        data = bytearray(file.read_bytes())
        # In the footer; or in a block of rows, which is not read before it is requested.
        data[-20 if noticed == "when it is opened" else len(data) // 2] ^= 1
        file.write_bytes(data)
    with App(bench.kafka, bench.folder).view(table) as view:
        if noticed == "when it is read":
            view.wait_ready(60)
            with pytest.raises(NotReady, match="damaged"):
                list(view.iterate())
        until(lambda: dict(view.iterate()) == rows, "every row can be read")
