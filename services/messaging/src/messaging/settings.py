"""What the commands are told beyond the library's own settings: variables that begin with MESSAGING_."""

from dataclasses import dataclass
from typing import ClassVar

from servicekit.process.service_settings import ServiceSettings


@dataclass(frozen=True, kw_only=True)
class MessagingSettings(ServiceSettings):
    """Settings of messaging; `group` is that of the collector."""

    PREFIX: ClassVar[str] = "MESSAGING_"

    group: str = "collector"
