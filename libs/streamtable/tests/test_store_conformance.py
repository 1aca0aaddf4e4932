"""The conformance tests of `ports.Store`, run on every implementation."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamtable.base.ports import Store, Stores
from streamtable.errors import RetryLater, StoreInUse
from streamtable.store.memory import MemoryStores
from streamtable.store.rocksdb import RocksStores

PAGE = (Path(__file__).parents[3] / "docs/how-to/extend.md").read_text()


def sqlite_stores(folder: Path) -> Stores:
    """The store of the page on extensions."""
    (program,) = re.findall(r"^## A store\n.*?^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    page: dict[str, Any] = {}
    exec(program, page)
    made: Stores = page["SqliteStores"](folder)
    return made


@pytest.fixture(params=["memory", "rocksdb", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    makers: dict[str, Callable[[], Stores]] = {
        "memory": MemoryStores,
        "rocksdb": lambda: RocksStores(tmp_path / "state"),
        "sqlite": lambda: sqlite_stores(tmp_path / "state"),
    }
    made = makers[request.param]()
    yield made
    made.close()


@pytest.fixture
def store(stores: Stores) -> Store:
    return stores.open("clicks-table", 3)


def rows_of(store: Store, *args: Any, **options: Any) -> list[tuple[bytes, bytes]]:
    with store.scan(*args, **options) as rows:
        return list(rows)


def test_a_new_store_has_neither_rows_nor_a_checkpoint(store: Store) -> None:
    assert store.checkpoint() is None
    assert store.get(b"a") is None
    assert rows_of(store) == []


def test_a_write_sets_and_deletes_rows_and_replaces_the_checkpoint(store: Store) -> None:
    store.write([(b"a", b"1"), (b"b", b"2")], b"first")
    store.write([(b"a", None), (b"b", b"3"), (b"absent", None)], b"second")
    assert store.get(b"a") is None
    assert store.get(b"b") == b"3"
    assert store.checkpoint() == b"second"


def test_many_rows_are_read_in_the_order_of_their_keys(store: Store) -> None:
    store.write([(b"a", b"1"), (b"b", b""), (b"", b"3")], b"x")
    assert store.get_many([b"b", b"", b"none", b"a", b"b"]) == [b"", b"3", None, b"1", b""]
    assert store.get_many([]) == []
    store.close()
    with pytest.raises(RetryLater):
        store.get_many([b"a"])


def test_the_later_of_two_changes_of_a_key_wins(store: Store) -> None:
    store.write([(b"a", b"1"), (b"a", None), (b"b", None), (b"b", b"2")], b"x")
    assert rows_of(store) == [(b"b", b"2")]


def test_a_write_without_rows_still_moves_the_checkpoint(store: Store) -> None:
    store.write([], b"moved")
    assert store.checkpoint() == b"moved"


def test_an_error_in_the_changes_leaves_nothing_of_them(store: Store) -> None:
    def changes() -> Iterator[tuple[bytes, bytes | None]]:
        yield b"a", b"1"
        raise LookupError

    with pytest.raises(LookupError):
        store.write(changes(), b"x")
    assert rows_of(store) == []
    assert store.checkpoint() is None


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0", b"\1", b"\2", b"\xff" * 40, bytes(range(256))])
def test_any_bytes_are_a_key_and_none_is_the_checkpoint(store: Store, key: bytes) -> None:
    store.write([(key, b"")], b"cp")
    assert store.get(key) == b""
    assert store.checkpoint() == b"cp"
    assert rows_of(store) == [(key, b"")]
    store.write([(key, None)], b"cp2")
    assert store.checkpoint() == b"cp2"
    assert rows_of(store) == []


def test_a_scan_is_bounded_below_inclusively_and_above_exclusively(store: Store) -> None:
    store.write([(key, key) for key in (b"", b"a", b"ab", b"b", b"c")], b"x")
    assert [key for key, _ in rows_of(store, b"a", b"c")] == [b"a", b"ab", b"b"]
    assert [key for key, _ in rows_of(store, b"a", b"c", reverse=True)] == [b"b", b"ab", b"a"]
    assert [key for key, _ in rows_of(store, end=b"a")] == [b""]
    assert [key for key, _ in rows_of(store, b"b", reverse=True)] == [b"c", b"b"]
    assert rows_of(store, b"c", b"a") == []
    assert rows_of(store, b"b", b"b", reverse=True) == []


def test_a_scan_sees_the_rows_as_of_its_start(store: Store) -> None:
    store.write([(b"%04d" % n, b"old") for n in range(1000)], b"x")
    with store.scan() as rows:
        assert next(rows) == (b"0000", b"old")
        store.write([(b"%04d" % n, b"new") for n in range(1000)] + [(b"9999", b"new")], b"y")
        assert [value for _, value in rows] == [b"old"] * 999
    assert store.get(b"9999") == b"new"


def test_a_closed_and_reopened_store_has_its_rows_and_checkpoint(stores: Stores, store: Store) -> None:
    store.write([(b"a", b"1")], b"one")
    store.write([(b"b", b"2")], b"two", bulk=True)
    store.close()
    again = stores.open("clicks-table", 3)
    assert rows_of(again) == [(b"a", b"1"), (b"b", b"2")]
    assert again.checkpoint() == b"two"


def test_stores_of_other_partitions_and_tables_are_separate(stores: Stores, store: Store) -> None:
    store.write([(b"a", b"1")], b"x")
    assert stores.open("clicks-table", 4).get(b"a") is None
    assert stores.open("other-table", 3).checkpoint() is None


def test_a_second_opening_is_refused_until_the_first_is_closed(stores: Stores, store: Store) -> None:
    with pytest.raises(StoreInUse, match="open in this process") as refused:
        stores.open("clicks-table", 3)
    assert (refused.value.topic, refused.value.partition) == ("clicks-table", 3)
    store.close()
    stores.open("clicks-table", 3)


def test_an_open_store_is_not_destroyed(stores: Stores, store: Store) -> None:
    store.write([(b"a", b"1")], b"x")
    with pytest.raises(StoreInUse):
        stores.destroy("clicks-table", 3)
    assert store.get(b"a") == b"1"


def test_a_destroyed_store_is_new_when_opened_again(stores: Stores, store: Store) -> None:
    store.write([(b"a", b"1")], b"x")
    store.close()
    stores.destroy("clicks-table", 3)
    stores.destroy("clicks-table", 3)
    again = stores.open("clicks-table", 3)
    assert again.checkpoint() is None
    assert rows_of(again) == []


def test_closing_twice_is_harmless_and_a_closed_store_asks_to_come_back_later(store: Store) -> None:
    store.write([(b"a", b"1")], b"x")
    store.close()
    store.close()
    with pytest.raises(RetryLater):
        store.get(b"a")
    with pytest.raises(RetryLater):
        store.write([], b"x")
    with pytest.raises(RetryLater):
        store.checkpoint()
    with pytest.raises(RetryLater), store.scan() as rows:
        list(rows)


def test_closing_ends_an_open_scan_with_an_error_not_with_fewer_rows(stores: Stores, store: Store) -> None:
    store.write([(b"%05d" % n, b"") for n in range(5000)], b"x")
    with store.scan() as rows:
        next(rows)
        store.close()
        stores.open("clicks-table", 3)  # nothing is left that would hold it
        with pytest.raises(RetryLater):
            list(rows)


def test_reads_of_other_threads_while_it_closes_succeed_or_raise_retry_later(store: Store) -> None:
    store.write([(b"%05d" % n, b"v") for n in range(2000)], b"x")
    wrong: list[object] = []
    started = threading.Barrier(4)

    def read(*, scanning: bool) -> None:
        started.wait()
        try:
            while True:
                if scanning:
                    wrong.extend(() if len(rows_of(store)) == 2000 else ["short scan"])
                elif store.get(b"00001") != b"v":
                    wrong.append("wrong value")
        except RetryLater:
            return
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must show it
            wrong.append(error)

    threads = [
        threading.Thread(target=read, kwargs={"scanning": scanning}) for scanning in (True, False, True)
    ]
    for thread in threads:
        thread.start()
    started.wait()
    store.close()
    for thread in threads:
        thread.join(20)
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)


def test_stores_that_exist_are_listed_with_the_time_they_were_opened_or_left(stores: Stores) -> None:
    assert dict(stores.present()) == {}
    before = time.time()
    stores.open("clicks-table", 0).close()
    stores.open("gone", 5).close()
    stores.destroy("gone", 5)
    stores.open("other", 11)
    present = stores.present()
    assert set(present) == {("clicks-table", 0), ("other", 11)}
    assert all(before - 2 <= moment <= time.time() + 2 for moment in present.values())


def test_size_grows_with_what_is_written(store: Store) -> None:
    before = store.size_bytes()
    store.write([(b"%05d" % n, b"v" * 100) for n in range(1000)], b"x")
    assert store.size_bytes() > before + 50_000


CHANGES = st.lists(
    st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)),
    max_size=12,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    writes=st.lists(st.tuples(CHANGES, st.booleans()), max_size=6),
    start=st.none() | st.binary(max_size=2),
    end=st.none() | st.binary(max_size=2),
    reverse=st.booleans(),
)
def test_it_behaves_like_a_sorted_dict(
    *,
    stores: Stores,
    writes: list[tuple[list[tuple[bytes, bytes | None]], bool]],
    start: bytes | None,
    end: bytes | None,
    reverse: bool,
) -> None:
    stores.destroy("model", 0)
    store = stores.open("model", 0)
    model: dict[bytes, bytes] = {}
    try:
        for number, (changes, bulk) in enumerate(writes):
            store.write(changes, b"%d" % number, bulk=bulk)
            for key, value in changes:
                model.pop(key, None)
                if value is not None:
                    model[key] = value
            assert store.checkpoint() == b"%d" % number
        expected = [
            (key, model[key])
            for key in sorted(model, reverse=reverse)
            if (start is None or key >= start) and (end is None or key < end)
        ]
        assert rows_of(store, start, end, reverse=reverse) == expected
    finally:
        store.close()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_ranges_hold_the_rows_that_scans_of_each_would_find(stores: Stores, data: st.DataObject) -> None:
    keys = st.binary(max_size=2)
    store = stores.open("ranges", 0)
    try:
        for part in data.draw(st.lists(st.dictionaries(keys, st.none() | st.binary(max_size=1)), max_size=3)):
            store.write(part.items(), b"")
        bounds = data.draw(st.lists(st.tuples(keys, keys), max_size=100))
        assert store.ranges(bounds) == [rows_of(store, *each) for each in bounds]
        assert store.rows_in(bounds) == [row for each in bounds for row in rows_of(store, *each)]
    finally:
        store.close()
        stores.destroy("ranges", 0)


def test_ranges_of_a_closed_store_mean_retry_later(store: Store) -> None:
    store.close()
    with pytest.raises(RetryLater):
        store.ranges([(b"a", b"b")])
    with pytest.raises(RetryLater):
        store.rows_in([(b"a", b"b")])
