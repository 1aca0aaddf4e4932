"""A faulty network between clients and a broker: a proxy that parses the headers of Kafka requests."""

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
_PENDING_MAX: Final = 1_000  # queued requests of one connection
_LINGER_SECONDS: Final = 10.0  # the broker's time to answer the requests of a client that has disconnected
_ACCEPT_SECONDS: Final = 0.01
_SIZE: Final = struct.Struct(">i")


class WireProxy:
    """A context manager that forwards requests and responses, and injects the faults that its plan returns for
    requests.

    The broker gets an additional listener for these clients, which advertises this proxy's address. Traffic between
    brokers, and clients that use the broker's own address, are not affected:

        with WireProxy() as wire:
            broker = Broker(folder, listeners=[wire.listener])
            broker.start()
            Consumer({"bootstrap.servers": wire.bootstrap_servers, ...})
            wire.plan = Storm(seed, {Api.PRODUCE: 0.1})

    Each connection keeps its order, as with TCP: a delayed or lost frame delays or loses all that follow it.
    Connections are plain text. `plan`, `bytes_per_second`, `darken`, `lighten` and `reset` may be used from any thread.
    While it is dark, the operating system still accepts new connections, but nothing is answered.

    Attributes:
        plan: Called for each request, in the proxy's thread; None forwards all requests.
        bytes_per_second: The rate of each direction of all connections together; None: unlimited.
        latency_seconds: The seconds that each response travels. It does not hold up those that are sent after it.
        struck: The number of injected faults, by API key and class of fault.
    """

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.bytes_per_second: float | None = None
        self.latency_seconds = 0.0
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
        """Hold all data in both directions; connections stay open. `lighten` delivers the held data."""
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
            # A connection that has just been accepted is attached to the server in the next turns of the loop. If the server
            # has been closed by then, asyncio leaves it open.
            self._loop.remove_reader(self._socket)
            await asyncio.sleep(_ACCEPT_SECONDS)
            self._reset_all()

    def _reset_all(self) -> None:
        for connection in tuple(self._connections):
            connection.reset()

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        try:
            await self.lit.wait()
            broker_in, broker_out = await asyncio.open_connection("127.0.0.1", self.listener.port)
        except OSError:  # the broker is down, so its clients are disconnected too
            _reset(client_out)
            return
        except asyncio.CancelledError:  # the proxy is stopped while connecting
            _reset(client_out)
            raise
        connection = _Connection(self, client_in, client_out, broker_in, broker_out)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    def fault_of(self, request: Request) -> Fault | None:
        """Return the plan's fault for this request, and count it."""
        fault = self.plan(request) if self.plan is not None else None
        if fault is not None:
            self.struck[request.api, type(fault)] += 1
        return fault


class _Connection:
    """A client's connection and its connection to the broker."""

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
        self._answers: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(
            _PENDING_MAX
        )  # with the time of arrival
        self._all_answered = asyncio.Event()
        self._client_connected = True

    async def run(self) -> None:
        tasks = [
            asyncio.create_task(work())
            for work in (self._receive, self._pass_requests, self._receive_answers, self._pass_answers)
        ]
        try:
            await asyncio.gather(*tasks)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side has disconnected; the other is reset below
        finally:
            for task in tasks:
                task.cancel()
            self.reset()

    def reset(self) -> None:
        """Reset both connections at once, like a router that has lost their state."""
        _reset(self._client_out)
        _reset(self._broker_out)

    async def _receive(self) -> None:
        """Read requests until the client disconnects, so that this is noticed also while a request is delayed."""
        try:
            while True:
                await self._requests.put(await _frame(self._client_in))
        except (OSError, asyncio.IncompleteReadError):
            self._client_connected = False
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
        # The client has disconnected. The broker handles all its requests before it notices.
        if self._unanswered:
            async with asyncio.timeout(_LINGER_SECONDS):
                await self._all_answered.wait()
        raise ConnectionResetError

    async def _receive_answers(self) -> None:
        now = asyncio.get_running_loop().time
        try:
            while True:
                frame = await _frame(self._broker_in)
                await self._answers.put((now() + self._wire.latency_seconds, frame))
        except (OSError, asyncio.IncompleteReadError):
            await self._answers.put((now() + self._wire.latency_seconds, b""))

    async def _pass_answers(self) -> None:
        while True:
            arrival, frame = await self._answers.get()
            await asyncio.sleep(arrival - asyncio.get_running_loop().time())
            if not frame:  # the broker has disconnected
                raise ConnectionResetError
            fault = self._unanswered.pop(_SIZE.unpack_from(frame)[0], None)
            if not self._unanswered:
                self._all_answered.set()
            match fault:
                case DelayAnswer(seconds):
                    await asyncio.sleep(seconds)
                case LoseAnswer(seconds):
                    self._client_connected = False
                    asyncio.get_running_loop().call_later(seconds, self.reset)
                case CutAnswer(keep):
                    await self._write(
                        self._client_out, (_SIZE.pack(len(frame)) + frame)[:keep], self._wire.down
                    )
                    raise ConnectionResetError
            if self._client_connected:
                try:
                    await self._write(self._client_out, _SIZE.pack(len(frame)) + frame, self._wire.down)
                except OSError:  # the client has disconnected; its requests are still forwarded to the broker
                    self._client_connected = False

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
