"""The behaviour that only stores on disk have: kills, damage, full disks, two owners, memory."""

import json
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from streamtable.errors import ConfigurationError, StoreBroken, StoreCorrupted, StoreInUse, StreamtableError
from streamtable.store.rocksdb import RocksStore, RocksStores

TABLE = "clicks-table"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def stores(root: Path) -> Iterator[RocksStores]:
    made = RocksStores(root)
    yield made
    made.close()


def rows_of(store: RocksStore) -> list[tuple[bytes, bytes]]:
    with store.scan() as rows:
        return list(rows)


def child(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments], stdout=subprocess.PIPE, text=True
    )


# ---- kills ---------------------------------------------------------------------------------------------------------

WRITER = """
    import sys
    from pathlib import Path
    from streamtable.store import rocksdb
    from streamtable.store.rocksdb import RocksStores
    root, bulk = Path(sys.argv[1]), eval(sys.argv[2])
    rocksdb._FILLING_FROM = int(sys.argv[3])
    store = RocksStores(root, memory_bytes=8 << 20).open("clicks-table", 0)
    for n in range(100_000):
        # One row that only this write has, and ten that each write changes.
        rows = [(b"own-%06d" % n, b"x" * 8000)] + [(b"shared-%d" % i, b"%d" % n) for i in range(10)]
        store.write(rows, b"%d" % n, bulk=bulk(n))
        print(n, flush=True)
"""


def kill_writer_after(writes: int, root: Path, bulk: str, filling_from: int = 1_000_000) -> int:
    """Return the number of the last write that the writer reported."""
    writer = child(WRITER, str(root), f"lambda n: {bulk}", str(filling_from))
    assert writer.stdout is not None
    last = -1
    for line in writer.stdout:
        last = int(line)
        if last == writes:
            writer.send_signal(signal.SIGKILL)
    assert writer.wait() == -signal.SIGKILL
    writer.stdout.close()
    return last


def assert_a_prefix_was_kept(store: RocksStore) -> int:
    """Returns the number of writes that were kept."""
    checkpoint = store.checkpoint()
    kept = int(checkpoint) + 1 if checkpoint else 0
    expected = [b"own-%06d" % n for n in range(kept)] + (
        [b"shared-%d" % i for i in range(10)] if kept else []
    )
    found = rows_of(store)
    assert [key for key, _ in found] == expected
    assert all(value == checkpoint for key, value in found if key.startswith(b"shared"))
    return kept


@pytest.mark.parametrize("writes", [3, 700, 2500])
def test_a_kill_loses_no_write_that_returned(writes: int, root: Path, stores: RocksStores) -> None:
    last = kill_writer_after(writes, root, "False")
    assert assert_a_prefix_was_kept(stores.open(TABLE, 0)) >= last + 1


FILLING_FROM = pytest.mark.parametrize("filling_from", [0, 1_000_000])


@FILLING_FROM
@pytest.mark.parametrize("writes", [3, 700, 2500])
def test_a_kill_during_bulk_writes_leaves_a_prefix_with_its_checkpoint(
    writes: int, filling_from: int, root: Path, stores: RocksStores
) -> None:
    last = kill_writer_after(writes, root, "True", filling_from)
    kept = assert_a_prefix_was_kept(stores.open(TABLE, 0))
    assert kept <= last + 2  # the kill may come between a write and its telling
    if writes == 2500:
        assert kept > 0, "20 MB were written through memory tables of 2 MB: some of it is on disk"


@FILLING_FROM
@pytest.mark.parametrize("bulk", ["n < 300", "n % 7 != 0", "n % 100 >= 50"])
def test_a_kill_after_bulk_writes_turned_into_plain_ones_leaves_no_hole(
    bulk: str, filling_from: int, root: Path, stores: RocksStores
) -> None:
    last = kill_writer_after(350, root, bulk, filling_from)
    kept = assert_a_prefix_was_kept(stores.open(TABLE, 0))
    is_bulk: Callable[[int], bool] = eval(f"lambda n: {bulk}")
    last_plain = max(n for n in range(last + 1) if not is_bulk(n))
    assert kept >= last_plain + 1


# ---- many bulk writes ----------------------------------------------------------------------------------------------


