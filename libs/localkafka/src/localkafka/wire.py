"""A network that goes wrong between clients and a broker: a proxy that understands the headers of Kafka's requests."""

import asyncio
import socket
import struct
import threading
from collections import Counter
from types import TracebackType
from typing import Final, Self

from localkafka.broker import Listener
from localkafka.link import Pace
from localkafka.process import reserve_port
from localkafka.wirefaults import (
    CutAnswer,
    CutRequest,
    DelayAnswer,
    DelayRequest,
    Fault,
    LoseAnswer,
    LoseRequest,
    Plan,
    Request,
)

_CHUNK: Final = 8 << 10
_PENDING_MAX: Final = 1_000  # requests of one connection that wait in the proxy
_LINGER_SECONDS: Final = 10.0  # the time that the broker may take to answer a client that has disconnected
_SIZE: Final = struct.Struct(">i")


class WireProxy:
    """Passes on what clients and a broker say while it is entered, apart from what its plan says about each request.

    The broker gets a listener of its own for clients that come this way, and names this proxy's address to them. What
    brokers say to each other, and clients that use the broker's usual address, are not disturbed:

        with WireProxy() as wire:
            broker = Broker(folder, listeners=[wire.listener])
            broker.start()
            Consumer({"bootstrap.servers": wire.bootstrap_servers, ...})
            wire.plan = Storm(seed, {Api.PRODUCE: 0.1})

    Each connection keeps its order, as TCP does: what is late or lost takes all that follows on its connection along.
    Connections are plain; `plan`, `bytes_per_second`, `darken`, `lighten` and `reset` may be used in any thread. New
    connections are accepted also while it is dark, because the operating system does that, but nothing is answered.

    Attributes:
        plan: Called for each request in the proxy's thread; None to forward all requests.
        bytes_per_second: The rate of each direction, of all connections together; None: not bounded.
        struck: The number of planned faults, by the number of the request and the class of the fault.
    """

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.bytes_per_second: float | None = None
        self.struck: Counter[tuple[int, type[Fault]]] = Counter()
        self.up, self.down = Pace(), Pace()
        self._held = reserve_port()  # for the broker
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._connections: set[_Connection] = set()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._main(),), name="wire", daemon=True)

    @property
    def listener(self) -> Listener:
        """The extra listener for the broker behind the proxy."""
        return Listener("WIRE", self._held.getsockname()[1], self.port)

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers for clients that reach the broker through this proxy."""
        return f"127.0.0.1:{self.port}"

    def darken(self) -> None:
        """Let nothing through in either direction; connections stay open. Data sent meanwhile arrives later."""
        self._loop.call_soon_threadsafe(self.lit.clear)

    def lighten(self) -> None:
        """End the darkness."""
        self._loop.call_soon_threadsafe(self.lit.set)

    def reset(self) -> None:
        """Reset all connections."""
        self._loop.call_soon_threadsafe(self._reset_all)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._held.close()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended, self.lit = asyncio.Event(), asyncio.Event()
        self.lit.set()
        async with await asyncio.start_server(self._serve, sock=self._socket):
            self._begun.set()
            await self._ended.wait()
            self._reset_all()

    def _reset_all(self) -> None:
        for connection in tuple(self._connections):
            connection.reset()

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        try:
            await self.lit.wait()
            broker_in, broker_out = await asyncio.open_connection("127.0.0.1", self.listener.port)
        except OSError:  # the broker is away, and so is what its clients connect to
            _reset(client_out)
            return
        except asyncio.CancelledError:  # the proxy ends while it still connects
            _reset(client_out)
            raise
        connection = _Connection(self, client_in, client_out, broker_in, broker_out)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    def fault_of(self, request: Request) -> Fault | None:
        """Ask the plan, and count its faults."""
        fault = self.plan(request) if self.plan is not None else None
        if fault is not None:
            self.struck[request.api, type(fault)] += 1
        return fault


class _Connection:
    """A client's connection and the one that was opened to the broker for it."""

    def __init__(
        self,
        wire: WireProxy,
        client_in: asyncio.StreamReader,
        client_out: asyncio.StreamWriter,
        broker_in: asyncio.StreamReader,
        broker_out: asyncio.StreamWriter,
    ) -> None:
        self._wire = wire
        self._client_in, self._client_out = client_in, client_out
        self._broker_in, self._broker_out = broker_in, broker_out
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue(_PENDING_MAX)
        self._unanswered: dict[int, Fault | None] = {}
        self._all_answered = asyncio.Event()
        self._client_hears = True

    async def run(self) -> None:
        tasks = [
            asyncio.create_task(work()) for work in (self._receive, self._pass_requests, self._pass_answers)
        ]
        try:
            await asyncio.gather(*tasks)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one of the two has gone; the other one notices below
        finally:
            for task in tasks:
                task.cancel()
            self.reset()

    def reset(self) -> None:
        """End both connections at once, as a router does that has forgotten them."""
        _reset(self._client_out)
        _reset(self._broker_out)

    async def _receive(self) -> None:
        """Take what the client says until it goes, so that its going is seen also while a request is on its way."""
        try:
            while True:
                await self._requests.put(await _frame(self._client_in))
        except (OSError, asyncio.IncompleteReadError):
            self._client_hears = False
            await self._requests.put(None)

    async def _pass_requests(self) -> None:
        while (frame := await self._requests.get()) is not None:
            request = Request.parse(frame)
            fault = self._wire.fault_of(request)
            match fault:
                case DelayRequest(seconds):
                    await asyncio.sleep(seconds)
                case LoseRequest(seconds):
                    await asyncio.sleep(seconds)
                    raise ConnectionResetError
                case CutRequest(keep):
                    await self._write(
                        self._broker_out, (_SIZE.pack(len(frame)) + frame)[:keep], self._wire.up
                    )
                    raise ConnectionResetError
            self._unanswered[request.correlation_id] = fault
            self._all_answered.clear()
            await self._write(self._broker_out, _SIZE.pack(len(frame)) + frame, self._wire.up)
        # The client has gone. The broker is to do all that it was asked for before it hears of that.
        if self._unanswered:
            async with asyncio.timeout(_LINGER_SECONDS):
                await self._all_answered.wait()
        raise ConnectionResetError

    async def _pass_answers(self) -> None:
        while True:
            frame = await _frame(self._broker_in)
            fault = self._unanswered.pop(_SIZE.unpack_from(frame)[0], None)
            if not self._unanswered:
                self._all_answered.set()
            match fault:
                case DelayAnswer(seconds):
                    await asyncio.sleep(seconds)
                case LoseAnswer(seconds):
                    self._client_hears = False
                    asyncio.get_running_loop().call_later(seconds, self.reset)
                case CutAnswer(keep):
                    await self._write(
                        self._client_out, (_SIZE.pack(len(frame)) + frame)[:keep], self._wire.down
                    )
                    raise ConnectionResetError
            if self._client_hears:
                try:
                    await self._write(self._client_out, _SIZE.pack(len(frame)) + frame, self._wire.down)
                except OSError:  # it has gone; what it has asked for is still on its way to the broker
                    self._client_hears = False

    async def _write(self, writer: asyncio.StreamWriter, data: bytes, pace: Pace) -> None:
        await self._wire.lit.wait()
        rate = self._wire.bytes_per_second
        step = len(data) if rate is None else _CHUNK
        for start in range(0, len(data), step or 1):
            chunk = data[start : start + step]
            await asyncio.sleep(pace.take(len(chunk), rate))
            writer.write(chunk)
            await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return await reader.readexactly(size)


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.fileno() >= 0:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
