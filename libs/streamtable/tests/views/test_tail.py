"""The handling of errors by a tail that no broker can be made to return; tests/system/test_tail.py has the other tests."""

import asyncio
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localkafka.waiting import wait_until
from streamtable import Following, Stream, String, Tail
from streamtable.base.partitioner import partition_for
from streamtable.base.ports import TopicInfo
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.errors import ChangesMissed, Fatal, InputLost, StreamtableError, TopicMismatch
from streamtable.flow import Windowed, WindowedKey
from streamtable.views import tail as module
from streamtable.views import topic_follower

STREAM = Stream("s", String(), String())
PLACE = TopicPartition("s", 0)


class LogDouble:
    """Has a reader of the newest records, and one of old records."""

    def __init__(self, cluster: Any, newest: Any, old: Any) -> None:
        self._cluster, self._newest, self._old = cluster, newest, old

    def cluster(self) -> Any:
        return self._cluster

    def table_reader(self, name: str) -> Any:
        reader = self._old if name.endswith("-back") else self._newest
        reader.positions.clear()
        return reader


@pytest.fixture
def cluster(make_cluster: Any, topic_info: Callable[..., TopicInfo]) -> Any:
    return make_cluster({"s": topic_info("s", partitions=1)})


@pytest.fixture
def old(reader: Any) -> Any:
    return type(reader)()


@pytest.fixture
def tail(cluster: Any, reader: Any, old: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tail[str, str]]:
    monkeypatch.setattr(cluster, "close", lambda: None, raising=False)
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)
    reader.during_poll = lambda: time.sleep(0.005)
    log: Any = LogDouble(cluster, reader, old)
    with Tail(STREAM, log, before=0) as tail:
        tail.start()
        until(lambda: tail.ready)
        yield tail


def until(true: Callable[[], bool]) -> None:
    wait_until(true, 60, every=0.005)


def next_of(following: Following[str, str], meanwhile: Callable[[], object] = bool) -> str | None:
    async def ask() -> str | None:
        async with asyncio.timeout(60):
            waiting = asyncio.create_task(following.next_async())
            await asyncio.sleep(0.02)
            await asyncio.to_thread(meanwhile)
            return (await waiting).value

    return asyncio.run(ask())


def test_a_reader_that_waits_is_woken_when_the_tail_is_closed_and_gets_an_error(tail: Tail[str, str]) -> None:
    with tail.follow("a") as following, pytest.raises(StreamtableError, match="tail of 's' was closed"):
        next_of(following, tail.close)
    with pytest.raises(StreamtableError, match="was closed"):
        tail.follow("a")


def test_a_reader_that_waits_is_woken_by_what_stops_the_tail(tail: Tail[str, str], reader: Any) -> None:
    with tail.follow("a") as following, pytest.raises(Fatal, match="no more"):
        next_of(following, lambda: reader.errors.append(Fatal("no more")))


def test_a_topic_with_another_number_of_partitions_stops_the_tail(
    tail: Tail[str, str], reader: Any, cluster: Any, topic_info: Callable[..., TopicInfo]
) -> None:
    cluster.infos["s"] = topic_info("s", partitions=2)
    with tail.follow("a") as following, pytest.raises(TopicMismatch, match="had 1 partitions and has 2"):
        next_of(following, lambda: reader.errors.append(InputLost("created again")))


def test_a_topic_that_was_created_again_is_noticed_and_its_readers_hear_of_it(
    tail: Tail[str, str],
    reader: Any,
    cluster: Any,
    old: Any,
    record: Any,
    topic_info: Callable[..., TopicInfo],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_follower, "_CHECK_SECONDS", 0.0)
    reader.logs[PLACE] = [record(b"a", b"1", offset) for offset in range(5)]
    until(lambda: tail._parts[0].position == 5)

    def create_again() -> None:  # which Kafka's client need not notice
        cluster.marks[PLACE] = Watermarks(0, 2)
        old.ends[PLACE] = 2
        reader.logs[PLACE] = []
        cluster.infos["s"] = topic_info("s", partitions=1, topic_id="another")

    with tail.follow("a") as following:
        with pytest.raises(ChangesMissed):
            next_of(following, create_again)
        reader.logs[PLACE] = [record(b"a", b"2", 2)]
        assert next_of(following) == "2"
    assert reader.closed


