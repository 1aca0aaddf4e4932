import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from threading import Semaphore
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from localkafka.waiting import wait_until
from servicekit.grpc.errors import CallRefused
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.metrics import CallMetrics
from servicekit.grpc.server import GrpcServer
from servicekit.streams import Streams


def unary(request: bytes, context: Any) -> bytes:
    if request == b"unknown":
        raise CallRefused(grpc.StatusCode.NOT_FOUND, "no such thing")
    return request


async def endless(request: bytes, context: Any) -> AsyncIterator[bytes]:
    yield request
    await asyncio.Event().wait()


ENTERED = Semaphore(0)


async def forever(request: bytes, context: Any) -> bytes:
    ENTERED.release()
    await asyncio.Event().wait()
    return request


def register(server: Any) -> None:
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Forever": grpc.unary_unary_rpc_method_handler(forever),
        "Stream": grpc.unary_stream_rpc_method_handler(endless),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def channel(registry: CollectorRegistry) -> Iterator[Any]:
    server = GrpcServer(
        "127.0.0.1",
        0,
        register,
        ready=lambda: True,
        streams=Streams(),
        metrics=CallMetrics.register(registry),
        limits=GrpcLimits(),
    )
    with grpc.insecure_channel(server.start()) as channel:
        yield channel
    server.stop()


def handled(registry: CollectorRegistry, method: str, code: str, service: str = "test.Echo") -> float:
    labels = {"grpc_service": service, "grpc_method": method, "grpc_code": code}
    return registry.get_sample_value("grpc_server_handled_total", labels) or 0


def test_calls_are_counted_by_method_and_code(channel: Any, registry: CollectorRegistry) -> None:
    method = channel.unary_unary("/test.Echo/Unary")
    for _ in range(3):
        method(b"x", timeout=5)
    for request, timeout in ((b"unknown", 5), (b"x", None)):
        with pytest.raises(grpc.RpcError):
            method(request, timeout=timeout)
    assert handled(registry, "Unary", "OK") == 3
    assert handled(registry, "Unary", "NOT_FOUND") == 1
    assert handled(registry, "Unary", "INVALID_ARGUMENT") == 1
    labels = {"grpc_service": "test.Echo", "grpc_method": "Unary"}
    assert registry.get_sample_value("grpc_server_handling_seconds_count", labels) == 5


def test_an_expired_deadline_is_distinguished_from_a_cancelled_call(
    channel: Any, registry: CollectorRegistry
) -> None:
    method = channel.unary_unary("/test.Echo/Forever")

    def expired() -> bool:
        with pytest.raises(grpc.RpcError):
            method(b"x", timeout=2)
        return handled(registry, "Forever", "DEADLINE_EXCEEDED") > 0

    def cancelled() -> bool:
        left = method.future(b"x", timeout=5)
        assert ENTERED.acquire(timeout=60)
        left.cancel()
        return handled(registry, "Forever", "CANCELLED") > 0

    # Repeated, since a call can expire before it is cancelled on a busy machine.
    wait_until(expired)
    wait_until(cancelled)


def test_a_deadline_that_is_over_at_the_caller_first_is_no_cancellation(
    channel: Any, registry: CollectorRegistry
) -> None:
    call = channel.unary_unary("/test.Echo/Forever").future(b"x", timeout=2)
    time.sleep(1.9)  # as if the request had travelled for a tenth of a second
    call.cancel()
    wait_until(lambda: handled(registry, "Forever", "DEADLINE_EXCEEDED") == 1)
    assert not handled(registry, "Forever", "CANCELLED")


def test_methods_that_do_not_exist_are_one_label(channel: Any, registry: CollectorRegistry) -> None:
    for n in range(5):
        with pytest.raises(grpc.RpcError):
            channel.unary_unary(f"/test.Echo/Made{n}")(b"x", timeout=5)
    assert handled(registry, "unknown", "UNIMPLEMENTED", "unknown") == 5
    labels = [sample.labels for family in registry.collect() for sample in family.samples]
    assert {each["grpc_method"] for each in labels if "grpc_method" in each} == {"unknown"}


def test_open_streams_are_counted_until_their_caller_disconnects(
    channel: Any, registry: CollectorRegistry
) -> None:
    labels = {"grpc_service": "test.Echo", "grpc_method": "Stream"}

    def open_streams() -> float | None:
        return registry.get_sample_value("grpc_server_open_streams", labels)

    streams = [channel.unary_stream("/test.Echo/Stream")(b"x") for _ in range(3)]
    assert [next(stream) for stream in streams] == [b"x"] * 3
    assert open_streams() == 3
    for stream in streams:
        stream.cancel()
    wait_until(lambda: open_streams() == 0)
    wait_until(lambda: handled(registry, "Stream", "CANCELLED") == 3)
