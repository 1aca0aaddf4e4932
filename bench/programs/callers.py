"""A fixed number of concurrent callers; each sends its next request when it has its response."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from random import Random
from urllib.parse import urlsplit

import grpc
from bench.figures import percentile
from bench.job import Job
from bench.programs.click_counts import EMPTY
from bench.programs.marks import mark, tell

from click_count.view import CONTRACT as CLICKS
from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.user_status.v1 import user_status_pb2 as status_pb
from user_status.view import CONTRACT as STATUSES

KEYS_IN_MULTI_GET = 100
_TIMEOUT_SECONDS = 3.0
Ask = Callable[[Callable[[], str]], None]
"""Sends one request with drawn user ids, and raises an error unless the response is valid."""


@contextmanager
def grpc_caller(address: str, service: str, method: str) -> Iterator[Ask]:
    # Callers would share one connection without it.
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        get = channel.unary_unary(
            f"/{service}/Get",
            request_serializer=pb.GetRequest.SerializeToString,
            response_deserializer=pb.GetResponse.FromString,
        )
        multi_get = channel.unary_unary(
            f"/{service}/MultiGet",
            request_serializer=pb.MultiGetRequest.SerializeToString,
            response_deserializer=pb.MultiGetResponse.FromString,
        )

        def ask_one(draw: Callable[[], str]) -> None:
            assert get(pb.GetRequest(user_id=draw()), timeout=_TIMEOUT_SECONDS).count > 0

        def ask_many(draw: Callable[[], str]) -> None:
            users = [draw() for _ in range(KEYS_IN_MULTI_GET)]
            answer = multi_get(pb.MultiGetRequest(user_ids=users), timeout=_TIMEOUT_SECONDS)
            assert len(answer.found) == KEYS_IN_MULTI_GET

        yield ask_one if method == "Get" else ask_many


@contextmanager
def status_caller(address: str) -> Iterator[Ask]:
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        get = channel.unary_unary(
            f"/{STATUSES.service.full_name}/Get",
            request_serializer=status_pb.GetRequest.SerializeToString,
            response_deserializer=status_pb.GetResponse.FromString,
        )

        def ask(draw: Callable[[], str]) -> None:
            answer = get(status_pb.GetRequest(user_id=draw()), timeout=_TIMEOUT_SECONDS)
            assert answer.status.clicks > 0

        yield ask


@contextmanager
def rest_caller(address: str, path: str, member: bytes = b'"count":1') -> Iterator[Ask]:
    """Hand-written HTTP, as a client library would take longer than the server."""
    url = urlsplit(address)
    with socket.create_connection((url.hostname, url.port), _TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ask(draw: Callable[[], str]) -> None:
            connection.sendall(f"GET {path}/{draw()} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
            data = b""
            while b"\r\n\r\n" not in data:
                part = connection.recv(65536)
                assert part, "the server has closed the connection"
                data += part
            head, _, body = data.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), data
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while len(body) < length:
                body += connection.recv(65536)
            assert member in body, data

        yield ask


def caller(call: str, job: Job) -> AbstractContextManager[Ask]:
    makers: dict[str, Callable[[], AbstractContextManager[Ask]]] = {
        "grpc_get": lambda: grpc_caller(job.grpc, CLICKS.service.full_name, "Get"),
        "grpc_empty": lambda: grpc_caller(job.grpc, EMPTY, "Get"),
        "grpc_multi_get": lambda: grpc_caller(job.grpc, CLICKS.service.full_name, "MultiGet"),
        "grpc_empty_multi": lambda: grpc_caller(job.grpc, EMPTY, "MultiGet"),
        "rest_get": lambda: rest_caller(job.rest, "/clicks"),
        "rest_empty": lambda: rest_caller(job.rest, "/empty"),
        "user_status_grpc_get": lambda: status_caller(job.grpc),
        "user_status_rest_get": lambda: rest_caller(job.rest, "/users", b'"clicks":1'),
    }
    return makers[call]()


def ask_until(ask: Ask, draw: Callable[[], str], end: float) -> list[float]:
    """Send requests until the time is over. Returns the seconds of each."""
    seconds: list[float] = []
    now = time.perf_counter()
    while now < end:
        ask(draw)
        before, now = now, time.perf_counter()
        seconds.append(now - before)
    return seconds


def ask_all(call: str, job: Job, draw: Callable[[], str]) -> None:
    """Run all callers with one kind of call: a fifth of the time as warm-up, then the measurement, with marks around it."""
    with ExitStack() as opened, ThreadPoolExecutor(job.clients) as threads:
        asks = [opened.enter_context(caller(call, job)) for _ in range(job.clients)]

        def all_for(seconds: float) -> list[float]:
            end = time.perf_counter() + seconds
            answered = threads.map(lambda ask: ask_until(ask, draw, end), asks)
            return [each for of_client in answered for each in of_client]

        all_for(job.seconds / 5)
        mark(f"{call}_first")
        seconds = all_for(job.seconds)
        mark(f"{call}_last")
    tell({"call": call, "requests": len(seconds), "p99_us": percentile(seconds, 99) * 1e6})


def main() -> None:
    job = Job.from_environment(os.environ)
    random = Random(1)
    for call in job.calls.split(","):
        ask_all(call, job, lambda: f"user-{random.randrange(job.keys)}")


if __name__ == "__main__":
    main()
