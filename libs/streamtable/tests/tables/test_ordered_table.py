"""Rows that take the place of others, and ranges over committed and uncommitted rows."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.codec.plain import Long
from streamtable.errors import Fatal
from streamtable.store.memory import MemoryStore, MemoryStores
from streamtable.tables.ordered_table import OrderedTable

BYTES_MAX = 1_000_000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStores().open("t", 0)


@pytest.fixture
def table(store: MemoryStore) -> OrderedTable[int]:
    made = OrderedTable(store, Long(), 1 << 20)
    made.fresh = set()
    return made


def commit(table: OrderedTable[int], store: MemoryStore) -> dict[bytes, int | None]:
    changes = table.changes(BYTES_MAX)
    store.write(changes, b"")
    table.committed()
    return {key: None if data is None else Long().decode(data) for key, data in changes}


def move(table: OrderedTable[int], gone: Collection[bytes], made: dict[bytes, int]) -> None:
    """Replace rows by others, all of them new."""
    table.replace(gone, made, list(made))


def test_a_row_that_comes_and_goes_between_two_commits_is_not_written(
    table: OrderedTable[int], store: MemoryStore
) -> None:
    move(table, [], {b"a": 1})
    move(table, [b"a"], {b"b": 2})
    move(table, [b"b"], {b"c": 3})
    assert [table.get(key) for key in (b"a", b"b", b"c")] == [None, None, 3]
    assert list(table.scan()) == [(b"c", 3)]
    assert commit(table, store) == {b"c": 3}


def test_a_row_of_the_store_that_goes_is_deleted_though_it_came_again_meanwhile(
    table: OrderedTable[int], store: MemoryStore
) -> None:
    move(table, [], {b"a": 1})
    assert commit(table, store) == {b"a": 1}
    move(table, [b"a"], {b"b": 2})
    move(table, [b"b"], {b"a": 3})
    move(table, [b"a"], {b"c": 4})
    assert commit(table, store) == {b"a": None, b"c": 4}
    move(table, [b"c"], {b"a": 5})
    assert commit(table, store) == {b"a": 5, b"c": None}


def test_appended_rows_are_read_and_committed_as_others(table: OrderedTable[int], store: MemoryStore) -> None:
    table.append([b"b", b"a"], [2, 1], [0, 0])
    assert list(table.scan()) == [(b"a", 1), (b"b", 2)]
    table.put(b"a", 3)
    table.append([b"c"], [4], [0])
    table.put(b"c", None)
    assert commit(table, store) == {b"a": 3, b"b": 2, b"c": None}
    assert [table.get(key) for key in (b"a", b"b", b"c")] == [3, 2, None]


def test_rows_of_the_store_are_read_as_they_are_now_without_those_that_are_new(
    table: OrderedTable[int], store: MemoryStore
) -> None:
    table.append([b"a", b"b", b"c"], [1, 2, 3], [0, 0, 0])
    assert table.stored([(b"a", b"d")]) == []
    commit(table, store)
    table.put(b"a", 4)
    table.put(b"b", None)
    table.append([b"aa"], [5], [0])
    encode = Long().encode
    assert table.stored([(b"a", b"c"), (b"c", b"d")]) == [(b"a", encode(4)), (b"c", encode(3))]


def test_a_row_that_was_there_before_it_was_replaced_by_itself_is_deleted(
    table: OrderedTable[int], store: MemoryStore
) -> None:
    table.put(b"a", 1)
    commit(table, store)
    table.replace([], {b"a": 2}, [])
    table.replace([b"a"], {}, [])
    assert commit(table, store) == {b"a": None}


def test_rows_that_are_rolled_back_are_those_of_the_store_again(
    table: OrderedTable[int], store: MemoryStore
) -> None:
    move(table, [], {b"a": 1})
    commit(table, store)
    move(table, [b"a"], {b"b": 2})
    table.forget()
    assert list(table.scan()) == [(b"a", 1)]
    move(table, [b"a"], {b"b": 2})
    assert commit(table, store) == {b"a": None, b"b": 2}


def test_an_index_is_shown_the_rows_that_are_there_and_those_that_are_deleted(
    table: OrderedTable[int], store: MemoryStore
) -> None:
    move(table, [], {b"a": 1})
    commit(table, store)
    move(table, [b"a"], {b"b": 2})
    move(table, [b"b"], {b"c": 3})
    assert table.fresh == {b"a", b"c"}
    assert table.deleted([b"a", b"c"]) == {b"a"}


@given(st.data())
def test_ranges_hold_the_rows_that_scans_of_each_would_find(data: st.DataObject) -> None:
    keys = st.binary(max_size=2)
    store = MemoryStores().open("t", 0)
    table = OrderedTable(store, Long(), 1 << 20)
    for rows in data.draw(st.lists(st.dictionaries(keys, st.none() | st.integers(0, 9)), max_size=3)):
        for key, row in rows.items():
            table.put(key, row)
        if data.draw(st.booleans()):
            commit(table, store)
    bounds = data.draw(st.lists(st.tuples(keys, keys), max_size=5))
    assert table.ranges(bounds) == [list(table.scan(*each)) for each in bounds]


def test_a_range_with_a_row_that_cannot_be_decoded_names_its_key(
    table: OrderedTable[int], store: MemoryStore
) -> None:
    store.write([(b"a", Long().encode(1)), (b"b", b"no number")], b"")
    assert table.ranges([(b"a", b"b")]) == [[(b"a", 1)]]
    with pytest.raises(Fatal, match="row for key b'b' cannot be decoded"):
        table.ranges([(b"a", b"z")])
