"""The settings of the inventory: variables that begin with INVENTORY_."""

from dataclasses import field
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

from contracts.event_time import MAX_AHEAD_SECONDS
from servicekit.process.service_settings import AheadInFlow, ServiceSettings

SUPPLIER: Final = "http://127.0.0.1:8090"


def _http_url(value: object) -> object:
    if isinstance(value, str):
        parts = urlsplit(value)
        if parts.scheme in {"http", "https"} and parts.hostname:
            return value
    raise ValueError("http://host:port, or https://host:port for TLS")


class InventorySettings(ServiceSettings):
    """Settings of the inventory.

    Attributes:
        group: INVENTORY_GROUP: the name of the flow, the prefix of its groups and topics.
        postgres_url: INVENTORY_POSTGRES_URL: the URL of the database that `inventory sinks` writes to.
        supplier: INVENTORY_SUPPLIER: the URL of the supplier at which items are ordered.
    """

    env_prefix: ClassVar[str] = "INVENTORY_"

    group: str = "inventory"
    max_ahead_seconds: AheadInFlow = MAX_AHEAD_SECONDS
    postgres_url: str | None = field(default=None, repr=False)
    supplier: Annotated[str, _http_url] = SUPPLIER
