from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.base.ports import Decoded
from streamtable.codec.plain import Json, Long
from streamtable.errors import Fatal, SerializationError
from streamtable.store.memory import MemoryStore, MemoryStores
from streamtable.tables.working_table import WorkingTable

BYTES_MAX = 1_000_000

Make = Callable[..., WorkingTable[Any]]


@dataclass
class Counted:
    """A codec that counts what it does."""

    encoded: int = 0
    decoded: int = 0

    def encode(self, value: int) -> bytes:
        self.encoded += 1
        return Long().encode(value)

    def decode(self, data: bytes) -> int:
        self.decoded += 1
        return Long().decode(data)

    def decode_many(self, data: Any) -> Decoded[int]:
        raise AssertionError("rows are decoded one by one")


@pytest.fixture
def store(stores: MemoryStores) -> MemoryStore:
    return stores.open("t", 0)


@pytest.fixture
def make(store: MemoryStore) -> Make:
    def make(codec: Any = None, cache_bytes: int = 1 << 20) -> WorkingTable[Any]:
        return WorkingTable(store, codec or Long(), cache_bytes)

    return make


def commit(table: WorkingTable[Any], store: MemoryStore) -> list[tuple[bytes, bytes | None]]:
    changes = table.changes(BYTES_MAX)
    store.write(changes, b"")
    table.committed()
    return changes


def test_a_change_is_read_back_before_it_is_in_the_store(make: Make, store: MemoryStore) -> None:
    table = make()
    table.put(b"a", 1)
    assert table.get(b"a") == 1
    table.put(b"a", None)
    assert table.get(b"a") is None
    assert store.get(b"a") is None


def test_a_row_is_encoded_once_a_commit_and_decoded_once_a_stay_in_memory(
    make: Make, store: MemoryStore
) -> None:
    store.write([(b"a", Long().encode(5))], b"")
    codec = Counted()
    table = make(codec)
    for _ in range(100):
        table.put(b"a", (table.get(b"a") or 0) + 1)
    assert commit(table, store) == [(b"a", Long().encode(105))]
    assert table.get(b"a") == 105
    assert (codec.encoded, codec.decoded) == (1, 1)


def test_a_key_without_a_row_is_looked_up_in_the_store_once(make: Make, store: MemoryStore) -> None:
    table = make()
    assert table.get(b"a") is None
    store.write(
        [(b"a", Long().encode(1))], b""
    )  # written behind the table's back: shows that it is not read again
    assert table.get(b"a") is None


def test_changes_name_what_changed_since_the_last_commit_and_deletions_as_none(
    make: Make, store: MemoryStore
) -> None:
    table = make()
    table.put(b"a", 1)
    table.put(b"b", 2)
    commit(table, store)
    table.put(b"a", None)
    table.changing([b"c"])[b"c"] = 3
    assert table.changes(BYTES_MAX) == [(b"a", None), (b"c", Long().encode(3))]


def test_many_rows_come_in_the_order_of_the_keys_with_repetitions(make: Make, store: MemoryStore) -> None:
    store.write([(b"a", Long().encode(1)), (b"b", Long().encode(2))], b"")
    assert make().get_many(iter([b"b", b"x", b"a", b"b"])) == [2, None, 1, 2]


def test_rows_that_are_changed_in_bulk_are_loaded_before_and_written_after(
    make: Make, store: MemoryStore
) -> None:
    store.write([(b"a", Long().encode(1))], b"")
    table = make()
    rows = table.changing([b"a", b"b", b"a"])
    assert (rows[b"a"], rows[b"b"]) == (1, None)
    rows[b"a"], rows[b"b"] = 5, 6
    assert sorted(commit(table, store)) == [(b"a", Long().encode(5)), (b"b", Long().encode(6))]


def test_forgetting_also_undoes_what_was_changed_in_place(make: Make, store: MemoryStore) -> None:
    store.write([(b"a", b'{"n":1}')], b"")
    table = make(Json())
    row: Any = table.get(b"a")
    row["n"] = 99  # without a put: it is not even a change
    table.forget()
    assert table.get(b"a") == {"n": 1}
    assert table.changes(BYTES_MAX) == []


def test_memory_keeps_no_more_rows_than_its_bound_and_the_rest_is_in_the_store(
    make: Make, store: MemoryStore
) -> None:
    table = make(cache_bytes=100_000)
    keys = [b"%05d" % n for n in range(5_000)]
    for n, key in enumerate(keys):
        table.put(key, n)
        if n % 100 == 99:
            commit(table, store)
    assert len(table._rows) * 150 <= 100_000
    assert table.get_many(keys) == list(range(5_000))


def test_rows_that_are_not_committed_are_never_dropped_from_memory(make: Make, store: MemoryStore) -> None:
    table = make(cache_bytes=1)
    for n in range(100):
        table.put(b"%d" % n, n)
    assert len(commit(table, store)) == 100
    assert table._rows == {}


def test_the_size_of_the_next_commit_follows_the_size_of_rows(make: Make, store: MemoryStore) -> None:
    table = make(Json())
    assert table.changed_bytes == 0
    for _ in range(8):
        for n in range(10):
            table.put(b"%d" % n, "x" * 10_000)
        commit(table, store)
    for n in range(10):
        table.put(b"%d" % n, "x" * 10_000)
    assert 90_000 < table.changed_bytes < 110_000


def test_a_row_that_its_codec_refuses_is_unencodable_at_the_commit(make: Make) -> None:
    table = make()
    table.put(b"a", "no number")
    with pytest.raises(SerializationError):
        table.changes(BYTES_MAX)


def test_a_row_that_cannot_be_decoded_stops_the_process_instead_of_loading_the_table_for_ever(
    make: Make, store: MemoryStore
) -> None:
    store.write([(b"a", b"not a long")], b"")
    with pytest.raises(Fatal, match="b'a' cannot be decoded"):
        make().get(b"a")


def test_a_row_larger_than_its_topic_accepts_is_unencodable_at_the_commit(make: Make) -> None:
    table = make(Json())
    table.put(b"a", "x" * 90)
    table.put(b"k" * 90, "x")  # a long key and a long value, but of different rows
    assert len(table.changes(100)) == 2
    table.put(b"b", "x" * 99)
    with pytest.raises(SerializationError, match="102 bytes, more than the 100"):
        table.changes(100)


@given(
    stored=st.sets(st.binary(max_size=2)),
    put=st.sets(st.binary(max_size=2)),
    deleted=st.sets(st.binary(max_size=2)),
    limit=st.integers(1, 4),
)
def test_walking_over_the_keys_comes_by_each_row_once_in_order(
    stored: set[bytes], put: set[bytes], deleted: set[bytes], limit: int
) -> None:
    store = MemoryStores().open("t", 0)
    table: WorkingTable[int] = WorkingTable(store, Long(), 1 << 20)
    store.write([(key, bytes(8)) for key in stored], b"")
    for key in put:
        table.put(key, 1)
    for key in deleted:
        table.put(key, None)
    found: list[bytes] = []
    after, done = None, False
    for _ in range(len(stored) + 2):
        keys, after, done = table.keys_after(after, limit)
        found += keys
        if done:
            break
    assert done
    assert found == sorted((stored | put) - deleted)
