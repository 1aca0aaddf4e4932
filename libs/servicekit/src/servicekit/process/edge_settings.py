"""Settings of the edge, which all services share: variables that begin with SERVICEKIT_. All have safe defaults."""

import math
import re
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from servicekit.auth.access import Admission
from servicekit.auth.authentication import (
    ALGORITHMS,
    NAME_CHARACTERS_MAX,
    SCOPES,
    AnyOf,
    ApiKey,
    ApiKeys,
    Authenticator,
    SignedTokens,
)
from servicekit.auth.rate_limit import RateLimiter
from servicekit.http.produce import SendTimeouts
from servicekit.settings import EnvironmentSettings, Flag, number, one_of, seconds
from streamtable.errors import ConfigurationError

PREFIX: Final = "SERVICEKIT_"
_KEY = re.compile(rf"([A-Za-z0-9._@-]{{1,{NAME_CHARACTERS_MAX}}}):([a-z+]+):([0-9a-f]{{64}})")
_HOST_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[?[0-9a-f:]*:[0-9a-f:.]*\]?")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def _api_keys(value: object) -> object:
    if not isinstance(value, str):
        return value
    keys = []
    for part in value.split(","):
        found = _KEY.fullmatch(part.strip(" "))
        scopes = frozenset(found[2].split("+")) if found else frozenset()
        if found is None or not scopes or not scopes <= SCOPES:
            raise ValueError(
                "name:scopes:digest, several separated by commas; scopes are read, write or read+write, the digest "
                "is the key's SHA-256 in 64 hexadecimal digits"
            )
        keys.append(ApiKey(found[1], scopes, bytes.fromhex(found[3])))
    return tuple(keys)


def _hosts(value: object) -> object:
    if not isinstance(value, str):
        return value
    names = [name.strip(" ").lower() for name in value.split(",")]
    if not all(_HOST_NAME.fullmatch(name) for name in names):
        raise ValueError(
            "host names without a port, several separated by commas; *.example.org stands for all names below it"
        )
    return frozenset(name.strip("[]") for name in names)


def _count(value: object) -> object:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 8:  # noqa: PLR2004 - digits
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("a whole number from 1 to 9999999")
    return value


def _topic(value: object) -> object:
    if not isinstance(value, str) or not _TOPIC.fullmatch(value):
        raise ValueError("the name of a topic: 1 to 249 of the characters a-z A-Z 0-9 . _ -")
    return value


def _file(value: object) -> object:
    if not isinstance(value, str | Path) or not Path(value).is_file():
        raise ValueError("a file that exists")
    return Path(value)


Count = Annotated[int, BeforeValidator(_count)]
ExistingFile = Annotated[Path, BeforeValidator(_file)]
TopicName = Annotated[str, BeforeValidator(_topic)]


