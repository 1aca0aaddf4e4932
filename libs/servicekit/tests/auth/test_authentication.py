import hmac
import json
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from jwt.utils import base64url_encode

from servicekit.auth.authentication import (
    AnyOf,
    ApiKey,
    ApiKeys,
    Caller,
    SignedTokens,
    Unauthenticated,
    bearer_token,
)

READ = frozenset({"read"})
SECRET = b"0123456789abcdef0123456789abcdef"
RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_RSA_KEY = rsa.generate_private_key(65537, 2048)
PRIVATE: dict[str, Any] = {
    "RS256": RSA_KEY,
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def pem(private: Any) -> bytes:
    text: bytes = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return text


def jwks(**keys: Any) -> bytes:
    found = []
    for kid, private in keys.items():
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key()))
        found.append({**key, "kid": kid, "use": "sig", "alg": "RS256"})
    return json.dumps({"keys": found}).encode()


def claims(**other: Any) -> dict[str, Any]:
    now = int(time.time())
    given = {
        "iss": "issuer",
        "aud": "clicks",
        "sub": "alice",
        "exp": now + 60,
        "nbf": now - 1,
        "scope": "read",
    }
    return {name: value for name, value in {**given, **other}.items() if value is not None}


def signed(key: Any = SECRET, algorithm: str = "HS256", kid: str | None = None, **other: Any) -> str:
    return jwt.encode(claims(**other), key, algorithm, headers={"kid": kid} if kid else None)


def hs256() -> SignedTokens:
    return SignedTokens("HS256", SECRET, "issuer", "clicks")


def test_each_key_identifies_its_caller_and_a_caller_may_have_several() -> None:
    keys = ApiKeys(
        [
            ApiKey("alice", READ, sha256(b"old").digest()),
            ApiKey("alice", READ, sha256(b"new").digest()),
            ApiKey("bob", frozenset({"write"}), sha256(b"bobs").digest()),
        ]
    )
    assert keys.authenticate("old") == keys.authenticate("new") == Caller("alice", READ)
    assert keys.authenticate("bobs") == Caller("bob", frozenset({"write"}))
    for wrong in ("", "ol", "old ", sha256(b"old").hexdigest()):
        with pytest.raises(Unauthenticated):
            keys.authenticate(wrong)


def test_the_digest_of_a_key_is_not_in_its_repr() -> None:
    key = ApiKey("alice", READ, sha256(b"key").digest())
    assert str(key.digest) not in repr(key)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_is_checked_with_a_public_key(algorithm: str) -> None:
    tokens = SignedTokens(algorithm, pem(PRIVATE[algorithm]), "issuer", "clicks")
    token = signed(PRIVATE[algorithm], algorithm, scope="read write admin")
    assert tokens.authenticate(token) == Caller("alice", frozenset({"read", "write"}))
    with pytest.raises(Unauthenticated):
        tokens.authenticate(token[:-8] + "AAAAAAAA")


def test_all_keys_of_a_jwks_document_are_valid() -> None:
    tokens = SignedTokens("RS256", jwks(old=RSA_KEY, new=OTHER_RSA_KEY), "issuer", "clicks")
    assert tokens.authenticate(signed(RSA_KEY, "RS256", "old")).name == "alice"
    assert tokens.authenticate(signed(OTHER_RSA_KEY, "RS256", "new")).name == "alice"
    for key, kid in ((RSA_KEY, "new"), (RSA_KEY, None), (RSA_KEY, "third")):
        with pytest.raises(Unauthenticated):
            tokens.authenticate(signed(key, "RS256", kid))


@pytest.mark.parametrize(
    "make",
    [
        lambda: signed(iss="somebody"),
        lambda: signed(iss=None),
        lambda: signed(aud="others"),
        lambda: signed(aud=None),
        lambda: signed(exp=int(time.time()) - 60),
        lambda: signed(exp=None),
        lambda: signed(exp="soon"),
        lambda: signed(exp=float("inf")),
        lambda: signed(nbf=int(time.time()) + 60),
        lambda: signed(nbf=None),
        lambda: signed(sub=None),
        lambda: signed(sub=""),
        lambda: signed(sub="x" * 129),
        lambda: signed(sub="a\nb"),
        lambda: signed(scope=["read"]),
        lambda: signed(key=b"x" * 32),
        lambda: signed(key=SECRET * 2, algorithm="HS512"),
        lambda: jwt.encode(claims(), "", "none"),
        lambda: signed().rsplit(".", 1)[0] + ".",
        lambda: "..",
        lambda: "a.b.c",
        lambda: base64url_encode(b"[" * 5000).decode() + ".e30.e30",
        lambda: "é",
    ],
)
def test_an_invalid_token_is_rejected_with_a_fixed_text(make: Callable[[], str]) -> None:
    with pytest.raises(Unauthenticated) as refused:
        hs256().authenticate(make())
    assert str(refused.value) == "the credential is not valid or no longer so"


def test_a_token_signed_with_the_public_key_as_a_secret_is_refused() -> None:
    public = pem(RSA_KEY)
    tokens = SignedTokens("RS256", public, "issuer", "clicks")
    header, payload, _ = signed().split(".")
    # Built by hand: the library does not sign with such a key.
    mac = base64url_encode(hmac.digest(public, f"{header}.{payload}".encode(), "sha256")).decode()
    with pytest.raises(Unauthenticated):
        tokens.authenticate(f"{header}.{payload}.{mac}")


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("none", SECRET),
        ("HS256", b"short"),
        ("HS256", pem(RSA_KEY)),
        ("RS256", pem(PRIVATE["ES256"])),
        ("ES256", pem(RSA_KEY)),
        ("RS256", pem(rsa.generate_private_key(65537, 1024))),
        ("RS256", RSA_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())),
        ("RS256", b"no key"),
        ("RS256", b"{}"),
        ("RS256", b"[]"),
        ("ES256", jwks(only=RSA_KEY)),
    ],
)
def test_a_key_that_does_not_fit_its_algorithm_is_rejected_at_construction(
    algorithm: str, key: bytes
) -> None:
    with pytest.raises(ValueError, match=r"HS256|key|algorithm"):
        SignedTokens(algorithm, key, "issuer", "clicks")


def test_a_token_without_scopes_identifies_a_caller_without_scopes() -> None:
    assert hs256().authenticate(signed(scope=None)) == Caller("alice", frozenset())


def test_keys_and_tokens_can_be_accepted_together() -> None:
    both = AnyOf([ApiKeys([ApiKey("bob", READ, sha256(b"bobs").digest())]), hs256()])
    assert both.authenticate("bobs").name == "bob"
    assert both.authenticate(signed()).name == "alice"
    with pytest.raises(Unauthenticated):
        both.authenticate("nobodys")


def test_the_credential_follows_the_word_bearer() -> None:
    assert bearer_token("Bearer abc") == bearer_token("bearer  abc ") == "abc"
    with pytest.raises(Unauthenticated) as refused:
        bearer_token(None)
    assert not refused.value.given
    for wrong in ("", "Bearer", "Bearer ", "Basic abc", "Bearer é", "Bearer " + "x" * 8193):
        with pytest.raises(Unauthenticated) as refused:
            bearer_token(wrong)
        assert refused.value.given
