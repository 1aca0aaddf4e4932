"""A named table of bytes by key."""

from streamtable.base.ports import Store


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

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        return sorted(self._new.items())

    def rows(self, changes: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        return changes

    def committed(self) -> None:
        self._new = {}
        self.changed_bytes = 0

    forget = committed
