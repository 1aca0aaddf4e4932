"""The settings of click counting: variables that begin with CLICK_COUNT_."""

from typing import ClassVar

from servicekit.process.service_settings import ServiceSettings


class ClickSettings(ServiceSettings):
    """Settings of click counting."""

    env_prefix: ClassVar[str] = "CLICK_COUNT_"

    group: str = "click-count"
    windows: str | None = None
    lake: str | None = None
