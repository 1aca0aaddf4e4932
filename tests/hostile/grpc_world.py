"""The view services as processes, each with a table of its own, and honest and raw callers of them."""

import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import unquote

import grpc
from confluent_kafka import Producer
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamReset, TrailersReceived
from tests.hostile.program import Program, program

from click_count import topics as click_topics
from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from contracts.grpc.tweet_reach.v1 import tweet_reach_pb2 as reach_pb
from contracts.grpc.tweet_reach.v1.tweet_reach_pb2_grpc import TweetReachesStub
from contracts.grpc.user_status.v1 import user_status_pb2 as status_pb
from contracts.grpc.user_status.v1.user_status_pb2_grpc import UserStatusesStub
from contracts.records import Reach, ReachAuthor, UserStatus
from localkafka.broker import Broker
from localkafka.certificates import Pair
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from streamtable import Table
from tweet_reach import topics as reach_topics
from user_status import topics as status_topics

SERVICE: Final = "/streamtable.click_count.v1.ClickCounts/"
ROWS: Final = {"alice": 3, "bob": 2, "é 用户": 1, **{f"user-{n:04}": n + 1 for n in range(1500)}}
ALICE: Final = pb.GetRequest(user_id="alice").SerializeToString()
PARTITIONS: Final = 4

TEXTS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        # ours
        r"(user_id|user_ids\[\d+\]|url|urls\[\d+\]|prefix): must [a-z0-9 ,'/+UFD]+",
        r"(user_ids|urls): at most 1000",
        r"limit: 0 to 100000",
        r"(since_ms|until_ms): 0 to 9007199254740991",
        r"no clicks of this user are known",
        r"no status of this user is known",
        r"this URL is in no tweet",
        r"set a deadline of at most 5 seconds",
        r"send one message",
        r"the message did not come",
        r"send a credential in the metadata: authorization: Bearer, or x-api-key",
        r"the credential is not valid or no longer so",
        r"this needs the scope 'read', which the credential does not have",
        r"too many requests; retry the request later",
        r"the message is not one of this method's; compare the \.proto files",
        r"the server has all the calls it can take; retry the request, or ask another one",
        r"the server has all the streams it can take; close one, or ask another one",
        r"this address has all the streams it may have; close one",
        r"another address with fewer streams gets this place; retry the request, or ask another one",
        r"the server is stopping; connect again and retry the request",
        r"the table is being loaded; retry the request",
        r"the service cannot answer at the moment; retry the request",
        r"changes were missed; watch again, then read what may have changed",
        r"only the server as a whole has a health status; ask for ''",
        # grpcio's own, at the server or at the caller
        r"Method not found!",
        r"Received message larger than max \(\d+ vs\. \d+\)",
        r"SERVER: Received message larger than max \(\d+ vs\. \d+\)",
        r"received( initial)? metadata size exceeds( hard)?( soft)? limit.*",
        r"Decompressed message larger than max",
        r"Compression algorithm '[a-z, ]+' (is disabled|not supported)\.",
        r"Deadline Exceeded",
        r"Locally cancelled by application!",
        r"Cancelled on the server side!",
        r"CANCELLED",
        r"RST_STREAM.*",
        r"Stream removed.*",
    )
)
"""All texts that a caller may get. There are no others, in particular no text of an exception."""


FRAMING_TEXTS: Final = re.compile(
    r"Error parsing '[a-z:-]+' metadata.*|Illegal header key: .*|Compression bit set .*|Decompression failed .*"
)
"""The text of grpcio's INTERNAL error for a request with invalid gRPC framing, which no gRPC library sends."""


@dataclass(frozen=True)
class Scenario:
    """A view service with its rows.

    Attributes:
        module: The module to run.
        group_setting: the variable that names the group.
        table: Returns the table of the group with the given name.
        rows: The rows of the table.
        ask: a call that must succeed.
    """

    module: str
    group_setting: str
    table: Callable[[str], Table[str, Any]]
    rows: Mapping[str, Any]
    ask: Callable[[grpc.Channel], None]


def _ask_for_a_count(channel: grpc.Channel) -> None:
    stub: Any = ClickCountsStub(channel)
    answer = stub.Get(pb.GetRequest(user_id="alice"), timeout=5, wait_for_ready=True)
    assert answer.count == ROWS["alice"]


def _ask_for_a_status(channel: grpc.Channel) -> None:
    stub: Any = UserStatusesStub(channel)
    answer = stub.Get(status_pb.GetRequest(user_id="alice"), timeout=5, wait_for_ready=True)
    assert answer.status.status == "says alice"


