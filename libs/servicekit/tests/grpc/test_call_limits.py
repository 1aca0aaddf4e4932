import asyncio
import time
from contextlib import ExitStack

import pytest

from servicekit.grpc.call_limits import CallSlots, Patience
from servicekit.peer_places import PeerPlaces, TooManyOfPeer
from servicekit.streams import TooManyStreams


def test_slots_are_limited_and_can_be_reused() -> None:
    places = CallSlots(1, 1)
    assert [places.take("a"), places.take("a"), places.take("b")] == [True, False, False]
    assert places.taken == 1
    places.release("a")
    assert places.taken == 0
    assert places.take("b")


def test_one_peer_cannot_take_all_slots() -> None:
    places = CallSlots(4, 3)
    assert [places.take("a") for _ in range(4)] == [True, True, True, False]
    assert places.take("b")


async def waited(patience: Patience) -> bool:
    """Return whether the wait was ended from outside."""
    try:
        async with patience.wait():
            await asyncio.Event().wait()
    except TimeoutError:
        return True
    return False


def test_a_wait_ends_after_its_time() -> None:
    async def test() -> None:
        patience = Patience(0.01, 10)
        assert await waited(patience)
        assert len(patience) == 0

    asyncio.run(test())


def test_the_oldest_wait_gives_way_to_a_newer_one() -> None:
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


def test_an_expired_wait_gives_way_even_before_its_task_has_run() -> None:
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


def test_a_client_that_is_in_time_is_not_affected() -> None:
    async def test() -> None:
        patience = Patience(60, 1)
        async with patience.wait():
            await asyncio.sleep(0)
        async with patience.wait():
            await asyncio.sleep(0)
        assert len(patience) == 0

    asyncio.run(test())


def test_the_streams_of_a_peer_are_limited() -> None:
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


def test_the_peer_with_most_streams_loses_its_idlest_stream_to_a_peer_with_fewer() -> None:
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


def test_if_no_peer_has_more_than_one_stream_the_newest_is_rejected() -> None:
    places = PeerPlaces(2, 2)
    with (
        places.take("a", no_end),
        places.take("b", no_end),
        pytest.raises(TooManyStreams),
        places.take("c", no_end),
    ):
        pass


def no_end() -> None:
    raise AssertionError("the stream must not be ended")
