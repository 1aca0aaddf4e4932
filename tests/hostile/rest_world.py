"""The REST services as processes on a real broker, and raw callers of them."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.hostile.grpc_world import REACHES
from tests.hostile.program import Program, program

from click_count import topics as click_topics
from contracts.records import Stock, UserStatus
from inventory import flow as stock_topics
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.topics import create_topics, delete_topics
from localkafka.waiting import wait_until
from messaging import groups as message_topics
from streamtable import Table
from tweet_reach import topics as reach_topics
from user_status import topics as status_topics

ROWS: Final = {
    "alice": 3,
    "bob": 2,
    "\u00e9": 7,
    "e\u0301": 8,
    **{f"user-{n:04}": n + 1 for n in range(2000)},
}
STATUSES: Final = {
    user: UserStatus(status=f"says {user}", at=n, id=f"0190f6a2-5a7c-7c3e-8f3e-{n:012}", clicks=n)
    for n, user in enumerate(["alice", "carol", *(f"user-{n:04}" for n in range(1000, 3000))])
}
STOCKS: Final = {
    f"{product}@berlin": Stock(product=product, warehouse="berlin", quantity=n, threshold=5)
    for n, product in enumerate(["lamp", *(f"lamp-{n}" for n in range(200))])
}
PARTITIONS: Final = 4
CONSOLE_KEY: Final = "a key of the tests"
FIRST_BYTE_SECONDS: Final = 60.0


@dataclass
class Service(Program):
    """One running service.

    Attributes:
        url: The URL of the service.
        headers: The headers that its callers send.
        known: names of what there is, by the parameter of a path: for callers who make up all else.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        url = httpx.URL(self.url)
        return url.host, url.port or 0

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def raw(self, request: bytes, silence: float = 10.0) -> bytes:
        """Send bytes and return all that is answered until the connection ends, or nothing more comes for so long."""
        with socket.create_connection(self.address, timeout=FIRST_BYTE_SECONDS) as connection:
            return exchange(connection, request, silence)

    def check_sound(self) -> None:
        """Check that the service runs and that nothing unexpected was logged."""
        self.check_alive()
        self.check_log()


def exchange(connection: socket.socket, request: bytes, silence: float = 10.0) -> bytes:
    """Send bytes on an open connection and return all that is answered until it ends or falls silent.

    Until the first byte it may be silent for as long as the connection's own timeout.
    """
    answer = b""
    try:
        connection.sendall(request)
        while part := connection.recv(65536):
            answer += part
            connection.settimeout(silence)
    except (TimeoutError, ConnectionError):
        pass  # the responses so far are judged
    return answer


@contextmanager
def running(
    broker: Broker, command: str, module: str = "click_count.main", **environment: str
) -> Iterator[Service]:
    """A service as a process, from its listening to its end."""
    own = {"STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0", **environment}
    with program(broker, command, "http", own, module) as (started, address):
        service = Service(started.process, started.lines, f"http://{address}")
        wait_until(lambda: httpx.get(f"{service.url}/readyz").status_code == 200, 60)
        yield service


