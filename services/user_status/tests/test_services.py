"""The services as processes, with a real broker between them and with the processor of click counting."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import structlog
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from contracts.grpc.user_status.v1 import user_status_pb2 as pb
from contracts.grpc.user_status.v1.user_status_pb2_grpc import UserStatusesStub
from localkafka.broker import Broker
from localkafka.topics import create_topics, delete_topics
from localkafka.waiting import wait_until
from servicekit_testing import Process, retrying_client, with_ids
from servicekit_testing.trace_collector import TraceCollector, collecting
from user_status.main import app
from user_status.topics import CHANGES, UPDATES, click_counts

PARTITIONS = 4
CLICKS = click_counts("click-count")
TRACED = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


class Cluster:
    """The topics of user statuses, the table of clicks, and processes that use them."""

    def __init__(self, broker: Broker, folder: Path, stack: ExitStack) -> None:
        self.servers = broker.bootstrap_servers
        self._folder = folder
        self._stack = stack
        self._started = 0
        self.collector = TraceCollector()
        self._traces = f"http://127.0.0.1:{stack.enter_context(collecting(self.collector))}"

    def start(self, *arguments: str, **environment: str) -> Process:
        self._started += 1
        own = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": self.servers,
            "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_GRPC_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_LOG_FORMAT": "json",
            "STREAMTABLE_INSTANCE_ID": f"test-{self._started}",
            "STREAMTABLE_STATE_DIR": str(self._folder / str(self._started)),
            "OTEL_EXPORTER_OTLP_ENDPOINT": self._traces,
        }
        process = Process("user_status.main", arguments, {**own, **environment})
        self._stack.callback(process.close)
        return process

    def http(self, process: Process) -> httpx.Client:
        client = retrying_client(f"http://{process.address()}")
        return self._stack.enter_context(client)

    def count(self, user: str, clicks: int) -> None:
        """Write a row of the table of clicks, as its processor would."""
        producer = Producer(
            {"enable.idempotence": True, "bootstrap.servers": self.servers, "partitioner": "murmur2_random"}
        )
        producer.produce(CLICKS.name, key=CLICKS.key.encode(user), value=CLICKS.value.encode(clicks))
        assert producer.flush(30) == 0


@pytest.fixture
def cluster(broker: Broker, tmp_path: Path) -> Iterator[Cluster]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    compacted = {"cleanup.policy": "compact"}
    names = (UPDATES.name, CHANGES.name, "user-status-dead-letters", "user-status-retry")
    topics = [NewTopic(name, PARTITIONS) for name in names]
    topics += [NewTopic(name, PARTITIONS, config=compacted) for name in ("user-status-table", CLICKS.name)]
    create_topics(admin, topics)
    with ExitStack() as stack:
        yield Cluster(broker, tmp_path, stack)
    delete_topics(admin, [topic.topic for topic in topics])
    for removed in admin.delete_consumer_groups(["user-status"]).values():
        removed.exception(30)


def ready(client: httpx.Client) -> bool:
    return client.get("/readyz").status_code == 200


def data_of(lines: Iterator[str]) -> dict[str, Any]:
    line = next(line for line in lines if line.startswith("data:"))
    data: dict[str, Any] = json.loads(line.removeprefix("data:"))
    return data


def test_a_status_goes_from_the_emitter_to_queries_that_ask_with_its_token(cluster: Cluster) -> None:
    processes = {
        name: cluster.start(name, STREAMTABLE_METRICS_ADDRESS="127.0.0.1:0")
        for name in ("emitter", "processor", "view", "query")
    }
    emitter, query = cluster.http(processes["emitter"]), cluster.http(processes["query"])
    processor = cluster.http(processes["processor"])
    for client in (emitter, query, processor):
        wait_until(lambda client=client: ready(client))  # type: ignore[misc] # bound in the loop

    cluster.count("alice", 3)
    wait_until(lambda: query.get("/users/alice").status_code == 200)
    assert query.get("/users/alice").json()["status"] is None
    for status in ("at work", "at lunch"):
        written = emitter.put("/users/alice/status", json=with_ids({"status": status}), headers=TRACED)
        assert written.status_code == 200
        asked = {"Streamtable-Token": written.headers["streamtable-token"]}
        answer = query.get("/users/alice", headers=asked)
        assert (answer.status_code, answer.json()["status"]["text"]) == (200, status)
    assert answer.json()["clicks"] == 3

    late = emitter.put("/users/alice/status", json=with_ids({"status": "too late", "at": 5})).headers
    asked = {"Streamtable-Token": late["streamtable-token"]}
    items = query.get("/users", headers=asked).json()["items"]
    assert [(item["user_id"], item["status"]["text"]) for item in items] == [("alice", "at lunch")]

    processes["view"].address()  # of its metrics
    with grpc.insecure_channel(processes["view"].address()) as channel:
        stub: Any = UserStatusesStub(channel)
        request = pb.GetRequest(user_id="alice")
        wait_until(lambda: stub.Get(request, timeout=5, wait_for_ready=True).status.status == "at lunch")
        with query.stream("GET", "/users/alice/events") as events:
            lines = events.iter_lines()
            assert {"status", "clicks"} <= {*data_of(lines), *data_of(lines)}
            cluster.count("alice", 4)
            assert data_of(lines)["clicks"] == 4
            assert processes["query"].stop() == 0
        assert processes["view"].stop() == 0

    assert "streamtable_records_in_total" in processor.get("/metrics").text
    assert processes["emitter"].stop() == 0
    assert processes["processor"].stop() == 0
    check_way_of_a_status(cluster.collector)


def check_way_of_a_status(collector: TraceCollector) -> None:
    """One trace leads from the caller to every process that holds a copy of the table. All processes have ended."""
    story = {span.span: span for span in collector.spans if span.trace == TRACED["traceparent"].split("-")[1]}
    steps = {(story[span.parent].name, span.name) for span in story.values() if span.parent in story}
    assert steps >= {
        ("PUT /users/{user}/status", "send user-status-updates"),
        ("send user-status-updates", "process user-status"),
        ("process user-status", "commit user-status"),
        ("commit user-status", "apply user-status-table"),
    }
    reported = {span.facts["streamtable.view"] for span in story.values() if span.name.startswith("apply")}
    assert reported == {"view", "query"}


def test_a_status_carries_the_clicks_that_were_counted_before_it(cluster: Cluster) -> None:
    cluster.count("alice", 3)
    processor = cluster.http(cluster.start("processor", STREAMTABLE_METRICS_ADDRESS="127.0.0.1:0"))
    emitter, query = cluster.http(cluster.start("emitter")), cluster.http(cluster.start("query"))
    for client in (emitter, query, processor):
        wait_until(lambda client=client: ready(client))  # type: ignore[misc] # bound in the loop
    token = emitter.put("/users/alice/status", json=with_ids({"status": "at work"})).json()["token"]
    answer = query.get("/users/alice", headers={"Streamtable-Token": token}).json()
    assert answer["status"]["clicks"] == 3


def test_a_token_whose_write_never_shows_is_answered_with_504(cluster: Cluster) -> None:
    emitter = cluster.http(cluster.start("emitter"))
    query = cluster.http(cluster.start("query", USER_STATUS_WAIT_SECONDS="0.5"))
    wait_until(lambda: ready(query) and ready(emitter))
    token = emitter.put("/users/alice/status", json=with_ids({"status": "at work"})).json()["token"]
    response = httpx.get(f"{query.base_url}/users/alice", headers={"Streamtable-Token": token}, timeout=20)
    assert response.status_code == 504
    elsewhere = query.get("/users/alice", headers={"Streamtable-Token": f"{UPDATES.name}:{PARTITIONS}:0"})
    assert elsewhere.status_code == 422


def test_a_load_is_processed_by_several_workers(cluster: Cluster) -> None:
    load = cluster.start("load", "--rate", "0", "--count", "2000", "--keys", "50")
    processor = cluster.start("processor", "--workers", "2")
    query = cluster.http(cluster.start("query"))
    assert load.ended() == 0, load.output
    assert any("acknowledged 2000" in line for line in load.output)

    def users() -> int:
        answer = query.get("/users?limit=1000")
        return len(answer.json()["items"]) if answer.status_code == 200 else 0

    wait_until(lambda: users() == 50)
    assert processor.stop() == 0, processor.output


@pytest.fixture
def reported(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settings for commands that run in this process."""
    monkeypatch.setenv("STREAMTABLE_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("STREAMTABLE_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("STREAMTABLE_HTTP_ADDRESS", "127.0.0.1:0")
    monkeypatch.setenv("STREAMTABLE_GRPC_ADDRESS", "127.0.0.1:0")
    yield
    structlog.reset_defaults()  # the commands have configured it to write to a stream of the runner's


@pytest.mark.usefixtures("reported")
@pytest.mark.parametrize("command", ["emitter", "load", "processor", "view", "query"])
def test_a_missing_topic_is_reported_in_words(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_STATUS_GROUP", "nowhere")
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 2, result.output
    assert "topic" in result.output.splitlines()[-1]


def test_a_wrong_setting_is_reported_in_words_with_exit_code_2() -> None:
    process = Process("user_status.main", ["processor"], {"STREAMTABLE_BOOTSTRAP_SERVERS": "nonsense"})
    assert process.ended() == 2
    text = "".join(process.output)
    assert "STREAMTABLE_BOOTSTRAP_SERVERS" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("command", ["emitter", "load", "view", "query"])
def test_a_wrong_setting_is_refused_by_each_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMTABLE_BOOTSTRAP_SERVERS", "nonsense")
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 2, result.output
    assert "STREAMTABLE_BOOTSTRAP_SERVERS" in result.output
