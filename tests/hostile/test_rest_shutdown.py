"""An emitter that gets SIGTERM finishes what it has accepted, and one that gets it twice ends at once."""

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.hostile.rest_world import PARTITIONS, Service, emitter_service, exchange

from localkafka.broker import Broker
from localkafka.waiting import Deadline, wait_until

pytestmark = pytest.mark.broker

WHOLE = 20
HALF = 5
BODY = json.dumps({"user_id": "alice", "url": "https://example.org/"}).encode()
HEAD = b"POST /clicks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
REQUEST = HEAD % len(BODY) + BODY
JSON_TYPE = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def broker_of_one() -> Iterator[Broker]:
    """A broker that may be paused."""
    with (
        TemporaryDirectory(prefix="streamtable-hostile-") as folder,
        closing(Broker(Path(folder), brief=True)) as broker,
    ):
        broker.start()
        yield broker
        broker.kill()


@pytest.fixture
def emitter_to_stop(broker_of_one: Broker) -> Iterator[Service]:
    with emitter_service(broker_of_one) as service:
        assert httpx.post(f"{service.url}/clicks", content=BODY, headers=JSON_TYPE).status_code == 201
        yield service


def connect(service: Service, stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_connection(service.address, timeout=60))


def in_flight(service: Service) -> int:
    """The requests that the service works on, without the one that asks."""
    found = re.search(
        r"^http_requests_in_flight (\S+)", httpx.get(f"{service.url}/metrics").text, re.MULTILINE
    )
    assert found is not None
    return int(float(found[1])) - 1


def clicks_in(broker: Broker) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "-"})
    places = [TopicPartition("user-clicks", partition) for partition in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(place, timeout=60)[1] for place in places]
    consumer.close()
    return sum(ends)


def test_requests_that_were_begun_before_the_stop_are_answered_and_their_clicks_are_kept(
    emitter_to_stop: Service, broker_of_one: Broker
) -> None:
    service = emitter_to_stop
    with ExitStack() as stack:
        idle = connect(service, stack)
        whole = [connect(service, stack) for _ in range(WHOLE)]
        half = [connect(service, stack) for _ in range(HALF)]
        broker_of_one.pause()
        try:
            for connection in whole:
                connection.sendall(REQUEST)
            for connection in half:
                connection.sendall(REQUEST[:-10])
            wait_until(lambda: in_flight(service) == WHOLE + HALF, 3)
            service.process.send_signal(signal.SIGTERM)
            assert idle.recv(100) == b""  # it is ended at once, and the server listens no more
            with pytest.raises(ConnectionError):
                connect(service, stack)
            for connection in half:
                connection.sendall(REQUEST[-10:])
        finally:
            broker_of_one.resume()
        answers = [exchange(connection, b"") for connection in (*whole, *half)]
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 201"] * (WHOLE + HALF)
    assert service.process.wait(60) == 0
    assert clicks_in(broker_of_one) == 1 + WHOLE + HALF
    assert not [line for line in service.lines if "Traceback" in line]


def test_a_second_signal_ends_the_process_whatever_it_waits_for(
    emitter_to_stop: Service, broker_of_one: Broker
) -> None:
    service = emitter_to_stop
    with ExitStack() as stack:
        idle = connect(service, stack)
        connection = connect(service, stack)
        broker_of_one.pause()
        try:
            connection.sendall(REQUEST)
            wait_until(lambda: in_flight(service) == 1, 3)
            service.process.send_signal(signal.SIGTERM)
            assert idle.recv(100) == b""  # the first signal has been taken
            assert service.process.poll() is None
            end = Deadline(2)
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(60) == -signal.SIGTERM
            assert not end.passed()
        finally:
            broker_of_one.resume()