def _ask_for_a_reach(channel: grpc.Channel) -> None:
    stub: Any = TweetReachesStub(channel)
    answer = stub.Get(reach_pb.GetRequest(url="alice"), timeout=5, wait_for_ready=True)
    assert answer.reach.reach == ROWS["alice"]


def _table_of_statuses(group: str) -> Table[str, UserStatus]:
    return status_topics.statuses(group).table


COUNTS: Final = Scenario(
    "click_count.main",
    "CLICK_COUNT_GROUP",
    lambda group: click_topics.by_count(group).table,
    ROWS,
    _ask_for_a_count,
)
STATUSES: Final = Scenario(
    "user_status.main",
    "USER_STATUS_GROUP",
    _table_of_statuses,
    {user: UserStatus(status=f"says {user}", at=n, id="a", clicks=n) for user, n in ROWS.items()},
    _ask_for_a_status,
)
REACHES: Final = Scenario(
    "tweet_reach.main",
    "TWEET_REACH_GROUP",
    reach_topics.reaches,
    {
        url: Reach(
            reach=n,
            estimate=float(n),
            sketch=b"sketch",
            tweets=1,
            authors=1,
            top=[ReachAuthor(author="ann", followers=n)],
        )
        for url, n in ROWS.items()
    },
    _ask_for_a_reach,
)


@dataclass
class World(Program):
    """A running view service."""

    address: str
    produce: Callable[[Mapping[str, Any]], None]
    root_certificate: bytes | None = None
    certificate: Pair | None = None
    ask: Callable[[grpc.Channel], None] = _ask_for_a_count
    stack: ExitStack = field(default_factory=ExitStack)

    def channel(self, **options: int) -> grpc.Channel:
        """A connection of its own: grpcio shares them between channels with the same options."""
        named: list[tuple[str, Any]] = [(f"grpc.{name}", value) for name, value in options.items()]
        named.append(("grpc.use_local_subchannel_pool", 1))
        if self.root_certificate is not None:
            pair = (self.certificate.key, self.certificate.certificate) if self.certificate else ()
            credentials = grpc.ssl_channel_credentials(self.root_certificate, *pair)
            return self.stack.enter_context(grpc.secure_channel(self.address, credentials, named))
        return self.stack.enter_context(grpc.insecure_channel(self.address, named))

    def raw(self) -> "RawHttp2":
        host, _, port = self.address.rpartition(":")
        return self.stack.enter_context(RawHttp2(host, int(port)))

    def wait_ready(self) -> None:
        """Wait until the table has been loaded."""
        stub: Any = health_pb2_grpc.HealthStub(self.channel())
        serving = health_pb2.HealthCheckResponse.SERVING
        wait_until(lambda: stub.Check(health_pb2.HealthCheckRequest(), timeout=5).status == serving)

    def check_honest(self) -> None:
        """Check that a valid caller is answered and that nothing unexpected was logged."""
        self.check_alive()
        with self.stack.pop_all():  # what the test left open
            pass
        self.ask(self.channel())
        self.stack.close()
        self.check_log()


