"""Sets up the capture of the products: `python -m inventory.connector` creates their table in PostgreSQL, and registers
Debezium's connector for it at Kafka Connect.

It may run again: what is there stays, and the connector gets the settings of this release.
"""

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import httpx
import psycopg
from psycopg.conninfo import conninfo_to_dict

from inventory.products import PREFIX, TABLE

NAME: Final = "inventory-products"
PARTITIONS: Final = 12
_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
_SECONDS: Final = 120.0
_WAITED: Final = 0.5


class ConnectorFailed(Exception):
    """Kafka Connect has refused the connector, or does not run it. The message has the reason."""


def settings_of(url: str) -> dict[str, str]:
    """Return the settings of the connector that captures the products.

    Args:
        url: The URL of the database, as the connector reaches it. Its user may replicate and read the table.
    """
    parts = conninfo_to_dict(url)
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": str(parts.get("host", "127.0.0.1")),
        "database.port": str(parts.get("port", 5432)),
        "database.user": str(parts.get("user", "postgres")),
        # The connector requires one; a database that trusts its network does not read it.
        "database.password": str(parts.get("password", "unused")),
        "database.dbname": str(parts.get("dbname", "postgres")),
        "topic.prefix": PREFIX,
        "table.include.list": "public.products",
        "publication.autocreate.mode": "filtered",
        "slot.name": PREFIX,
        "topic.creation.default.partitions": str(PARTITIONS),
        "topic.creation.default.replication.factor": "-1",
        # What `inventory.products` reads, whatever the worker's own defaults are.
        "key.converter": _CONVERTER,
        "key.converter.schemas.enable": "false",
        "value.converter": _CONVERTER,
        "value.converter.schemas.enable": "false",
    }


def create_table(url: str) -> None:
    """Create the table of the products, unless it is there."""
    with psycopg.connect(url) as database:
        database.execute(TABLE)


def register(connect: str, settings: Mapping[str, str], seconds: float = _SECONDS) -> None:
    """Register the connector, and wait until it runs.

    Args:
        connect: The URL of Kafka Connect's REST interface.
        settings: The settings of the connector.
        seconds: How long to wait for Kafka Connect, and for the connector.

    Raises:
        ConnectorFailed: The settings are refused, or the connector fails or does not run in time.
    """
    deadline = time.monotonic() + seconds
    last = "it does not answer"
    with httpx.Client(base_url=connect, timeout=30) as client:
        while time.monotonic() < deadline:
            try:
                answer = client.put(f"/connectors/{NAME}/config", json=dict(settings))
                # While the worker starts or rebalances it answers with 404, 409 or 503.
                if answer.status_code in {400, 422}:
                    raise ConnectorFailed(f"Kafka Connect has refused {NAME}: {answer.text}")
                last = f"{answer.status_code} {answer.text}"
                if answer.is_success:
                    _wait_running(client, deadline)
                    return
            except httpx.TransportError as error:
                last = repr(error)
            time.sleep(_WAITED)
    raise ConnectorFailed(f"Kafka Connect at {connect} has not taken {NAME} in {seconds:g} s: {last}")


def _wait_running(client: httpx.Client, deadline: float) -> None:
    states: list[Any] = []
    while time.monotonic() < deadline:
        answer = client.get(f"/connectors/{NAME}/status")
        if answer.is_success:
            found = answer.json()
            states = [found["connector"], *found["tasks"]]
            if failed := [each for each in states if each["state"] == "FAILED"]:
                raise ConnectorFailed(f"{NAME} failed: {failed[0].get('trace', '')[:3000]}")
            if len(states) > 1 and all(each["state"] == "RUNNING" for each in states):
                return
        time.sleep(_WAITED)
    raise ConnectorFailed(f"{NAME} does not run yet: {[each['state'] for each in states]}")


def main(environment: Mapping[str, str]) -> int:
    """Create the table and register the connector. Returns the exit code: 2 where a setting is missing."""
    url, connect = environment.get("INVENTORY_POSTGRES_URL"), environment.get("INVENTORY_CONNECT_URL")
    if not url or not connect:
        print(  # noqa: T201 - the output of this command
            "set INVENTORY_POSTGRES_URL to the database as Kafka Connect reaches it, and INVENTORY_CONNECT_URL to the REST interface "
            "of Kafka Connect: http://connect:8083",
            file=sys.stderr,
        )
        return 2
    try:
        create_table(url)
        register(connect, settings_of(url))
    except (ConnectorFailed, psycopg.Error) as error:
        print(error, file=sys.stderr)  # noqa: T201 - the output of this command
        return 1
    print(f"{NAME} is registered at {connect} and runs")  # noqa: T201 - the output of this command
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
