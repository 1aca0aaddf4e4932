from hashlib import sha256
from pathlib import Path

import pytest

from servicekit.auth.access import TooOften
from servicekit.auth.authentication import Unauthenticated
from servicekit.process.edge_settings import EdgeSettings
from streamtable.errors import ConfigurationError

DIGEST = sha256(b"key").hexdigest()


def read(**given: str) -> EdgeSettings:
    environ = {f"SERVICEKIT_{name.upper()}": text for name, text in given.items()}
    return EdgeSettings.from_environment({**environ, "OTHER": "1"})


def test_nothing_is_asked_of_callers_unless_settings_say_so() -> None:
    assert read() == EdgeSettings()
    assert EdgeSettings().admission().admit(None, None, "write").caller is None


def test_callers_are_known_by_the_digests_of_their_keys() -> None:
    settings = read(api_keys=f"alice:read+write:{DIGEST}, alice:read:{sha256(b'new').hexdigest()}")
    admission = settings.admission()
    for key in ("key", "new"):
        caller = admission.admit(f"Bearer {key}", None, "read").caller
        assert caller is not None
        assert caller.name == "alice"
    assert DIGEST not in repr(settings)
    assert str(bytes.fromhex(DIGEST)) not in repr(settings)


def test_callers_are_known_by_signed_tokens(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x" * 32 + b"\n")
    given = {"jwt_algorithm": "HS256", "jwt_issuer": "i", "jwt_audience": "a"}
    admission = read(jwt_key_file=str(secret), **given).admission()
    with pytest.raises(Unauthenticated):
        admission.admit("Bearer a.b.c", None, "read")
    secret.write_bytes(b"short")
    with pytest.raises(ConfigurationError, match=r"JWT_KEY_FILE=.*at least 32 bytes"):
        read(jwt_key_file=str(secret), **given).admission()


def test_hosts_are_names_addresses_and_domains() -> None:
    found = read(hosts="Query, *.example.org,10.0.0.7, [fd00::7]").hosts
    assert found == {"query", "*.example.org", "10.0.0.7", "fd00::7"}


@pytest.mark.parametrize(
    "text", ["*", "query:8080", "http://query", "a,,b", "*.*.org", "a b", "query/", ".org"]
)
def test_a_host_that_could_never_be_asked_for_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"SERVICEKIT_HOSTS=.*host names without a port"):
        read(hosts=text)


def test_the_burst_is_one_second_of_the_rate_unless_it_is_given() -> None:
    for given, burst in (({}, 3), ({"rate_burst": "1"}, 1)):
        admission = read(rate_limit="2.5", **given).admission()
        for _ in range(burst):
            admission.admit(None, None, "read")
        with pytest.raises(TooOften):
            admission.admit(None, None, "read")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("api_keys", "alice"),
        ("api_keys", f"alice:admin:{DIGEST}"),
        ("api_keys", f"alice:read:{DIGEST[:-1]}"),
        ("api_keys", f"a b:read:{DIGEST}"),
        ("rate_limit", "0"),
        ("rate_limit", "-1"),
        ("rate_limit", "nan"),
        ("rate_limit", "1e3"),
        ("rate_burst", "1"),
        ("metrics_public", "yes"),
        ("connections", "0"),
        ("connections", "1.0"),
        ("connections", "x"),
        ("connections_per_peer", ""),
        ("jwt_algorithm", "none"),
        ("jwt_algorithm", "RS256"),
        ("jwt_key_file", "/nowhere"),
        ("jwt_issuer", " i"),
        ("rate_limits", "1"),
    ],
)
def test_what_is_wrong_is_reported_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match="SERVICEKIT_") as refused:
        read(**{name: text})
    assert name.upper() in str(refused.value)
    assert DIGEST[:-1] not in str(refused.value)


@pytest.mark.parametrize("seconds", ["0.4", "8.1", "nan", "-1", "1e1", "soon"])
def test_a_delivery_timeout_out_of_bounds_is_refused_with_its_bounds(seconds: str) -> None:
    with pytest.raises(ConfigurationError, match=r"from 0\.5 to 8"):
        EdgeSettings.from_environment({"SERVICEKIT_DELIVERY_TIMEOUT": seconds})


def test_a_request_waits_longer_than_its_records_are_delivered() -> None:
    timeouts = EdgeSettings.from_environment({"SERVICEKIT_DELIVERY_TIMEOUT": "2.5"}).send_timeouts
    assert (timeouts.delivery, timeouts.wait) == (2.5, 3.5)
    assert timeouts.request > timeouts.wait