@contextmanager
def serving(
    broker: Broker,
    settings: Mapping[str, str] | None = None,
    *,
    scenario: Scenario = COUNTS,
    root_certificate: bytes | None = None,
    certificate: Pair | None = None,
    before_start: Callable[[], None] | None = None,
) -> Iterator[World]:
    """A world on the broker.

    Args:
        broker: The broker of the session.
        settings: Settings of the service beyond its usual ones.
        scenario: The service to run.
        root_certificate: The root certificate that callers trust, if the service uses TLS.
        certificate: The client certificate, if the service requires one.
        before_start: called when the table has been written; the service is not waited for to be ready then.
    """
    topics = Topics(broker.bootstrap_servers)
    with ExitStack() as stack:
        stack.callback(topics.delete_all)
        group = topics.name("count")
        topics.create("count-table", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
        producer = Producer(
            {
                "enable.idempotence": True,
                "bootstrap.servers": broker.bootstrap_servers,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "queue.buffering.max.messages": 500_000,
            }
        )
        table = scenario.table(group)

        def produce(rows: Mapping[str, Any]) -> None:
            for key, value in rows.items():
                data = None if value is None else table.value.encode(value)
                producer.produce(table.name, key=table.key.encode(key), value=data)
            assert producer.flush(60) == 0

        produce(scenario.rows)
        if before_start is not None:
            before_start()
        own = {"STREAMTABLE_GRPC_ADDRESS": "127.0.0.1:0", scenario.group_setting: group, **(settings or {})}
        started, address = stack.enter_context(program(broker, "view", "grpc", own, scenario.module))
        world = World(
            started.process, started.lines, address, produce, root_certificate, certificate, scenario.ask
        )
        stack.callback(world.stack.close)
        if before_start is None:
            world.wait_ready()
        yield world


# ---- callers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """The error of a failed call."""

    code: grpc.StatusCode
    text: str
    status: Status | None


def failure_of(action: Callable[[], Any]) -> Failure | None:
    """Return the failure of a call; None if it succeeded. An undocumented text is an error."""
    try:
        action()
    except grpc.RpcError as error:
        raised: Any = error
        check_text(raised.code(), raised.details() or "")
        return Failure(raised.code(), raised.details() or "", rpc_status.from_call(raised))
    return None


def check_text(code: grpc.StatusCode, text: str) -> None:
    assert any(pattern.fullmatch(text) for pattern in TEXTS), f"{code}: {text!r} is no documented text"
    assert code not in {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}, text


def call(
    world: World, method: str, body: bytes, *, timeout: float | None = 5.0, metadata: Any = None
) -> Failure | None:
    """Send bytes to a method of click counts and read one answer, if it streams."""
    channel: Any = world.channel()
    path = method if method.startswith("/") else f"{SERVICE}{method}"
    if method in {"Scan", "Watch"}:
        streaming = channel.unary_stream(path)
        return failure_of(lambda: next(streaming(body, timeout=timeout, metadata=metadata), None))
    return failure_of(lambda: channel.unary_unary(path)(body, timeout=timeout, metadata=metadata))


def check_answer(answer: Mapping[str, str]) -> None:
    """A raw call was answered in a documented way: by gRPC, by HTTP, or by the end of the stream."""
    if "reset" in answer:
        return
    if "grpc-status" not in answer:
        assert answer[":status"] in {"400", "404", "405", "415"}, answer
        return
    text = unquote(answer.get("grpc-message", ""))
    if answer["grpc-status"] == "13":
        assert FRAMING_TEXTS.fullmatch(text), answer
    elif answer["grpc-status"] != "0":
        assert answer["grpc-status"] != "2", answer
        assert any(pattern.fullmatch(text) for pattern in TEXTS), answer


class RawHttp2:
    """An HTTP/2 connection that sends the given frames, valid or not; from the address `source`, if that is given."""

    def __init__(self, host: str, port: int, source: str = "") -> None:
        self.socket = socket.create_connection((host, port), timeout=60, source_address=(source, 0))
        self.http = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding="utf-8",
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
                validate_inbound_headers=False,
            )
        )
        self.http.initiate_connection()
        try:
            self.flush()
        except OSError:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self) -> None:
        self.socket.sendall(self.http.data_to_send())

    def begin(self, method: str = "Get", **headers: str) -> int:
        """Send the headers of a call; names are given with underscores. Returns the stream."""
        given = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"{SERVICE}{method}",
            ":authority": "test",
            "te": "trailers",
            "content-type": "application/grpc",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        stream = self.http.get_next_available_stream_id()
        self.http.send_headers(stream, list(given.items()))
        return stream

    def call(self, body: bytes, method: str = "Get", **headers: str) -> Mapping[str, str]:
        """Send a call whose body is exactly this, and return all headers and trailers of its answer.

        `reset` is one of them if the stream or the connection was ended instead.
        """
        stream = self.begin(method, **headers)
        for start in range(0, len(body), 16_384):
            self.http.send_data(stream, body[start : start + 16_384])
        self.http.end_stream(stream)
        self.flush()
        return self.answer(stream)

    def answer(self, stream: int) -> Mapping[str, str]:
        """All headers and trailers of a stream's answer, when it has ended."""
        answer: dict[str, str] = {}
        while True:
            with suppress(ConnectionError):
                data = self.socket.recv(65536)
                if not data:
                    return {**answer, "reset": "connection"}
                for event in self.http.receive_data(data):
                    match event:
                        case ConnectionTerminated():
                            return {**answer, "reset": "connection"}
                        case ResponseReceived() | TrailersReceived() if event.stream_id == stream:
                            assert event.headers is not None
                            answer.update((str(name), str(value)) for name, value in event.headers)
                            if event.stream_ended is not None:
                                return answer
                        case StreamReset() if event.stream_id == stream:
                            return {**answer, "reset": str(event.error_code)}
                self.flush()
                continue
            return {**answer, "reset": "connection"}


def framed(message: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """A message as it travels in gRPC: one byte, four bytes of length, the message."""
    return bytes([compressed]) + (len(message) if length is None else length).to_bytes(4, "big") + message


def hello_of_tls() -> bytes:
    """The first bytes that a TLS client sends."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="test")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