@pytest.fixture
def filling(stores: RocksStores) -> RocksStore:
    """A store in the middle of many bulk writes: 30,000 rows, and every third of them again, or deleted."""
    store = stores.open(TABLE, 0)
    for start in range(0, 30_000, 1_000):
        store.write([(b"%06d" % n, b"old") for n in range(start, start + 1_000)], b"1", bulk=True)
    store.write([(b"%06d" % n, None if n % 2 else b"new") for n in range(0, 30_000, 3)], b"2", bulk=True)
    assert store._filling
    return store


EXPECTED = {b"%06d" % n: b"old" if n % 3 else b"new" for n in range(30_000) if n % 3 or not n % 2}


def test_rows_of_many_bulk_writes_are_read_in_order_at_any_time(filling: RocksStore) -> None:
    for number in range(2):
        assert (filling.get(b"000000"), filling.get(b"000003"), filling.get(b"000004")) == (
            b"new",
            None,
            b"old",
        )
        assert dict(rows_of(filling)) == EXPECTED
        assert [key for key, _ in rows_of(filling)] == sorted(EXPECTED)
        assert filling.get_many([b"000001", b"000003"]) == [b"old", None]
        assert filling.checkpoint() == b"2"
        if number == 0:
            filling.write([(b"000001", b"old")], b"2")


def test_a_store_that_is_filled_and_read_in_turns_has_all_rows(filling: RocksStore) -> None:
    with ThreadPoolExecutor(1) as reader:
        for number in range(3):
            rows = [(b"%d-%06d" % (number, n), b"more") for n in range(30_000)]
            filling.write(rows, b"3", bulk=True)
            assert reader.submit(filling.get, b"000006").result() == b"new"
            assert not filling._filling, "reads are not to be slow for long"
    filling.write([], b"4")
    assert len(rows_of(filling)) == len(EXPECTED) + 90_000


def test_a_store_that_was_filled_is_complete_when_it_is_opened_again(filling: RocksStore, root: Path) -> None:
    filling.close()
    stores = RocksStores(root)
    assert dict(rows_of(stores.open(TABLE, 0))) == EXPECTED
    stores.close()


# ---- damage --------------------------------------------------------------------------------------------------------


def filled(root: Path, *, closed: bool = True) -> Path:
    """A store of 20,000 rows in table files; returns the folder of the database."""
    stores = RocksStores(root)
    store = stores.open(TABLE, 0)
    for start in range(0, 20_000, 1000):
        store.write(
            [(b"%06d" % n, random.Random(n).randbytes(100)) for n in range(start, start + 1000)], b"x"
        )
    store._rows.flush()
    if closed:
        stores.close()
    return root / TABLE / "0" / "rows"


def largest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_size)


def flip_byte(path: Path, place: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 0xFF
    path.write_bytes(data)


def flip_table_byte(rows: Path) -> None:
    flip_byte(largest(rows, "*.sst"), 0.5)


def truncate_table(rows: Path) -> None:
    path = largest(rows, "*.sst")
    os.truncate(path, path.stat().st_size // 2)


def remove_table(rows: Path) -> None:
    largest(rows, "*.sst").unlink()


def remove_current(rows: Path) -> None:
    (rows / "CURRENT").unlink()


def remove_manifest(rows: Path) -> None:
    largest(rows, "MANIFEST-*").unlink()


def remove_everything_inside(rows: Path) -> None:
    for path in rows.iterdir():
        path.unlink()


def remove_identity(rows: Path) -> None:
    (rows.parent / "store.json").unlink()


def half_an_identity(rows: Path) -> None:
    path = rows.parent / "store.json"
    path.write_text(path.read_text()[:10])


def older_format(rows: Path) -> None:
    path = rows.parent / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))


def former_format(rows: Path) -> None:
    path = rows.parent / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 1}))


def other_partition(rows: Path) -> None:
    path = rows.parent / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"partition": 7}))


