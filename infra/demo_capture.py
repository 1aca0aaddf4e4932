"""`make demo CAPTURE=1`: the inventory's products are rows of PostgreSQL, and come by Debezium's connector."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from infra.demo_parts import say

from inventory.connector import NAME, create_table, settings_of
from localkafka.connect import Connector, ConnectWorker
from localkafka.errors import SetupError
from localstores.postgres import LOGICAL, PostgresServer, find_program

SERVICE = "inventory-products"
"""The service that runs only if the products are captured."""
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


def what_to_install() -> str | None:
    """Return what to install where PostgreSQL is missing; None if nothing is."""
    try:
        find_program("initdb")
    except SetupError as error:
        return (
            f"CAPTURE=1 needs PostgreSQL on this machine: {error}. On Debian and Ubuntu: apt-get install postgresql; with Homebrew: "
            "brew install postgresql"
        )
    return None


@contextmanager
def captured(folder: Path, bootstrap_servers: str) -> Iterator[ProductTable]:
    """Run PostgreSQL, and Kafka Connect with the connector."""
    say("Starting PostgreSQL and Kafka Connect with Debezium's connector ...")
    with PostgresServer(folder / "postgres", options=LOGICAL) as server:
        create_table(server.url)
        declared = Connector(NAME, settings_of(server.url))
        with ConnectWorker(folder / "connect", bootstrap_servers, [declared], brief=True):
            yield ProductTable(server.url)
