"""The settings of messaging: variables that begin with MESSAGING_."""

from pydantic_settings import SettingsConfigDict

from servicekit.process.service_settings import ServiceSettings


class MessagingSettings(ServiceSettings):
    """Settings of messaging; `group` is the collector's group."""

    model_config = SettingsConfigDict(env_prefix="MESSAGING_")

    group: str = "collector"