def test_a_store_of_the_former_format_is_used_and_has_the_present_one_afterwards(
    stores: RocksStores, root: Path
) -> None:
    store = stores.open(TABLE, 0)
    store.write([(b"k", b"v")], b"at 1")
    store.close()
    present = (root / TABLE / "0" / "store.json").read_text()
    former_format(root / TABLE / "0" / "rows")
    store = stores.open(TABLE, 0)
    assert (rows_of(store), store.checkpoint()) == ([(b"k", b"v")], b"at 1")
    assert (root / TABLE / "0" / "store.json").read_text() == present


@pytest.mark.parametrize(
    "damage",
    [
        truncate_table,
        remove_table,
        remove_current,
        remove_manifest,
        remove_everything_inside,
        remove_identity,
        half_an_identity,
        older_format,
        other_partition,
    ],
)
def test_a_damaged_or_foreign_store_is_refused_and_after_destroy_it_is_new(
    damage: Callable[[Path], None], root: Path, stores: RocksStores
) -> None:
    damage(filled(root))
    with pytest.raises(StoreCorrupted) as corrupted:
        stores.open(TABLE, 0)
    assert (corrupted.value.topic, corrupted.value.partition) == (TABLE, 0)
    assert str(root) in str(corrupted.value)
    stores.destroy(TABLE, 0)
    assert not (root / TABLE / "0").exists()
    store = stores.open(TABLE, 0)
    assert store.checkpoint() is None
    assert rows_of(store) == []


def test_a_scan_of_large_rows_holds_one_of_them_at_a_time(stores: RocksStores) -> None:
    store = stores.open(TABLE, 0)
    store.write([(b"%03d" % n, bytes(500_000)) for n in range(30)], b"position")
    tracemalloc.start()
    with store.scan() as rows:
        for _ in rows:
            pass
        _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2_000_000


@pytest.mark.parametrize("reverse", [False, True])
def test_a_flipped_byte_in_a_table_file_ends_a_scan_with_an_error_not_early(
    *, reverse: bool, root: Path, stores: RocksStores
) -> None:
    flip_table_byte(filled(root))
    store = stores.open(TABLE, 0)
    with pytest.raises(StoreCorrupted), store.scan(reverse=reverse) as rows:
        for _ in rows:
            pass


def test_a_flipped_byte_in_a_table_file_fails_the_range_that_needs_it_also_if_others_follow(
    root: Path, stores: RocksStores
) -> None:
    flip_table_byte(filled(root))
    store = stores.open(TABLE, 0)
    with pytest.raises(StoreCorrupted):
        store.ranges([(b"000000", b"020000"), (b"000000", b"000001")])
    with pytest.raises(StoreCorrupted):
        store.rows_in([(b"000000", b"020000"), (b"000000", b"000001")])
    with pytest.raises(StoreCorrupted):
        store.get_many([b"%06d" % number for number in range(20_000)])
    assert len(store.ranges([(b"000000", b"000002")])[0]) == 2


def test_a_damaged_store_can_be_replaced_while_its_error_is_being_handled(
    root: Path, stores: RocksStores
) -> None:
    flip_table_byte(filled(root))
    store = stores.open(TABLE, 0)
    with pytest.raises(StoreCorrupted) as corrupted:  # its traceback lives on, with what the frames refer to
        rows_of(store)
    store.close()
    stores.destroy(TABLE, 0)
    assert stores.open(TABLE, 0).checkpoint() is None
    assert corrupted.value.topic == TABLE


def test_a_flipped_byte_in_a_table_file_fails_the_gets_that_need_it(root: Path, stores: RocksStores) -> None:
    flip_table_byte(filled(root))
    store = stores.open(TABLE, 0)
    failed = 0
    for n in range(20_000):
        try:
            assert store.get(b"%06d" % n) == random.Random(n).randbytes(100)
        except StoreCorrupted:
            failed += 1
    assert 0 < failed < 1000


def test_a_flipped_byte_in_the_log_of_a_killed_process_leaves_a_prefix_with_its_checkpoint(
    root: Path, stores: RocksStores
) -> None:
    last = kill_writer_after(100, root, "False")
    flip_byte(largest(root / TABLE / "0" / "rows", "*.log"), 0.5)
    kept = assert_a_prefix_was_kept(stores.open(TABLE, 0))
    assert 0 < kept < last


