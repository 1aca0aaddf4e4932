"""Every kind of method behind the guard. tests/hostile has callers that stop half-way, with raw HTTP/2."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

from localkafka.waiting import wait_until
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.server import GrpcServer
from servicekit.streams import Streams

LIMITS = GrpcLimits(threads=1, waiting=0, drain_seconds=0)


class Service:
    """Answers when the test allows it."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def register(self, server: Any) -> None:
        handlers = {
            "Blocking": grpc.unary_unary_rpc_method_handler(self.blocking),
            "Coroutine": grpc.unary_unary_rpc_method_handler(self.coroutine),
            "Sum": grpc.stream_unary_rpc_method_handler(self.sum),
            "Parsed": grpc.unary_unary_rpc_method_handler(self.coroutine, self.parse),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Guard", handlers),))

    def blocking(self, request: bytes, context: Any) -> bytes:
        self.entered.set()
        assert self.release.wait(60)
        return request

    async def coroutine(self, request: bytes, context: Any) -> bytes:
        return request

    async def sum(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return bytes([sum([request[0] async for request in requests])])

    def parse(self, request: bytes) -> bytes:
        if request == b"bad":
            raise ValueError("a secret text")
        return request


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def channel(service: Service) -> Iterator[Any]:
    server = GrpcServer(
        "127.0.0.1", 0, service.register, ready=lambda: True, streams=Streams(), limits=LIMITS
    )
    with grpc.insecure_channel(server.start()) as channel:
        yield channel
    service.release.set()
    server.stop()


def code_of(action: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        action()
    error: Any = caught.value
    return error.code(), error.details()


def answered(method: Any) -> bool:
    try:
        return bool(method(b"x", timeout=5) == b"x")
    except grpc.RpcError:
        return False


def test_a_coroutine_and_a_stream_of_requests_are_served_too(channel: Any) -> None:
    assert channel.unary_unary("/test.Guard/Coroutine")(b"x", timeout=5) == b"x"
    assert channel.stream_unary("/test.Guard/Sum")(iter([b"\1", b"\2"]), timeout=5) == b"\3"


def test_a_hanging_thread_keeps_its_slot_when_its_caller_has_disconnected(
    channel: Any, service: Service
) -> None:
    method = channel.unary_unary("/test.Guard/Blocking")
    gone = method.future(b"x", timeout=5)
    assert service.entered.wait(60)
    gone.cancel()
    assert code_of(lambda: method(b"x", timeout=5))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    service.release.set()
    wait_until(lambda: answered(method))


def test_a_message_that_cannot_be_parsed_is_invalid_argument_with_a_fixed_text(channel: Any) -> None:
    method = channel.unary_unary("/test.Guard/Parsed")
    assert method(b"good", timeout=5) == b"good"
    text = "the message is not one of this method's; compare the .proto files"
    assert code_of(lambda: method(b"bad", timeout=5)) == (grpc.StatusCode.INVALID_ARGUMENT, text)


def test_a_call_beyond_the_limit_is_answered_with_retry(channel: Any, service: Service) -> None:
    busy = channel.unary_unary("/test.Guard/Blocking").future(b"x", timeout=5)
    assert service.entered.wait(60)
    text = "the server has all the calls it can take; retry the request, or ask another one"
    method = channel.unary_unary("/test.Guard/Coroutine")
    assert code_of(lambda: method(b"x", timeout=5)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, text)
    service.release.set()
    assert busy.result() == b"x"
    assert method(b"x", timeout=5) == b"x"
