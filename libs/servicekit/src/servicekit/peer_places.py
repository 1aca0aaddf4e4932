"""Places for streams, shared fairly among the addresses that callers come from."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from servicekit.streams import TooManyStreams
from streamtable.errors import RetryLater


class TooManyOfPeer(TooManyStreams):
    """The peer has reached its limit of streams."""


class GaveWay(RetryLater):
    """The stream was ended in favour of a peer with fewer streams."""


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

    def __len__(self) -> int:
        return sum(map(len, self._of_peer.values()))

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
        if len(self) < self._limit:
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
        if places is not None:
            places.pop(place, None)
            if not places:
                del self._of_peer[peer]
