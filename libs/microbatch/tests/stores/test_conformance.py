"""The contract of `port.Driver` for every kind of server, through a `RemoteStore`."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microbatch.stores.port import LARGEST_NUMBER, Driver, Row
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import (
    ABSENT,
    UNOWNED,
    Ledger,
    Version,
    VersionedCell,
    WriteId,
    ledger_key,
    replace,
)
from streamtable.errors import ConfigurationError, Migrated, SerializationError

MakeDriver = Callable[[str], Driver]
LARGE = (1 << 53) + 1  # the first integer that a floating-point number cannot hold


@pytest.fixture
def store(make_driver: MakeDriver, tenant: str) -> Iterator[RemoteStore]:
    made = RemoteStore(make_driver(tenant), deadline=60.0, attempt=20.0)  # long, for a busy machine
    yield made
    made.close()


def put(store: RemoteStore, rows: dict[bytes, bytes | None], number: int | None) -> None:
    """Write as a zombie does: the write may be refused or silently ignored."""
    with suppress(Migrated):
        store.put_many(rows, number)


def test_a_key_that_was_never_written_has_no_row(store: RemoteStore) -> None:
    assert store.get(b"a") is None
    assert store.get_many([b"a", b"b"]) == {}
    assert store.get_many([]) == {}
    store.put_many({}, 1)


def test_rows_come_back_with_the_number_of_their_write(store: RemoteStore) -> None:
    store.put_many({b"a": b"1", b"b": b""}, 7)
    assert store.get_many([b"a", b"b", b"c", b"a"]) == {b"a": Row(7, b"1"), b"b": Row(7, b"")}


@pytest.mark.parametrize("number", [1, 2, LARGE, LARGEST_NUMBER - 1])
def test_a_lower_number_changes_nothing_and_a_higher_one_does(store: RemoteStore, number: int) -> None:
    store.put_many({b"a": b"new"}, number + 1)
    put(store, {b"a": b"zombie"}, number)
    put(store, {b"a": None}, number)
    assert store.get(b"a") == Row(number + 1, b"new")
    if number + 2 <= LARGEST_NUMBER:
        store.put_many({b"a": b"newer"}, number + 2)
        assert store.get(b"a") == Row(number + 2, b"newer")


def test_numbers_are_compared_as_numbers(store: RemoteStore) -> None:
    numbers = [9, 10, 99, 100, LARGE - 1, LARGE, LARGE + 1, LARGEST_NUMBER - 1, LARGEST_NUMBER]
    for number in numbers:
        store.put_many({b"a": b"%d" % number}, number)
        assert store.get(b"a") == Row(number, b"%d" % number)
    for number in reversed(numbers[:-1]):
        put(store, {b"a": b"late"}, number)
    assert store.get(b"a") == Row(LARGEST_NUMBER, b"%d" % LARGEST_NUMBER)


def test_repeating_a_write_changes_nothing(store: RemoteStore) -> None:
    rows: dict[bytes, bytes | None] = {b"a": b"1", b"b": None}
    for _ in range(3):
        store.put_many(rows, 5)
    assert store.get_many(rows) == {b"a": Row(5, b"1")}


def test_a_batch_writes_its_rows_except_those_with_a_higher_number(store: RemoteStore) -> None:
    store.put_many({b"b": b"newer"}, 9)
    put(store, {b"a": b"old", b"b": b"old", b"c": b"old"}, 5)
    assert store.get(b"b") == Row(9, b"newer")
    assert store.get_many([b"a", b"c"]) == {b"a": Row(5, b"old"), b"c": Row(5, b"old")}


def test_a_deleted_key_has_no_row_and_still_rejects_lower_numbers(store: RemoteStore) -> None:
    store.put_many({b"a": b"1", b"b": b"1"}, 5)
    store.delete_many([b"a", b"never"], 6)
    assert store.get_many([b"a", b"b", b"never"]) == {b"b": Row(5, b"1")}
    put(store, {b"a": b"zombie", b"never": b"zombie"}, 5)
    assert store.get_many([b"a", b"never"]) == {}
    store.put_many({b"a": b"2"}, 7)
    assert store.get(b"a") == Row(7, b"2")


def test_plain_writes_overwrite_and_delete_without_any_condition(store: RemoteStore) -> None:
    store.put_many({b"a": b"1", b"b": b"1"}, None)
    store.put_many({b"a": b"2"}, None)
    store.delete_many([b"b"], None)
    found = store.get_many([b"a", b"b"])
    assert {key: row.data for key, row in found.items()} == {b"a": b"2"}
    store.put_many({b"b": b"3"}, None)
    again = store.get(b"b")
    assert again is not None
    assert again.data == b"3"


def test_tenants_do_not_share_rows(make_driver: MakeDriver, tenant: str) -> None:
    one, other = RemoteStore(make_driver(tenant)), RemoteStore(make_driver(tenant + ".b"))
    one.put_many({b"a": b"one", b".b:a": b"trap"}, 9)
    other.put_many({b"a": b"other"}, 1)
    assert one.get(b"a") == Row(9, b"one")
    assert other.get(b"a") == Row(1, b"other")


@pytest.mark.parametrize("name", ["", "a:b", "a b", "x" * 101, "ä", "a\n", "a/b"])
def test_invalid_names_of_tenants_are_rejected(make_driver: MakeDriver, name: str) -> None:
    with pytest.raises(ConfigurationError, match="letters, digits"):
        make_driver(name)


HOSTILE = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"a:b",
    b"{a}",
    b" ",
    b"\r\n",
    b"k" * 4096,
    "ü".encode(),
    "u\u0308".encode(),
]


def test_any_bytes_are_a_valid_key(store: RemoteStore) -> None:
    rows = {key: b"%d" % at for at, key in enumerate(HOSTILE)}
    store.put_many(rows, 1)
    assert store.get_many(rows) == {key: Row(1, data) for key, data in rows.items()}


def test_a_key_that_is_too_long_is_refused_before_anything_is_sent(store: RemoteStore) -> None:
    with pytest.raises(SerializationError, match="4097 bytes"):
        store.put_many({b"a": b"1", b"k" * 4097: b"1"}, 1)
    with pytest.raises(SerializationError):
        store.get(b"k" * 4097)
    assert store.get(b"a") is None


def test_a_large_row_comes_back_whole(store: RemoteStore) -> None:
    data = bytes(range(256)) * 4096  # 1 MiB
    store.put_many({b"large": data, b"small": b"x"}, 1)
    assert store.get_many([b"large", b"small"]) == {b"large": Row(1, data), b"small": Row(1, b"x")}


def test_ten_thousand_rows_are_one_call(store: RemoteStore) -> None:
    rows = {b"%d" % at: b"v%d" % at for at in range(10_000)}
    store.put_many(rows, 1)
    assert {key: row.data for key, row in store.get_many(rows).items()} == rows


def test_a_write_is_visible_to_all_clients_at_once(make_driver: MakeDriver, tenant: str) -> None:
    writer, reader = RemoteStore(make_driver(tenant)), RemoteStore(make_driver(tenant))
    for number in range(1, 21):
        writer.put_many({b"a": b"%d" % number}, number)
        assert reader.get(b"a") == Row(number, b"%d" % number)


def test_flush_answers(store: RemoteStore) -> None:
    store.put_many({b"a": b"1"}, 1)
    store.flush()
    assert store.get(b"a") == Row(1, b"1")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(1, 5)), max_size=12))
def test_in_any_order_of_arrival_the_highest_number_wins(
    make_driver: MakeDriver, writes: list[tuple[bytes, int]]
) -> None:
    store = RemoteStore(make_driver(f"t{uuid.uuid4().hex}"))
    highest: dict[bytes, int] = {}
    for key, number in writes:
        put(store, {key: data_of(number)}, number)
        highest[key] = max(number, highest.get(key, 0))
    expected = {
        key: Row(number, data) for key, number in highest.items() if (data := data_of(number)) is not None
    }
    assert store.get_many(highest) == expected


def data_of(number: int) -> bytes | None:
    """Return the data that a batch of this number writes, always the same; a batch with an odd number deletes."""
    return None if number % 2 else b"%d" % number


def test_a_batch_that_was_never_committed_is_read_as_if_it_had_not_been(store: RemoteStore) -> None:
    first = Ledger.open(UNOWNED, None)
    store.put_many({ledger_key(0): first.encode()}, first.opening)
    cell = replace(ABSENT, first.next_write_id, b"one", 0)
    assert cell is not None
    store.put_many({b"a": cell.encode()}, first.next_write_id.number)
    first = first.committed()
    crashed = replace(first.read(store.get(b"a")), first.next_write_id, b"two", 0)
    assert crashed is not None
    store.put_many({b"a": crashed.encode()}, first.next_write_id.number)

    second = Ledger.open(first.committed_state, store.get(ledger_key(0)))
    store.put_many({ledger_key(0): second.encode()}, second.opening)
    assert second.read(store.get(b"a")) == Version(WriteId(1, 1), b"one")
    again = VersionedCell(Version(second.next_write_id, b"2"), second.read(store.get(b"a")), 0)
    store.put_many({b"a": again.encode()}, second.next_write_id.number)
    put(store, {b"a": crashed.encode()}, crashed.current.write_id.number)  # a late write
    assert second.committed().read(store.get(b"a")).value == b"2"
