"""Searches return the committed version of each row, whatever uncommitted writes there are."""

import uuid
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from microbatch.stores.elasticsearch import ElasticsearchDriver
from microbatch.stores.memory import MemoryDriver
from microbatch.stores.port import FieldValue, VersionedFields
from microbatch.stores.search import Hit, ledgers_from, search
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import (
    ABSENT,
    UNOWNED,
    CommittedState,
    Ledger,
    Version,
    VersionedCell,
    WriteId,
    ledger_key,
    replace,
)
from streamtable.errors import ConfigurationError, RetryLater, SerializationError

FIELDS = {"url": "keyword", "text": "text", "tweets": "long"}
broker = pytest.mark.broker


def fields_of(value: bytes | None) -> dict[str, FieldValue] | None:
    """`<url> <words>`, as a group's rows would be turned into fields."""
    if value is None:
        return None
    url, _, text = value.decode().partition(" ")
    return {"url": url, "text": text, "tweets": len(text)}


class Group:
    """One partition's owner, as far as the store sees it, and a client that searches."""

    def __init__(self, driver: ElasticsearchDriver) -> None:
        self.driver = driver
        self.store = RemoteStore(driver, deadline=60, attempt=20)
        self.ledger = Ledger.open(UNOWNED, None)
        self.open()

    def open(self) -> None:
        self.store.put_many({ledger_key(0): self.ledger.encode()}, self.ledger.opening)

    def crash(self) -> None:
        self.ledger = Ledger.open(self.ledger.committed_state, self.store.get(ledger_key(0)))
        self.open()

    def write(self, rows: dict[bytes, bytes | None]) -> None:
        found = self.store.get_many(rows)
        cells: dict[bytes, bytes | None] = {}
        fields = {}
        for key, value in rows.items():
            before = self.ledger.read(found.get(key))
            cell = replace(before, self.ledger.next_write_id, value, 0)
            if cell is not None:
                cells[key] = cell.encode()
                fields[key] = VersionedFields(fields_of(value), fields_of(before.value))
        self.store.put_many(cells, self.ledger.next_write_id.number, fields)

    def commit(self) -> None:
        self.ledger = self.ledger.committed()

    def find(self, limit: int = 20, **fields: str | int) -> list[bytes]:
        self.store.flush()
        return [hit.value for hit in self.search(limit, **fields)]

    def search(self, limit: int = 20, **fields: str | int) -> list[Hit]:
        ledgers = ledgers_from(self.store, lambda: {0: self.ledger.committed_state})
        return search(self.driver, fields, ledgers, limit=limit, timeout=30)


@pytest.fixture
def group(server_of: Callable[[str], Any], tenant: str) -> Iterator[Group]:
    server = server_of("elasticsearch")
    alias = f"s{uuid.uuid4().hex[:8]}"
    driver = ElasticsearchDriver(server.url, alias=alias, tenant=tenant)
    driver.create(shards=1, replicas=0, fields=FIELDS)
    yield Group(driver)
    with Elasticsearch(server.url) as client:
        client.indices.delete(index=f"{alias}-1")
    driver.close()


@broker
def test_a_row_is_found_by_all_its_words_and_by_exact_values(group: Group) -> None:
    group.write({b"a": b"foo.com/1 Streams of tweets", b"b": b"foo.com/2 streams of clicks"})
    group.commit()
    assert sorted(group.find(text="STREAMS of")) == [
        b"foo.com/1 Streams of tweets",
        b"foo.com/2 streams of clicks",
    ]
    assert group.find(text="tweets of streams") == [b"foo.com/1 Streams of tweets"]
    assert group.find(url="foo.com/2", text="streams") == [b"foo.com/2 streams of clicks"]
    assert group.find(url="foo.com") == []
    assert len(group.find(limit=1, text="streams")) == 1


@broker
def test_an_uncommitted_version_is_not_found_and_the_one_that_it_replaces_is(group: Group) -> None:
    group.write({b"a": b"u one"})
    assert group.find(text="one") == []
    group.commit()
    assert group.find(text="one") == [b"u one"]
    group.write({b"a": b"u two"})
    assert (group.find(text="one"), group.find(text="two")) == ([b"u one"], [])
    group.crash()
    assert (group.find(text="one"), group.find(text="two")) == ([b"u one"], [])
    group.write({b"a": b"u three"})
    group.commit()
    assert (group.find(text="one"), group.find(text="two"), group.find(text="three")) == (
        [],
        [],
        [b"u three"],
    )
    group.write({b"a": None})
    assert group.find(text="three") == [b"u three"]
    group.commit()
    assert group.find(text="three") == []


