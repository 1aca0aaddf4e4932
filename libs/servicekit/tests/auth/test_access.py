from hashlib import sha256

import pytest

from servicekit.auth.access import Admission, Forbidden, TooOften
from servicekit.auth.authentication import ApiKey, ApiKeys, Unauthenticated
from servicekit.auth.rate_limit import RateLimiter, Taken

KEYS = ApiKeys(
    [
        ApiKey("reader", frozenset({"read"}), sha256(b"r").digest()),
        ApiKey("writer", frozenset({"write"}), sha256(b"w").digest()),
    ]
)


def limiter(burst: int = 1) -> RateLimiter:
    return RateLimiter(0.5, burst, clock=lambda: 0.0)


def test_without_settings_every_caller_has_all_scopes() -> None:
    admitted = Admission().admit(None, "10.0.0.1", "write")
    assert admitted.caller is None
    assert admitted.headers == {}


def test_a_caller_may_do_only_what_its_scopes_allow() -> None:
    admission = Admission(KEYS)
    caller = admission.admit("Bearer r", None, "read").caller
    assert caller is not None
    assert caller.name == "reader"
    with pytest.raises(Forbidden, match="needs the scope 'write'"):
        admission.admit("Bearer r", None, "write")
    with pytest.raises(Unauthenticated):
        admission.admit("Bearer x", None, "read")
    with pytest.raises(Unauthenticated):
        admission.admit(None, None, "read")


def test_callers_are_counted_by_name_across_addresses() -> None:
    admission = Admission(KEYS, limiter())
    assert admission.admit("Bearer r", "10.0.0.1", "read").headers == {
        "RateLimit-Policy": '"caller";q=1;w=2',
        "RateLimit": '"caller";r=0;t=2',
    }
    admission.admit("Bearer w", "10.0.0.1", "write")
    with pytest.raises(TooOften) as refused:
        admission.admit("Bearer r", "10.0.0.2", "read")
    assert refused.value.retry_after == 2
    assert refused.value.headers["RateLimit"] == '"caller";r=0;t=2'


@pytest.mark.parametrize(("seconds", "reported"), [(0.0, 1), (0.2, 1), (1.0, 1), (1.1, 2)])
def test_a_caller_over_its_rate_limit_waits_at_least_a_second(seconds: float, reported: int) -> None:
    refused = TooOften(Taken(allowed=False, remaining=0, retry_seconds=seconds, full_seconds=9.0), {})
    assert refused.retry_after == reported
    assert str(refused) == "too many requests; retry the request later"


def test_callers_without_a_name_are_counted_by_address() -> None:
    admission = Admission(None, limiter())
    admission.admit(None, "10.0.0.1", "read")
    admission.admit(None, "10.0.0.2", "read")
    with pytest.raises(TooOften):
        admission.admit(None, "10.0.0.1", "read")


def test_guessing_credentials_is_rate_limited_and_does_not_affect_other_callers() -> None:
    admission = Admission(KEYS, limiter(burst=2))
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            admission.admit("Bearer x", "10.0.0.1", "read")
    with pytest.raises(TooOften):
        admission.admit("Bearer y", "10.0.0.1", "read")
    admission.admit("Bearer r", "10.0.0.1", "read")
