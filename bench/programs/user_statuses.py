"""The view and query services of user-status: one reads a view, the other two views."""

from contextlib import ExitStack
from pathlib import Path

from bench.job import Job
from bench.programs.serving import READY_SECONDS, serve
from prometheus_client import CollectorRegistry

from contracts.records import USER_STATUS, UserStatus
from servicekit.grpc.server import GrpcServer
from servicekit.http.cursors import Cursors
from servicekit.http.read_your_writes import ReadYourWrites
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.streams import Streams
from streamtable import App, Avro, Kafka, String, Table, View
from streamtable.observe import metrics_page
from user_status.query import Tables, build_query
from user_status.view import UserStatusesService

_WRITE_SECONDS = 2.0


def serve_grpc(statuses: View[str, UserStatus], opened: ExitStack) -> str:
    streams = Streams()
    service = UserStatusesService(statuses, streams)
    server = GrpcServer("127.0.0.1", 0, service.register, ready=lambda: statuses.ready, streams=streams)
    opened.callback(server.stop)
    return server.start()


def serve_rest(statuses: View[str, UserStatus], clicks: View[str, int], opened: ExitStack) -> str:
    events, registry = EventStreams(Streams()), CollectorRegistry()
    writes = ReadYourWrites({statuses.table.name: statuses, clicks.table.name: clicks}, _WRITE_SECONDS)
    app = build_query(
        Tables(statuses, clicks),
        Cursors(b"0" * 32),
        events,
        writes,
        metrics=lambda: metrics_page(registry),
    )
    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    opened.callback(server.stop)
    return server.start()


def start(job: Job, opened: ExitStack) -> dict[str, str]:
    """Both services, from views of both tables in this process."""
    views = opened.enter_context(App(Kafka(job.broker), Path(job.state_dir)))
    statuses = views.view(Table(job.topic, String(), Avro(USER_STATUS)))
    clicks = views.view(Table(job.table, String(), Avro("long")))
    statuses.wait_ready(READY_SECONDS)
    clicks.wait_ready(READY_SECONDS)
    return {"grpc": serve_grpc(statuses, opened), "rest": serve_rest(statuses, clicks, opened)}


if __name__ == "__main__":
    serve(start)