def test_a_topic_that_was_created_again_and_is_longer_is_read_from_its_start_after_an_error(
    tail: Tail[str, str],
    reader: Any,
    cluster: Any,
    old: Any,
    record: Any,
    topic_info: Callable[..., TopicInfo],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_follower, "_CHECK_SECONDS", 0.0)
    reader.logs[PLACE] = [record(b"a", b"1", offset) for offset in range(5)]
    until(lambda: tail._parts[0].position == 5)
    new = [f"new{offset}" for offset in range(8)]
    with tail.follow("a") as following:
        cluster.marks[PLACE] = Watermarks(0, 8)
        for each in (old, reader):
            each.logs[PLACE] = [record(b"a", value.encode(), offset) for offset, value in enumerate(new)]
        cluster.infos["s"] = topic_info("s", partitions=1, topic_id="another")
        # Until the topic's id is compared, Kafka's client continues at its offset.
        with pytest.raises(ChangesMissed):
            _ = [next_of(following) for _ in new]
        assert [next_of(following) for _ in new] == new


def test_a_reader_of_old_records_gets_the_error_of_a_damaged_one_behind_what_comes_before_it(
    tail: Tail[str, str], reader: Any, cluster: Any, old: Any, record: Any
) -> None:
    cluster.marks[PLACE] = Watermarks(0, 5)
    reader.errors.append(InputLost("it begins again, at 5"))
    until(lambda: tail._parts[0].start == 5)
    old.logs[PLACE] = [record(b"a", b"1", 0)]

    def fail_behind_it() -> None:
        if old.positions.get(PLACE) == 1:
            old.errors.append(InputLost("offset 1 is damaged"))

    old.during_poll = fail_behind_it
    with tail.follow("a", 0, 0) as following:
        assert next_of(following) == "1"
        assert following.offset == 1
        with pytest.raises(InputLost, match="damaged"):
            next_of(following)


def test_old_records_are_read_for_a_reader_up_to_so_many_bytes_at_a_time(
    tail: Tail[str, str], reader: Any, cluster: Any, old: Any, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL_RECORDS", 1)
    cluster.marks[PLACE] = Watermarks(0, 9)
    reader.errors.append(InputLost("it begins again, at 9"))
    until(lambda: tail._parts[0].start == 9)
    old.logs[PLACE] = [record(b"a", b"x" * 400_000, offset) for offset in range(9)]
    with tail.follow("a", 0, 0) as following:
        next_of(following)
        assert len(following._found) == 2


def test_keys_with_one_record_each_take_no_more_memory_than_is_said() -> None:
    part = module._KeptPartition(0)
    tracemalloc.start()
    for offset in range(5_000):
        key = b"user-%05d" % offset
        part.add(module._Kept(offset, bytes(bytearray(key)), key + bytes(16), bytes(8)))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 1.1 * part.size
    for _ in range(5_000):
        part.forget_first()
    assert part.size == 0


def test_a_key_in_a_window_is_followed_where_the_records_of_the_key_without_it_are(
    make_cluster: Any, topic_info: Callable[..., TopicInfo], reader: Any, old: Any, monkeypatch: Any
) -> None:
    cluster = make_cluster({"s": topic_info("s", partitions=8)})
    monkeypatch.setattr(cluster, "close", lambda: None, raising=False)
    log: Any = LogDouble(cluster, reader, old)
    windowed = WindowedKey(WindowedKey(String(), 1_000), 60_000)
    with Tail(Stream("s", windowed, String()), log, before=0) as tail:
        tail.start()
        until(lambda: tail.ready)
        for name in "abcdefgh":
            with tail.follow(Windowed(name, 0, 1_000)) as following:
                assert following.partition == partition_for(name.encode(), 8)
