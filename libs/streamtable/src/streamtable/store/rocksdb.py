"""Stores in RocksDB, one database for each partition. The only module that imports rocksdict.

In each database, one column family: rows under their key after the byte 1, the checkpoint under the byte 0. With two
families a crash could keep the newer state of one and the older state of the other.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import ClassVar

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    MemtableFactory,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from streamtable.base.own_process import OwnProcess
from streamtable.errors import (
    ConfigurationError,
    RetryLater,
    StoreBroken,
    StoreCorrupted,
    StoreInUse,
    StreamtableError,
)
from streamtable.store.folder import Folder, broken, too_many_files

CHECKPOINT = b"\0"
ROW = b"\1"
_AFTER_ROWS = b"\2"
# Bytes read under a scan's lock at once, where each row counts some more: at most 256 rows, which take about 0.1 ms, and of
# large rows one.
_FIRST_CHUNK, _LARGEST_CHUNK = 512, 16 << 10
_ROW_BYTES = 64
_FILLING_FROM = 25_000  # rows: about as many as pay for opening the database twice more
_RANGES_AT_ONCE = 64  # read while the store cannot be closed
_CLOSE_SECONDS = 10.0
_DAMAGE = ("Corruption", "Invalid argument", "IO error: No such file")


class RocksStores:
    """The stores below one folder, in `<root>/<table>/<partition>/`. Any thread.

    Args:
        root: The folder of one group, or of one view. It is created if it does not exist.
        memory_bytes: The memory for block cache, indexes, filters and memory tables of all stores together. A quarter of it
            may be memory tables. The cache rejects no block that a read needs, so this is a target and not a hard limit.
    """

    # RocksDB has one pool of threads for all databases of a process, also for later ones. After a fork it has none, and
    # does not notice: a flush would wait for ever.
    _threads: ClassVar[OwnProcess | None] = None

    def __init__(self, root: Path, *, memory_bytes: int = 64 << 20) -> None:
        self._root = root
        # The clock cache has few shards: in the LRU cache's half-megabyte shards a filter of a million keys finds no
        # room, is read from disk again for each get, and a get takes 90 us instead of 4.
        self._cache = Cache.new_hyper_clock_cache(memory_bytes, 0)
        self._memtable_bytes = memory_bytes // 4
        self._memtables = WriteBufferManager.new_write_buffer_manager_with_cache(
            self._memtable_bytes,
            False,  # never stall writers: `_relieve` flushes instead
            self._cache,
        )
        self._open: dict[tuple[str, int], RocksStore] = {}
        self._lock = threading.Lock()

    def open(self, table: str, partition: int, *, spare: bool = False) -> "RocksStore":
        path = self._path(table, partition)
        RocksStores._threads = RocksStores._threads or OwnProcess("RocksDB, with its threads,")
        RocksStores._threads.check()
        with self._lock, _placed(table, partition), ExitStack() as failed:
            if (table, partition) in self._open:
                raise StoreInUse(f"{path} is open in this process already")
            folder = Folder(path, spare=spare)
            failed.callback(folder.release)
            store = self._open[table, partition] = RocksStore(self, folder, table, partition)
            failed.pop_all()
            return store

    def destroy(self, table: str, partition: int) -> None:
        path = self._path(table, partition)
        with self._lock, _placed(table, partition):
            if (table, partition) in self._open:
                raise StoreInUse(f"{path} is open: close it before it is destroyed")
            if not path.exists():
                return
            folder = Folder(path, spare=True)
            try:
                folder.clear()
            finally:
                folder.release(remove=True)

    def present(self) -> Mapping[tuple[str, int], float]:
        found: dict[tuple[str, int], float] = {}
        try:
            for folder in chain.from_iterable(map(_entries, _entries(self._root))):
                # Other tables of the folder may be destroyed meanwhile.
                with suppress(FileNotFoundError, NotADirectoryError):
                    if folder.name.isdecimal():
                        found[folder.parent.name, int(folder.name)] = (folder / "owner").stat().st_mtime
        except OSError as error:
            raise broken(self._root, error) from error
        return found

    def close(self) -> None:
        """Close all stores, even if one of them fails; then raises its error."""
        with self._lock:
            stores = list(self._open.values())
        with ExitStack() as closing:
            for store in stores:
                closing.callback(store.close)

    def _path(self, table: str, partition: int) -> Path:
        if not table or table in {".", ".."} or "/" in table or "\0" in table or partition < 0:
            raise ConfigurationError(f"{table!r}, {partition}: not a table and partition to make a folder of")
        return self._root / table / str(partition)

    def _options(self, *, create: bool, filling: bool) -> Options:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(10, False)  # bits for each key, of the newer format; false positives: 1 %
        # Else indexes and filters stay in memory outside of the cache's bound, for all open files.
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = Options(raw_mode=True)  # the other mode unpickles what it reads: code in a value would run
        options.create_if_missing(create)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_manager(self._memtables)
        if filling:
            # Rows are appended, and sorted by the flush in a thread of RocksDB; but each read would sort them before.
            options.set_memtable_factory(MemtableFactory.vector())
            options.set_allow_concurrent_memtable_write(False)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_size(4 << 20)
        options.set_max_write_buffer_number(3)
        # A memory table takes memory by such pieces: with RocksDB's 1 MB, 64 nearly empty stores take 64 MB.
        options.set_arena_block_size(64 << 10)
        options.set_max_background_jobs(2)
        # Of table files; opening one again costs less than reading a block. A process with many partitions has many stores.
        options.set_max_open_files(64)
        options.set_manifest_preallocation_size(64 << 10)
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(1 << 20)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        return options

    def _relieve(self) -> None:
        """Flush the fullest store when memory tables exceed their share; RocksDB flushes only the one written to."""
        usage = self._memtables.get_usage()
        if usage <= self._memtable_bytes:
            return
        with self._lock:
            active = {store: store.memtable_bytes(active=True) for store in self._open.values()}
        # Otherwise most of it is already being flushed, and further flushes would only make small files.
        if sum(active.values()) > self._memtable_bytes // 2:
            fullest = max(active, key=active.__getitem__)
            fullest.relieve(wait=usage > self._memtable_bytes * 5 // 4)

    def _closed(self, store: "RocksStore") -> None:
        with self._lock:
            self._open.pop((store.table, store.partition), None)


class RocksStore:
    """See `ports.Store`. A scan that is open when the store closes raises `RetryLater`, as do all later calls."""

    def __init__(self, stores: RocksStores, folder: Folder, table: str, partition: int) -> None:
        self.table = table
        self.partition = partition
        self._stores = stores
        self._folder = folder
        self._logged = WriteOptions()
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[assignment,method-assign] # stub says method, it is a property
        self._scans: set[_Scan] = set()
        self._closing = threading.Lock()
        self._is_closed = self._filling = False
        self._bulk_rows = 0
        create = not folder.identify(table, partition)
        with self._named_errors():
            self._rows = self._database(create=create)
        # Unlogged rows of an earlier process are on disk or lost: nothing is pending at the start.
        self._owes_flush = False

    def get(self, key: bytes) -> bytes | None:
        if self._filling:
            self._fill(None)
        try:
            value: bytes | None = self._rows.get(ROW + key)
        except Exception as error:  # rocksdict raises the bare class
            raise self._named(error) from error
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if self._filling:
            self._fill(None)
        with self._named_errors():
            get = self._rows.get  # for each: a list of keys takes longer, if they are many
            return [get(ROW + key) for key in keys]

    def write(
        self, changes: Iterable[tuple[bytes, bytes | None]], checkpoint: bytes, *, bulk: bool = False
    ) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in changes:
            if value is None:
                delete(ROW + key)
            else:
                put(ROW + key, value)
        put(CHECKPOINT, checkpoint)
        self._fill(batch.len() if bulk else None)
        with self._named_errors():
            if self._owes_flush and not bulk:
                # After a crash the log would restore this write, but not the bulk writes before it: a gap.
                self._rows.flush()
                self._owes_flush = False
            self._owes_flush = bulk
            self._rows.write(batch, self._unlogged if bulk else self._logged)
        self._stores._relieve()  # noqa: SLF001 - one unit

    def _fill(self, rows: int | None) -> None:
        """Reopen the database for appending after many rows in bulk writes alone, and as usual for anything else (None)."""
        self._bulk_rows = 0 if rows is None else self._bulk_rows + rows
        if self._filling != (self._bulk_rows > _FILLING_FROM):
            with self._closing, self._named_errors():
                if not self._is_closed and not self._scans:
                    self._rows.flush()
                    self._close_rows()
                    self._owes_flush, self._filling = False, not self._filling
                    self._rows = self._database(create=False)

    def _database(self, *, create: bool) -> Rdict:
        options = self._stores._options(create=create, filling=self._filling)  # noqa: SLF001 - one unit
        return Rdict(str(self._folder.rows), options)

    def checkpoint(self) -> bytes | None:
        with self._named_errors():
            value: bytes | None = self._rows.get(CHECKPOINT)
        return value

    @contextmanager
    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Iterator[tuple[bytes, bytes]]]:
        first = ROW + (start or b"")
        after = _AFTER_ROWS if end is None else ROW + end
        with self._held():
            scan = _Scan(self, self._rows.iter(), first, after, reverse=reverse)
            self._scans.add(scan)
        try:
            yield chain.from_iterable(iter(scan.chunk, []))
        finally:
            self._scans.discard(scan)
            scan.release()

    def ranges(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        found: list[list[tuple[bytes, bytes]]] = [[] for _ in bounds]
        self._read(bounds, found)
        return found

    def rows_in(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        self._read(bounds, repeat(found))
        return found

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the open database for reads of ranges: it is not closed meanwhile."""
        if self._filling:
            self._fill(None)
        with self._closing, self._named_errors():
            if self._is_closed:
                raise self._closed_error()
            yield

    def _read(self, bounds: Sequence[tuple[bytes, bytes]], into: Iterable[list[tuple[bytes, bytes]]]) -> None:
        """Add the rows with start <= key < end of each range to the list that comes with it."""
        lists = iter(into)
        for first in range(0, len(bounds), _RANGES_AT_ONCE):
            with self._held():
                _add_rows(
                    self._rows.iter(), zip(bounds[first : first + _RANGES_AT_ONCE], lists, strict=False)
                )

    def size_bytes(self) -> int:
        with self._named_errors():
            return (self._rows.property_int_value("rocksdb.live-sst-files-size") or 0) + self.memtable_bytes()

    @property
    def release_requested(self) -> bool:
        return self._folder.release_requested

    def memtable_bytes(self, *, active: bool = False) -> int:
        """The bytes in memory tables: in all, or only in the active one. 0 once closed."""
        name = "rocksdb.cur-size-active-mem-table" if active else "rocksdb.cur-size-all-mem-tables"
        try:
            return self._rows.property_int_value(name) or 0
        except (DbClosedError, RuntimeError):  # closed by another thread
            return 0

    def relieve(self, *, wait: bool) -> None:
        """Flush the memory table, or begin to. Any thread; does nothing if the store is closed."""
        try:
            with self._named_errors():
                self._rows.flush(wait)
        except RetryLater:
            return

    def close(self) -> None:
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            for scan in list(self._scans):
                scan.release()
            try:
                with self._named_errors():
                    try:
                        if self._owes_flush:
                            self._rows.flush()
                    finally:
                        self._close_rows()
            finally:
                self._folder.release()
                self._stores._closed(self)  # noqa: SLF001 - one unit

    def _close_rows(self) -> None:
        deadline = time.monotonic() + _CLOSE_SECONDS
        while True:
            try:
                self._rows.close()
            except RuntimeError:  # "Already borrowed": another thread is inside of a call
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.001)
            else:
                return

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except StreamtableError:
            raise
        except Exception as error:
            raise self._named(error) from error

    def _named(self, error: Exception) -> StreamtableError:
        """Return the library's error for an error of rocksdict, which has only a text."""
        text = str(error)
        if isinstance(error, DbClosedError) or (isinstance(error, RuntimeError) and "borrowed" in text):
            return self._closed_error()
        if type(error) is not Exception:  # ours, such as a key that is not bytes
            raise error
        named: StreamtableError
        if text.startswith(_DAMAGE):
            named = StoreCorrupted(f"{self._folder.path} is damaged: {text}")
        elif "Too many open files" in text:
            named = too_many_files(self._folder.path)
        elif "lock hold" in text or "/LOCK:" in text:
            named = StoreInUse(f"{self._folder.rows} is held by another program, not by this library: {text}")
        else:
            named = StoreBroken(f"{self._folder.path} cannot be used: {text}")
        return named.at(self.table, self.partition)

    def _closed_error(self) -> StreamtableError:
        return RetryLater("the store is closed here; ask again when it is open, or its new owner").at(
            self.table, self.partition
        )


