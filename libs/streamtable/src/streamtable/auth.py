"""Tokens with which clients log in to Kafka (SASL/OAUTHBEARER), and functions that fetch those of three clouds.

`aws_msk_iam`, `azure` and `gcp` import their libraries when they are called; each is an extra of this package.
"""

import base64
import importlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from typing import Any

import structlog

from streamtable.errors import AuthenticationFailed, ConfigurationError

_SECONDS_MAX = 1e9  # more are milliseconds
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its end. Its text does not show the token.

    Attributes:
        value: The token.
        expires_at: The time at which it expires, in seconds since 1970.
        principal: The name of its user, for brokers that ask for it.
        extensions: SASL extensions, by name.
    """

    value: str = field(repr=False)
    expires_at: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


TokenFunction = Callable[[], Token]


def aws_msk_iam(region: str, role: str | None = None) -> TokenFunction:
    """Return a function for Amazon MSK with IAM, with the credentials that boto3 finds.

    Args:
        region: The region of the cluster.
        role: The ARN of a role to assume.

    Raises:
        ConfigurationError: The extra `aws` is not installed.
    """
    _library("aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "aws")
    return (
        partial(_aws_msk_iam, region) if role is None else partial(_aws_msk_iam, region, role, "streamtable")
    )


def azure(namespace: str) -> TokenFunction:
    """Return a function for Azure Event Hubs, with the credentials that `DefaultAzureCredential` finds.

    Args:
        namespace: The namespace, such as `shop`, or its host, `shop.servicebus.windows.net`.

    Raises:
        ConfigurationError: The extra `azure` is not installed.
    """
    _library("azure.identity", "azure")
    return partial(_azure, namespace if "." in namespace else f"{namespace}.servicebus.windows.net")


def gcp() -> TokenFunction:
    """Return a function for Google's Managed Service for Apache Kafka, with the application default credentials.

    Raises:
        ConfigurationError: The extra `gcp` is not installed.
    """
    _library("google.auth.transport.requests", "gcp")
    return _gcp


def oidc(
    token_endpoint: str,
    client_id: str,
    client_secret: str,
    *,
    scope: str = "",
    extensions: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the options of `Kafka` for an issuer of OpenID Connect, which Kafka's client asks itself (client credentials).

        kafka = Kafka("kafka:9093", oidc("https://login.example.org/token", "shop", secret, scope="kafka"))

    The connections are over TLS; for others add the option `security.protocol`.

    Args:
        token_endpoint: The URL that issues tokens.
        client_id: The name of the client there.
        client_secret: Its secret.
        scope: The scope to ask for; empty: the issuer's default.
        extensions: SASL extensions, by name.
    """
    chosen = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": token_endpoint,
        "sasl.oauthbearer.client.id": client_id,
        "sasl.oauthbearer.client.secret": client_secret,
        "sasl.oauthbearer.scope": scope,
        "sasl.oauthbearer.extensions": ",".join(
            f"{name}={text}" for name, text in (extensions or {}).items()
        ),
    }
    return {name: text for name, text in chosen.items() if text}


def named(spec: str | None) -> TokenFunction | None:
    """Return the function that the setting `STREAMTABLE_KAFKA_TOKEN` names; None for None.

    Raises:
        ConfigurationError: There is no such function, or an extra is not installed.
    """
    match (spec or "").split(":", 2):
        case [""]:
            return None
        case ["gcp"]:
            return gcp()
        case ["azure", namespace]:
            return azure(namespace)
        case ["aws_msk_iam", region, *role]:
            return aws_msk_iam(region, *role)
        case _:
            module, _, function = str(spec).rpartition(":")
            try:
                return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
            except Exception as error:  # a user's module may raise anything
                text = f"{spec!r}: expected MODULE:FUNCTION, aws_msk_iam:REGION, azure:NAMESPACE or gcp ({error!r})"
                raise ConfigurationError(f"STREAMTABLE_KAFKA_TOKEN={text}") from error