class EdgeSettings(EnvironmentSettings):
    """Who may call a service over REST and gRPC, how often, and over how many connections.

    Attributes:
        api_keys: The keys of callers.
        jwt_algorithm: The algorithm that tokens are signed with; together with the three that follow it makes signed
            tokens (JWT) valid as credentials.
        jwt_key_file: A JWKS document, a public key in PEM, or for HS256 the secret.
        jwt_issuer: The issuer that tokens must name.
        jwt_audience: The audience that tokens must name.
        allow_unauthenticated: Serve rows and take events at an address that other machines reach, and ask nobody who they
            are.
        hosts: Names under which the REST server is called, besides its address and those of loopback.
        rate_limit: Requests a second of each caller; None: no limit.
        rate_burst: Requests at once of each caller; None: those of one second.
        metrics_public: `/metrics` needs no credential, like `/livez` and `/readyz`.
        delivery_timeout: Seconds that Kafka has to acknowledge what a request sends; after that it is not sent any
            more. A request waits for it a second longer.
        connections: Connections to the REST server, of all callers together.
        connections_per_peer: Connections to the REST server from one address; behind a proxy all come from the proxy's.
        events_per_peer: Streams of server-sent events to one address.
        status_topic: A compacted topic to which the process publishes its status; None: it does not.
        runs_topic: A compacted topic to which batch jobs publish their runs; of the services the console reads it.
            None: its default.
        grpc_connections: Connections to the gRPC server, of all callers together.
        grpc_streams: Streams of the gRPC server that are open at a time.
        grpc_certificate_file: The certificate of the gRPC server; with the key that follows gRPC is served over TLS.
        grpc_key_file: The unencrypted key of that certificate.
        grpc_client_authorities_file: gRPC callers need a certificate of one of these authorities.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX)

    api_keys: Annotated[tuple[ApiKey, ...], BeforeValidator(_api_keys)] = Field(default=(), repr=False)
    jwt_algorithm: Annotated[str, one_of(*ALGORITHMS)] | None = None
    jwt_key_file: ExistingFile | None = None
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    allow_unauthenticated: Flag = False
    hosts: Annotated[frozenset[str], BeforeValidator(_hosts)] = frozenset()
    rate_limit: (
        Annotated[float, number(1e-9, 1e9, "requests a second, a plain decimal number over 0")] | None
    ) = None
    rate_burst: Count | None = None
    metrics_public: Flag = True
    # A request waits a second longer than that, and a stop of the server waits ten seconds for its requests.
    delivery_timeout: Annotated[float, seconds(0.5, 8)] = 4.0
    connections: Count = 2000
    connections_per_peer: Count = 200
    events_per_peer: Count = 16
    status_topic: TopicName | None = None
    runs_topic: TopicName | None = None
    grpc_connections: Count = 512
    grpc_streams: Count = 1024
    grpc_certificate_file: ExistingFile | None = None
    grpc_key_file: ExistingFile | None = None
    grpc_client_authorities_file: ExistingFile | None = None

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        tokens = [self.jwt_algorithm, self.jwt_key_file, self.jwt_issuer, self.jwt_audience]
        if any(tokens) and not all(tokens):
            names = "JWT_ALGORITHM, JWT_KEY_FILE, JWT_ISSUER and JWT_AUDIENCE"
            raise ValueError(f"{PREFIX}...: {names} are set together or not at all")
        if (self.grpc_certificate_file is None) != (self.grpc_key_file is None):
            names = "GRPC_CERTIFICATE_FILE and GRPC_KEY_FILE"
            raise ValueError(f"{PREFIX}...: {names} are set together or not at all")
        if self.grpc_client_authorities_file is not None and self.grpc_certificate_file is None:
            raise ValueError(f"{PREFIX}GRPC_CLIENT_AUTHORITIES_FILE: it needs {PREFIX}GRPC_CERTIFICATE_FILE")
        if self.rate_burst is not None and self.rate_limit is None:
            raise ValueError(f"{PREFIX}RATE_BURST: it needs {PREFIX}RATE_LIMIT")
        return self

    @property
    def send_timeouts(self) -> SendTimeouts:
        """How long a request waits for what it sends."""
        return SendTimeouts.of_delivery(self.delivery_timeout)

    @property
    def authenticates(self) -> bool:
        """Whether callers have to authenticate, by a key or a token."""
        return bool(self.api_keys or self.jwt_algorithm)

    def admission(self, *others: Authenticator) -> Admission:
        """What decides about requests, as these settings say.

        Args:
            others: Accept further callers.

        Raises:
            ConfigurationError: the file with the key cannot be used.
        """
        authenticators = list(others)
        if self.api_keys:
            authenticators.append(ApiKeys(self.api_keys))
        if self.jwt_algorithm and self.jwt_key_file and self.jwt_issuer and self.jwt_audience:
            try:
                key = self.jwt_key_file.read_bytes().rstrip(b"\r\n")  # what editors put at the end
                authenticators.append(
                    SignedTokens(self.jwt_algorithm, key, self.jwt_issuer, self.jwt_audience)
                )
            except (OSError, ValueError) as error:
                raise ConfigurationError(f"{PREFIX}JWT_KEY_FILE={self.jwt_key_file}: {error}") from error
        limiter = None
        if self.rate_limit is not None:
            limiter = RateLimiter(self.rate_limit, self.rate_burst or math.ceil(self.rate_limit))
        return Admission(AnyOf(authenticators) if authenticators else None, limiter)
