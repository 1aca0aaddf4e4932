"""The products of a real PostgreSQL reach the stream of products, as the profile `capture` of the stack sets it up."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from inventory.connector import NAME, PARTITIONS, ConnectorFailed, main, register, settings_of
from inventory.flow import PRODUCTS
from inventory.known import SETTING_UP
from inventory.products import GROUPS, ROWS
from localkafka.broker import Broker
from localkafka.connect import Connector, ConnectWorker, plugin_folder
from localkafka.errors import SetupError
from localkafka.topics import delete_topics
from localkafka.waiting import wait_until
from localstores.postgres import LOGICAL, PostgresServer, find_program
from servicekit_testing import Process
from servicekit_testing.topic_reading import committed_records
from streamtable import App

_, PRODUCTS_SENT = SETTING_UP[0]
UPSERT = "insert into products values (%(product)s, %(category)s, %(price)s)"


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    try:
        find_program("initdb")
    except SetupError as error:
        pytest.skip(str(error))
    with PostgresServer(tmp_path / "postgres", options=LOGICAL) as server:
        yield server.url


@pytest.fixture
def topics(broker: Broker, tmp_path: Path) -> Iterator[None]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    before = set(admin.list_topics(timeout=30).topics)
    with App(broker.bootstrap_servers, tmp_path / "app") as app:
        app.create_topics(*GROUPS.values(), partitions=PARTITIONS)
    yield
    delete_topics(admin, [name for name in admin.list_topics(timeout=30).topics if name not in before])


@pytest.fixture
def connect(broker: Broker, tmp_path: Path, postgres: str) -> Iterator[ConnectWorker]:
    """Kafka Connect with the plugin, and without a connector."""
    plugin = plugin_folder(Connector(NAME, settings_of(postgres)).plugin)
    with ConnectWorker(
        tmp_path / "connect", broker.bootstrap_servers, [], plugins=[plugin], brief=True
    ) as worker:
        yield worker


@pytest.mark.usefixtures("topics")
def test_products_of_postgresql_are_events_once_the_connector_is_registered(
    broker: Broker, postgres: str, connect: ConnectWorker, tmp_path: Path
) -> None:
    setting_up = {**os.environ, "INVENTORY_POSTGRES_URL": postgres, "INVENTORY_CONNECT_URL": connect.url}
    for _ in range(2):  # the stack may start it again
        done = subprocess.run(
            [sys.executable, "-m", "inventory.connector"],
            env=setting_up, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    environment = {
        "STREAMTABLE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "STREAMTABLE_LOG_FORMAT": "json",
        "STREAMTABLE_STATE_DIR": str(tmp_path / "state"),
    }
    copying = Process("inventory.main", ["products"], environment)
    try:
        with psycopg.connect(postgres) as database:
            database.cursor().executemany(UPSERT, PRODUCTS_SENT)
        sent = {each["product"]: (each["category"], each["price"]) for each in PRODUCTS_SENT}

        def events() -> dict[str, Any]:
            found = committed_records(broker.bootstrap_servers, PRODUCTS, 30)
            return {key: (event["category"], event["price"]) for key, event in found if event is not None}

        wait_until(lambda: events() == sent, 90, "an event of each product", every=0.5)
        with pytest.raises(ConnectorFailed, match=r"(?s)refused|failed"):
            register(connect.url, {**settings_of(postgres), "plugin.name": "no_such_plugin"})
        assert copying.stop() == 0
    finally:
        copying.close()


def test_the_connector_writes_the_topic_that_the_captured_table_reads() -> None:
    settings = settings_of("postgresql://ann:secret@db:6543/shop")
    assert f"{settings['topic.prefix']}.{settings['table.include.list']}" == ROWS.source.name
    names = ("hostname", "port", "user", "password", "dbname")
    assert [settings[f"database.{each}"] for each in names] == ["db", "6543", "ann", "secret", "shop"]


def test_without_the_address_of_kafka_connect_it_says_which_setting_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main({"INVENTORY_POSTGRES_URL": "postgresql://db/shop"}) == 2
    assert "INVENTORY_CONNECT_URL" in capsys.readouterr().err


def test_a_kafka_connect_that_does_not_answer_is_named_with_its_address() -> None:
    with pytest.raises(ConnectorFailed, match=r"http://127\.0\.0\.1:1 has not taken inventory-products"):
        register("http://127.0.0.1:1", {}, seconds=0.2)