class TokenSource:
    """Asks the function of `Kafka(token=)`, for all clients of one `Kafka`.

    Attributes:
        name: The name of the function.
        failure: Why the last call gave no token; empty if it gave one.
    """

    def __init__(self, function: TokenFunction) -> None:
        self._function = function
        inner: Any = function.func if isinstance(function, partial) else function
        named = inner if hasattr(inner, "__qualname__") else type(inner)
        self.name = f"{named.__module__}.{named.__qualname__.lstrip('_')}"
        self.failure, self._fresh_until = "", 0.0
        self._kept: Token | None = None

    def token(self) -> Token:
        """Return a token, the last one while it is fresh, or while it is valid and there is no new one.

        Raises:
            AuthenticationFailed: The function has failed, or returned an expired token.
            ConfigurationError: It does not return what it has to.
        """
        now = time.time()
        if self._kept is not None and now < self._fresh_until:
            return self._kept
        try:
            self._kept = self._asked()
        except (AuthenticationFailed, ConfigurationError) as error:
            error.message = self.failure = f"{self.name} {error.message}"
            if self._kept is None or self._kept.expires_at <= now:
                raise
            log.warning("no new token for Kafka; the last one is used until it expires", reason=self.failure)
        else:
            self.failure = ""
            # Clients ask for a new one when four fifths of what was left of theirs have passed.
            self._fresh_until = now + (self._kept.expires_at - now) / 4
        return self._kept

    def login(self) -> dict[str, object]:
        """Return the option of a client that asks for tokens. Raises as `token` does; a client would wait ten seconds and not say why."""
        self.token()
        return {"oauth_cb": self.callback}

    def callback(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """Answer the client, which asks in a thread of its own before the last token expires, also when it is idle."""
        token = self.token()
        return token.value, token.expires_at, token.principal, dict(token.extensions)

    def _asked(self) -> Token:
        try:
            found: object = self._function()
        except Exception as error:  # a user's function may raise anything
            raise AuthenticationFailed(f"gave no token ({type(error).__name__}: {error})") from error
        if not isinstance(found, Token):
            raise ConfigurationError(f"returned {type(found).__name__}: expected a streamtable.auth.Token")
        left = found.expires_at - time.time()
        if left > _SECONDS_MAX or not (found.value and found.value.isascii() and found.value.isprintable()):
            raise ConfigurationError("returned a token of no printable ASCII, or no seconds as expires_at")
        if left <= 0:
            raise AuthenticationFailed(f"returned a token that expired {-left:.0f} s ago: fetch a new one")
        return found


def _library(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"{module} is missing ({error}): pip install 'streamtable[{extra}]'"
        ) from error


def _aws_msk_iam(region: str, *role_and_session: str) -> Token:
    signer = _library("aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "aws")
    sign = signer.generate_auth_token_from_role_arn if role_and_session else signer.generate_auth_token
    value, expires_at_ms = sign(region, *role_and_session)
    return Token(value, expires_at_ms / 1000)


def _azure(host: str) -> Token:
    found = _library("azure.identity", "azure").DefaultAzureCredential().get_token(f"https://{host}/.default")
    return Token(found.token, found.expires_on)


def _gcp() -> Token:
    credentials, _ = _library("google.auth", "gcp").default(scopes=[_GOOGLE_SCOPE])
    credentials.refresh(_library("google.auth.transport.requests", "gcp").Request())
    expires_at = credentials.expiry.replace(tzinfo=UTC).timestamp()  # it is UTC without saying so
    user = credentials.service_account_email
    claims = {"exp": expires_at, "iat": time.time(), "iss": "Google", "scope": "kafka", "sub": user}
    parts = json.dumps({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}), json.dumps(claims), credentials.token
    encoded = (base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    return Token(".".join(encoded), expires_at, user)
