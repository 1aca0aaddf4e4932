"""The settings of user statuses: variables that begin with USER_STATUS_."""

from typing import ClassVar

from servicekit.process.service_settings import ServiceSettings


class StatusSettings(ServiceSettings):
    """Settings of user statuses.

    Attributes:
        clicks_group: USER_STATUS_CLICKS_GROUP: The name of the click counting group whose table is joined.
    """

    env_prefix: ClassVar[str] = "USER_STATUS_"

    group: str = "user-status"
    clicks_group: str = "click-count"
