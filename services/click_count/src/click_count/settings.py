"""The settings of click counting: variables that begin with CLICK_COUNT_."""

from pydantic_settings import SettingsConfigDict

from servicekit.process.service_settings import ServiceSettings


class ClickSettings(ServiceSettings):
    """Settings of click counting."""

    model_config = SettingsConfigDict(env_prefix="CLICK_COUNT_")

    group: str = "click-count"
    windows: str | None = None
