"""A view without a broker has no table: it says so, and serves as soon as its copy is ready."""

from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.hostile.grpc_world import ALICE, call, serving

from localkafka.fixtures import OwnBroker

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING


def test_nothing_is_answered_until_the_table_is_ready(own_broker: OwnBroker) -> None:
    broker = own_broker()
    with serving(broker, before_start=broker.pause) as world:
        health: Any = health_pb2_grpc.HealthStub(world.channel())
        request = health_pb2.HealthCheckRequest()
        watch = health.Watch(request)
        assert next(watch).status == NOT_SERVING
        assert health.Check(request, timeout=5).status == NOT_SERVING
        for method in ("Get", "MultiGet", "Scan", "Watch"):
            failure = call(world, method, ALICE if method == "Get" else b"")
            assert failure is not None
            assert failure.code == grpc.StatusCode.UNAVAILABLE
            info = ErrorInfo()
            assert failure.status is not None
            assert failure.status.details[0].Unpack(info)
            assert info.reason == "NOT_READY"
        broker.resume()
        assert next(watch).status == SERVING
        watch.cancel()
        world.check_honest()
