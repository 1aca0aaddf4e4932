"""Settings of the console, besides those of the library: variables that begin with CONSOLE_."""

from dataclasses import dataclass
from typing import ClassVar

from servicekit.service_settings import ServiceSettings


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings(ServiceSettings):
    """Settings of the console; of those that all services share it uses `docs` only.

    Attributes:
        actions: dead letters can be sent again, by callers with a credential that has the scope `write`.
    """

    PREFIX: ClassVar[str] = "CONSOLE_"

    group: str = ""
    actions: bool = False
