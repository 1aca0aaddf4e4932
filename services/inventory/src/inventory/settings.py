"""The settings of the inventory: variables that begin with INVENTORY_."""

from typing import ClassVar

from servicekit.process.service_settings import ServiceSettings


class InventorySettings(ServiceSettings):
    """Settings of the inventory.

    Attributes:
        group: INVENTORY_GROUP: the name of the flow, the prefix of its groups and topics.
    """

    env_prefix: ClassVar[str] = "INVENTORY_"

    group: str = "inventory"
