import asyncio
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from servicekit.auth.access import Admission
from servicekit.auth.authentication import ApiKey, ApiKeys, Caller, Unauthenticated
from servicekit.auth.rate_limit import RateLimiter
from servicekit.grpc.auth import check_callers
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.peers import host_of
from servicekit.grpc.server import GrpcServer
from servicekit.streams import Streams

KEYS = ApiKeys(
    [
        ApiKey("reader", frozenset({"read"}), sha256(b"right").digest()),
        ApiKey("writer", frozenset({"write"}), sha256(b"other").digest()),
    ]
)


def register(server: Any) -> None:
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
        "Stream": grpc.unary_stream_rpc_method_handler(lambda request, _: iter([request])),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))


def served(admission: Admission) -> Iterator[grpc.Channel]:
    server = GrpcServer(
        "127.0.0.1", 0, register, ready=lambda: True, streams=Streams(), check=check_callers(admission)
    )
    with grpc.insecure_channel(server.start()) as channel:
        yield channel
    server.stop()


@pytest.fixture
def keyed() -> Iterator[grpc.Channel]:
    yield from served(Admission(KEYS))


@pytest.fixture
def limited() -> Iterator[grpc.Channel]:
    yield from served(Admission(None, RateLimiter(0.01, 3)))


def call(channel: Any, *metadata: tuple[str, str]) -> bytes:
    answer: bytes = channel.unary_unary("/test.Echo/Unary")(b"x", timeout=5, metadata=metadata)
    return answer


def stream(channel: Any, *metadata: tuple[str, str]) -> list[bytes]:
    return list(channel.unary_stream("/test.Echo/Stream")(b"x", timeout=5, metadata=metadata))


def failure(channel: grpc.Channel, *metadata: tuple[str, str], of: Any = call) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        of(channel, *metadata)
    return caught.value


@pytest.mark.parametrize(
    "metadata", [("authorization", "Bearer right"), ("authorization", "bearer right"), ("x-api-key", "right")]
)
def test_a_known_caller_is_admitted(keyed: grpc.Channel, metadata: tuple[str, str]) -> None:
    assert call(keyed, metadata) == b"x"
    assert stream(keyed, metadata) == [b"x"]


@pytest.mark.parametrize("of", [call, stream])
@pytest.mark.parametrize(
    "metadata",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer wrong")],
        [("authorization", "Basic right")],
        [("authorization", "right")],
        [("x-api-key", "Bearer right")],
        [("x-api-key", "")],
        [("authorization", "Bearer right"), ("authorization", "Bearer wrong")],
        [("authorization", "Bearer right"), ("x-api-key", "right")],
    ],
    ids=str,
)
def test_an_unknown_caller_is_unauthenticated_without_a_reason(
    keyed: grpc.Channel, metadata: list[tuple[str, str]], of: Any
) -> None:
    error = failure(keyed, *metadata, of=of)
    assert error.code() == grpc.StatusCode.UNAUTHENTICATED
    assert "credential" in error.details()
    assert "wrong" not in error.details()


def test_credentials_are_ignored_where_none_is_needed(limited: grpc.Channel) -> None:
    assert call(limited, ("authorization", "nonsense"), ("x-api-key", "nonsense")) == b"x"


def test_a_caller_without_the_scope_is_rejected(keyed: grpc.Channel) -> None:
    error = failure(keyed, ("x-api-key", "other"))
    assert error.code() == grpc.StatusCode.PERMISSION_DENIED
    assert "'read'" in error.details()


def test_a_rate_limited_caller_learns_when_to_retry(limited: grpc.Channel) -> None:
    for _ in range(3):
        call(limited)
    error = failure(limited)
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    status = rpc_status.from_call(error)
    info, retry = ErrorInfo(), RetryInfo()
    assert status.details[0].Unpack(info)
    assert info.reason == "RATE_LIMIT"
    assert status.details[1].Unpack(retry)
    assert 1 <= retry.retry_delay.seconds <= 100


def test_health_needs_no_credential(keyed: grpc.Channel) -> None:
    stub: Any = health_pb2_grpc.HealthStub(keyed)
    assert stub.Check(health_pb2.HealthCheckRequest(), timeout=5).status == 1


def test_the_credential_is_checked_before_the_message_is_parsed(keyed: grpc.Channel) -> None:
    raw: Any = keyed
    with pytest.raises(grpc.RpcError) as caught:
        raw.unary_unary("/test.Echo/Unary")(b"x", timeout=None)
    error: Any = caught.value
    assert error.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1"),
        ("ipv6:[::1]:5000", "::1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("unix:/tmp/socket", None),
        ("", None),
    ],
)
def test_the_address_of_a_peer_is_parsed_from_its_name(peer: str, host: str | None) -> None:
    assert host_of(peer) == host


class Revocable:
    """Keys of which one can be revoked."""

    def __init__(self) -> None:
        self.revoked = False

    def authenticate(self, token: str) -> Caller:
        if self.revoked:
            raise Unauthenticated(given=True)
        return KEYS.authenticate(token)


def test_an_open_stream_ends_when_its_key_is_revoked() -> None:
    keys = Revocable()

    async def endless(_: bytes, __: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.sleep(60)

    def endlessly(server: Any) -> None:
        handlers = {"Stream": grpc.unary_stream_rpc_method_handler(endless)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))

    server = GrpcServer(
        "127.0.0.1",
        0,
        endlessly,
        ready=lambda: True,
        streams=Streams(),
        check=check_callers(Admission(keys)),
        limits=GrpcLimits(recheck_seconds=0.05),
    )
    with grpc.insecure_channel(server.start()) as opened:
        channel: Any = opened  # its stubs require what it does not
        answers = channel.unary_stream("/test.Echo/Stream")(
            b"x", timeout=30, metadata=[("x-api-key", "right")]
        )
        assert next(answers) == b"first"
        keys.revoked = True
        with pytest.raises(grpc.RpcError) as ended:
            next(answers)
    server.stop()
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
