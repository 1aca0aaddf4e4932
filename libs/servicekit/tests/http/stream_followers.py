"""Many callers in one process, each following one row by server-sent events.

Arguments: the server's port, the number of callers. Prints `open` when all have received the row. When all have
received its first change, prints the times of arrival, one per line, in seconds of the machine's monotonic clock.
"""

import asyncio
import sys
import time
from contextlib import suppress

OPENED_AT_ONCE = 10  # few enough not to be rejected as overload on most machines
AGAIN_SECONDS = 0.1


class Follower:
    """A caller that follows a row."""

    def __init__(self) -> None:
        self.seen_at: dict[int, float] = {}
        self._reader: asyncio.StreamReader

    async def follow(self, port: int) -> None:
        while not await self._admitted(port):
            await self.close()
            await asyncio.sleep(AGAIN_SECONDS)
        await self.until(0)

    async def _admitted(self, port: int) -> bool:
        """Ask for the stream. False: the server was too slow, and asks to try again later."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(b"GET /counts/alice/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        status = (await self._reader.readline()).split(b" ")[1]
        assert status in {b"200", b"503"}
        return status == b"200"

    async def until(self, count: int) -> None:
        """Read until the row has this count."""
        while count not in self.seen_at:
            line = await self._reader.readline()
            assert line, "the stream has ended"
            if line.startswith(b'data: {"user_id": "alice", "count": '):
                self.seen_at[int(line.split(b'"count": ')[1].split(b",")[0])] = time.monotonic()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):  # the server may have reset it
            await self._writer.wait_closed()


async def main(port: int, count: int) -> None:
    followers = [Follower() for _ in range(count)]
    for start in range(0, count, OPENED_AT_ONCE):
        await asyncio.gather(*(each.follow(port) for each in followers[start : start + OPENED_AT_ONCE]))
    sys.stdout.write("open\n")
    sys.stdout.flush()
    await asyncio.gather(*(each.until(1) for each in followers))
    for each in followers:
        sys.stdout.write(f"{each.seen_at[1]}\n")
    await asyncio.gather(*(each.close() for each in followers))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
