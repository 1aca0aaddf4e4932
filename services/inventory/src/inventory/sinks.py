"""Stock and closed hours as rows of PostgreSQL, where INVENTORY_POSTGRES_URL says which: `inventory sinks`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from inventory.flow import PRODUCT_HOURS, inventory
from inventory.settings import InventorySettings
from servicekit.process.runtime import Runtime
from servicekit.process.serving import serve_groups
from streamtable.errors import ConfigurationError
from streamtable.flow import Windowed
from streamtable_sinks import Sink
from streamtable_sinks.postgres import Postgres

STOCK_ROWS: Final = "inventory_stock"
HOUR_ROWS: Final = "inventory_hours"
HOUR_TYPES: Final = {"product": "text", "hour": "timestamptz", "quantity": "bigint"}


def sinks(url: str, group: str = "inventory") -> Mapping[str, Sink]:
    """Return the sinks by their names: the stock of each item, and the pieces sold of each product and closed hour.

    Args:
        url: The URL of the database; the tables are created in it.
        group: The name of the flow.
    """
    stock = Postgres(url, STOCK_ROWS, key=("item",), create=True)
    hours = Postgres(
        url,
        HOUR_ROWS,
        key={"product": lambda key: key.key, "hour": _began},
        columns=lambda _, quantity: {"quantity": quantity},
        types=HOUR_TYPES,
        create=True,
    )
    made = [
        Sink(f"{group}-stock-out", inventory(group).stock, stock),
        Sink(f"{group}-hours-out", PRODUCT_HOURS, hours),
    ]
    return {each.name: each for each in made}


def _began(key: Windowed[Any]) -> datetime:
    return datetime.fromtimestamp(key.start_ms / 1000, UTC)


def serve_sinks(runtime: Runtime[InventorySettings]) -> int:
    """Write until stopped."""
    settings = runtime.service
    if settings.postgres_url is None:
        raise ConfigurationError(
            "set INVENTORY_POSTGRES_URL to the URL of a database: postgresql://user:password@host/database"
        )
    return serve_groups(runtime, [*sinks(settings.postgres_url, settings.group).values()])


DECLARED: Final = dict(sinks(""))
"""The sinks as the manifest declares them: their groups and topics are the same for every database."""
