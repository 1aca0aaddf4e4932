"""The settings of the inventory: variables that begin with INVENTORY_."""

from dataclasses import field
from typing import ClassVar, Final

from servicekit.process.service_settings import ServiceSettings

SUPPLIER: Final = "http://127.0.0.1:8090"


class InventorySettings(ServiceSettings):
    """Settings of the inventory.

    Attributes:
        group: INVENTORY_GROUP: the name of the flow, the prefix of its groups and topics.
        postgres_url: INVENTORY_POSTGRES_URL: the URL of the database that `inventory sinks` writes to.
        supplier: INVENTORY_SUPPLIER: the URL of the supplier at which items are ordered.
    """

    env_prefix: ClassVar[str] = "INVENTORY_"

    group: str = "inventory"
    postgres_url: str | None = field(default=None, repr=False)
    supplier: str = SUPPLIER