@broker
def test_at_any_moment_a_search_finds_exactly_the_committed_versions(group: Group) -> None:
    random = Random(7)
    committed: dict[bytes, bytes] = {}
    for _ in range(25):
        batch = {
            b"%d" % key: random.choice([None, b"u red", b"u blue", b"u red blue"])
            for key in random.sample(range(8), 4)
        }
        group.write(batch)
        if random.random() < 0.6:
            group.commit()
            committed |= {key: value for key, value in batch.items() if value is not None}
            committed = {key: value for key, value in committed.items() if batch.get(key, value) is not None}
        else:
            group.crash()
        for word in ("red", "blue"):
            group.store.flush()
            found = {hit.key: hit.value for hit in group.search(text=word)}
            assert found == {key: value for key, value in committed.items() if word in value.decode()}


@broker
def test_rows_with_long_keys_are_found_with_them(group: Group) -> None:
    key = b"k" * 4000
    group.write({key: b"u long"})
    group.commit()
    group.store.flush()
    assert [hit.key for hit in group.search(text="long")] == [key]


@broker
def test_a_value_too_long_for_the_index_is_stored_but_not_found(group: Group) -> None:
    value = b"u" * 40_000 + b" words"
    group.write({b"a": value})
    group.commit()
    assert group.find(text="words") == [value]
    assert group.find(url="u" * 900) == []
    with pytest.raises(SerializationError, match="1000 are allowed"):
        group.find(url="u" * 1_001)


@broker
def test_a_field_that_was_not_declared_stops_the_write(group: Group) -> None:
    cell = replace(ABSENT, WriteId(1, 1), b"x", 0)
    assert cell is not None
    with pytest.raises(ConfigurationError, match="strict_dynamic_mapping"):
        group.store.put_many({b"a": cell.encode()}, 1, {b"a": VersionedFields({"undeclared": 1}, None)})


@broker
def test_a_search_that_times_out_is_an_error_and_not_a_partial_answer(
    group: Group, server_of: Callable[[str], Any]
) -> None:
    server = server_of("elasticsearch")
    server.pause()
    try:
        with pytest.raises(RetryLater):
            search(group.driver, {"text": "a"}, dict, timeout=0.5)
    finally:
        server.resume()


@pytest.mark.parametrize(
    ("fields", "limit", "said"),
    [({"a": "b"}, 0, "1 to 100"), ({"a": "b"}, 101, "1 to 100"), ({}, 1, "at least one field")],
)
def test_the_arguments_of_a_search_are_limited(fields: dict[str, str], limit: int, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        search(MemoryDriver(tenant="t"), fields, dict, limit=limit)


def test_only_elasticsearch_can_search() -> None:
    with pytest.raises(ConfigurationError, match="only Elasticsearch"):
        search(MemoryDriver(tenant="t"), {"a": "b"}, dict)


@pytest.mark.parametrize(
    ("committed_state", "row", "counts"),
    [
        (UNOWNED, None, set()),
        (CommittedState(1, WriteId(1, 2)), None, {(1, 1), (1, 2)}),
        (CommittedState(1, WriteId(1, 2)), Ledger(2, {1: 3}), {(1, 1), (1, 2), (1, 3)}),
        (UNOWNED, Ledger(2, {1: 1}), {(1, 1)}),
        (CommittedState(3, WriteId(2, 1)), Ledger(2, {1: 1}), {(1, 1), (2, 1)}),
    ],
)
def test_a_reader_without_ownership_combines_the_offsets_and_the_ledger(
    committed_state: CommittedState, row: Ledger | None, counts: set[tuple[int, int]]
) -> None:
    store = RemoteStore(MemoryDriver(tenant="t"))
    if row is not None:
        store.put_many({ledger_key(5): row.encode()}, row.opening)
    seen = ledgers_from(store, lambda: {5: committed_state})()[5]
    assert {(t, b) for t in range(4) for b in range(1, 5) if seen.counts(WriteId(t, b))} == counts
    assert seen.counting(VersionedCell(Version(WriteId(9, 9), b"x"), ABSENT, 5)) == ABSENT
