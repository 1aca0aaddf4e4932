"""The services as processes, with a real broker between them."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import structlog
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from click_count.main import app
from click_count.topics import by_count
from click_count.windows import NAME, click_windows
from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from contracts.grpc.query.v1 import query_pb2
from contracts.grpc.query.v1.query_pb2_grpc import QueryStub
from localkafka.broker import Broker
from localkafka.certificates import Authority
from localkafka.process import reserve_port
from localkafka.topics import create_topics, delete_topics
from localkafka.waiting import wait_until
from servicekit_testing import Process, retrying_client, with_ids
from servicekit_testing.trace_collector import Collected, TraceCollector, collecting
from streamtable import App, Kafka
from streamtable.errors import ConfigurationError, NotReady
from streamtable_query import Query

PARTITIONS = 4
GROUPS = ("click-count", "click-count-2")


class Cluster:
    """The topics of click counting, and processes that use them."""

    def __init__(self, broker: Broker, folder: Path, stack: ExitStack) -> None:
        self.environment = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_GRPC_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_LOG_FORMAT": "json",
        }
        self._folder = folder
        self._stack = stack
        self._started = 0

    def start(self, *arguments: str, **environment: str) -> Process:
        self._started += 1
        own = {
            "STREAMTABLE_INSTANCE_ID": f"test-{self._started}",
            "STREAMTABLE_STATE_DIR": str(self._folder / str(self._started)),
        }
        process = Process("click_count.main", arguments, {**self.environment, **own, **environment})
        self._stack.callback(process.close)
        return process

    def answering(self, address: str, *command: str, **environment: str) -> Process:
        """Start a process that answers queries at this address, by default a processor."""
        own = {"CLICK_COUNT_QUERY_ADDRESS": address, "STREAMTABLE_GRPC_ADDRESS": address}
        return self.start(*(command or ("processor",)), **own, **environment)

    def create_windows(self) -> None:
        """Create the topics of the windows."""
        with App(self.environment["STREAMTABLE_BOOTSTRAP_SERVERS"], self._folder / "windows") as app:
            app.create_topics(click_windows().flow, partitions=PARTITIONS)

    def http(self, process: Process) -> httpx.Client:
        client = retrying_client(f"http://{process.address()}")
        return self._stack.enter_context(client)

    def clicks_in_kafka(self) -> int:
        config = {"bootstrap.servers": self.environment["STREAMTABLE_BOOTSTRAP_SERVERS"], "group.id": "-"}
        consumer = Consumer(config)
        places = [TopicPartition("user-clicks", partition) for partition in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(place, timeout=60)[1] for place in places]
        consumer.close()
        return sum(ends)


@pytest.fixture
def cluster(broker: Broker, tmp_path: Path) -> Iterator[Cluster]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    before = set(admin.list_topics(timeout=60).topics)
    compacted = {"cleanup.policy": "compact"}
    topics = [NewTopic("user-clicks", PARTITIONS)]
    for group in GROUPS:
        topics += [NewTopic(f"{group}-{kind}", PARTITIONS) for kind in ("dead-letters", "retry")]
        topics += [NewTopic(f"{group}-{kind}", PARTITIONS, config=compacted) for kind in ("table", "ids")]
    create_topics(admin, topics)
    with ExitStack() as stack:
        yield Cluster(broker, tmp_path, stack)
    made = set(admin.list_topics(timeout=60).topics) - before
    delete_topics(admin, [topic for topic in made if not topic.startswith("__")])
    for removed in admin.delete_consumer_groups(list(GROUPS)).values():
        removed.exception(30)


def ready(client: httpx.Client) -> bool:
    return client.get("/readyz").status_code == 200


def count_of(client: httpx.Client, user: str) -> int | None:
    response = client.get(f"/clicks/{user}")
    return response.json()["count"] if response.status_code == 200 else None


def counts_of(stub: Any) -> dict[str, int]:
    messages = stub.Scan(pb.ScanRequest(), timeout=10, wait_for_ready=True)
    return {row.user_id: row.count for message in messages for row in message.rows}


def test_clicks_taken_by_the_emitter_are_counted_and_answered(cluster: Cluster) -> None:
    processes = {
        name: cluster.start(name, STREAMTABLE_METRICS_ADDRESS="127.0.0.1:0")
        for name in ("emitter", "processor", "view", "query")
    }
    emitter, query = cluster.http(processes["emitter"]), cluster.http(processes["query"])
    processor = cluster.http(processes["processor"])
    for client in (emitter, query, processor):
        wait_until(lambda client=client: ready(client))  # type: ignore[misc] # bound in the loop

    for user, clicks in (("alice", 3), ("bob", 2), ("é 用户", 1)):
        body = [{"user_id": user, "url": "https://example.org/"}] * clicks
        assert emitter.post("/clicks", json=with_ids(body)).status_code == 200
    assert emitter.post("/clicks", json=with_ids({"user_id": "alice", "url": "x"})).status_code == 201
    # A view takes in partition after partition: each user is waited for.
    counts = {"alice": 4, "bob": 2, "é 用户": 1}
    wait_until(lambda: {user: count_of(query, user) for user in counts} == counts)

    sent = emitter.post("/clicks", json=with_ids({"user_id": "dave", "url": "x"}))
    asked = {"Streamtable-Token": sent.headers["streamtable-token"]}
    assert query.get("/clicks/dave", headers=asked).json()["count"] == 1
    counts["dave"] = 1

    def fresh() -> dict[str, Any] | None:
        found: dict[str, Any] = query.get("/clicks/alice").json()
        return found if 0 <= found["age_seconds"] < 5 else None

    answer = wait_until(fresh)
    assert answer is not None
    assert answer["stale"] is False
    items = query.get("/clicks?limit=2").json()["items"]
    assert items == [{"user_id": "alice", "count": 4}, {"user_id": "bob", "count": 2}]
    wait_until(lambda: query.get("/top?limit=1").json()["items"] == [{"user_id": "alice", "count": 4}])

    processes["view"].address()  # of its metrics
    with grpc.insecure_channel(processes["view"].address()) as channel:
        stub: Any = ClickCountsStub(channel)
        # The view service follows the table on its own: what the query service knows, it may learn a moment later.
        wait_until(lambda: counts_of(stub) == counts)
        response = stub.Get(pb.GetRequest(user_id="alice"), timeout=5)
        assert (response.count, response.partition) == (4, answer["partition"])
        changes = stub.Watch(pb.WatchRequest(user_id="alice"))
        changes.initial_metadata()
        with query.stream("GET", "/clicks/alice/events") as events:
            lines = events.iter_lines()
            assert '"count": 4' in next(line for line in lines if line.startswith("data:"))
            emitter.post("/clicks", json=with_ids({"user_id": "alice", "url": "x"}))
            assert next(changes).count == 5
            assert '"count": 5' in next(line for line in lines if line.startswith("data:"))
            # Open streams do not keep the services from stopping.
            assert processes["query"].stop() == 0
        assert processes["view"].stop() == 0

    assert "streamtable_records_in_total" in processor.get("/metrics").text
    assert processes["emitter"].stop(signal.SIGINT) == 0
    assert processes["processor"].stop() == 0


def test_processors_answer_for_services_that_have_no_copy_of_the_table(cluster: Cluster) -> None:
    load = cluster.start("load", "--rate", "0", "--count", "3000", "--keys", "40", "--seed", "3")
    query, view = cluster.start("query", "--over", "instances"), cluster.start("view", "--over", "instances")
    client = cluster.http(query)
    with ExitStack() as ports:
        addresses = [f"127.0.0.1:{ports.enter_context(reserve_port()).getsockname()[1]}" for _ in range(2)]
        processors = [cluster.answering(address) for address in addresses]
        assert load.ended() == 0, load.output
        wait_until(lambda: ready(client))
        wait_until(lambda: total(client) == 3000)

        items = client.get("/clicks?limit=1000").json()["items"]
        assert {item["user_id"]: count_of(client, item["user_id"]) for item in items} == {
            item["user_id"]: item["count"] for item in items
        }
        page = client.get("/clicks?limit=3").json()
        assert page["items"] == items[:3]
        assert client.get(f"/clicks?limit=3&cursor={page['next']}").json()["items"] == items[3:6]
        assert client.get("/clicks/nobody").status_code == 404
        answer = client.get(f"/clicks/{items[0]['user_id']}").json()
        assert 0 <= answer["age_seconds"] < 60
        with grpc.insecure_channel(view.address()) as channel:
            stub: Any = ClickCountsStub(channel)
            assert counts_of(stub) == {item["user_id"]: item["count"] for item in items}
            changes = stub.Watch(pb.WatchRequest(user_id="dave"))
            changes.initial_metadata()
            emitter = cluster.http(cluster.start("emitter"))
            wait_until(lambda: ready(emitter))
            with (
                client.stream("GET", "/clicks/dave/events") as one,
                client.stream("GET", "/events") as all_of_them,
            ):
                lines, of_all = one.iter_lines(), all_of_them.iter_lines()
                assert '"count": null' in next(line for line in lines if line.startswith("data:"))
                emitter.post("/clicks", json=with_ids({"user_id": "dave", "url": "x"}))
                assert next(changes).count == 1
                for each in (lines, of_all):
                    assert '"user_id": "dave", "count": 1' in next(line for line in each if "data:" in line)
        assert client.get("/top").status_code == 501
        assert "a copy of the table" in client.get("/top").json()["detail"]

        assert [each.stop() for each in processors] == [0, 0]
        sent = emitter.post("/clicks", json=with_ids({"user_id": "dave", "url": "x"}))
        cluster.answering(addresses[1])
        token = {"Streamtable-Token": sent.headers["streamtable-token"]}
        assert client.get("/clicks/dave", headers=token).json()["count"] == 2
        wait_until(lambda: total(client) == 3002)
        assert query.stop() == 0
        assert view.stop() == 0


def test_services_that_share_the_tables_answer_as_those_do_that_ask_the_processors(cluster: Cluster) -> None:
    cluster.create_windows()
    load = cluster.start("load", "--rate", "0", "--count", "2000", "--keys", "20", "--seed", "3")
    windows = {"CLICK_COUNT_WINDOWS": NAME}
    with ExitStack() as ports:
        addresses = [f"127.0.0.1:{ports.enter_context(reserve_port()).getsockname()[1]}" for _ in range(5)]
        cluster.answering(addresses[3], "processor")
        cluster.answering(addresses[4], "windows")
        queries = [cluster.answering(each, "query", "--over", "shards", **windows) for each in addresses[:3]]
        for each in queries:
            each.address()  # of the answers to the others
        queries.append(cluster.start("query", "--over", "instances", **windows))
        clients = [cluster.http(each) for each in queries]
        assert load.ended() == 0, load.output
        for client in clients:
            wait_until(lambda client=client: total(client) == 2000)  # type: ignore[misc] # bound in the loop
        items = clients[0].get("/clicks?limit=1000").json()["items"]

        def counts(client: httpx.Client) -> int:
            answers = [client.get(f"/clicks/{item['user_id']}/minutes") for item in items]
            assert {each.status_code for each in answers} == {200}
            return sum(window["count"] for each in answers for window in each.json()["items"])

        asked = 'streamtable_queries_answered_total{topic="click-count-table"}'
        assert asked in clients[-1].get("/metrics").text
        for client in clients:
            wait_until(lambda client=client: counts(client) == 2000)  # type: ignore[misc] # bound in the loop
            for item in items:
                assert count_of(client, item["user_id"]) == item["count"]
            assert client.get(f"/clicks?limit={len(items)}").json()["stale"] is False
            assert client.get("/top").status_code == 501
        emitter = cluster.http(cluster.start("emitter"))
        wait_until(lambda: ready(emitter))
        for number, client in enumerate(clients, 1):
            sent = emitter.post("/clicks", json=with_ids({"user_id": "dave", "url": "x"}))
            token = {"Streamtable-Token": sent.headers["streamtable-token"]}
            assert client.get("/clicks/dave", headers=token).json()["count"] == number
            with client.stream("GET", "/clicks/dave/events") as events:
                assert f'"count": {number}' in next(line for line in events.iter_lines() if "data:" in line)
        queries[0].stop(signal.SIGKILL)
        for client in clients[1:]:
            assert {item["user_id"]: count_of(client, item["user_id"]) for item in items} == {
                item["user_id"]: item["count"] for item in items
            }
        assert [each.stop() for each in queries[1:]] == [0, 0, 0]


def test_a_view_and_a_service_without_an_address_share_no_table(cluster: Cluster) -> None:
    for role, message in (("query", "CLICK_COUNT_QUERY_ADDRESS"), ("view", "query --over shards")):
        started = cluster.start(role, "--over", "shards")
        assert started.ended() != 0
        assert any(message in line for line in started.output), started.output


def test_processors_answer_those_who_have_a_certificate_and_a_key_and_for_their_own_group_only(
    cluster: Cluster, tmp_path: Path
) -> None:
    authority = Authority("here")
    (tmp_path / "authority.crt").write_bytes(authority.certificate)
    secret, elsewhere = "k" * 32, "o" * 32
    digests = {name: sha256(key.encode()).hexdigest() for name, key in (("q", secret), ("s", elsewhere))}
    trusted = {"CLICK_COUNT_QUERY_AUTHORITIES_FILE": str(tmp_path / "authority.crt")}

    def certified(name: str) -> dict[str, str]:
        certificate, key = authority.issue(name).write(tmp_path, name)
        return {
            "SERVICEKIT_GRPC_CERTIFICATE_FILE": str(certificate),
            "SERVICEKIT_GRPC_KEY_FILE": str(key),
        }

    with reserve_port() as port:
        address = f"127.0.0.1:{port.getsockname()[1]}"
        cluster.answering(
            address,
            SERVICEKIT_GRPC_CLIENT_AUTHORITIES_FILE=str(tmp_path / "authority.crt"),
            SERVICEKIT_API_KEYS=f"q:click-count/read:{digests['q']},s:user-status/read:{digests['s']}",
            **certified("processor"),
        )
        load = cluster.start("load", "--rate", "0", "--count", "500", "--keys", "5")
        client = cluster.http(
            cluster.start(
                "query", "--over", "instances", CLICK_COUNT_QUERY_KEY=secret, **trusted, **certified("query")
            )
        )
        assert load.ended() == 0, load.output
        wait_until(lambda: total(client) == 500)

        group, kafka = by_count(), Kafka(cluster.environment["STREAMTABLE_BOOTSTRAP_SERVERS"])
        pair = authority.issue("caller")
        mine = grpc.ssl_channel_credentials(authority.certificate, pair.key, pair.certificate)
        for key, code in (
            (None, "UNAUTHENTICATED"),
            ("x" * 32, "UNAUTHENTICATED"),
            (elsewhere, "PERMISSION"),
        ):
            metadata = None if key is None else {"x-api-key": key}
            with (
                Query(kafka, group, group.table, credentials=mine, metadata=metadata, timeout=60) as counts,
                pytest.raises(ConfigurationError, match=code),
            ):
                counts.get("user-1")
        nameless = grpc.ssl_channel_credentials(authority.certificate)
        with (
            Query(kafka, group, group.table, credentials=nameless, timeout=1) as counts,
            pytest.raises(NotReady, match="UNAVAILABLE"),
        ):
            counts.get("user-1")

        with grpc.secure_channel(address, mine) as channel:
            asked = query_pb2.GetRequest(
                version=1, group="click-count-2", table="click-count-2-table", keys=[b"x"]
            )
            with pytest.raises(grpc.RpcError) as refused:
                QueryStub(channel).Get(asked, timeout=5, metadata=(("x-api-key", secret),))
        error: Any = refused.value
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert error.details() == "no group 'click-count-2' runs here, only click-count"


def test_both_handlers_make_the_same_table_from_a_load(cluster: Cluster) -> None:
    load = cluster.start(
        "load", "--rate", "0", "--count", "5000", "--keys", "50", "--skew", "1", "--seed", "3"
    )
    assert load.ended() == 0, load.output
    assert "acknowledged 5000" in load.output[-1]
    tables = []
    for handler, group in zip(("count", "record"), GROUPS, strict=True):
        processor = cluster.start("processor", "--handler", handler, CLICK_COUNT_GROUP=group)
        query = cluster.start("query", CLICK_COUNT_GROUP=group)
        client = cluster.http(query)
        wait_until(lambda client=client: total(client) == 5000)  # type: ignore[misc] # bound in the loop
        tables.append(client.get("/clicks?limit=1000").json()["items"])
        assert processor.stop() == 0
        assert query.stop() == 0
    assert tables[0] == tables[1]
    assert len(tables[0]) > 30


def total(client: httpx.Client) -> int:
    answer = client.get("/clicks?limit=1000")
    return sum(item["count"] for item in answer.json()["items"]) if answer.status_code == 200 else 0


def test_several_workers_count_together_and_stop_together(cluster: Cluster) -> None:
    load = cluster.start("load", "--rate", "0", "--count", "2000", "--keys", "50")
    processor = cluster.start("processor", "--workers", "2")
    client = cluster.http(cluster.start("query"))
    assert load.ended() == 0, load.output
    wait_until(lambda: total(client) == 2000)
    assert processor.stop() == 0, processor.output


def test_every_click_that_was_answered_before_the_emitter_stopped_is_in_kafka(cluster: Cluster) -> None:
    process = cluster.start("emitter")
    emitter = cluster.http(process)
    wait_until(lambda: ready(emitter))
    codes: list[int] = []
    lost: list[Exception] = []

    def post() -> None:
        with httpx.Client(base_url=emitter.base_url, timeout=60) as client:
            try:
                while True:
                    body = {"user_id": "alice", "url": "https://example.org/"}
                    codes.append(client.post("/clicks", json=body).status_code)
            except httpx.HTTPError as error:
                lost.append(error)

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(codes) > 50)
    assert process.stop() == 0, process.output
    for thread in threads:
        thread.join()
    assert set(codes) <= {201, 503}
    # On a machine that stands still for seconds some are answered with 503: these may be stored.
    assert 0 <= cluster.clicks_in_kafka() - codes.count(201) <= codes.count(503)


def test_the_way_of_a_click_is_one_trace_from_its_caller_to_the_answers(cluster: Cluster) -> None:
    collector, trace, caller = TraceCollector(), "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    traced = {"traceparent": f"00-{trace}-{caller}-01"}
    with collecting(collector) as port:
        cluster.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        processes = {name: cluster.start(name) for name in ("emitter", "processor", "view", "query")}
        emitter, query = cluster.http(processes["emitter"]), cluster.http(processes["query"])
        for client in (emitter, query):
            wait_until(lambda client=client: ready(client))  # type: ignore[misc] # bound in the loop
        sent = emitter.post("/clicks", json=with_ids({"user_id": "alice", "url": "x"}), headers=traced)
        token = {"Streamtable-Token": sent.headers["streamtable-token"]}
        assert query.get("/clicks/alice", headers=token).json()["count"] == 1
        assert query.get("/clicks/alice", headers={**traced, **token}).json()["count"] == 1
        with grpc.insecure_channel(processes["view"].address()) as channel:
            stub: Any = ClickCountsStub(channel)
            wait_until(lambda: counts_of(stub) == {"alice": 1})
            stub.Get(pb.GetRequest(user_id="alice"), timeout=5, metadata=list(traced.items()))
        # Spans are sent every five seconds, and what there is at the end of a process.
        assert [process.stop() for process in processes.values()] == [0] * 4

    def one(name: str, parent: str) -> Collected:
        (span,) = (span for span in collector.spans if span.trace == trace and span.name == name)
        assert (span.parent, span.failed) == (parent, False)
        return span

    post = one("POST /clicks", caller)
    send = one("send user-clicks", post.span)
    process = one("process click-count", send.span)
    assert process.links == ((trace, send.span),)
    commit = one("commit click-count", process.span)
    assert commit.links == ((trace, process.span),)
    assert commit.facts["streamtable.outcome"] == "committed"
    assert commit.facts["streamtable.rows"] == 1
    applied = [
        span for span in collector.spans if span.name == "apply click-count-table" and span.trace == trace
    ]
    assert [span.parent for span in applied] == [commit.span] * 2
    assert {span.facts["streamtable.view"] for span in applied} == {"view", "query"}
    asked = one("GET /clicks/{user}", caller)
    one("streamtable.click_count.v1.ClickCounts/Get", caller)
    assert send.began < process.began < commit.began < min(span.began for span in applied) < asked.ended
    assert {span.service for span in collector.spans} == {"click-count"}


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
    monkeypatch.setenv("CLICK_COUNT_GROUP", "nowhere")
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 2, result.output
    assert "topic" in result.output.splitlines()[-1]


def test_a_wrong_setting_is_reported_in_words_with_exit_code_2() -> None:
    process = Process("click_count.main", ["processor"], {"STREAMTABLE_BOOTSTRAP_SERVERS": "nonsense"})
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
