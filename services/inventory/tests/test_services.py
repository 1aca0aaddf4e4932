"""The services as processes, with a real broker between them: the known world goes in, its answers come out."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import httpx
import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from contracts.grpc.inventory.v1 import inventory_pb2 as pb
from contracts.grpc.inventory.v1.inventory_pb2_grpc import StocksStub
from inventory.flow import ADJUSTMENTS, HOUR_MS, MOVEMENTS, PRODUCTS, REORDERS, inventory
from inventory.known import ANSWERS, HOURS, SETTING_UP, TRADING
from inventory.sinks import HOUR_ROWS, STOCK_ROWS, sinks
from localkafka.broker import Broker
from localkafka.errors import SetupError
from localkafka.topics import delete_topics
from localkafka.waiting import wait_until
from localstores.postgres import PostgresServer, find_program
from servicekit_testing import Process, retrying_client, with_ids
from streamtable import App, Kafka

NOON_MS = 1_699_999_200_000


class Cluster:
    """The topics of the inventory, and processes that use them."""

    def __init__(self, broker: Broker, folder: Path, stack: ExitStack) -> None:
        self._servers = broker.bootstrap_servers
        self._folder = folder
        self._stack = stack

    def start(self, command: str, **further: str) -> Process:
        environment = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": self._servers,
            "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_GRPC_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_LOG_FORMAT": "json",
            "STREAMTABLE_STATE_DIR": str(self._folder / command),
            **further,
        }
        process = Process("inventory.main", [command], environment)
        self._stack.callback(process.close)
        return process

    def http(self, process: Process) -> httpx.Client:
        client = retrying_client(f"http://{process.address()}")
        return self._stack.enter_context(client)


@pytest.fixture
def cluster(broker: Broker, tmp_path: Path) -> Iterator[Cluster]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    before = set(admin.list_topics(timeout=30).topics)
    flow = inventory().flow
    with App(Kafka(broker.bootstrap_servers), tmp_path / "app") as app:
        app.create_topics(flow, *sinks("").values(), partitions=2)
    with ExitStack() as stack:
        yield Cluster(broker, tmp_path, stack)
    made = [name for name in admin.list_topics(timeout=30).topics if name not in before]
    assert {MOVEMENTS.name, PRODUCTS.name, ADJUSTMENTS.name, REORDERS.name} <= set(made)
    delete_topics(admin, made)  # and with them, what the groups have committed


def rows(url: str, query: str) -> dict[str, int]:
    """Return the rows of a query; nothing while the sink has not made its tables."""
    with psycopg.connect(url) as session:
        try:
            return dict(session.execute(query).fetchall())
        except psycopg.errors.UndefinedTable:
            return {}


def members_of(client: httpx.Client, path: str, members: Any) -> dict[str, Any]:
    answer = client.get(path)
    return {name: answer.json()[name] for name in members} if answer.is_success else {}


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str | None]:
    """The URL of a PostgreSQL; None where it is not installed."""
    try:
        find_program("initdb")
    except SetupError:
        yield None
        return
    with PostgresServer(tmp_path / "postgres") as server:
        yield server.url


def test_what_happens_in_warehouses_is_answered_by_each_service(
    cluster: Cluster, postgres: str | None
) -> None:
    processes = {command: cluster.start(command) for command in ("emitter", "processor", "view", "query")}
    if postgres is not None:
        processes["sinks"] = cluster.start("sinks", INVENTORY_POSTGRES_URL=postgres)
    emitter, query = cluster.http(processes["emitter"]), cluster.http(processes["query"])
    for client in (emitter, query):
        wait_until(lambda client=client: client.get("/readyz").is_success)  # type: ignore[misc] # bound in the loop
    for path, body in (*SETTING_UP, *TRADING):
        assert emitter.post(path, json=with_ids([{**event, "at": NOON_MS} for event in body])).is_success
    assert query.get("/stock/lamp@berlin", headers={"Streamtable-Token": "x"}).status_code == 422

    wait_until(lambda: {path: members_of(query, path, want) for path, want in ANSWERS.items()} == ANSWERS)
    hours = {"since": NOON_MS, "until": NOON_MS + HOUR_MS}

    def sold() -> dict[str, int]:
        found = {name: query.get(f"/products/{name}/hours", params=hours).json()["items"] for name in HOURS}
        return {name: items[0]["quantity"] for name, items in found.items() if items}

    wait_until(lambda: sold() == HOURS)

    with grpc.insecure_channel(processes["view"].address()) as channel:
        stub: Any = StocksStub(channel)
        stocks = ("candle@oslo", "desk@oslo", "lamp@berlin", "lamp@oslo")

        def scanned() -> dict[str, int]:
            pages = stub.Scan(pb.ScanRequest(), timeout=10, wait_for_ready=True)
            return {row.item: row.stock.quantity for page in pages for row in page.rows}

        wait_until(lambda: scanned() == {item: ANSWERS[f"/stock/{item}"]["quantity"] for item in stocks})
        with pytest.raises(grpc.RpcError) as caught:
            stub.Get(pb.GetRequest(item="lamp"), timeout=5)
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    if postgres is not None:
        later = {"product": "lamp", "warehouse": "oslo", "quantity": 1, "at": NOON_MS + 2 * HOUR_MS}
        assert emitter.post("/sales", json=with_ids([later])).is_success
        stock = {item: ANSWERS[f"/stock/{item}"]["quantity"] for item in stocks} | {"lamp@oslo": 17}
        wait_until(lambda: rows(postgres, f"SELECT item, quantity FROM {STOCK_ROWS}") == stock)
        noon = f"SELECT product, quantity FROM {HOUR_ROWS} WHERE extract(epoch FROM hour) * 1000 = {NOON_MS}"
        wait_until(lambda: rows(postgres, noon).get("lamp") == HOURS["lamp"])
    listed = {"product": "lamp", "warehouse": "lima", "threshold": 1, "at": NOON_MS}
    token = emitter.post("/listings", json=with_ids(listed)).headers["streamtable-token"]
    headers = {"Streamtable-Token": token}
    answer = query.get("/stock/lamp@lima", headers=headers)
    assert answer.is_success, (answer.status_code, answer.text, token)
    assert answer.json()["threshold"] == 1
    assert [process.stop() for process in processes.values()] == [0] * len(processes)
