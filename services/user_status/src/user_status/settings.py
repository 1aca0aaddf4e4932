"""What these services are told beyond the library's own settings: variables that begin with USER_STATUS_."""

from dataclasses import dataclass
from typing import ClassVar

from servicekit.process.service_settings import ServiceSettings


@dataclass(frozen=True, kw_only=True)
class StatusSettings(ServiceSettings):
    """Settings of user statuses.

    Attributes:
        clicks_group: USER_STATUS_CLICKS_GROUP: name of the group of click counting whose table is joined.
    """

    PREFIX: ClassVar[str] = "USER_STATUS_"

    group: str = "user-status"
    clicks_group: str = "click-count"
