"""The services as processes, with a real broker between them."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import structlog
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from contracts.grpc.tweet_reach.v1 import tweet_reach_pb2 as pb
from contracts.grpc.tweet_reach.v1.tweet_reach_pb2_grpc import TweetReachesStub
from contracts.records import REACH
from localkafka.broker import Broker
from localkafka.topics import create_topics, delete_topics
from localkafka.waiting import wait_until
from localstores.elasticsearch import ElasticsearchServer
from localstores.redis import RedisServer
from microbatch.store_settings import StoreSettings
from servicekit_testing import Process, retrying_client, with_ids
from servicekit_testing.trace_collector import TraceCollector, collecting
from streamtable import Avro, Kafka
from streamtable.base.types import TopicPartition as Place
from tweet_reach.commands import Stage
from tweet_reach.domain.sketch import Sketch
from tweet_reach.example_data import FOLLOWED_BY, REACHES, TWEETED_BY
from tweet_reach.main import app

PARTITIONS = 3
GROUPS = ["tweet-reach-authors", "tweet-reach-urls"]
TOPICS = ["tweets", "twitter-followers", "tweet-reach-facts", "tweet-reach-work", "tweet-reach-rebuilds"]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Cluster:
    """The topics of tweet reach, and processes that use them."""

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
            "TWEET_REACH_BATCH_SECONDS": "0.2",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self._traces,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        process = Process("tweet_reach.main", arguments, {**own, **environment})
        self._stack.callback(process.close)
        return process

    def start_stages(self, **environment: str) -> list[Process]:
        """One process of each stage."""
        return [self.start("processor", "--stage", stage, **environment) for stage in Stage]

    def forget_inputs(self) -> None:
        """Delete all events and facts that the stages have handled, as retention does."""
        cluster = Kafka(self.servers).cluster()
        places = [Place(name, partition) for name in TOPICS for partition in range(PARTITIONS)]
        handled = [cluster.stable_offsets(group, places) for group in GROUPS]
        cluster.close()
        ends = [
            TopicPartition(*place, each.next_offset)
            for offsets in handled
            for place, each in offsets.items()
            if each is not None
        ]
        admin = AdminClient({"bootstrap.servers": self.servers})
        for deleted in admin.delete_records(ends).values():
            deleted.result(30)

    def reaches(self) -> list[tuple[str, int]]:
        """Return all published rows, in the order of each partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "nobody",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        found: list[tuple[str, int]] = []
        for partition in range(PARTITIONS):
            consumer.assign([TopicPartition("tweet-reach-table", partition, 0)])
            while True:
                (message,) = consumer.consume(1, 30)
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF  # its public name
                    break
                row = Avro(REACH).decode(message.value() or b"")
                found.append(((message.key() or b"").decode(), row["reach"]))
        consumer.close()
        return found

    def http(self, process: Process) -> httpx.Client:
        client = retrying_client(f"http://{process.address()}")
        return self._stack.enter_context(client)


@pytest.fixture
def cluster(broker: Broker, tmp_path: Path) -> Iterator[Cluster]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    own = [f"{group}-{what}" for group in GROUPS for what in ("dead-letters", "retry")]
    topics = [NewTopic(name, PARTITIONS) for name in (*TOPICS, *own)]
    tables = ["tweet-reach-table", *(f"{group}-table" for group in GROUPS)]
    topics += [NewTopic(name, PARTITIONS, config={"cleanup.policy": "compact"}) for name in tables]
    create_topics(admin, topics)
    with ExitStack() as stack:
        yield Cluster(broker, tmp_path, stack)
    delete_topics(admin, [topic.topic for topic in topics])
    for removed in admin.delete_consumer_groups(GROUPS).values():
        removed.exception(30)


def ready(client: httpx.Client) -> bool:
    return client.get("/readyz").status_code == 200


def reach_of(query: httpx.Client, url: str) -> int | None:
    answer = query.get("/reach", params={"url": url})
    return answer.json()["reach"] if answer.status_code == 200 else None


def reached_by(stub: Any, request: pb.GetRequest) -> int | None:
    try:
        reach: int = stub.Get(request, timeout=5, wait_for_ready=True).reach.reach
    except grpc.RpcError:
        return None  # the table is being loaded
    return reach


