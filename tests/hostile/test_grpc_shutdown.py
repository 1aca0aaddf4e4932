"""SIGTERM in the middle of work: calls in progress are finished, streams are asked to connect again, the process ends."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.hostile.grpc_world import World, serving

from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from localkafka.broker import Broker
from localkafka.waiting import Deadline, wait_until

STREAMS = 50
ASKERS = 4
NO_SERVER = "Failed to connect to remote host"
USERS = [f"user-{n:04}" for n in range(1000)]


@pytest.fixture
def world(broker: Broker) -> Iterator[World]:
    with serving(broker) as world:
        yield world


class Asker:
    """Asks for a thousand users, again and again, until the server is unavailable."""

    def __init__(self, stub: Any) -> None:
        self.answered = 0
        self.last: Any = None
        self._stub = stub
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                answer = self._stub.MultiGet(pb.MultiGetRequest(user_ids=USERS), timeout=5)
                assert len(answer.found) == len(USERS)
                self.answered += 1
        except grpc.RpcError as error:
            self.last = error

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_calls_are_finished_and_streams_are_asked_to_connect_again(world: World) -> None:
    watching: Any = ClickCountsStub(world.channel())
    watches = [watching.Watch(pb.WatchRequest(user_id="alice")) for _ in range(STREAMS)]
    for watch in watches:
        watch.initial_metadata()
    askers = [Asker(ClickCountsStub(world.channel())) for _ in range(ASKERS)]
    wait_until(lambda: all(asker.answered > 3 for asker in askers))

    end = Deadline(10)
    world.process.send_signal(signal.SIGTERM)
    ends = Counter((watch.code(), watch.details()) for watch in watches)
    for asker in askers:
        asker.join()
    assert world.process.wait(60) == 0
    assert not end.passed()

    message = "the server is stopping; connect again and retry the request"
    assert ends == {(grpc.StatusCode.UNAVAILABLE, message): STREAMS}
    # A call that had been begun was answered. One that came later gets this message for half a second, and finds no server
    # then. Both may be retried on another one.
    assert {asker.last.code() for asker in askers} == {grpc.StatusCode.UNAVAILABLE}
    assert all(message == said or NO_SERVER in said for said in (asker.last.details() for asker in askers))
    assert not [line for line in world.lines if "Traceback" in line or '"level": "error"' in line]
