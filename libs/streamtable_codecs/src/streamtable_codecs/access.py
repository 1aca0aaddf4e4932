"""Tokens, passwords and certificates, with which a registry is reached."""

import ssl
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import httpx

from streamtable.errors import ConfigurationError


@dataclass(frozen=True)
class Basic:
    """A user and a password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Basic({self.user!r})"

    def flow(self) -> httpx.Auth:
        return httpx.BasicAuth(self.user, self.password)


@dataclass(frozen=True)
class Bearer:
    """A token, or a function that returns the present one; it is called for each request."""

    token: str | Callable[[], str]

    def __repr__(self) -> str:
        return "Bearer(...)"

    def flow(self) -> httpx.Auth:
        return _Token(self.token)


class _Token(httpx.Auth):
    def __init__(self, token: str | Callable[[], str]) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        token = self._token() if callable(self._token) else self._token
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


@dataclass(frozen=True)
class Tls:
    """The certificates of a registry at an https URL.

    Attributes:
        ca: A file with the certificates of the authorities that are trusted; None: the system's.
        certificate: A file with the client's certificate.
        key: A file with its key; None: it is in the same file.
    """

    ca: Path | str | None = None
    certificate: Path | str | None = None
    key: Path | str | None = None

    def context(self) -> ssl.SSLContext:
        """Return the settings of connections. Raises `ConfigurationError` for a file that cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            raise ConfigurationError(f"registry: {self}: {error}") from error
        return context
