from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streamtable.base.types import RecordBatch
from streamtable.codec.plain import Json, Long
from streamtable.errors import DeserializationError
from streamtable.store.memory import MemoryStores
from streamtable.tables.joined import JoinedTable

Make = Callable[..., RecordBatch]


@pytest.fixture
def table(stores: MemoryStores) -> JoinedTable[Any]:
    return JoinedTable("users", stores.open("users", 0), Json(), 1 << 20, timed=True, time_ms=500)


def commit(table: JoinedTable[Any]) -> None:
    table.store.write(table.changes(), b"")
    table.committed()


def test_rows_that_came_hide_those_in_the_store_until_they_are_forgotten(
    table: JoinedTable[Any], batch: Make
) -> None:
    table.apply(batch("users", [(b"a", b"1"), (b"b", b"2")]))
    commit(table)
    table.apply(batch("users", [(b"a", b"3"), (b"b", None), (b"a", b"4")]))
    assert (table.get(b"a"), table.get(b"b"), table.get(b"c")) == (4, None, None)
    assert table.changes() == [(b"a", b"4"), (b"b", None)]
    table.forget()
    assert (table.get(b"a"), table.get(b"b"), table.changes()) == (1, 2, [])


def test_a_row_changed_in_place_is_as_before_after_a_rewind(table: JoinedTable[Any], batch: Make) -> None:
    table.apply(batch("users", [(b"a", b"[1]")]))
    commit(table)
    row: Any = table.get(b"a")
    row.append(2)
    table.forget()
    assert table.get(b"a") == [1]


def test_the_time_goes_with_the_rows_back_as_well(table: JoinedTable[Any], batch: Make) -> None:
    assert table.time_ms == 500
    table.apply(batch("users", [(b"a", b"1")]))
    assert table.time_ms == 1_000
    table.forget()
    assert table.time_ms == 500
    table.put(b"a", b"1", 1, 2_000)
    commit(table)
    table.forget()
    assert table.time_ms == 2_000


def test_a_row_that_cannot_be_decoded_is_named_with_table_and_key(
    table: JoinedTable[Any], batch: Make
) -> None:
    table.apply(batch("users", [(b"a", b"no JSON")]))
    with pytest.raises(DeserializationError, match="joined table 'users' for key b'a'"):
        table.get(b"a")
    table.apply(batch("users", [(b"a", b"1")], first=1))
    assert table.get(b"a") == 1


def test_a_record_without_a_key_is_left_out_and_reported(table: JoinedTable[Any], batch: Make) -> None:
    lines: list[MutableMapping[str, Any]]
    with capture_logs() as lines:
        table.apply(batch("users", [(None, b"1"), (b"a", b"2")], partition=3))
    assert table.changes() == [(b"a", b"2")]
    assert [(line["topic"], line["partition"]) for line in lines] == [("users", 3)]


def test_decoded_rows_are_dropped_when_memory_has_no_room_and_read_again(
    stores: MemoryStores, batch: Make
) -> None:
    table = JoinedTable("users", stores.open("users", 0), Long(), 3_000)
    table.apply(batch("users", [(b"%03d" % number, number.to_bytes(8)) for number in range(100)]))
    commit(table)
    assert [table.get(b"%03d" % number) for number in range(100)] == list(range(100))
    assert table.changed_bytes == 0
    table.committed()
    assert len(table._rows) < 20
    assert [table.get(b"%03d" % number) for number in range(100)] == list(range(100))


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.one_of(st.none(), st.integers(0, 9))),
            st.sampled_from(["commit", "forget"]),
        ),
        max_size=30,
    )
)
def test_it_is_at_any_time_what_came_over_what_was_committed(steps: list[Any]) -> None:
    table = JoinedTable("t", MemoryStores().open("t", 0), Json(), 1)
    durable: dict[bytes, Any] = {}
    now: dict[bytes, Any] = {}
    for step in steps:
        if step == "commit":
            commit(table)
            durable = dict(now)
        elif step == "forget":
            table.forget()
            now = dict(durable)
        else:
            key, value = step
            now[key] = value
            data = None if value is None else Json().encode(value)
            table.put(key, data, value, 0)
        assert [table.get(key) for key in (b"a", b"b", b"c")] == [now.get(key) for key in (b"a", b"b", b"c")]
