import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from servicekit.http.problems import Problem
from servicekit.http.read_your_writes import ReadYourWrites
from servicekit_testing import MemoryTable
from streamtable.base.types import Ack

WRITE = Ack("clicks", 3, 41)


@pytest.fixture
def table() -> MemoryTable[int]:
    return MemoryTable()


@pytest.fixture
def make(table: MemoryTable[int]) -> Callable[..., ReadYourWrites]:
    def writes(seconds: float, limit: int = 4) -> ReadYourWrites:
        return ReadYourWrites({"clicks": table}, seconds, limit)

    return writes


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(limited())


def test_the_wait_returns_when_the_table_shows_the_write(
    make: Callable[..., ReadYourWrites], table: MemoryTable[int]
) -> None:
    threading.Timer(0.1, table.put, ("alice", 1, WRITE)).start()
    run(make(10).shown(WRITE.token))
    assert WRITE in table.shown


def test_a_timeout_of_the_wait_is_a_problem_504(make: Callable[..., ReadYourWrites]) -> None:
    with pytest.raises(Problem) as caught:
        run(make(0.05).shown(WRITE.token))
    assert caught.value.status == 504


@pytest.mark.parametrize("token", ["", "clicks", "other:3:41", "clicks:3:-1", "clicks:3:41:5"])
def test_a_token_that_names_no_write_of_these_tables_is_a_problem_422(
    make: Callable[..., ReadYourWrites], token: str
) -> None:
    with pytest.raises(Problem) as caught:
        run(make(10).shown(token))
    assert caught.value.status == 422


def test_waits_beyond_the_limit_are_rejected_until_another_ends(
    make: Callable[..., ReadYourWrites], table: MemoryTable[int]
) -> None:
    writes = make(10, limit=2)

    async def work() -> None:
        waiting = [asyncio.create_task(writes.shown(WRITE.token)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Problem) as caught:
            await writes.shown(WRITE.token)
        assert caught.value.status == 503
        table.put("alice", 1, WRITE)
        await asyncio.gather(*waiting)
        await writes.shown(WRITE.token)

    run(work())


def test_a_cancelled_wait_does_not_count(
    make: Callable[..., ReadYourWrites], table: MemoryTable[int]
) -> None:
    writes = make(10, limit=1)

    async def work() -> None:
        gone = asyncio.create_task(writes.shown(WRITE.token))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        table.put("alice", 1, WRITE)
        await writes.shown(WRITE.token)

    run(work())


def test_a_thousand_requests_wait_without_a_thread_each(table: MemoryTable[int]) -> None:
    writes = ReadYourWrites({"clicks": table}, 30, limit=1000)
    threads = threading.active_count()

    async def work() -> None:
        waiting = [asyncio.create_task(writes.shown(WRITE.token)) for _ in range(1000)]
        await asyncio.sleep(0.05)
        assert threading.active_count() <= threads + 1
        table.put("alice", 1, WRITE)
        await asyncio.gather(*waiting)

    run(work())
