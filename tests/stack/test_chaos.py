"""The way to Kafka that breaks: what each fault does to a connection, and that a count behind it is exact."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.stack.programs import load

from localkafka.fixtures import OwnBroker
from localkafka.process import reserve_port
from localkafka.waiting import Deadline
from streamtable import (
    App,
    Avro,
    Context,
    Emitter,
    Group,
    Input,
    Kafka,
    Persist,
    Stream,
    String,
)
from streamtable.base.ports import TopicDescription

chaos = load("infra/chaos.py")
Fault, Step = chaos.Fault, chaos.Step


def test_the_same_seed_gives_the_same_faults_and_every_kind_comes() -> None:
    def first(seed: int) -> list[Any]:
        made = chaos.steps(random.Random(seed), 20.0)
        return [next(made) for _ in range(40)]

    assert first(1) == first(1) != first(2)
    assert {each.fault for each in first(1)} == set(Fault)
    assert all(10 <= each.calm <= 30 for each in first(1))


def on_a_way(test: Callable[[Any, int], Awaitable[None]]) -> None:
    """Run it with a way to a server that says everything again, and the port of the way."""

    async def again(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.transport.abort()

    async def run() -> None:
        far = await asyncio.start_server(again, "127.0.0.1", 0)
        way = chaos.Way("127.0.0.1", far.sockets[0].getsockname()[1])
        near = await asyncio.start_server(way.serve, "127.0.0.1", 0)
        async with far, near, asyncio.timeout(20):
            await test(way, near.sockets[0].getsockname()[1])
            way.cut()
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)

    asyncio.run(run())


async def said(port: int, seconds: float = 5.0) -> bytes:
    """Return the response on a new connection: empty if it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"hello")
        return await asyncio.wait_for(reader.read(5), seconds)
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


def test_in_calm_everything_comes_through() -> None:
    async def test(way: Any, port: int) -> None:
        assert await said(port) == b"hello"

    on_a_way(test)


def test_a_cut_closes_connections_and_takes_new_ones() -> None:
    async def test(way: Any, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        await way.suffer(Step(0, Fault.CUT))
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.transport.abort()
        assert await said(port) == b"hello"

    on_a_way(test)


def test_a_closed_proxy_serves_no_connection_until_the_fault_is_over() -> None:
    async def test(way: Any, port: int) -> None:
        fault = asyncio.create_task(way.suffer(Step(0, Fault.CLOSED, lasts=0.3)))
        await asyncio.sleep(0)
        assert await said(port) == b""
        await fault
        assert await said(port) == b"hello"

    on_a_way(test)


@pytest.mark.parametrize(
    "step", [Step(0, Fault.FROZEN, lasts=0.3), Step(0, Fault.SLOW, lasts=0.5, delay=0.15)]
)
def test_what_is_frozen_or_slow_comes_through_in_the_end(step: Any) -> None:
    async def test(way: Any, port: int) -> None:
        fault = asyncio.create_task(way.suffer(step))
        await asyncio.sleep(0)
        begun = time.monotonic()
        assert await said(port) == b"hello"
        assert time.monotonic() - begun > 0.25
        await fault
        assert await said(port) == b"hello"

    on_a_way(test)


class Behind:
    """A way in a thread of its own; faults are done from the test's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, way: Any) -> None:
        self._loop, self._way = loop, way

    def suffer(self, step: Any) -> None:
        asyncio.run_coroutine_threadsafe(self._way.suffer(step), self._loop).result(60)


@contextmanager
def way_to(port: int, broker: int) -> Iterator[Behind]:
    loop = asyncio.new_event_loop()
    way = chaos.Way("127.0.0.1", broker)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(
        asyncio.start_server(way.serve, "127.0.0.1", port), loop
    ).result(20)
    try:
        yield Behind(loop, way)
    finally:
        asyncio.run_coroutine_threadsafe(_ended(server, way), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _ended(server: asyncio.Server, way: Any) -> None:
    server.close()
    way.cut()
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


@pytest.mark.timeout(180)
def test_a_count_behind_a_way_that_breaks_is_exact(own_broker: OwnBroker, tmp_path: Path) -> None:
    with reserve_port(0) as held:
        port = held.getsockname()[1]
    broker = own_broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    stream = Stream("numbers", key=String(), value=Avro("long"))

    def count(ctx: Context[str, int], number: int) -> None:
        ctx.set((ctx.value or 0) + number)

    group = Group("sums", Input(stream, count), Persist(Avro("long")))
    kafka = Kafka(f"127.0.0.1:{port}")
    chance, sent = random.Random(7), Counter[str]()
    with way_to(port, int(broker.bootstrap_servers.rpartition(":")[2])) as behind:
        admin = kafka.admin()
        names = {
            "numbers": {},
            "sums-table": {"cleanup.policy": "compact"},
            "sums-retry": {},
            "sums-dead-letters": {},
        }
        admin.create_topics([TopicDescription(name, 2, 1, config) for name, config in names.items()])
        admin.close()
        processor = App(kafka, tmp_path / "state").processor(group, commit_interval=0.05)
        thread = threading.Thread(target=processor.run)
        thread.start()
        with Emitter(stream, kafka) as emitter, App(kafka, tmp_path / "view").view(group.table) as view:
            for step in [
                Step(0, Fault.CUT),
                Step(0, Fault.SLOW, 1, 0.05),
                Step(0, Fault.CLOSED, 0.5),
                Step(0, Fault.FROZEN, 2),
            ]:
                acknowledged = []
                for _ in range(200):
                    user = f"user-{chance.randrange(5)}"
                    acknowledged.append(emitter.emit(user, 1))
                    sent[user] += 1
                behind.suffer(step)
                for each in acknowledged:
                    each.result(60)
            deadline = Deadline(60)
            while not view.ready or dict(view.iterate()) != sent:
                assert not deadline.passed(), f"{dict(view.iterate()) if view.ready else None} is not {sent}"
                time.sleep(0.1)
        processor.stop()
        thread.join(60)
