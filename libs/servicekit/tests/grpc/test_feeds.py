import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from servicekit.grpc.feeds import Feed, Feeds
from servicekit_testing import MemoryTable
from streamtable.errors import StreamtableError


@pytest.fixture
def counts() -> MemoryTable[int]:
    return MemoryTable()


def within(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(limited())


async def following(feed: Feed[int]) -> Any:
    """The next change; there must be one."""
    change = await feed.next()
    assert change is not None
    return change


def always() -> bool:
    return True


def test_changes_come_in_order_and_before_the_feed_ends(counts: MemoryTable[int]) -> None:
    async def test() -> None:
        feeds = Feeds()
        with counts.watch(key="alice") as watch, feeds.feed(watch, always) as feed:
            for n in range(5):
                counts.put("alice", n)
            assert [(await following(feed)).value for _ in range(5)] == [0, 1, 2, 3, 4]
            counts.put("alice", 5)
            watch.ended = True
            assert (await following(feed)).value == 5
            assert await feed.next() is None

    within(test)


def test_each_feed_gets_what_it_watches(counts: MemoryTable[int]) -> None:
    async def test() -> None:
        feeds = Feeds()
        with (
            counts.watch(key="alice") as one,
            counts.watch(prefix="b") as other,
            feeds.feed(one, always) as alice,
            feeds.feed(other, always) as rest,
        ):
            waiting = asyncio.gather(following(alice), following(rest))
            await asyncio.sleep(0)
            counts.put("bob", 1)
            counts.put("alice", 2)
            assert [change.key for change in await waiting] == ["alice", "bob"]

    within(test)


def test_a_feed_ends_when_it_may_not_go_on(counts: MemoryTable[int]) -> None:
    async def test() -> None:
        alive = True
        with counts.watch(key="alice") as watch, Feeds().feed(watch, lambda: alive) as feed:
            waiting = asyncio.create_task(feed.next())
            await asyncio.sleep(0)
            alive = False
            assert await waiting is None

    within(test)


def test_a_feed_ends_also_where_changes_never_pause(counts: MemoryTable[int]) -> None:
    async def test() -> None:
        alive = True
        with counts.watch(key="alice") as watch, Feeds().feed(watch, lambda: alive) as feed:
            for n in range(3):
                counts.put("alice", n)
            assert (await following(feed)).value == 0
            alive = False
            assert await feed.next() is None

    within(test)


def test_missed_changes_are_an_error_of_their_feed_alone(counts: MemoryTable[int]) -> None:
    async def test() -> None:
        feeds = Feeds()
        with (
            counts.watch(key="alice") as one,
            counts.watch(key="bob") as other,
            feeds.feed(one, always) as alice,
            feeds.feed(other, always) as bob,
        ):
            one.overrun = True
            with pytest.raises(StreamtableError):
                await alice.next()
            counts.put("bob", 1)
            assert (await following(bob)).value == 1

    within(test)


def test_feeds_that_are_opened_after_all_were_closed_are_looked_after_again(counts: MemoryTable[int]) -> None:
    async def test() -> None:
        feeds = Feeds()
        for n in range(3):
            with counts.watch(key="alice") as watch, feeds.feed(watch, always) as feed:
                counts.put("alice", n)
                assert (await following(feed)).value == n
            await asyncio.sleep(0.05 * n)  # once while its coroutine still runs, then after that

    within(test)
