"""Limits on calls, and on clients that start a call and do not send its message."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Lock

from servicekit.streams import TooManyStreams
from streamtable.errors import RetryLater


class TooManyOfPeer(TooManyStreams):
    """The peer has reached its limit of streams."""


class GaveWay(RetryLater):
    """The stream was ended in favour of a peer with fewer streams."""


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
    """Waits for clients in one event loop: each for a limited time, and if there are too many, ends the longest wait early.

    A well-behaved caller sends its message with the headers. A caller that does not occupies a little memory and no
    thread, and a newer caller replaces it instead of being rejected.

    Args:
        seconds: The maximum time to wait for a caller.
        limit: The maximum number of callers to wait for at a time.
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
            if not oldest.expired():  # it may have expired already without its task having run
                oldest.reschedule(asyncio.get_running_loop().time())
        async with asyncio.timeout(self._seconds) as wait:
            self._waits[wait] = None
            try:
                yield
            finally:
                self._waits.pop(wait, None)


class PeerPlaces:
    """Places for streams in one event loop: limited for each peer, and shared among the peers when all are taken.

    A peer that has fewer places than another one gets the place of that peer's stream that has been idle longest.

    Args:
        limit: The number of places.
        per_peer: The maximum number of places of one peer.
    """

    def __init__(self, limit: int, per_peer: int) -> None:
        self._limit = limit
        self._per_peer = per_peer
        # For each peer the functions that end its streams, the idlest stream first.
        self._of_peer: dict[str, OrderedDict[object, Callable[[], None]]] = {}
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    @contextmanager
    def take(self, peer: str, give_way: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Take a place for the block. Yields a function to call whenever the stream has sent something.

        Args:
            peer: The peer of the stream.
            give_way: Ends the stream when another one takes its place.

        Raises:
            TooManyOfPeer: The peer has reached its limit.
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
            raise TooManyStreams("too many streams are open; retry the request later")
        place, give_way = next(iter(self._of_peer[most].items()))
        self._free(most, place)
        give_way()

    def _free(self, peer: str, place: object) -> None:
        """Release a place, unless it was taken away before."""
        places = self._of_peer.get(peer)
        if places is None or places.pop(place, None) is None:
            return
        self._taken -= 1
        if not places:
            del self._of_peer[peer]
