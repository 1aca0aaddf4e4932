"""The settings SERVICEKIT_..., which all services share. All have safe defaults."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar, Final

from servicekit.auth.access import Admission
from servicekit.auth.authentication import (
    ALGORITHMS,
    NAME_CHARACTERS_MAX,
    AnyOf,
    ApiKey,
    ApiKeys,
    Authenticator,
    SignedTokens,
    is_scope,
)
from servicekit.auth.proxies import Network, TrustedProxies, networks_of
from servicekit.auth.rate_limit import RateLimiter
from servicekit.auth.reloading import Reloading
from servicekit.http.produce import SendTimeouts
from streamtable.base.environment import EnvironmentSettings, Flag, number, one_of, seconds
from streamtable.errors import ConfigurationError

PREFIX: Final = "SERVICEKIT_"
_KEY = re.compile(rf"([A-Za-z0-9._@-]{{1,{NAME_CHARACTERS_MAX}}}):([a-z0-9/+-]+):([0-9a-f]{{64}})")
_HOST_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[?[0-9a-f:]*:[0-9a-f:.]*\]?")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def _api_keys(value: object) -> object:
    return _parsed_keys(value.split(",")) if isinstance(value, str) else value


def _parsed_keys(parts: Iterable[str]) -> tuple[ApiKey, ...]:
    keys = []
    for part in parts:
        found = _KEY.fullmatch(part.strip(" "))
        scopes = frozenset(found[2].split("+")) if found else frozenset()
        if found is None or not all(map(is_scope, scopes)):
            raise ValueError(
                "name:scopes:digest, several separated by commas; scopes are read, write, console and replay, joined by +, "
                "each for all services or for one (click-count/read); the digest is the key's SHA-256 in 64 hexadecimal digits"
            )
        keys.append(ApiKey(found[1], scopes, bytes.fromhex(found[3])))
    return tuple(keys)


def _keys_of_file(content: bytes) -> ApiKeys:
    """Return the keys in a file, separated by newlines or commas; empty lines are ignored."""
    parts = content.decode("ascii").replace(",", "\n").split("\n")
    keys = _parsed_keys(part for part in (part.strip(" \r") for part in parts) if part)
    if not keys:
        raise ValueError("there is no key in it")
    return ApiKeys(keys)


def _hosts(value: object) -> object:
    if not isinstance(value, str):
        return value
    names = [name.strip(" ").lower() for name in value.split(",")]
    if not all(_HOST_NAME.fullmatch(name) for name in names):
        raise ValueError(
            "host names without a port, several separated by commas; *.example.org stands for all names below it"
        )
    return frozenset(name.strip("[]") for name in names)


def _networks(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return networks_of(value)
    except ValueError:
        raise ValueError(
            "addresses and networks, several separated by commas: 10.0.0.7, 10.1.0.0/16 or 2001:db8::/64"
        ) from None


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


Count = Annotated[int, _count]
ExistingFile = Annotated[Path, _file]
TopicName = Annotated[str, _topic]


class EdgeSettings(EnvironmentSettings):
    """The settings of the servers for REST and gRPC: authentication, rate limits and limits on connections.

    Attributes:
        api_keys: The keys of callers.
        api_keys_file: A file with further keys, read again when it has changed.
        jwt_algorithm: The algorithm that tokens are signed with; together with the three that follow it makes signed
            tokens (JWT) valid as credentials.
        jwt_key_file: A JWKS document, a public key in PEM, or for HS256 the secret; read again when it has changed.
        jwt_issuer: The issuer that tokens must name.
        jwt_audience: The audience that tokens must name.
        allow_unauthenticated: Whether rows are served and events accepted without authentication at an address that
            other machines can reach.
        audit: Whether the audit trail is written; None: only if callers authenticate.
        audit_topic: A topic to which the audit trail is also written; None: it is only logged.
        hosts: Host names of the REST server, besides its address and the loopback names.
        rate_limit: The maximum number of requests per second of each caller; None: no limit.
        rate_burst: The maximum number of requests of each caller at once; None: one second's worth of `rate_limit`.
        metrics_public: Whether `/metrics` needs no credential, like `/livez` and `/readyz`.
        delivery_timeout: The seconds that Kafka has to acknowledge the records of a request, before the producer gives
            up. The request waits a second longer.
        connections: The maximum number of connections to the REST server, of all callers together.
        connections_per_peer: Connections to the REST server from one address that is not a trusted proxy's.
        events_per_peer: The maximum number of streams of server-sent events to one address.
        trusted_proxies: Proxies that name the caller in the header `Forwarded` or the metadata `forwarded`: limits for
            each address apply to that caller, and the proxies may have any number of connections.
        status_topic: A compacted topic to which the process publishes its status; None: it does not.
        runs_topic: A compacted topic to which batch jobs publish their runs, read by the console. None: the default topic.
        grpc_connections: Connections to the gRPC server, of all callers together.
        grpc_streams: The maximum number of open streams of the gRPC server.
        grpc_streams_per_peer: The maximum number of open streams of the gRPC server to one address.
        grpc_certificate_file: The certificate of the gRPC server; with the key that follows gRPC is served over TLS.
        grpc_key_file: The unencrypted key of that certificate.
        grpc_client_authorities_file: Certificates of authorities; gRPC callers need a certificate from one of them.
    """

    env_prefix: ClassVar[str] = PREFIX

    api_keys: Annotated[tuple[ApiKey, ...], _api_keys] = field(default=(), repr=False)
    api_keys_file: ExistingFile | None = None
    jwt_algorithm: Annotated[str, one_of(*ALGORITHMS)] | None = None
    jwt_key_file: ExistingFile | None = None
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    allow_unauthenticated: Flag = False
    audit: Flag | None = None
    audit_topic: TopicName | None = None
    hosts: Annotated[frozenset[str], _hosts] = frozenset()
    rate_limit: (
        Annotated[float, number(1e-9, 1e9, "requests per second, a plain decimal number over 0")] | None
    ) = None
    rate_burst: Count | None = None
    metrics_public: Flag = True
    # A request waits a second longer than that, and a stop of the server waits ten seconds for its requests.
    delivery_timeout: Annotated[float, seconds(0.5, 8)] = 4.0
    connections: Count = 2000
    connections_per_peer: Count = 200
    events_per_peer: Count = 16
    trusted_proxies: Annotated[frozenset[Network], _networks] = frozenset()
    status_topic: TopicName | None = None
    runs_topic: TopicName | None = None
    grpc_connections: Count = 1024
    grpc_streams: Count = 1024
    grpc_streams_per_peer: Count = 256
    grpc_certificate_file: ExistingFile | None = None
    grpc_key_file: ExistingFile | None = None
    grpc_client_authorities_file: ExistingFile | None = None

    def check_together(self) -> None:
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

    @property
    def proxies(self) -> TrustedProxies:
        """The trusted proxies."""
        return TrustedProxies(self.trusted_proxies)

    @property
    def send_timeouts(self) -> SendTimeouts:
        """The timeouts of requests that send."""
        return SendTimeouts.of_delivery(self.delivery_timeout)

    @property
    def authenticates(self) -> bool:
        """Whether callers must authenticate, with a key or a token."""
        return bool(self.api_keys or self.api_keys_file or self.jwt_algorithm)

    @property
    def audits(self) -> bool:
        """Whether there is an audit trail: by default only if callers authenticate."""
        return self.authenticates or self.audit_topic is not None if self.audit is None else self.audit

    def admission(self, service: str = "", *others: Authenticator) -> Admission:
        """Return the admission of requests for these settings.

        Args:
            service: The name of the service, to which scopes may be limited.
            others: Further authenticators.

        Raises:
            ConfigurationError: The file with the key cannot be used.
        """
        authenticators = list(others)
        if self.api_keys:
            authenticators.append(ApiKeys(self.api_keys))
        if self.api_keys_file:
            authenticators.append(_reloading("API_KEYS_FILE", self.api_keys_file, _keys_of_file))
        if self.jwt_key_file:
            authenticators.append(_reloading("JWT_KEY_FILE", self.jwt_key_file, self._signed_tokens))
        limiter = None
        if self.rate_limit is not None:
            limiter = RateLimiter(self.rate_limit, self.rate_burst or math.ceil(self.rate_limit))
        return Admission(AnyOf(authenticators) if authenticators else None, limiter, service)

    def _signed_tokens(self, key: bytes) -> SignedTokens:
        assert self.jwt_algorithm, "they are set together"
        assert self.jwt_issuer
        assert self.jwt_audience
        # Editors append a newline.
        return SignedTokens(self.jwt_algorithm, key.rstrip(b"\r\n"), self.jwt_issuer, self.jwt_audience)


def _reloading(name: str, path: Path, read: Callable[[bytes], Authenticator]) -> Reloading:
    try:
        return Reloading(path, read)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{PREFIX}{name}={path}: {error}") from error
