"""A query service's search: rows of one kind, decoded, as of what Kafka has committed."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from microbatch import Batch, MicroBatch, Rows, Send
from microbatch.searching import Match, Searcher
from microbatch.standing import encode
from microbatch.stores.elasticsearch import ElasticsearchDriver
from microbatch.stores.port import Fields
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import ABSENT, Ledger, Mark, Standing, ledger_key, replace
from streamtable import Long, Stream, String
from streamtable.errors import RetryLater
from streamtable.ports import TopicInfo
from streamtable.types import Committed, NextOffset, TopicPartition, Watermarks

pytestmark = pytest.mark.broker
PAGES = Rows("pages", value=String(), fields=lambda text: {"text": text})
INPUT = Stream("clicks", key=String(), value=Long())


def nothing(batch: Batch, send: Send) -> None:
    """These tests write the rows themselves."""


GROUP = MicroBatch("reach", inputs=[INPUT], process=nothing, rows=[PAGES])


class Committing:
    """A cluster that says what was committed, once it has stopped being busy."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.standings: dict[int, Standing] = {}
        self.busy = 0
        self.closed = False

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        return {name: TopicInfo(name, self.partitions, "id", False, 0, 1_000_000) for name in names}

    def watermarks(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        raise AssertionError("nobody needs them")

    def stable_offsets(
        self, group: str, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        assert group == GROUP.name
        if self.busy > 0:
            self.busy -= 1
            raise RetryLater("a transaction is pending")
        found: dict[TopicPartition, Committed | None] = dict.fromkeys(places)
        for partition, standing in self.standings.items():
            place = TopicPartition(INPUT.name, partition)
            found[place] = Committed(NextOffset(7), encode(standing, [INPUT.name]))
        return found

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def driver(server_of: Callable[[str], Any]) -> Iterator[ElasticsearchDriver]:
    server = server_of("elasticsearch")
    alias = f"s{uuid.uuid4().hex[:8]}"
    made = ElasticsearchDriver(server.url, alias=alias, tenant="reach")
    made.create(shards=1, replicas=0, fields={"text": "text"})
    yield made
    made.close()
    with Elasticsearch(server.url) as client:
        client.indices.delete(index=f"{alias}-1")


def write(driver: ElasticsearchDriver, partition: int, mark: Mark, key: str, text: str) -> None:
    store = RemoteStore(driver, deadline=60, attempt=20)
    cell = replace(ABSENT, mark, text.encode(), partition)
    assert cell is not None
    raw = PAGES.key(key)
    store.put_many({raw: cell.encode()}, mark.number, {raw: Fields({"text": text}, None)})
    store.put_many({ledger_key(partition): Ledger(mark.token, {}).encode()}, Mark(mark.token, 0).number)
    store.flush()


def test_rows_are_found_by_what_each_partition_has_committed(driver: ElasticsearchDriver) -> None:
    cluster = Committing(partitions=3)
    write(driver, 0, Mark(1, 1), "a", "red one")
    write(driver, 1, Mark(1, 2), "b", "red two")
    write(driver, 2, Mark(1, 1), "c", "red three")
    cluster.standings = {0: Standing(1, Mark(1, 1)), 1: Standing(1, Mark(1, 1))}
    searcher = Searcher(GROUP, PAGES, cluster, driver)
    (found,) = searcher.search({"text": "red"}, timeout=30)
    assert isinstance(found, Match)
    assert (found.key, found.value) == ("a", "red one")
    cluster.standings[1] = Standing(1, Mark(1, 2))
    assert {each.key for each in searcher.search({"text": "red"}, timeout=30)} == {"a", "b"}
    searcher.close()
    assert cluster.closed


def test_a_commit_on_its_way_is_waited_for_and_not_for_ever(driver: ElasticsearchDriver) -> None:
    cluster = Committing(partitions=1)
    write(driver, 0, Mark(1, 1), "a", "red one")
    cluster.standings = {0: Standing(1, Mark(1, 1))}
    cluster.busy = 3
    searcher = Searcher(GROUP, PAGES, cluster, driver)
    assert [each.key for each in searcher.search({"text": "red"}, timeout=30)] == ["a"]
    cluster.busy = 1_000_000
    with pytest.raises(RetryLater, match="pending"):
        searcher.search({"text": "red"}, timeout=1)
