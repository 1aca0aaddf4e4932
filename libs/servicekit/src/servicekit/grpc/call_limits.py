"""Limits on calls, and on clients that begin a call and do not go on."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Lock

from servicekit.streams import TooManyStreams
from streamtable.errors import RetryLater


class TooManyOfPeer(TooManyStreams):
    """The peer has as many streams as it may have."""


class GaveWay(RetryLater):
    """The stream has ended so that a peer with fewer streams gets its place."""


class CallSlots:
    """A limited number of slots for calls. Any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self.taken = 0

    def take(self) -> bool:
        """Take a slot; false if all are taken."""
        with self._lock:
            free = self.taken < self._limit
            self.taken += free
            return free

    def give_back(self) -> None:
        with self._lock:
            self.taken -= 1


class Patience:
    """Waits for clients in one event loop: each for a limited time, the longest-waiting ones less when there are too many.

    A caller who does as it should sends its message with the headers. One that does not costs a little memory, no
    thread; so a newer one takes its place, rather than being refused because of it.

    Args:
        seconds: How long a caller is waited for.
        limit: How many callers are waited for at a time.
    """

    def __init__(self, seconds: float, limit: int) -> None:
        self._seconds = seconds
        self._limit = limit
        self._waits: dict[asyncio.Timeout, None] = {}

    def __len__(self) -> int:
        return len(self._waits)

    @asynccontextmanager
    async def wait(self) -> AsyncIterator[None]:
        """Wait within the block. Raises `TimeoutError` there after too long."""
        if len(self._waits) >= self._limit:
            oldest = next(iter(self._waits))
            del self._waits[oldest]
            if not oldest.expired():  # its time may be over already, and its task not yet have noticed
                oldest.reschedule(asyncio.get_running_loop().time())
        async with asyncio.timeout(self._seconds) as wait:
            self._waits[wait] = None
            try:
                yield
            finally:
                self._waits.pop(wait, None)


class PeerPlaces:
    """Places for streams in one event loop: limited for each peer, and shared among the peers when all are taken.

    A peer that has fewer places than another one gets a place of that one's: of the stream that has been idle longest.

    Args:
        limit: How many there are.
        per_peer: How many one peer may take.
    """

    def __init__(self, limit: int, per_peer: int) -> None:
        self._limit = limit
        self._per_peer = per_peer
        # Of each peer the functions that end its streams, the idlest first.
        self._of_peer: dict[str, OrderedDict[object, Callable[[], None]]] = {}
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    @contextmanager
    def take(self, peer: str, give_way: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Take a place for the block. Yields a function to call whenever the stream has sent something.

        Args:
            peer: Whose stream it is.
            give_way: Ends the stream, whose place another one has got.

        Raises:
            TooManyOfPeer: The peer has as many as it may have.
            TooManyStreams: All places are taken, and no peer has more than this one would have.
        """
        place = object()
        self._make_room(peer)
        self._of_peer.setdefault(peer, OrderedDict())[place] = give_way
        self._taken += 1

        def active() -> None:
            places = self._of_peer.get(peer)
            if places is not None and place in places:
                places.move_to_end(place)

        try:
            yield active
        finally:
            self._free(peer, place)

    def _make_room(self, peer: str) -> None:
        own = len(self._of_peer.get(peer, ()))
        if own >= self._per_peer:
            raise TooManyOfPeer(f"one address may have {self._per_peer} streams; close one")
        if self._taken < self._limit:
            return
        most = max(self._of_peer, key=lambda each: len(self._of_peer[each]), default=peer)
        if len(self._of_peer.get(most, ())) <= own + 1:
            raise TooManyStreams("too many streams are open; ask again later")
        place, give_way = next(iter(self._of_peer[most].items()))
        self._free(most, place)
        give_way()

    def _free(self, peer: str, place: object) -> None:
        """Give back a place, unless it was taken away before."""
        places = self._of_peer.get(peer)
        if places is None or places.pop(place, None) is None:
            return
        self._taken -= 1
        if not places:
            del self._of_peer[peer]
