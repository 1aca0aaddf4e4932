"""An unreliable connection to Kafka: a TCP proxy that cuts, freezes, slows and closes connections, at random by a seed.

The compose profile `chaos` puts it between one process of click-count and the broker. It does not control containers and
changes no data: a real network can have all of its faults. Standard library only. It prints a line for each fault.
"""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

PIECE_BYTES = 1 << 16


class Fault(StrEnum):
    """A fault of the connection to Kafka."""

    CUT = "cut"
    """All connections are closed at once; new ones are accepted."""
    CLOSED = "closed"
    """All connections are closed at once, and new ones too, for a while."""
    FROZEN = "frozen"
    """Connections stay open, and nothing is forwarded for a while: beyond the session timeout a process counts as dead."""
    SLOW = "slow"
    """Every chunk is delayed, for a while."""


@dataclass(frozen=True)
class Step:
    """A fault that begins after `calm` seconds, with its duration and the delay of each chunk in seconds."""

    calm: float
    fault: Fault
    lasts: float = 0.0
    delay: float = 0.0


def steps(chance: random.Random, every: float) -> Iterator[Step]:
    """Yield faults endlessly, on average `every` seconds apart."""
    while True:
        calm = chance.uniform(0.5, 1.5) * every
        match chance.choice(list(Fault)):
            case Fault.CUT:
                yield Step(calm, Fault.CUT)
            case Fault.CLOSED:
                yield Step(calm, Fault.CLOSED, chance.uniform(1, 15))
            case Fault.FROZEN:
                yield Step(calm, Fault.FROZEN, chance.uniform(1, 25))
            case Fault.SLOW:
                yield Step(calm, Fault.SLOW, chance.uniform(5, 20), chance.uniform(0.05, 0.4))


class Way:
    """Forwards bytes between clients and the broker, subject to the current fault.

    Args:
        host: The host of the broker.
        port: The port of the broker.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._open = True
        self._going = asyncio.Event()
        self._going.set()
        self._delay = 0.0
        self._ends: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until it ends."""
        if not self._open:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._ends |= ends
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, far_writer))
                both.create_task(self._pass(far_reader, writer))
        except* OSError:
            pass  # one side has disconnected, so the other connection is closed too
        finally:
            self._ends -= ends
            for each in ends:
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE_BYTES):
            await asyncio.sleep(self._delay)
            await self._going.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    def cut(self) -> None:
        """Abort all connections at once."""
        for each in list(self._ends):
            each.transport.abort()

    async def suffer(self, step: Step) -> None:
        """Apply one fault, from its beginning to its end."""
        match step.fault:
            case Fault.CUT:
                self.cut()
            case Fault.CLOSED:
                self._open = False
                self.cut()
            case Fault.FROZEN:
                self._going.clear()
            case Fault.SLOW:
                self._delay = step.delay
        await asyncio.sleep(step.lasts)
        self._open, self._delay = True, 0.0
        self._going.set()


async def run(port: int, host: str, far_port: int, chance: random.Random, every: float) -> None:
    """Listen and apply faults until cancelled."""
    way = Way(host, far_port)
    async with await asyncio.start_server(way.serve, None, port) as server:
        say(listens=server.sockets[0].getsockname()[1], leads_to=f"{host}:{far_port}")
        for step in steps(chance, every):
            await asyncio.sleep(step.calm)
            say(fault=step.fault, seconds=round(step.lasts, 1), delay=round(step.delay, 2))
            await way.suffer(step)


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> int:
    """Run the command line; returns 0 when it is stopped by a signal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("port", type=int, help="port to listen on")
    parser.add_argument("broker", help="HOST:PORT of the broker")
    parser.add_argument("--seed", type=int, default=1, help="the same faults for the same seed")
    parser.add_argument(
        "--every", type=float, default=20.0, metavar="SECONDS", help="average time between two faults"
    )
    given = parser.parse_args()
    host, _, far_port = given.broker.rpartition(":")
    chance = random.Random(given.seed)  # noqa: S311 - faults, not secrets
    with suppress(KeyboardInterrupt):
        asyncio.run(run(given.port, host, int(far_port), chance, given.every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
