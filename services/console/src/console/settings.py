"""Settings of the console, besides those of the library: variables that begin with CONSOLE_."""

from pydantic_settings import SettingsConfigDict

from servicekit.process.service_settings import ServiceSettings
from servicekit.settings import Flag


class ConsoleSettings(ServiceSettings):
    """Settings of the console; of those that all services share it uses `docs` only.

    Attributes:
        actions: dead letters can be sent again, by callers with a credential that has the scope `write`.
    """

    model_config = SettingsConfigDict(env_prefix="CONSOLE_")

    group: str = ""
    actions: Flag = False
