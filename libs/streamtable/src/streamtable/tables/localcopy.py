"""One partition of a local copy of a table: where it stands, and whether it is whole."""

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

from streamtable.ports import Store
from streamtable.tables.position import LocalPosition

if TYPE_CHECKING:
    from streamtable.errors import StoreCorrupted
    from streamtable.tables.replica import Replica

_LOOKS_KEPT = 120


class Copy:
    """One partition of a copy. Its fields are written by the thread, and may be read by all.

    Attributes:
        whole: it has reached the end that the log had when it was started, now or in an earlier life.
        caught_up: it has, in this life.
        current_at: wall time when it last held everything that the broker had.
    """

    def __init__(self, partition: int, store: Store, local: LocalPosition | None) -> None:
        self.partition = partition
        self.store = store
        self.whole = local.whole if local else False
        self.caught_up = False
        self.current_at = local.current_at if local else 0.0
        self.end: int | None = None  # of the log, at the last look
        self.low = 0  # where the log began then
        self.replica: Replica | None = None
        self.damage: StoreCorrupted | None = None  # found by a reader
        self._loaded = local.changelog if local else 0
        self._looks: deque[tuple[float, int]] = deque(maxlen=_LOOKS_KEPT)  # when, and the end then

    @property
    def position(self) -> int:
        return self.replica.position if self.replica else self._loaded

    @property
    def failure(self) -> Exception | None:
        """What the copy is followed no more for."""
        return self.replica.failure if self.replica else None

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position) if self.end is not None else 0

    @contextmanager
    def pinned(self) -> Iterator[tuple[int, Iterator[tuple[bytes, bytes]]]]:
        """A position, and all rows exactly as they were there, whatever is written meanwhile. Any thread."""
        with ExitStack() as held:
            while True:
                replica = self.replica
                with nullcontext(self._loaded) if replica is None else replica.still() as position:
                    rows = held.enter_context((replica or self).store.scan())
                if replica is self.replica:  # else another thread may have written before the scan began
                    break
            yield position, rows

    def restart(self, store: Store) -> None:
        """Begin again with this empty store."""
        self.whole = self.caught_up = False
        self.store, self.replica, self._loaded = store, None, 0
        self.damage = None
        self._looks.clear()  # they were of what was there before

    def looked(self, now: float, end: int) -> bool:
        """The broker says that the log ends here. Returns whether the copy has caught up by it."""
        self.end = end
        self._looks.append((now, end))
        return self.advanced()

    def advanced(self) -> bool:
        """Draw the conclusions from a new position. Returns whether it has caught up by it."""
        before = self.caught_up
        while self._looks and self._looks[0][1] <= self.position:
            self.current_at = self._looks.popleft()[0]
            if self.replica is not None:
                self.replica.current_at = self.current_at
            self.whole = self.caught_up = True
        return self.caught_up and not before
