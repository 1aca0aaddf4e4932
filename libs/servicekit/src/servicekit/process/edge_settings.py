"""What the edge of every service is told: variables that begin with SERVICEKIT_. All have safe defaults."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

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
from streamtable.errors import ConfigurationError

PREFIX: Final = "SERVICEKIT_"
SECRETS: Final = frozenset({"api_keys"})
_KEY = re.compile(rf"([A-Za-z0-9._@-]{{1,{NAME_CHARACTERS_MAX}}}):([a-z+]+):([0-9a-f]{{64}})")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


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


def _boolean(value: object) -> object:
    if value not in {"true", "false", True, False}:
        raise ValueError("true or false")
    return value in {"true", True}


def _rate(value: object) -> object:
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise ValueError("requests a second, a plain decimal number over 0")
    rate = float(value) if isinstance(value, str | int | float) else math.nan
    if not 0 < rate <= 1e9:  # noqa: PLR2004 - more is no limit
        raise ValueError("requests a second, a plain decimal number over 0")
    return rate


def _count(value: object) -> object:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 8:  # noqa: PLR2004 - digits
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("a whole number from 1 to 9999999")
    return value


def _delivery_timeout(value: object) -> object:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = float(value)
    # A request waits a second longer than that, and a stop of the server waits ten seconds for its requests.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 <= value <= 8:  # noqa: PLR2004
        raise ValueError("seconds, a plain decimal number from 0.5 to 8")
    return float(value)


def _algorithm(value: object) -> object:
    if value not in ALGORITHMS:
        raise ValueError(" or ".join(ALGORITHMS))
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


class EdgeSettings(BaseModel):
    """Who may call a service over REST and gRPC, how often, and over how many connections.

    Attributes:
        api_keys: callers known by a key.
        jwt_algorithm: that tokens are signed with; with the three that follow: callers are known by signed tokens.
        jwt_key_file: a JWKS document, a public key in PEM, or for HS256 the secret.
        jwt_issuer: that tokens have to name.
        jwt_audience: that tokens have to name.
        rate_limit: requests a second of each caller; None: no limit.
        rate_burst: requests at once of each caller; None: those of one second.
        metrics_public: `/metrics` asks for no credential, like `/livez` and `/readyz`.
        delivery_timeout: seconds that Kafka has to acknowledge what a request sends; then it is sent no more. A
            request waits for it a second longer.
        connections: to the REST server, of all callers together.
        connections_per_peer: to the REST server, from one address; behind a proxy all come from the proxy's.
        events_per_peer: streams of server-sent events, from one address.
        status_topic: compacted, where the process tells how it is; None: it does not.
        runs_topic: compacted, where batch jobs tell of their runs; of the services the console reads it. None: its default.
        grpc_connections: to the gRPC server, of all callers together.
        grpc_streams: of the gRPC server, open at a time.
        grpc_certificate_file: with the key that follows: gRPC is served over TLS.
        grpc_key_file: unencrypted.
        grpc_client_authorities_file: gRPC callers need a certificate of one of these authorities.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=True
    )

    api_keys: Annotated[tuple[ApiKey, ...], BeforeValidator(_api_keys)] = ()
    jwt_algorithm: Annotated[str, BeforeValidator(_algorithm)] | None = None
    jwt_key_file: Annotated[Path, BeforeValidator(_file)] | None = None
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    rate_limit: Annotated[float, BeforeValidator(_rate)] | None = None
    rate_burst: Count | None = None
    metrics_public: Annotated[bool, BeforeValidator(_boolean)] = True
    delivery_timeout: Annotated[float, BeforeValidator(_delivery_timeout)] = 4.0
    connections: Count = 2000
    connections_per_peer: Count = 200
    events_per_peer: Count = 16
    status_topic: Annotated[str, BeforeValidator(_topic)] | None = None
    runs_topic: Annotated[str, BeforeValidator(_topic)] | None = None
    grpc_connections: Count = 512
    grpc_streams: Count = 1024
    grpc_certificate_file: Annotated[Path, BeforeValidator(_file)] | None = None
    grpc_key_file: Annotated[Path, BeforeValidator(_file)] | None = None
    grpc_client_authorities_file: Annotated[Path, BeforeValidator(_file)] | None = None

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

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "EdgeSettings":
        """Read the settings.

        Raises:
            ConfigurationError: lists everything that is wrong; never a secret's value.
        """
        given = {name.removeprefix(PREFIX): text for name, text in environ.items() if name.startswith(PREFIX)}
        known = {field.upper() for field in cls.model_fields}
        problems = [f"{PREFIX}{name}: there is no such setting" for name in given.keys() - known]
        values: dict[str, Any] = {}
        for name in given.keys() & known:
            text = given[name]
            if text != text.strip() or not text or not text.isprintable():
                problems.append(f"{PREFIX}{name}: expected text without surrounding spaces, and not empty")
            else:
                values[name.lower()] = text
        try:
            settings = cls(**values)
        except ValidationError as error:
            problems += [_problem(details, values) for details in error.errors()]
        if problems:
            raise ConfigurationError(
                "\n".join(["settings are wrong; nothing was started:", *sorted(problems)])
            )
        return settings

    @property
    def send_timeouts(self) -> SendTimeouts:
        """How long a request waits for what it sends."""
        return SendTimeouts.of_delivery(self.delivery_timeout)

    def admission(self) -> Admission:
        """What decides about requests, as these settings say.

        Raises:
            ConfigurationError: the file with the key cannot be used.
        """
        authenticators: list[Authenticator] = []
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


def _problem(details: Any, values: Mapping[str, str]) -> str:
    expected = str(details.get("ctx", {}).get("error", details["msg"]))
    if not details["loc"]:
        return expected
    field = str(details["loc"][0])
    shown = "" if field in SECRETS else f"={values[field]!r}"
    return f"{PREFIX}{field.upper()}{shown}: expected {expected}"
