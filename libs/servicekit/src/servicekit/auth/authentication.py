"""Authentication of callers by API keys and by signed tokens (JWT), both sent as `Authorization: Bearer ...`."""

import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Protocol

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA", "HS256")
SCOPES: Final = frozenset({"read", "write", "console", "replay"})
"""The scopes of callers: read rows, write events, view records on the console, and replay dead letters. A scope is valid for
all services, or for one: `click-count/read`."""
NAME_CHARACTERS_MAX: Final = 128
TOKEN_CHARACTERS_MAX: Final = 8192
LEEWAY_SECONDS: Final = 10  # the allowed difference between the clocks of issuer and service
_HMAC_BYTES_MIN: Final = 32
_SCOPE: Final = re.compile(rf"(?:[a-z0-9-]{{1,64}}/)?(?:{'|'.join(sorted(SCOPES))})")
_RSA_BITS_MIN: Final = 2048


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller and its scopes: `read` for all services, or `click-count/read` for one; see `SCOPES`."""

    name: str
    scopes: frozenset[str]

    def may(self, scope: str, service: str) -> bool:
        """Return whether the caller has this scope at this service."""
        return scope in self.scopes or f"{service}/{scope}" in self.scopes


class Unauthenticated(Exception):
    """The credential is missing or invalid. The text is fixed: it contains neither the reason nor the credential."""

    def __init__(self, *, given: bool) -> None:
        missing = "send a credential: Authorization: Bearer"
        super().__init__("the credential is not valid or no longer so" if given else missing)
        self.given = given


class Authenticator(Protocol):
    """Authenticates callers. Any thread."""

    def authenticate(self, token: str) -> Caller:
        """Return the caller with this credential. Raises `Unauthenticated`."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A caller's key, stored as a digest only. Several keys of one name are valid at once, for rotation.

    Attributes:
        name: The caller's name.
        scopes: The caller's scopes.
        digest: SHA-256 of the key. A plain hash suffices for random keys of at least 128 bits.
    """

    name: str
    scopes: frozenset[str]
    digest: bytes = field(repr=False)


class ApiKeys:
    """Authenticates callers by their keys. Compares with every key, each in constant time."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = tuple(keys)

    def authenticate(self, token: str) -> Caller:
        digest = sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = [key for key in self._keys if hmac.compare_digest(key.digest, digest)]
        if not found:
            raise Unauthenticated(given=True)
        return Caller(found[0].name, found[0].scopes)


class SignedTokens:
    """Authenticates callers by tokens that an issuer has signed: claims iss, aud, exp, nbf, sub, optionally `scope`.

    Args:
        algorithm: One of `ALGORITHMS`; tokens with another algorithm, or none, are always rejected.
        key: A JWKS document, a public key in PEM, or at least 32 secret bytes for HS256. Keys of a JWKS document are
            found by the token's `kid`, so that several are valid at once.
        issuer: The issuer that tokens must name.
        audience: The audience that tokens must name: this service.

    Raises:
        ValueError: The key cannot be read, does not fit the algorithm, or is too weak.
    """

    def __init__(self, algorithm: str, key: bytes, issuer: str, audience: str) -> None:
        if algorithm not in ALGORITHMS:
            raise ValueError(f"the algorithm must be one of {', '.join(ALGORITHMS)}")
        self._algorithm = algorithm
        self._keys = _read_keys(algorithm, key)
        self._issuer = issuer
        self._audience = audience

    def authenticate(self, token: str) -> Caller:
        try:
            claims = jwt.decode(
                token,
                self._keys.get(jwt.get_unverified_header(token).get("kid")) or self._keys[None],
                algorithms=[self._algorithm],
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["iss", "aud", "exp", "nbf", "sub"]},
            )
            return _caller(claims)
        except Exception:  # noqa: BLE001 any error of the library on untrusted input gets the same answer
            raise Unauthenticated(given=True) from None


class AnyOf:
    """Authenticates a caller by the first of several authenticators that accepts it."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self._authenticators = tuple(authenticators)

    def authenticate(self, token: str) -> Caller:
        for authenticator in self._authenticators:
            try:
                return authenticator.authenticate(token)
            except Unauthenticated:
                continue
        raise Unauthenticated(given=True)


def is_scope(text: str) -> bool:
    """Return whether this is a scope: one of `SCOPES`, alone or prefixed with the name of a service and a slash."""
    return _SCOPE.fullmatch(text) is not None


def bearer_token(authorization: str | None) -> str:
    """Return the credential in an Authorization header. Raises `Unauthenticated`."""
    if authorization is None:
        raise Unauthenticated(given=False)
    scheme, _, token = authorization.partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not 0 < len(token) <= TOKEN_CHARACTERS_MAX or not token.isascii():
        raise Unauthenticated(given=True)
    return token


def _caller(claims: dict[str, Any]) -> Caller:
    name, scope = claims["sub"], claims.get("scope", "")
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
        raise Unauthenticated(given=True)
    return Caller(name, frozenset(filter(is_scope, scope.split(" "))))


def _read_keys(algorithm: str, key: bytes) -> dict[str | None, Any]:
    """Return keys by `kid`; under None, if there is one, the key that checks tokens without a known kid."""
    if algorithm == "HS256":
        if len(key) < _HMAC_BYTES_MIN or jwt.utils.is_pem_format(key) or jwt.utils.is_ssh_key(key):
            raise ValueError(f"HS256 needs a secret of at least {_HMAC_BYTES_MIN} bytes, not a public key")
        return {None: key}
    try:
        if jwt.utils.is_pem_format(key):
            found: dict[str | None, Any] = {None: jwt.get_algorithm_by_name(algorithm).prepare_key(key)}
        else:
            found = _read_jwks(algorithm, key)
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"the key is not a public key in PEM or a JWKS document for {algorithm}") from error
    if not found:
        raise ValueError(f"the JWKS document has no key for {algorithm} that has a kid")
    if any(hasattr(k, "private_bytes") for k in found.values()):
        raise ValueError("the key is a private one, which could sign tokens; give the public one")
    if any(isinstance(k, RSAPublicKey) and k.key_size < _RSA_BITS_MIN for k in found.values()):
        raise ValueError(f"an RSA key has fewer than {_RSA_BITS_MIN} bits")
    return found


def _read_jwks(algorithm: str, document: bytes) -> dict[str | None, Any]:
    keys = jwt.PyJWKSet.from_dict(json.loads(document)).keys
    fitting = [k for k in keys if k.algorithm_name == algorithm and k.public_key_use in {None, "sig"}]
    return {k.key_id: k.key for k in fitting if k.key_id is not None}
