"""The tail of a stream on a real broker: what its readers get, from where, and what they get when they come back."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.system.bench import Bench, until

from localkafka.waiting import Deadline
from streamtable import App, ChangesMissed, Following, Stream, String, Tail
from streamtable.base.partitioner import partition_for
from streamtable.base.ports import TopicDescription
from streamtable.base.types import BadToken
from streamtable.errors import DeserializationError, NotReady
from streamtable.flow import SessionKey, Windowed
from streamtable.views import tail as module

PARTITIONS = 3
HOME = partition_for(b"alice", PARTITIONS)


class Ended:
    """A stream of ended sessions with their texts, which a test writes itself."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.stream = Stream(bench.name("ended"), SessionKey(String()), String())
        bench.cluster.create_topics([TopicDescription(self.stream.name, PARTITIONS, 1, {})])
        until(lambda: bench.cluster.topics([self.stream.name]), "the topic exists")

    def send(self, key: str, *texts: str | bytes) -> None:
        window = self.stream.key.encode(Windowed(key, 1, 2))
        records = [(window, text) for text in texts]
        self.bench.send(self.stream.name, *records, partition=partition_for(key.encode(), PARTITIONS))

    def tail(self, **options: Any) -> Tail[Windowed[str], str]:
        tail = Tail(self.stream, self.bench.kafka, **options)
        tail.start()
        until(lambda: tail.ready, "the tail is ready")
        return tail

    def delete(self, until_offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bench.kafka.bootstrap_servers, "log_level": 0})
        for future in admin.delete_records([TopicPartition(self.stream.name, HOME, until_offset)]).values():
            future.result(30)


@pytest.fixture
def ended(bench: Bench) -> Ended:
    return Ended(bench)


@pytest.fixture
def tail(ended: Ended) -> Iterator[Tail[Windowed[str], str]]:
    with ended.tail() as tail:
        yield tail


def next_of(following: Following[Windowed[str], str]) -> str | None:
    async def ask() -> str | None:
        async with asyncio.timeout(60):
            record = await following.next_async()
        assert record.key.key == following.key.decode()
        return record.value

    return asyncio.run(ask())


def test_readers_get_the_records_of_their_key_from_the_end_on(
    ended: Ended, tail: Tail[Windowed[str], str]
) -> None:
    ended.send("alice", "before")
    with tail.follow("alice", HOME, 0) as first:
        assert next_of(first) == "before"  # so this is where the end is now
    with tail.follow("alice") as alice, tail.follow("bob") as bob:
        ended.send("alice", "1")
        ended.send("bob", "2")
        ended.send("alice", "3")
        assert [next_of(alice), next_of(alice)] == ["1", "3"]
        assert next_of(bob) == "2"


def test_a_reader_who_comes_back_misses_nothing_though_memory_has_forgotten_it_and_the_process_is_another(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FOUND_BYTES", 1_500)  # so that it is read in several pieces
    with ended.tail() as tail, tail.follow("alice") as alice:
        ended.send("alice", "seen")
        assert next_of(alice) == "seen"
        place = alice.partition, alice.offset
    texts = [str(number) for number in range(20)]
    for text in texts:
        ended.send("alice", text)
        ended.send("bob", text)
    with (
        ended.tail(before=2, kept_bytes=3 * PARTITIONS * 1_100) as tail,
        tail.follow("alice", *place) as alice,
    ):
        assert [next_of(alice) for _ in texts] == texts
        ended.send("alice", "new")
        assert next_of(alice) == "new"


def test_a_reader_who_waits_while_memory_forgets_gets_the_next_record_from_memory(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = next(key for key in map(str, range(99)) if partition_for(key.encode(), PARTITIONS) == HOME)
    with ended.tail(kept_bytes=3 * PARTITIONS * 1_100) as tail, tail.follow("alice") as alice:
        monkeypatch.setattr(tail, "read_back", None)  # it is not asked for

        async def wait_long() -> str | None:
            waiting = asyncio.create_task(alice.next_async())
            with tail.follow(other) as others:
                for number in range(20):
                    await asyncio.to_thread(ended.send, other, str(number))
                    await others.next_async()
            await asyncio.to_thread(ended.send, "alice", "at last")
            return (await waiting).value

        assert asyncio.run(wait_long()) == "at last"
        assert alice.offset == 21


def test_a_wait_that_is_cancelled_loses_nothing_and_moves_the_place_on(
    ended: Ended, tail: Tail[Windowed[str], str]
) -> None:
    other = next(key for key in map(str, range(99)) if partition_for(key.encode(), PARTITIONS) == HOME)
    with tail.follow("alice") as alice:
        deadline = Deadline(60)
        ended.send(other, "x")
        while alice.offset == 0:
            assert not deadline.passed()

            async def wait_briefly() -> None:
                async with asyncio.timeout(0.05):
                    await alice.next_async()

            with pytest.raises(TimeoutError):
                asyncio.run(wait_briefly())
        ended.send("alice", "1")
        assert next_of(alice) == "1"


def test_records_of_open_and_aborted_transactions_are_not_seen(
    ended: Ended, bench: Bench, tail: Tail[Windowed[str], str]
) -> None:
    key = ended.stream.key.encode(Windowed("alice", 1, 2))
    with tail.follow("alice") as alice:
        for text, commit in (("aborted", False), ("committed", True)):
            producer = bench.transaction(text)
            producer.produce(ended.stream.name, text, key, HOME)
            assert producer.flush(60) == 0
            producer.commit_transaction(60) if commit else producer.abort_transaction(60)
        assert next_of(alice) == "committed"


def test_a_reader_is_told_that_records_were_deleted_before_it_read_them_and_goes_on_behind_them(
    ended: Ended,
) -> None:
    ended.send("alice", "1", "2", "3", "4")
    ended.delete(2)
    with ended.tail(before=0) as tail, tail.follow("alice", HOME, 0) as alice:
        with pytest.raises(ChangesMissed):
            next_of(alice)
        assert alice.offset == 2
        assert [next_of(alice), next_of(alice)] == ["3", "4"]


def test_an_offset_of_a_topic_that_was_created_again_is_behind_its_end_so_records_were_missed(
    ended: Ended, tail: Tail[Windowed[str], str]
) -> None:
    ended.send("alice", "1")
    with tail.follow("alice", HOME, 1_000) as alice:
        with pytest.raises(ChangesMissed):
            next_of(alice)
        assert next_of(alice) == "1"


def test_a_reader_goes_on_behind_a_record_that_cannot_be_decoded(
    ended: Ended, tail: Tail[Windowed[str], str]
) -> None:
    with tail.follow("alice") as alice:
        ended.send("alice", b"\xff", "2")
        with pytest.raises(DeserializationError) as caught:
            next_of(alice)
        assert (caught.value.partition, caught.value.offset) == (HOME, 0)
        assert next_of(alice) == "2"


def test_a_place_in_another_partition_is_refused_and_a_tail_that_has_not_started_is_not_ready(
    ended: Ended, tail: Tail[Windowed[str], str]
) -> None:
    with pytest.raises(BadToken, match=f"in partition {HOME} of"):
        tail.follow("alice", HOME + 1, 0)
    with Tail(ended.stream, ended.bench.kafka) as other, pytest.raises(NotReady):
        other.follow("alice")


def test_an_app_closes_its_tails(ended: Ended) -> None:
    plain = Stream(ended.stream.name, String(), String())
    with App(ended.bench.kafka, ended.bench.folder) as app:
        tail = app.tail(plain)
        until(lambda: tail.ready, "the tail is ready")
    assert not tail._thread.is_alive()
