"""`make demo CAPTURE=1`: the inventory's products are rows of PostgreSQL, and come by Debezium's connector."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from infra.demo_parts import DemoFailed, say

from inventory.products import EVENTS, PREFIX, ROWS, TABLE
from localkafka.connect import Connector, ConnectWorker
from localkafka.errors import SetupError
from localkafka.waiting import Deadline
from localstores.postgres import LOGICAL, PostgresServer, find_program
from streamtable import App
from streamtable.errors import RetryLater

PROGRAM = "python -m inventory.products"
PARTITIONS = 12
_UPSERT = """insert into products values (%(product)s, %(category)s, %(price)s)
on conflict (product) do update set category = excluded.category, price = excluded.price"""


class ProductTable:
    """The table of products in PostgreSQL."""

    def __init__(self, url: str) -> None:
        self.url = url

    def write(self, products: Sequence[Mapping[str, Any]]) -> None:
        """Insert or update rows."""
        with psycopg.connect(self.url) as database:
            database.cursor().executemany(_UPSERT, products)
        say(f"Written to PostgreSQL: {len(products)} products.")


@contextmanager
def captured(folder: Path, bootstrap_servers: str) -> Iterator[ProductTable]:
    """Run PostgreSQL, and Kafka Connect with the connector. Raises `DemoFailed` where PostgreSQL is not installed."""
    try:
        find_program("initdb")
    except SetupError as error:
        raise DemoFailed(
            f"CAPTURE=1 needs PostgreSQL on this machine: {error}. On Debian and Ubuntu: apt-get install postgresql; with Homebrew: "
            "brew install postgresql"
        ) from error
    _create_topics(folder, bootstrap_servers)
    say("Starting PostgreSQL and Kafka Connect with Debezium's connector ...")
    with PostgresServer(folder / "postgres", options=LOGICAL) as server:
        with psycopg.connect(server.url) as database:
            database.execute(TABLE)
        settings = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": server.port,
            "database.user": "postgres",
            "database.password": "not asked for",
            "database.dbname": "postgres",
            "topic.prefix": PREFIX,
            "table.include.list": "public.products",
            "topic.creation.default.partitions": PARTITIONS,
        }
        with ConnectWorker(
            folder / "connect", bootstrap_servers, [Connector("products", settings)], brief=True
        ):
            yield ProductTable(server.url)


def _create_topics(folder: Path, bootstrap_servers: str) -> None:
    """Create the topics of the captured table. On a busy machine Kafka takes its time to show them."""
    deadline = Deadline(90)
    with App(bootstrap_servers, folder / "state") as app:
        while True:
            try:
                app.create_topics(ROWS, EVENTS, partitions=PARTITIONS)
            except RetryLater as error:
                if deadline.passed():
                    raise DemoFailed(f"the topics of the products were not created: {error}") from error
            else:
                return