@pytest.mark.faults_long("all services, and the same ones again; the demo has the same known answers")
@pytest.mark.timeout(300)
def test_the_known_answers_go_from_the_emitter_to_view_and_query_and_outlive_the_processes(
    cluster: Cluster,
) -> None:
    stages = cluster.start_stages()
    emitter = cluster.http(cluster.start("emitter"))
    query = cluster.http(cluster.start("query"))
    view = cluster.start("view")
    for client in (emitter, query):
        wait_until(lambda client=client: ready(client))  # type: ignore[misc] # bound in the loop
    tweets = [{"author": who, "url": url} for url, authors in TWEETED_BY.items() for who in authors]
    follows = [{"author": who, "follower": name} for who, names in FOLLOWED_BY.items() for name in names]
    sent = emitter.post("/tweets", json=with_ids(tweets))
    assert sent.status_code == 200
    assert emitter.post("/follows", json=with_ids(follows)).status_code == 200
    wait_until(lambda: {url: reach_of(query, url) for url in REACHES} == REACHES)

    top = query.get("/reach/top", params={"limit": 2}).json()["items"]
    assert [(item["url"], item["reach"]) for item in top] == [
        ("foo.com/blog/1", 16),
        ("engineering.twitter.com/blog/5", 14),
    ]
    with grpc.insecure_channel(view.address()) as channel:
        stub: Any = TweetReachesStub(channel)
        request = pb.GetRequest(url="foo.com/blog/1")
        wait_until(lambda: reached_by(stub, request) == 16)
        sketch = stub.Get(request, timeout=5).sketch
        assert round(Sketch(sketch).estimate) == 16

    with query.stream("GET", "/reach/events", params={"url": "foo.com/blog/1"}) as events:
        lines = (line.removeprefix("data:") for line in events.iter_lines() if line.startswith("data:"))
        assert json.loads(next(lines))["reach"] == 16
        nathans = next(
            accepted["id"]
            for accepted, tweet in zip(sent.json()["accepted"], tweets, strict=True)
            if tweet == {"author": "nathan", "url": "foo.com/blog/1"}
        )
        deleted = emitter.delete(f"/users/nathan/tweets/{nathans}", headers={"traceparent": TRACEPARENT})
        assert deleted.status_code == 200
        while json.loads(next(lines))["reach"] != 13:
            pass
    check_way_of_the_deletion(cluster.collector)

    # The next ones find their rows in the tables of the groups, also where their inputs are gone and the disk is another.
    before = Counter(cluster.reaches())
    assert [stage.stop() for stage in stages] == [0, 0], [stage.output for stage in stages]
    cluster.forget_inputs()
    cluster.start_stages()
    emitter.post("/follows", json=with_ids({"author": "adam", "follower": "zoe"})).raise_for_status()
    expected = {**REACHES, "foo.com/blog/1": 13, "engineering.twitter.com/blog/5": 15}
    wait_until(lambda: {url: reach_of(query, url) for url in REACHES} == expected)
    published = Counter(cluster.reaches()) - before
    assert list(published) == [("engineering.twitter.com/blog/5", 15)]


WAY_OF_A_DELETION = {
    ("DELETE /users/{user}/tweets/{tweet_id}", "send tweets"),
    ("send tweets", "process tweet-reach-authors"),
    ("process tweet-reach-authors", "commit tweet-reach-authors"),
    ("commit tweet-reach-authors", "process tweet-reach-urls"),
    ("process tweet-reach-urls", "commit tweet-reach-urls"),
    ("commit tweet-reach-urls", "apply tweet-reach-table"),
}


def check_way_of_the_deletion(collector: TraceCollector) -> None:
    """One trace leads from the caller through both stages to every process that holds a copy of the table."""
    trace = TRACEPARENT.split("-")[1]

    def reported() -> tuple[set[tuple[str, str]], set[Any]]:
        story = {span.span: span for span in list(collector.spans) if span.trace == trace}
        steps = {(story[span.parent].name, span.name) for span in story.values() if span.parent in story}
        applied = [span for span in story.values() if span.name.startswith("apply")]
        return steps & WAY_OF_A_DELETION, {span.facts["streamtable.view"] for span in applied}

    # Each process sends its spans when it has time: what happened last can arrive first.
    wait_until(lambda: reported() == (WAY_OF_A_DELETION, {"view", "query"}), 60, "the whole way in one trace")