def _add_rows(
    rows: RdictIter, ranges: Iterable[tuple[tuple[bytes, bytes], list[tuple[bytes, bytes]]]]
) -> None:
    """Add the rows with start <= key < end of each range to its list."""
    seek, valid, key_here, value_here, step = rows.seek, rows.valid, rows.key, rows.value, rows.next
    try:
        for (start, end), found in ranges:
            after = ROW + end
            seek(ROW + start)
            while valid():
                key = key_here()
                if key >= after:
                    break
                found.append((key[1:], value_here()))
                step()
            else:
                # A damaged block looks like the end of the store, and the next `seek` clears the error.
                rows.status()
    finally:
        del rows, seek, valid, key_here, value_here, step  # see `_Scan.chunk`


class _Scan:
    """An iterator of RocksDB, read in chunks, so that `close` can end it between two of them.

    While it lives the database cannot be closed.
    """

    def __init__(
        self, store: RocksStore, rows: RdictIter, first: bytes, after: bytes, *, reverse: bool
    ) -> None:
        self._store = store
        self._rows: RdictIter | None = rows
        self._lock = threading.Lock()
        # Bounds are compared here: rocksdict's lower bound was seen to be ignored.
        self._first, self._after = first, after
        self._reverse = reverse
        self._size = _FIRST_CHUNK
        if reverse:
            rows.seek_for_prev(after)
            if rows.valid() and rows.key() == after:
                rows.prev()
        else:
            rows.seek(first)

    def chunk(self) -> list[tuple[bytes, bytes]]:
        """Return the next rows; [] at the end."""
        with self._lock:
            rows = self._rows
            if rows is None:
                raise self._store._closed_error()  # noqa: SLF001 - one unit
            first, after = self._first, self._after
            step = rows.prev if self._reverse else rows.next
            found: list[tuple[bytes, bytes]] = []
            left = self._size
            try:
                while left > 0 and rows.valid():
                    key = rows.key()
                    if not first <= key < after:
                        return found
                    value = rows.value()
                    found.append((key[1:], value))
                    left -= len(value) + _ROW_BYTES
                    step()
                rows.status()  # a damaged block looks like the end; only the status shows it
            except Exception as error:
                raise self._store._named(error) from error  # noqa: SLF001 - one unit
            finally:
                # The traceback of an error would keep the iterator, and so the database's lock, for as long as it
                # is being handled: the damaged store could not be replaced then.
                del rows, step
            self._size = min(self._size * 2, _LARGEST_CHUNK)
            return found

    def release(self) -> None:
        with self._lock:
            self._rows = None


@contextmanager
def _placed(table: str, partition: int) -> Iterator[None]:
    """Name the partition in the errors of the block."""
    try:
        yield
    except StreamtableError as error:
        error.at(table, partition)
        raise


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder; nothing if there is no folder, or no longer one."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