@contextmanager
def query_service(
    broker: Broker, headers: Mapping[str, str] | None = None, **environment: str
) -> Iterator[Service]:
    """A query service with a table of its own, which holds `ROWS`; `headers` for the question whether it has begun."""
    topics = Topics(broker.bootstrap_servers)
    try:
        group = topics.name("count")
        topics.create("count-table", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
        produce(broker, click_topics.by_count(group).table, ROWS)
        with running(broker, "query", CLICK_COUNT_GROUP=group, **environment) as service:
            wait_until(lambda: httpx.get(f"{service.url}/top", headers=headers).status_code in {200, 429})
            yield service
    finally:
        topics.delete_all()


@contextmanager
def users_service(broker: Broker) -> Iterator[Service]:
    """A query service of user statuses, with tables of its own, which hold `STATUSES` and `ROWS`."""
    topics = Topics(broker.bootstrap_servers)
    try:
        clicks, statuses = topics.name("count"), topics.name("status")
        for table in ("count-table", "status-table"):
            topics.create(table, partitions=PARTITIONS, config={"cleanup.policy": "compact"})
        counts = status_topics.click_counts(clicks)
        produce(broker, counts, ROWS)
        produce(broker, status_topics.statuses(statuses, clicks).table, STATUSES)
        names = {"USER_STATUS_GROUP": statuses, "USER_STATUS_CLICKS_GROUP": clicks}
        with running(broker, "query", "user_status.main", **names) as service:
            yield service
    finally:
        topics.delete_all()


@contextmanager
def reaches_service(broker: Broker) -> Iterator[Service]:
    """A query service of tweet-reach with a table of its own, which holds the rows of `REACHES`. It cannot search."""
    topics = Topics(broker.bootstrap_servers)
    try:
        group = topics.name("reach")
        topics.create("reach-table", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
        produce(broker, REACHES.table(group), REACHES.rows)
        with running(broker, "query", REACHES.module, **{REACHES.group_setting: group}) as service:
            wait_until(lambda: httpx.get(f"{service.url}/reach/top").status_code == 200)
            yield service
    finally:
        topics.delete_all()


@contextmanager
def console_service(broker: Broker) -> Iterator[Service]:
    """A console where letters can be sent again, with a table, a group's letters and a topic of runs to look at."""
    topics = Topics(broker.bootstrap_servers)
    try:
        compact = {"cleanup.policy": "compact"}
        status, runs = (topics.create(name, partitions=1, config=compact) for name in ("status", "runs"))
        group = topics.name("count")
        table = topics.create("count-table", partitions=PARTITIONS, config=compact)
        for name in ("count-dead-letters", "count-retry"):
            topics.create(name, partitions=PARTITIONS)
        produce(broker, click_topics.by_count(group).table, ROWS)
        settings = {
            "CONSOLE_ACTIONS": "true",
            "SERVICEKIT_API_KEYS": f"me:console+replay:{sha256(CONSOLE_KEY.encode()).hexdigest()}",
            "SERVICEKIT_STATUS_TOPIC": status,
            "SERVICEKIT_RUNS_TOPIC": runs,
        }
        with running(broker, "", "console.main", **settings) as service:
            service.headers = {"Authorization": f"Bearer {CONSOLE_KEY}"}
            service.known = {"table": table, "topic": table, "group": group}
            yield service
    finally:
        topics.delete_all()


@contextmanager
def emitter_service(broker: Broker, **environment: str) -> Iterator[Service]:
    """An emitter service, with the topic that it writes to."""
    with _topic(broker, click_topics.USER_CLICKS.name), running(broker, "emitter", **environment) as service:
        yield service


@contextmanager
def statuses_service(broker: Broker) -> Iterator[Service]:
    """An emitter service of user statuses, with the topic that it writes to."""
    with (
        _topic(broker, status_topics.UPDATES.name),
        running(broker, "emitter", "user_status.main") as service,
    ):
        yield service


@contextmanager
def tweets_service(broker: Broker) -> Iterator[Service]:
    """An emitter service of tweets and followers, with the topics that it writes to."""
    with ExitStack() as opened:
        for topic in (reach_topics.TWEETS, reach_topics.FOLLOWS):
            opened.enter_context(_topic(broker, topic.name))
        yield opened.enter_context(running(broker, "emitter", "tweet_reach.main"))


@contextmanager
def movements_service(broker: Broker) -> Iterator[Service]:
    """The emitter service of the inventory, with the topics that it writes to."""
    with ExitStack() as opened:
        for topic in (stock_topics.MOVEMENTS, stock_topics.PRODUCTS, stock_topics.ADJUSTMENTS):
            opened.enter_context(_topic(broker, topic.name))
        yield opened.enter_context(running(broker, "emitter", "inventory.main"))


@contextmanager
def stocks_service(broker: Broker) -> Iterator[Service]:
    """The query service of the inventory with tables of its own; the stock table holds `STOCKS`."""
    topics = Topics(broker.bootstrap_servers)
    try:
        made = stock_topics.inventory(topics.name("stock"))
        for table in (made.stock, made.prices, made.categories, made.hours):
            name = table.name.removeprefix(topics.name(""))
            topics.create(name, partitions=PARTITIONS, config={"cleanup.policy": "compact"})
        produce(broker, made.stock, STOCKS)
        with running(broker, "query", "inventory.main", INVENTORY_GROUP=made.flow.name) as service:
            yield service
    finally:
        topics.delete_all()


@contextmanager
def messages_service(broker: Broker) -> Iterator[Service]:
    """The web service of messaging, with the topics that it writes to and the table of feeds."""
    topics = Topics(broker.bootstrap_servers)
    try:
        with ExitStack() as opened:
            for stream in (message_topics.MESSAGES, message_topics.BLOCKS, message_topics.TRANSLATIONS):
                opened.enter_context(_topic(broker, stream.name))
            group = topics.name("feeds")
            topics.create("feeds-table", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
            yield opened.enter_context(running(broker, "web", "messaging.main", MESSAGING_GROUP=group))
    finally:
        topics.delete_all()


@contextmanager
def _topic(broker: Broker, name: str) -> Iterator[None]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    create_topics(admin, [NewTopic(name, PARTITIONS)])
    try:
        yield
    finally:
        delete_topics(admin, [name])


def produce(broker: Broker, table: Table[str, Any], rows: Mapping[str, Any]) -> None:
    """Write rows of a table, as a processor would."""
    producer = Producer(
        {
            "enable.idempotence": True,
            "bootstrap.servers": broker.bootstrap_servers,
            "partitioner": "murmur2_random",
        }
    )
    for key, value in rows.items():
        producer.produce(table.name, key=table.key.encode(key), value=table.value.encode(value))
    assert producer.flush(60) == 0
