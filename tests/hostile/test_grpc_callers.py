"""Keys and rate limits on gRPC: a caller that floods the service is asked to wait, and the others are served meanwhile."""

import re
import threading
import urllib.request
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from tests.hostile.grpc_world import ALICE, ROWS, World, call, failure_of, serving

from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from localkafka.broker import Broker

HONEST, GREEDY = "key-of-an-honest-caller", "key-of-a-greedy-caller"


@pytest.fixture(scope="module")
def world(broker: Broker) -> Iterator[World]:
    keys = [("honest", HONEST), ("greedy", GREEDY)]
    settings = {
        "SERVICEKIT_API_KEYS": ",".join(
            f"{name}:read:{sha256(key.encode()).hexdigest()}" for name, key in keys
        ),
        "SERVICEKIT_RATE_LIMIT": "5",  # fewer than any machine answers
        "SERVICEKIT_RATE_BURST": "100",
        "STREAMTABLE_METRICS_ADDRESS": "127.0.0.1:0",
    }
    with serving(broker, settings) as world:
        yield world


@pytest.mark.parametrize(
    "metadata",
    [[], [("authorization", f"Basic {HONEST}")], [("x-api-key", "wrong")], [("x-api-key", HONEST)] * 2],
    ids=["nothing", "another scheme", "a wrong key", "two keys"],
)
@pytest.mark.parametrize("method", ["Get", "MultiGet", "Scan", "Watch"])
def test_nothing_is_answered_without_a_key(world: World, method: str, metadata: Any) -> None:
    failure = call(world, method, ALICE, metadata=metadata)
    assert failure is not None
    assert failure.code == grpc.StatusCode.UNAUTHENTICATED


def test_a_greedy_caller_waits_and_an_honest_one_is_served(world: World) -> None:
    stub: Any = ClickCountsStub(world.channel())
    outcomes: list[str] = []
    retry = RetryInfo()

    def flood() -> None:
        metadata = [("x-api-key", GREEDY)]
        for _ in range(250):
            request = pb.GetRequest(user_id="alice")
            failure = failure_of(lambda: stub.Get(request, timeout=5, metadata=metadata))  # noqa: B023 called at once
            outcomes.append("OK" if failure is None else failure.code.name)
            if failure is not None:
                assert failure.status is not None
                assert any(detail.Unpack(retry) for detail in failure.status.details)

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        answer = stub.Get(
            pb.GetRequest(user_id="alice"), timeout=5, metadata=[("authorization", f"Bearer {HONEST}")]
        )
        assert answer.count == ROWS["alice"]
    for thread in threads:
        thread.join()
    assert set(outcomes) == {"OK", "RESOURCE_EXHAUSTED"}
    assert outcomes.count("OK") >= 100
    assert retry.retry_delay.seconds == 1


def test_calls_are_counted_in_the_metrics(world: World) -> None:
    assert call(world, "Get", ALICE, metadata=[("x-api-key", HONEST)]) is None
    assert call(world, "Get", ALICE, metadata=[]) is not None
    assert call(world, "/made.up.Service/Method", b"") is not None
    address = next(
        found[1] for line in world.lines if (found := re.match(r"listening on (http://\S+)", line))
    )
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    service = 'grpc_service="streamtable.click_count.v1.ClickCounts"'
    assert f'grpc_server_handled_total{{grpc_code="OK",grpc_method="Get",{service}}}' in page
    assert f'grpc_server_handled_total{{grpc_code="UNAUTHENTICATED",grpc_method="Get",{service}}}' in page
    assert f'grpc_server_handling_seconds_count{{grpc_method="Get",{service}}}' in page
    assert "made.up" not in page
