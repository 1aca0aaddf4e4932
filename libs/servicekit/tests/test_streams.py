import asyncio
import threading

import pytest

from servicekit.streams import Stopping, Streams, unless
from streamtable.errors import RetryLater


def test_more_streams_than_the_limit_are_refused_until_one_ends() -> None:
    streams = Streams(limit=1)
    with streams.admit():
        assert streams.open_count == 1
        with pytest.raises(RetryLater), streams.admit():
            pass
    with streams.admit():
        pass
    assert streams.open_count == 0


def test_a_stream_ends_when_its_time_is_over() -> None:
    now = 0.0
    streams = Streams(seconds_max=10, clock=lambda: now)
    with streams.admit() as alive:
        now = 9.9
        assert alive()
        now = 10.0
        assert not alive()


def test_stopping_ends_all_streams_and_admits_no_more() -> None:
    streams = Streams()
    with streams.admit() as alive:
        streams.stop()
        assert not alive()
        with pytest.raises(RetryLater), streams.admit():
            pass


def test_a_stream_of_an_event_loop_is_woken_when_streams_are_stopped() -> None:
    streams = Streams()

    async def test() -> None:
        with streams.admit_in_loop() as over:
            threading.Timer(0.05, streams.stop).start()
            async with asyncio.timeout(20):
                assert await unless(over, asyncio.sleep(60, "slept")) is None
            assert streams.open_count == 1
        assert streams.open_count == 0
        with pytest.raises(Stopping), streams.admit_in_loop():
            pass

    asyncio.run(test())


def test_a_stream_of_an_event_loop_ends_at_its_maximum_age() -> None:
    async def test() -> None:
        with Streams(seconds_max=0.05).admit_in_loop() as over:
            async with asyncio.timeout(20):
                await over

    asyncio.run(test())


def test_work_is_cancelled_when_its_stream_is_over_and_returns_its_result_before() -> None:
    cancelled = []

    async def work() -> str:
        try:
            return await asyncio.sleep(60, "slept")
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def test() -> None:
        over = asyncio.get_running_loop().create_future()
        assert await unless(over, asyncio.sleep(0, "result")) == "result"
        asyncio.get_running_loop().call_later(0.01, over.set_result, None)
        assert await unless(over, work()) is None

    asyncio.run(test())
    assert cancelled == [True]
