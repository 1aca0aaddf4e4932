"""A named table of bytes by key."""

from streamtable.base.ports import Store
from streamtable.tables.joined import MISSING, Missing


class NamedTable:
    """Rows of one partition by key: what changed since the last commit, over a store. One thread.

    Args:
        store: The committed rows. The table never writes to it; the commit does, with what `changes` returned.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._new: dict[bytes, bytes | None] = {}
        self.changed_bytes = 0

    def get(self, key: bytes) -> bytes | None:
        return self._new[key] if key in self._new else self.store.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a row; None deletes it."""
        self._new[key] = value
        self.changed_bytes += len(key) + len(value or b"")

    def uncommitted_row(self, key: bytes) -> "bytes | Missing | None":
        """Return the row that was written for the key since the last commit; `MISSING` if none was."""
        return self._new.get(key, MISSING)

    def take_back_row(self, key: bytes, before: "bytes | Missing | None") -> None:
        """Undo writes of a row. `before` is what `uncommitted_row` returned for the key then."""
        if isinstance(before, Missing):
            self._new.pop(key, None)
        else:
            self._new[key] = before

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        return sorted(self._new.items())

    def rows(self, changes: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        return changes

    def committed(self) -> None:
        self._new = {}
        self.changed_bytes = 0

    forget = committed
