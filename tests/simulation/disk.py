"""The disk of a process: stores in memory that survive a crash, and can be damaged or full."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from streamtable.errors import StoreBroken, StoreCorrupted
from streamtable.store.memory import MemoryStore, MemoryStores

Place = tuple[str, int]


class Disk:
    """The stores of a machine.

    Attributes:
        damaged: The stores whose operations all fail until they are destroyed.
        full: Whether every write fails.
        refused: Whether a write has failed.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._stores = MemoryStores(now)
        self._open: dict[Place, MemoryStore] = {}
        self.damaged: set[Place] = set()
        self.full = self.refused = False

    def open(self, table: str, partition: int, *, spare: bool = False) -> "DiskStore":
        if (table, partition) in self.damaged:
            raise StoreCorrupted("a file is damaged").at(table, partition)
        store = self._open[table, partition] = self._stores.open(table, partition, spare=spare)
        return DiskStore(self, (table, partition), store)

    def destroy(self, table: str, partition: int) -> None:
        self._stores.destroy(table, partition)
        self.damaged.discard((table, partition))

    def present(self) -> Mapping[Place, float]:
        return self._stores.present()

    def close(self) -> None:
        self._stores.close()

    def heal(self) -> None:
        """Repair the disk: it has space again, and damage that was not read yet is gone."""
        self.full = False
        self.damaged.clear()

    def crash(self, *, lose_bulk: bool) -> None:
        """Apply a kill of the process. `lose_bulk`: bulk writes had not reached the disk."""
        if lose_bulk:
            self._stores.crash()
        else:
            self._stores.close()


class Mounted:
    """The disk of one life of a process, a `ports.Stores`: after that life, none of its writes reach the disk."""

    def __init__(
        self, disk: Disk, dead: Callable[[], bool], destroyed: Callable[[int], object] = lambda _: None
    ) -> None:
        self._disk = disk
        self._dead = dead
        self._destroyed = destroyed

    def open(self, table: str, partition: int, *, spare: bool = False) -> "DiskStore":
        self._refuse()
        return self._disk.open(table, partition, spare=spare)

    def destroy(self, table: str, partition: int) -> None:
        self._refuse()
        self._disk.destroy(table, partition)
        self._destroyed(partition)

    def present(self) -> Mapping[Place, float]:
        self._refuse()
        return self._disk.present()

    def close(self) -> None:
        if not self._dead():
            self._disk.close()

    def _refuse(self) -> None:
        if self._dead():
            raise StoreBroken("its process is dead")


class DiskStore:
    """A `ports.Store`."""

    def __init__(self, disk: Disk, place: Place, store: MemoryStore) -> None:
        self._disk = disk
        self._place = place
        self._store = store

    def get(self, key: bytes) -> bytes | None:
        self._refuse()
        return self._store.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._refuse()
        return self._store.get_many(keys)

    def write(
        self, changes: Iterable[tuple[bytes, bytes | None]], checkpoint: bytes, *, bulk: bool = False
    ) -> None:
        self._refuse()
        if self._disk.full:
            self._disk.refused = True
            raise StoreBroken("no space left").at(*self._place)
        self._store.write(changes, checkpoint, bulk=bulk)

    def checkpoint(self) -> bytes | None:
        self._refuse()
        return self._store.checkpoint()

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> AbstractContextManager[Iterator[tuple[bytes, bytes]]]:
        self._refuse()
        return self._store.scan(start, end, reverse=reverse)

    def ranges(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        self._refuse()
        return self._store.ranges(bounds)

    def rows_in(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        self._refuse()
        return self._store.rows_in(bounds)

    def size_bytes(self) -> int:
        self._refuse()
        return self._store.size_bytes()

    @property
    def release_requested(self) -> bool:
        return self._store.release_requested

    def close(self) -> None:
        self._store.close()

    def rows(self) -> dict[bytes, bytes] | None:
        """Return all rows; None if it is closed or damaged."""
        contents = self._store._now
        return None if contents is None or self._place in self._disk.damaged else contents.rows

    def _refuse(self) -> None:
        if self._place in self._disk.damaged:
            raise StoreCorrupted("a file is damaged").at(*self._place)
