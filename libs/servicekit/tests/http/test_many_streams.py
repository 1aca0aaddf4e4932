"""A thousand live streams of one service, over a view of a real group."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from servicekit.http.connections import ConnectionLimits
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.http.table_api import TableApi, WatchRow
from servicekit.streams import Streams
from streamtable import Count, Group, Input, Long, Persist, Stream, String
from streamtable_testing import Tester

CLICKS: Stream[str, str] = Stream("clicks", String(), String())
COUNTS: Group[str, int] = Group("counts", Input(CLICKS, aggregate=Count()), Persist(Long()))
STREAMS = 1000
OPENED_AT_ONCE = 10  # few enough that a slow machine takes them for no overload, which would be refused
API: TableApi[int] = TableApi(
    title="counts",
    version="1.0.0",
    text="Counts.",
    members=lambda count: {"count": count or 0},
    event="count",
    events_text="Events `count`.",
    routes=(WatchRow("/counts/{user}/events", "watch_count", "A count, live."),),
)


class Follower:
    """One of many callers that follow a row, in one event loop."""

    def __init__(self) -> None:
        self.seen_at: dict[int, float] = {}
        self._reader: asyncio.StreamReader

    async def follow(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(b"GET /counts/alice/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await self.until(0)

    async def until(self, count: int) -> None:
        """Read on until the row has this count."""
        while count not in self.seen_at:
            line = await self._reader.readline()
            assert line, "the stream has ended"
            if line.startswith(b'data: {"user_id": "alice", "count": '):
                self.seen_at[int(line.split(b'"count": ')[1].split(b",")[0])] = time.monotonic()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):  # the server may have reset it
            await self._writer.wait_closed()


def test_a_thousand_streams_of_one_service_get_a_change_and_take_no_threads(
    tester: Tester, record_property: Callable[[str, object], None]
) -> None:
    tester.run(COUNTS)
    events = EventStreams(Streams(STREAMS), per_peer=STREAMS)
    app = API.build(tester.view(COUNTS.table), None, None, events, metrics=lambda: b"")
    server = HttpServer(
        app, "127.0.0.1", 0, streams=events.streams, limits=ConnectionLimits(per_peer=STREAMS + 10)
    )
    port = int(server.start().rpartition(":")[2])
    threads = threading.active_count()
    followers = [Follower() for _ in range(STREAMS)]

    async def follow() -> float:
        for start in range(0, STREAMS, OPENED_AT_ONCE):
            await asyncio.gather(*(each.follow(port) for each in followers[start : start + OPENED_AT_ONCE]))
        assert events.streams.open_count == STREAMS
        # The pool that opens streams, and no thread for each of them.
        assert threading.active_count() - threads < 20
        changed_at = time.monotonic()
        await asyncio.to_thread(tester.emit, CLICKS, "alice", "click")
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.until(1) for each in followers))
        await asyncio.gather(*(each.close() for each in followers))
        return sorted(each.seen_at[1] - changed_at for each in followers)[STREAMS * 99 // 100]

    slowest = asyncio.run(follow())
    record_property("seconds_until_99_percent_have_a_change", slowest)
    server.stop()
    events.close()
