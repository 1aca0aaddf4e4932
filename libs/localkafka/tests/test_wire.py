import contextlib
import gc
import socket
import struct
import threading
import time
import warnings
from collections.abc import Iterator
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from localkafka.broker import Broker
from localkafka.waiting import wait_until
from localkafka.wire import WireProxy
from localkafka.wirefaults import (
    Api,
    CutAnswer,
    CutRequest,
    DelayAnswer,
    DelayRequest,
    Each,
    Fault,
    LoseAnswer,
    LoseRequest,
    Request,
    Storm,
    any_fault,
)


def frame(api: int, number: int, body: bytes = b"") -> bytes:
    """A request with the client id `me`."""
    content = struct.pack(">hhih", api, 7, number, 2) + b"me" + body
    return struct.pack(">i", len(content)) + content


class Server(threading.Thread):
    """A stand-in for a broker that answers each request with its number and records its time of arrival."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.heard: list[tuple[int, bytes]] = []
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._socket.accept()[:1], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            while True:
                request = receive(client)
                self.heard.append((struct.unpack_from(">i", request, 4)[0], request))
                client.sendall(struct.pack(">i", 8) + request[4:8] + b"done")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.join()

    def numbers(self) -> list[int]:
        return [number for number, _ in self.heard]


def receive(peer: socket.socket) -> bytes:
    """Return the next frame. Raises `EOFError` when the connection has ended."""

    def exactly(size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (more := peer.recv(size - len(data))):
                raise EOFError
            data += more
        return data

    return exactly(struct.unpack(">i", exactly(4))[0])


@pytest.fixture
def wire() -> Iterator[WireProxy]:
    with WireProxy() as made:
        yield made


@pytest.fixture
def server(wire: WireProxy) -> Iterator[Server]:
    made = Server(wire.listener.port)
    made.start()
    yield made
    made.close()


@pytest.fixture
def client(wire: WireProxy, server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", wire.port), timeout=60) as made:
        yield made


def number_of(answer: bytes) -> int:
    return int(struct.unpack_from(">i", answer)[0])


def test_requests_and_answers_pass_unchanged_and_the_plan_sees_each_header(
    wire: WireProxy, server: Server, client: socket.socket
) -> None:
    asked: list[Request] = []
    wire.plan = asked.append
    client.sendall(frame(Api.PRODUCE, 5, b"x" * 200_000))
    assert number_of(receive(client)) == 5
    assert server.heard[0][1].endswith(b"x" * 200_000)
    assert asked == [Request(Api.PRODUCE, 7, 5, "me")]
    assert not wire.struck


def test_a_lost_request_and_what_follows_it_never_reach_the_broker(
    wire: WireProxy, server: Server, client: socket.socket
) -> None:
    wire.plan = Each(Api.PRODUCE, LoseRequest(0.1))
    client.sendall(frame(Api.FETCH, 1) + frame(Api.PRODUCE, 2) + frame(Api.FETCH, 3))
    assert number_of(receive(client)) == 1
    with pytest.raises((EOFError, ConnectionResetError)):
        receive(client)
    assert server.numbers() == [1]
    assert wire.struck == {(Api.PRODUCE, LoseRequest): 1}


def test_a_request_whose_answer_is_lost_is_handled_by_the_broker(
    wire: WireProxy, server: Server, client: socket.socket
) -> None:
    wire.plan = Each(Api.END_TXN, LoseAnswer(0.3))
    client.sendall(frame(Api.END_TXN, 1) + frame(Api.FETCH, 2))
    with pytest.raises((EOFError, ConnectionResetError)):
        receive(client)
    wait_until(lambda: server.numbers() == [1, 2], what="both requests at the broker")


def test_a_delayed_request_arrives_though_its_client_has_disconnected(
    wire: WireProxy, server: Server, client: socket.socket
) -> None:
    wire.plan = Each(Api.END_TXN, DelayRequest(0.5))
    began = time.monotonic()
    client.sendall(frame(Api.FETCH, 1) + frame(Api.END_TXN, 2) + frame(Api.FETCH, 3))
    assert number_of(receive(client)) == 1
    client.close()
    wait_until(lambda: server.numbers() == [1, 2, 3], what="the late requests at the broker")
    assert time.monotonic() - began >= 0.5


def test_a_delayed_answer_delays_only_those_of_its_connection(
    wire: WireProxy, server: Server, client: socket.socket
) -> None:
    wire.plan = Each(Api.PRODUCE, DelayAnswer(0.5))
    began = time.monotonic()
    client.sendall(frame(Api.PRODUCE, 1) + frame(Api.FETCH, 2))
    with socket.create_connection(("127.0.0.1", wire.port), timeout=60) as other:
        wait_until(lambda: server.numbers() == [1, 2], what="both requests at the broker")
        other.sendall(frame(Api.FETCH, 3))
        assert number_of(receive(other)) == 3
    assert [number_of(receive(client)) for _ in range(2)] == [1, 2]
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize("fault", [CutRequest(9), CutAnswer(9), CutRequest(0), CutAnswer(0)])
def test_a_cut_frame_arrives_in_part_and_the_connection_is_reset(
    wire: WireProxy, server: Server, client: socket.socket, fault: Fault
) -> None:
    wire.plan = Each(Api.PRODUCE, fault)
    client.sendall(frame(Api.PRODUCE, 1))
    with pytest.raises((EOFError, ConnectionResetError)):
        receive(client)
    assert server.numbers() == ([1] if isinstance(fault, CutAnswer) else [])


def test_in_darkness_nothing_passes_and_afterwards_held_data_arrives(
    wire: WireProxy, server: Server, client: socket.socket
) -> None:
    client.sendall(frame(Api.FETCH, 1))
    receive(client)
    wire.darken()
    client.sendall(frame(Api.FETCH, 2))
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(1)
    assert server.numbers() == [1]
    client.settimeout(60)
    wire.lighten()
    assert number_of(receive(client)) == 2


def test_a_reset_ends_all_connections_and_new_ones_work(
    wire: WireProxy, server: Server, client: socket.socket
) -> None:
    client.sendall(frame(Api.FETCH, 1))
    receive(client)
    wire.reset()
    with pytest.raises((EOFError, ConnectionResetError)):
        receive(client)
    with socket.create_connection(("127.0.0.1", wire.port), timeout=60) as other:
        other.sendall(frame(Api.FETCH, 2))
        assert number_of(receive(other)) == 2


def test_a_bounded_rate_is_kept(wire: WireProxy, server: Server, client: socket.socket) -> None:
    wire.bytes_per_second = 100_000.0
    began = time.monotonic()
    client.sendall(frame(Api.PRODUCE, 1, b"x" * 50_000))
    receive(client)
    assert time.monotonic() - began >= 0.4


def test_a_client_of_a_broker_that_is_down_is_reset(wire: WireProxy) -> None:
    # The reset may arrive while the client is still connecting, so the connect call may fail too.
    with (
        pytest.raises((EOFError, ConnectionResetError)),
        socket.create_connection(("127.0.0.1", wire.port), timeout=60) as client,
    ):
        receive(client)


def test_a_proxy_that_is_stopped_while_clients_connect_leaves_no_connection_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unclosed: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda about: unclosed.append(str(about.exc_value)))
    stop = threading.Event()

    def knock(port: int) -> None:
        while not stop.wait(0.001):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for _ in range(40):  # one in three left some
            stop.clear()
            with WireProxy() as wire:
                threads = [threading.Thread(target=knock, args=(wire.port,)) for _ in range(3)]
                for thread in threads:
                    thread.start()
                time.sleep(0.01)
            stop.set()
            for thread in threads:
                thread.join()
        gc.collect()
    assert unclosed == []


def test_a_slow_link_delays_each_answer_and_none_behind_it(
    wire: WireProxy, server: Server, client: socket.socket
) -> None:
    del server
    wire.latency_seconds = 0.3
    began = time.monotonic()
    client.sendall(frame(Api.PRODUCE, 1) + frame(Api.PRODUCE, 2) + frame(Api.PRODUCE, 3))
    assert [number_of(receive(client)) for _ in range(3)] == [1, 2, 3]
    assert 0.3 <= time.monotonic() - began < 0.85


def test_the_fault_of_the_nth_request_of_a_kind_depends_on_the_seed_alone() -> None:
    def plan(seed: int, others: int) -> list[Fault | None]:
        storm = Storm(seed, {Api.PRODUCE: 0.5})
        found = []
        for number in range(40):
            for _ in range(others):
                assert storm(Request(Api.FETCH, 1, number, "")) is None
            found.append(storm(Request(Api.PRODUCE, 1, number, "")))
        return found

    assert plan(3, 0) == plan(3, 2)
    assert plan(3, 0) != plan(4, 0)
    assert 5 < sum(fault is not None for fault in plan(3, 0)) < 35


def test_each_kind_of_fault_is_drawn() -> None:
    rng = Random(1)
    assert len({type(any_fault(rng)) for _ in range(200)}) == 6


@pytest.mark.broker
def test_clients_of_a_real_broker_stay_on_the_proxy_and_its_own_address_is_not_affected(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with WireProxy() as wire:
        broker = Broker(tmp_path_factory.mktemp("wire"), brief=True, listeners=[wire.listener])
        try:
            broker.start()
            ways = [
                Producer({"enable.idempotence": True, "bootstrap.servers": servers, "log_level": 0})
                for servers in (wire.bootstrap_servers, broker.bootstrap_servers)
            ]
            ports = [{each.port for each in way.list_topics(timeout=60).brokers.values()} for way in ways]
            assert ports == [{wire.port}, {broker.node.port}]
            wire.darken()
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            assert admin.list_topics(timeout=60).brokers
        finally:
            broker.kill()
            broker.close()
