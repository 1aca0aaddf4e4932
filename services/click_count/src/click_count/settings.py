"""What these services are told beyond the library's own settings: variables that begin with CLICK_COUNT_."""

from dataclasses import dataclass
from typing import ClassVar

from servicekit.process.service_settings import ServiceSettings


@dataclass(frozen=True, kw_only=True)
class ClickSettings(ServiceSettings):
    """Settings of click counting."""

    PREFIX: ClassVar[str] = "CLICK_COUNT_"

    group: str = "click-count"
