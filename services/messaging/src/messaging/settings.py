"""The settings of messaging: variables that begin with MESSAGING_."""

from typing import ClassVar

from servicekit.process.service_settings import ServiceSettings


class MessagingSettings(ServiceSettings):
    """Settings of messaging; `group` is the collector's group."""

    env_prefix: ClassVar[str] = "MESSAGING_"

    group: str = "collector"