def test_a_folder_of_another_table_is_not_mistaken_for_this_one(root: Path, stores: RocksStores) -> None:
    filled(root)
    (root / TABLE).rename(root / "other-table")
    with pytest.raises(StoreCorrupted, match="clicks-table"):
        stores.open("other-table", 0)


def test_a_folder_that_vanished_while_open_is_damage_at_the_next_flush(
    root: Path, stores: RocksStores
) -> None:
    store = stores.open(TABLE, 0)
    store.write([(b"a", b"1")], b"x", bulk=True)
    for path in (root / TABLE / "0" / "rows").iterdir():
        path.unlink()
    (root / TABLE / "0" / "rows").rmdir()
    with pytest.raises(StoreCorrupted):
        store.write([(b"b", b"2")], b"y")
    with pytest.raises(StreamtableError):
        store.close()
    store.close()
    stores.destroy(TABLE, 0)
    assert stores.open(TABLE, 0).checkpoint() is None


# ---- the disk ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", mounted], check=True)
    yield mounted
    subprocess.run(["umount", "--lazy", mounted], check=True)


def may_mount() -> bool:
    """Whether a tmpfs can be mounted: root outside of a restricted container."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True, check=False
        )
        if tried.returncode == 0:
            subprocess.run(["umount", folder], check=True)
        return tried.returncode == 0


if may_mount():  # without the right to mount there is no small disk to fill, and the test is not collected

    def test_a_full_disk_is_fatal_for_writes_and_loses_nothing_that_was_written(small_disk: Path) -> None:
        stores = RocksStores(small_disk, memory_bytes=8 << 20)
        store = stores.open(TABLE, 0)
        written = -1

        def fill() -> None:
            nonlocal written
            for n in range(1000):
                store.write([(b"%06d" % n, random.Random(n).randbytes(100_000))], b"%d" % n)
                written = n

        with pytest.raises(StoreBroken, match="No space left") as full:
            fill()
        assert full.value.fatal
        assert store.get(b"000000") is not None
        with pytest.raises(StoreBroken):
            store.write([(b"more", b"")], b"more")
        with pytest.raises(StoreBroken):
            stores.close()
        subprocess.run(["mount", "-o", "remount,size=96m", small_disk], check=True)
        again = stores.open(TABLE, 0)
        assert int(again.checkpoint() or b"-1") >= written
        assert [key for key, _ in rows_of(again)] == [
            b"%06d" % n for n in range(int(again.checkpoint() or b"-1") + 1)
        ]
        stores.close()


OPENER = """
    import os, sys
    from pathlib import Path
    from streamtable.errors import StreamtableError
    from streamtable.store.rocksdb import RocksStores
    if os.geteuid() == 0:
        os.setuid(65534)  # root may do everything everywhere
    try:
        RocksStores(Path(sys.argv[1])).open("clicks-table", 0)
    except StreamtableError as error:
        print(type(error).__name__, error)
