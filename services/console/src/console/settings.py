"""Settings of the console, besides the library's: variables that begin with CONSOLE_."""

import re
from dataclasses import field
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

from servicekit.process.service_settings import ServiceSettings
from streamtable.base.environment import Flag

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{22,128}")


def _token(value: object) -> object:
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise ValueError("22 to 128 of the characters A-Z a-z 0-9 _ -, drawn at random")
    return value


def _url(value: object) -> object:
    if (
        not isinstance(value, str)
        or urlsplit(value).scheme not in {"http", "https"}
        or not urlsplit(value).netloc
    ):
        raise ValueError("a URL that begins with http:// or https://")
    return value.rstrip("/")


class ConsoleSettings(ServiceSettings):
    """Settings of the console; of the shared settings of services it uses `docs` only.

    Attributes:
        actions: Whether dead letters can be replayed, by callers with the scope `replay`.
        token: The token of callers if there are neither API keys nor signed tokens. None: a random one, so that only
            browsers sign in, by the code that is printed.
        url: The URL that browsers reach the console at, for the printed link; None: its address.
    """

    env_prefix: ClassVar[str] = "CONSOLE_"

    group: str = ""
    actions: Flag = False
    token: Annotated[str, _token] | None = field(default=None, repr=False)
    url: Annotated[str, _url] | None = None