@pytest.mark.timeout(300)
def test_processors_with_a_central_store_come_to_the_known_answers(cluster: Cluster, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "store", flavour="valkey") as server:
        emitter, query = cluster.http(cluster.start("emitter")), cluster.http(cluster.start("query"))
        processors = cluster.start("processor", "--workers", "2", STREAMTABLE_STORE=server.url)
        wait_until(lambda: ready(query) and ready(emitter))
        tweets = [{"author": who, "url": url} for url, authors in TWEETED_BY.items() for who in authors]
        follows = [{"author": who, "follower": name} for who, names in FOLLOWED_BY.items() for name in names]
        emitter.post("/tweets", json=with_ids(tweets)).raise_for_status()
        emitter.post("/follows", json=with_ids(follows)).raise_for_status()
        wait_until(lambda: {url: reach_of(query, url) for url in REACHES} == REACHES)
        assert processors.stop() == 0, processors.output


@pytest.mark.faults_long("three processors, one after another and at once, and a load")
@pytest.mark.timeout(300)
def test_processors_with_a_central_store_share_the_work_and_the_next_ones_see_what_was_taken_back_meanwhile(
    cluster: Cluster, tmp_path: Path
) -> None:
    with RedisServer(tmp_path / "store", flavour="valkey") as server:
        emitter, query = cluster.http(cluster.start("emitter")), cluster.http(cluster.start("query"))
        load = cluster.start("load", "--rate", "0", "--count", "3000", "--keys", "50")
        first = cluster.start("processor", "--workers", "2", STREAMTABLE_STORE=server.url)
        wait_until(lambda: ready(query) and ready(emitter))
        tweets = [{"author": f"author-{n}", "url": "foo.com"} for n in range(20)]
        follows = [{"author": f"author-{n}", "follower": f"follower-{n}"} for n in range(20)]
        sent = emitter.post("/tweets", json=with_ids(tweets)).raise_for_status().json()["accepted"]
        emitter.post("/follows", json=with_ids(follows)).raise_for_status()
        assert load.ended() == 0, load.output
        assert "acknowledged 3000" in load.output[-1]
        wait_until(lambda: reach_of(query, "foo.com") == 20)
        wait_until(
            lambda: any(item["reach"] == 50 for item in query.get("/reach/top").json().get("items", []))
        )
        assert first.stop() == 0, first.output
        emitter.post("/follows", json=with_ids({**follows[3], "follows": False})).raise_for_status()
        emitter.delete(f"/users/author-5/tweets/{sent[5]['id']}").raise_for_status()
        stages = cluster.start_stages(STREAMTABLE_STORE=server.url)
        wait_until(lambda: reach_of(query, "foo.com") == 18)
        assert [stage.stop() for stage in stages] == [0, 0], [stage.output for stage in stages]


@pytest.mark.faults_long(
    "it starts an Elasticsearch and the services before it; test_searching.py has a group at work"
)
def test_tweets_are_found_by_their_words_where_the_store_can_search(cluster: Cluster, tmp_path: Path) -> None:
    with ElasticsearchServer(tmp_path / "store", brief=True) as server:
        url = server.url.replace("http://", "elasticsearch+http://") + "/reach?replicas=0&fields=text:text"
        admin = StoreSettings.parse(url).admin("setup")
        with closing(admin.driver):
            admin.create()
        cluster.start_stages(STREAMTABLE_STORE=url)
        emitter, query = (
            cluster.http(cluster.start("emitter")),
            cluster.http(cluster.start("query", STREAMTABLE_STORE=url)),
        )
        wait_until(lambda: ready(query) and ready(emitter))
        tweet = {"author": "ann", "url": "https://example.org/streams", "text": "read this"}
        accepted = emitter.post(
            "/tweets", json=with_ids([tweet, {"author": "bob", "url": "foo.com"}])
        ).json()["accepted"]

        def found(words: str) -> list[str] | None:
            answer = query.get("/tweets", params={"words": words})
            return [item["author"] for item in answer.json()["items"]] if answer.status_code == 200 else None

        wait_until(lambda: found("this streams") == ["ann"])
        assert found("foo.com") == ["bob"]
        assert found("this foo.com") == []
        emitter.delete(f"/users/ann/tweets/{accepted[0]['id']}").raise_for_status()
        wait_until(lambda: found("read") == [])


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
@pytest.mark.parametrize("command", ["processor", "processor --stage urls", "query"])
def test_a_store_in_memory_is_refused_with_what_to_use(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMTABLE_STORE", "memory:")
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 2
    assert "use embedded: " in result.output


@pytest.mark.usefixtures("reported")
@pytest.mark.parametrize("command", ["emitter", "load", "processor --stage authors", "view", "query"])
def test_a_missing_topic_is_reported_in_words(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEET_REACH_GROUP", "nowhere")
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 2
    assert "topic" in result.output.splitlines()[-1]
