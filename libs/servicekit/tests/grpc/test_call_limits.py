import asyncio
import time
from contextlib import ExitStack

import pytest

from servicekit.grpc.call_limits import CallSlots, Patience, PeerPlaces, TooManyOfPeer
from servicekit.streams import TooManyStreams


def test_places_are_bounded_and_given_back() -> None:
    places = CallSlots(1)
    assert [places.take(), places.take()] == [True, False]
    assert places.taken == 1
    places.give_back()
    assert places.taken == 0
    assert places.take()


async def waited(patience: Patience) -> bool:
    """Whether the end of waiting came from outside."""
    try:
        async with patience.wait():
            await asyncio.Event().wait()
    except TimeoutError:
        return True
    return False


def test_nobody_is_waited_for_longer_than_the_time() -> None:
    async def test() -> None:
        patience = Patience(0.01, 10)
        assert await waited(patience)
        assert len(patience) == 0

    asyncio.run(test())


def test_the_oldest_gives_way_to_a_newer_one() -> None:
    async def test() -> None:
        patience = Patience(60, 2)
        waits = []
        for _ in range(3):
            waits.append(asyncio.create_task(waited(patience)))
            await asyncio.sleep(0)
        assert await waits[0]
        assert len(patience) == 2
        assert not waits[1].done()
        for wait in waits[1:]:
            wait.cancel()

    asyncio.run(test())


def test_one_whose_time_is_over_gives_way_even_before_it_has_noticed() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        patience = Patience(0.02, 1)
        first = asyncio.create_task(waited(patience))
        await asyncio.sleep(0)
        newer: list[asyncio.Task[bool]] = []
        loop.call_later(0.01, lambda: newer.append(loop.create_task(waited(patience))))
        time.sleep(0.05)  # noqa: ASYNC251 so that both timers are due in one turn of the loop
        assert await first
        assert await newer[0]

    asyncio.run(test())


def test_who_comes_in_time_is_not_disturbed() -> None:
    async def test() -> None:
        patience = Patience(60, 1)
        async with patience.wait():
            await asyncio.sleep(0)
        async with patience.wait():
            await asyncio.sleep(0)
        assert len(patience) == 0

    asyncio.run(test())


def test_a_peer_may_have_so_many_streams() -> None:
    places = PeerPlaces(10, 2)
    with (
        places.take("a", no_end),
        places.take("a", no_end),
        pytest.raises(TooManyOfPeer),
        places.take("a", no_end),
    ):
        pass
    with places.take("a", no_end), places.take("b", no_end):
        assert len(places) == 2
    assert len(places) == 0


def test_the_peer_with_most_streams_loses_the_one_that_was_idle_longest_to_a_peer_with_fewer() -> None:
    places, ended = PeerPlaces(3, 3), list[str]()
    with ExitStack() as stack:
        active = [
            stack.enter_context(places.take("many", lambda name=name: ended.append(name)))  # type: ignore[misc]
            for name in ("first", "second", "third")
        ]
        active[0]()
        stack.enter_context(places.take("few", no_end))
        assert ended == ["second"]
        with pytest.raises(TooManyStreams), places.take("many", no_end):
            pass
        with pytest.raises(TooManyStreams), places.take("few", no_end):
            pass
        assert ended == ["second"]
        assert len(places) == 3
    assert len(places) == 0


def test_where_nobody_has_more_than_one_stream_the_newest_is_refused() -> None:
    places = PeerPlaces(2, 2)
    with (
        places.take("a", no_end),
        places.take("b", no_end),
        pytest.raises(TooManyStreams),
        places.take("c", no_end),
    ):
        pass


def no_end() -> None:
    raise AssertionError("it is not to end")
