"""Searches of a query service: decoded rows of one kind, as committed in Kafka."""

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

import orjson
import pytest
from elasticsearch import Elasticsearch

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import Deadline
from microbatch import Batch, BatchProcessor, MicroBatch, Rows, Send
from microbatch.committed_state import document
from microbatch.searching import Match, Searcher
from microbatch.stores.elasticsearch import ElasticsearchDriver
from microbatch.stores.port import VersionedFields
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import ABSENT, CommittedState, Ledger, WriteId, ledger_key, replace
from streamtable import Emitter, Kafka, Long, Stream, String
from streamtable.base.ports import TopicInfo
from streamtable.base.types import Committed, NextOffset, TopicPartition, Watermarks
from streamtable.errors import RetryLater

pytestmark = pytest.mark.broker
PAGES = Rows("pages", value=String(), fields=lambda text: {"text": text})
INPUT = Stream("clicks", key=String(), value=Long())


def nothing(batch: Batch, send: Send) -> None:
    """These tests write the rows themselves."""


GROUP = MicroBatch("reach", inputs=[INPUT], process=nothing, rows=[PAGES])


class Committing:
    """A cluster that reports the committed changes, once it has stopped being busy."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.committed_states: dict[int, CommittedState] = {}
        self.busy = 0
        self.closed = False

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        return {name: TopicInfo(name, self.partitions, "id", False, 0, 1_000_000) for name in names}

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, str]:
        raise AssertionError("not called in these tests")

    def watermarks(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        raise AssertionError("not called in these tests")

    def stable_ends(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        raise AssertionError("not called in these tests")

    def offsets_partition(self, group: str) -> TopicPartition | None:
        raise AssertionError("not called in these tests")

    @property
    def servers(self) -> str:
        raise AssertionError("not called in these tests")

    def stable_offsets(
        self, group: str, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        assert group == GROUP.name
        if self.busy > 0:
            self.busy -= 1
            raise RetryLater("a transaction is pending")
        found: dict[TopicPartition, Committed | None] = dict.fromkeys(places)
        for partition, committed_state in self.committed_states.items():
            place = TopicPartition(INPUT.name, partition)
            found[place] = Committed(
                NextOffset(7), orjson.dumps(document(committed_state, [INPUT.name])).decode()
            )
        return found

    def group_names(self) -> frozenset[str]:
        raise AssertionError("not called in these tests")

    def group_members(self, group: str) -> list[str]:
        raise AssertionError("not called in these tests")

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        raise AssertionError("not called in these tests")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def connect(server_of: Callable[[str], Any]) -> Iterator[Callable[[], ElasticsearchDriver]]:
    """Makes drivers for an index of this test alone."""
    server = server_of("elasticsearch")
    alias = f"s{uuid.uuid4().hex[:8]}"

    def made() -> ElasticsearchDriver:
        return ElasticsearchDriver(server.url, alias=alias, tenant="reach")

    with closing(made()) as first:
        first.create(shards=1, replicas=0, fields={"text": "text"})
    yield made
    with Elasticsearch(server.url) as client:
        client.indices.delete(index=f"{alias}-1")


@pytest.fixture
def driver(connect: Callable[[], ElasticsearchDriver]) -> Iterator[ElasticsearchDriver]:
    with closing(connect()) as made:
        yield made


def write(driver: ElasticsearchDriver, partition: int, write_id: WriteId, key: str, text: str) -> None:
    store = RemoteStore(driver, deadline=60, attempt=20)
    cell = replace(ABSENT, write_id, text.encode(), partition)
    assert cell is not None
    raw = PAGES.key(key)
    store.put_many({raw: cell.encode()}, write_id.number, {raw: VersionedFields({"text": text}, None)})
    store.put_many(
        {ledger_key(partition): Ledger(write_id.epoch, {}).encode()}, WriteId(write_id.epoch, 0).number
    )
    store.flush()


def test_a_search_uses_the_committed_state_of_each_partition(driver: ElasticsearchDriver) -> None:
    cluster = Committing(partitions=3)
    write(driver, 0, WriteId(1, 1), "a", "red one")
    write(driver, 1, WriteId(1, 2), "b", "red two")
    write(driver, 2, WriteId(1, 1), "c", "red three")
    cluster.committed_states = {0: CommittedState(1, WriteId(1, 1)), 1: CommittedState(1, WriteId(1, 1))}
    searcher = Searcher(GROUP, PAGES, cluster, driver)
    (found,) = searcher.search({"text": "red"}, timeout=30)
    assert isinstance(found, Match)
    assert (found.key, found.value) == ("a", "red one")
    cluster.committed_states[1] = CommittedState(1, WriteId(1, 2))
    assert {each.key for each in searcher.search({"text": "red"}, timeout=30)} == {"a", "b"}
    searcher.close()
    assert cluster.closed


def test_a_pending_commit_is_awaited_up_to_the_timeout(driver: ElasticsearchDriver) -> None:
    cluster = Committing(partitions=1)
    write(driver, 0, WriteId(1, 1), "a", "red one")
    cluster.committed_states = {0: CommittedState(1, WriteId(1, 1))}
    cluster.busy = 3
    searcher = Searcher(GROUP, PAGES, cluster, driver)
    assert [each.key for each in searcher.search({"text": "red"}, timeout=30)] == ["a"]
    cluster.busy = 1_000_000
    with pytest.raises(RetryLater, match="pending"):
        searcher.search({"text": "red"}, timeout=1)


# ---- of a running group --------------------------------------------------------------------------------------------


def keep(batch: Batch, send: Send) -> None:
    """The latest text of each key; an empty one deletes."""
    pages = batch.rows(PAGES)
    for record in batch.records:
        if record.value:
            pages.put(record.key, record.value)
        else:
            pages.delete(record.key)


def test_rows_of_a_running_group_are_found_after_a_refresh_and_replaced_ones_never(
    broker: Broker, topics: Topics, connect: Callable[[], ElasticsearchDriver]
) -> None:
    kafka, name = Kafka(broker.bootstrap_servers), topics.name("pages")
    texts = Stream(topics.create("texts", partitions=2), String(), String())
    for what in ("retry", "dead-letters"):
        topics.create(f"pages-{what}", partitions=2)
    group = MicroBatch(name, inputs=[texts], process=keep, rows=[PAGES], max_wait=0.02)
    processor = BatchProcessor(group, kafka, store=connect())
    work = threading.Thread(target=processor.run)
    work.start()
    searcher = Searcher(group, PAGES, kafka.cluster(), connect())

    def found(word: str) -> dict[str, str]:
        try:
            return {each.key: each.value for each in searcher.search({"text": word}, timeout=10)}
        except RetryLater:
            return {}  # the group has not committed anything yet, or commits right now

    def wait_until_found(word: str, expected: dict[str, str]) -> None:
        """No explicit refresh: the index refreshes itself each second."""
        end = Deadline(60)
        while (now := found(word)) != expected:
            assert all(word in text for text in now.values()), now
            assert not end.passed(), now

    try:
        with Emitter(texts, kafka) as emitter:
            emitter.emit("a", "red 0")
            emitter.emit("b", "red too")
            wait_until_found("red", {"a": "red 0", "b": "red too"})
            for number in range(1, 40):
                emitter.emit_now("a", f"{('red', 'blue')[number % 2]} {number}")
                for word in ("red", "blue"):
                    assert all(word in text for text in found(word).values())
            emitter.emit("b", "")
            wait_until_found("red", {})
            wait_until_found("blue", {"a": "blue 39"})
    finally:
        processor.stop()
        work.join(60)
        searcher.close()