"""


def test_a_folder_without_permission_stops_the_process_with_its_path() -> None:
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        folder = Path(base) / "state"
        folder.mkdir(mode=0o000)
        opener = child(OPENER, str(folder))
        output = opener.communicate()[0]
        folder.chmod(0o700)
    assert output.startswith("StoreBroken")
    assert str(folder) in output
    assert "Permission denied" in output


def test_a_file_where_the_folder_should_be_stops_the_process(root: Path, stores: RocksStores) -> None:
    root.write_text("")
    with pytest.raises(StoreBroken, match="state"):
        stores.open(TABLE, 0)


@pytest.mark.parametrize("table", ["", "..", "a/b", "a\0b"])
def test_a_table_name_that_leaves_the_folder_is_refused(table: str, stores: RocksStores) -> None:
    with pytest.raises(ConfigurationError):
        stores.open(table, 0)
    with pytest.raises(ConfigurationError):
        stores.destroy(table, 0)


# ---- owners --------------------------------------------------------------------------------------------------------

HOLDER = """
    import sys
    from pathlib import Path
    from streamtable.store.rocksdb import RocksStores
    store = RocksStores(Path(sys.argv[1])).open("clicks-table", 0)
    store.write([(b"a", b"1")], b"held")
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_with_the_owners_id_until_the_owner_is_gone(
    root: Path, stores: RocksStores
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "open\n"
    for use in (stores.open, stores.destroy):
        with pytest.raises(
            StoreInUse, match=r"give each process a folder of its own .* web worker"
        ) as refused:
            use(TABLE, 0)
        assert f"pid {holder.pid} on {socket.gethostname()}" in str(refused.value)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    store = stores.open(TABLE, 0)
    assert (store.get(b"a"), store.checkpoint()) == (b"1", b"held")


def test_the_holder_of_a_store_learns_that_another_process_needs_it_for_work(
    root: Path, stores: RocksStores
) -> None:
    other = RocksStores(root)  # as another process has it
    held = stores.open(TABLE, 0, spare=True)
    for use in (lambda: other.open(TABLE, 0, spare=True), lambda: other.destroy(TABLE, 0)):
        with pytest.raises(StoreInUse):
            use()
    before = held.release_requested
    with pytest.raises(StoreInUse):
        other.open(TABLE, 0)
    assert (before, held.release_requested) == (False, True)
    held.close()
    assert not other.open(TABLE, 0).release_requested  # the request ended with the release
    other.close()
    stores.destroy(TABLE, 0)
    assert stores.present() == {}


def test_a_database_that_another_program_holds_is_refused(root: Path, stores: RocksStores) -> None:
    rows = filled(root)
    foreign = Rdict(str(rows), Options(raw_mode=True))
    with pytest.raises(StoreInUse, match="another program"):
        stores.open(TABLE, 0)
    foreign.close()
    assert len(rows_of(stores.open(TABLE, 0))) == 20_000


def test_two_threads_that_open_at_once_get_one_store_and_one_refusal(stores: RocksStores) -> None:
    outcomes: list[str] = []
    start = threading.Barrier(2)

    def open_it() -> None:
        start.wait()
        try:
            stores.open(TABLE, 0)
            outcomes.append("open")
        except StoreInUse:
            outcomes.append("refused")

    threads = [threading.Thread(target=open_it) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["open", "refused"]


def test_what_else_lies_in_the_folder_is_not_listed_as_a_store(root: Path, stores: RocksStores) -> None:
    stores.open(TABLE, 0)
    (root / "stray" / "file").mkdir(parents=True)
    (root / "stray" / "file" / "owner").touch()
    assert set(stores.present()) == {(TABLE, 0)}


# ---- values and memory ---------------------------------------------------------------------------------------------


class Trap:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, ("trap-was-sprung",)


def test_a_pickled_value_stays_bytes_and_its_code_does_not_run(
    stores: RocksStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trap = pickle.dumps(Trap())
    store = stores.open(TABLE, 0)
    store.write([(trap, trap)], trap)
    assert store.get(trap) == trap
    assert store.checkpoint() == trap
    assert rows_of(store) == [(trap, trap)]
    assert not (tmp_path / "trap-was-sprung").exists()


def test_memory_tables_of_64_stores_stay_near_their_share_of_the_bound(root: Path) -> None:
    stores = RocksStores(root, memory_bytes=32 << 20)
    opened = [stores.open(TABLE, partition) for partition in range(64)]
    draw = random.Random(5)
    peak = 0
    for _ in range(15):
        for store in opened:
            store.write([(b"%d" % draw.randrange(10**6), b"v" * 400) for _ in range(100)], b"x")
            peak = max(peak, stores._memtables.get_usage())
    held = sum(store.memtable_bytes() for store in opened)
    stores.close()
    assert held <= 12 << 20  # a quarter of the bound is 8 MiB; 38 MB were written
    assert peak <= 14 << 20  # some are being written out while others fill


def test_the_stores_of_a_folder_are_listed_while_others_are_destroyed(tmp_path: Path) -> None:
    """As views with tables of their own share a folder."""
    stores, others, stop = RocksStores(tmp_path), RocksStores(tmp_path), threading.Event()
    stores.open("kept", 0)

    def come_and_go() -> None:
        while not stop.is_set():
            others.open("other", 0).close()
            others.destroy("other", 0)

    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(come_and_go)
        try:
            end = time.monotonic() + 1
            while time.monotonic() < end:
                assert ("kept", 0) in stores.present()
        finally:
            stop.set()
        going.result()
    stores.close()
