"""The API versions that a broker reports."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from localkafka.broker import Broker
from streamtable.errors import RetryLater
from streamtable_admin.versions import ask, parse

# Correlation 1, no error; one request (68, versions 0 to 1); no throttling; tag 2: feature group.version, levels 1 to 1,
# preceded by an unknown tag 0 of two bytes.
ANSWER = (
    struct.pack(">ih", 1, 0)
    + b"\x02"
    + struct.pack(">hhh", 68, 0, 1)
    + b"\0"
    + struct.pack(">i", 0)
    + b"\x02\x00\x02\x01\x00"
    + b"\x02\x14\x02\x0egroup.version"
    + struct.pack(">hh", 1, 1)
    + b"\0"
)


@contextmanager
def server(answer: bytes) -> Iterator[int]:
    """A server that gives this response to any request and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.recv(1_000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(30)


def test_a_real_broker_reports_its_features(broker: Broker) -> None:
    host, port = broker.bootstrap_servers.split(":")
    found = ask(host, int(port), 10)
    assert found.consumer_groups
    assert found.features["metadata.version"] > 20


def test_a_response_is_parsed() -> None:
    found = parse(ANSWER)
    assert (found.apis, found.features) == ({68: 1}, {"group.version": 1})
    assert found.consumer_groups


def test_without_the_request_or_the_feature_there_is_no_consumer_protocol() -> None:
    assert not parse(ANSWER.replace(struct.pack(">h", 68), struct.pack(">h", 67))).consumer_groups
    assert not parse(ANSWER.replace(b"group", b"other")).consumer_groups


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x15\x03\x01\x00\x02\x02\x28",  # a TLS alert
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 100) + ANSWER,
        struct.pack(">ii", 6, 1) + struct.pack(">h", 35),
        struct.pack(">i", 1_000_000) + ANSWER[:6] + b"\xff" * 999_994,
        *(struct.pack(">i", cut) + ANSWER[:cut] for cut in range(1, len(ANSWER), 5)),
    ],
    ids=range(9 + len(range(1, len(ANSWER), 5))),
)
def test_an_invalid_response_is_an_error_that_names_the_address(answer: bytes) -> None:
    with server(answer) as port, pytest.raises(RetryLater, match=f"127.0.0.1:{port}"):
        ask("127.0.0.1", port, 5)


def test_a_missing_server_is_an_error() -> None:
    with pytest.raises(RetryLater, match=r"127\.0\.0\.1:9"):
        ask("127.0.0.1", 9, 1)
