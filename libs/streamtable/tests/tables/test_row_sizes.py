"""The bound on the memory of decoded rows holds, whether rows are read, changed, or both."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from streamtable.codec.plain import Json
from streamtable.store.memory import MemoryStores
from streamtable.tables.joined import JoinedTable
from streamtable.tables.row_sizes import MEASURED_EVERY, RowSizes, memory_of
from streamtable.tables.working_table import WorkingTable

ROW = {"names": [f"name-{n}" for n in range(100)], "text": "x" * 500}
ROWS = 2_000
CACHE_BYTES = 4 << 20


def filled() -> Any:
    store = MemoryStores().open("t", 0)
    store.write([(b"%05d" % n, Json().encode({**ROW, "n": n})) for n in range(ROWS)], b"")
    return store


def read_only(table: Any, key: bytes, number: int) -> None:
    table.get(key)


def sometimes_written(table: Any, key: bytes, number: int) -> None:
    table.get(key)
    if number % 10 == 0 and isinstance(table, WorkingTable):
        table.put(b"small", number)


def never_committed(table: Any, key: bytes, number: int) -> None:
    table.get(key)


@pytest.mark.parametrize("use", [read_only, sometimes_written, never_committed])
@pytest.mark.parametrize("kind", [WorkingTable, JoinedTable])
def test_decoded_rows_take_about_the_memory_that_they_may(kind: Any, use: Callable[..., None]) -> None:
    store = filled()
    arguments = (store, Json(), CACHE_BYTES)
    table = kind(*arguments) if kind is WorkingTable else kind("t", *arguments)
    most = 0
    for number in range(ROWS):
        use(table, b"%05d" % number, number)
        if number % 50 == 0:
            most = max(most, memory_of(table._rows))
            if use is not never_committed:
                if kind is WorkingTable:
                    table.changes(1 << 20)
                table.committed()
    assert CACHE_BYTES // 2 < most < CACHE_BYTES * 1.5


def test_rows_that_have_changed_stay_in_memory_however_many_are_read() -> None:
    table: WorkingTable[Any] = WorkingTable(filled(), Json(), 100_000)
    table.put(b"changed", 1)
    table.changing([b"in place"])[b"in place"] = 2
    for number in range(500):
        table.get(b"%05d" % number)
    assert len(table._rows) < 200
    assert dict(table.changes(1 << 20)) == {b"changed": b"1", b"in place": b"2"}


def test_rows_that_are_asked_for_together_are_in_memory_together() -> None:
    table: WorkingTable[Any] = WorkingTable(filled(), Json(), 100_000)
    keys = [b"%05d" % number for number in range(300)]
    for _ in range(3):
        assert [row and row["n"] for row in table.get_many(keys)] == list(range(300))
    table.committed()
    assert len(table._rows) < 300


def test_keys_without_a_row_take_their_share() -> None:
    table: WorkingTable[Any] = WorkingTable(MemoryStores().open("t", 0), Json(), 1 << 20)
    for number in range(100_000):
        table.get(b"%06d" % number)
    assert len(table._rows) * 100 < 2 << 20


def test_the_mean_is_that_of_all_rows_in_memory_and_not_of_the_latest() -> None:
    sizes = RowSizes()
    sizes.sample(b"k", 960, None)
    for _ in range(1_000 // MEASURED_EVERY):
        sizes.loaded(b"k", b"x" * 1_000, None)
    sizes.settle(1_000)
    before = sizes.room(1 << 20)
    sizes.settle(1_000, 10, 1.0)  # ten small rows were written
    assert before <= sizes.room(1 << 20) < before * 1.1


@pytest.mark.parametrize("written", [0, 1], ids=["only read", "some written"])
def test_a_process_that_reads_large_rows_stays_within_its_bound(written: int, tmp_path: Any) -> None:
    """As the kernel counts it: 10,000 rows of 4 KB are some 200 MB when they are decoded."""
    program = """
        import re, sys
        from pathlib import Path
        from streamtable.codec.plain import Json
        from streamtable.store.rocksdb import RocksStores
        from streamtable.tables.working_table import WorkingTable

        def resident():
            status = Path("/proc/self/status").read_text()
            return int(re.search(r"VmRSS:\\s+(\\d+) kB", status)[1]) / 1024

        written = int(sys.argv[2])
        store = RocksStores(Path(sys.argv[1])).open("t", 0)
        row = {"names": [f"name-{n:04}" for n in range(300)]}
        for first in range(0, 10_000, 1_000):
            data = Json().encode(row)
            store.write([(b"%05d" % n, data) for n in range(first, first + 1_000)], b"")
        table = WorkingTable(store, Json(), 16 << 20)
        before = resident()
        for number in range(10_000):
            table.get(b"%05d" % number)
            if written and number % 20 == 0:
                table.put(b"small", number)
            if number % 500 == 0:
                table.changes(1 << 20)
                table.committed()
        print(resident() - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path), str(written)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    grown = float(done.stdout)
    assert grown < 64, f"{grown:.0f} MB for a cache of 16 MB"
