"""The view and query services of click-count, each with an additional no-op handler."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
from bench.job import Job
from bench.programs.serving import READY_SECONDS, serve
from prometheus_client import CollectorRegistry
from starlette.responses import Response

from click_count.query import build_query
from click_count.view import ClickCountsService
from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from servicekit.grpc.server import GrpcServer
from servicekit.http.cursors import Cursors
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.streams import Streams
from servicekit.tables.top_list import TopList
from streamtable import App, Avro, Kafka, String, Table, View
from streamtable.observe import metrics_page

EMPTY = "bench.Empty"
ANSWER = pb.GetResponse(count=1, partition=1, offset=1_000_000, age_seconds=0.5)
ANSWERS = pb.MultiGetResponse(
    found=[pb.MultiGetResponse.Found(user_id=f"user-{n}", answer=ANSWER) for n in range(100)]
)
BODY = b'{"user_id":"user-12345","count":1,"partition":1,"offset":1000000,"age_seconds":0.5,"stale":false}'


def add_empty(server: Any) -> None:
    """No-op methods with the messages of the service's methods."""

    def get(request: pb.GetRequest, context: grpc.ServicerContext) -> pb.GetResponse:
        return ANSWER

    def multi_get(request: pb.MultiGetRequest, context: grpc.ServicerContext) -> pb.MultiGetResponse:
        return ANSWERS

    methods: dict[str, Any] = {
        "Get": grpc.unary_unary_rpc_method_handler(
            get, pb.GetRequest.FromString, pb.GetResponse.SerializeToString
        ),
        "MultiGet": grpc.unary_unary_rpc_method_handler(
            multi_get, pb.MultiGetRequest.FromString, pb.MultiGetResponse.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(EMPTY, methods),))


def serve_grpc(view: View[str, int], opened: ExitStack) -> str:
    streams = Streams()
    service = ClickCountsService(view, streams)

    def register(server: Any) -> None:
        service.register(server)
        add_empty(server)

    server = GrpcServer("127.0.0.1", 0, register, ready=lambda: view.ready, streams=streams)
    opened.callback(server.stop)
    return server.start()


def serve_rest(view: View[str, int], opened: ExitStack) -> str:
    top, events, registry = TopList(view, int), EventStreams(Streams()), CollectorRegistry()
    app = build_query(view, top, Cursors(b"0" * 32), events, metrics=lambda: metrics_page(registry))

    @app.get("/empty/{user}", include_in_schema=False)
    def empty(user: str) -> Response:
        return Response(BODY, media_type="application/json")

    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    opened.callback(server.stop)
    return server.start()


def start(job: Job, opened: ExitStack) -> dict[str, str]:
    """Both services, from one view."""
    table = Table(job.topic, String(), Avro("long"))
    view = opened.enter_context(App(Kafka(job.broker), Path(job.state_dir)).view(table))
    view.wait_ready(READY_SECONDS)
    return {"grpc": serve_grpc(view, opened), "rest": serve_rest(view, opened)}


if __name__ == "__main__":
    serve(start)
