from hashlib import sha256
from pathlib import Path

import pytest

from servicekit.auth.access import Forbidden, TooOften
from servicekit.auth.authentication import Unauthenticated
from servicekit.process.edge_settings import EdgeSettings
from streamtable.errors import ConfigurationError

DIGEST = sha256(b"key").hexdigest()


def read(**given: str) -> EdgeSettings:
    environ = {f"SERVICEKIT_{name.upper()}": text for name, text in given.items()}
    return EdgeSettings.from_environment({**environ, "OTHER": "1"})


def test_by_default_callers_need_no_credential() -> None:
    assert read() == EdgeSettings()
    assert EdgeSettings().admission().admit(None, None, "write").caller is None


def test_callers_authenticate_with_keys_that_are_stored_as_digests() -> None:
    settings = read(api_keys=f"alice:read+write:{DIGEST}, alice:read:{sha256(b'new').hexdigest()}")
    admission = settings.admission()
    for key in ("key", "new"):
        caller = admission.admit(f"Bearer {key}", None, "read").caller
        assert caller is not None
        assert caller.name == "alice"
    assert DIGEST not in repr(settings)
    assert str(bytes.fromhex(DIGEST)) not in repr(settings)


def test_callers_authenticate_with_signed_tokens(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x" * 32 + b"\n")
    given = {"jwt_algorithm": "HS256", "jwt_issuer": "i", "jwt_audience": "a"}
    admission = read(jwt_key_file=str(secret), **given).admission()
    with pytest.raises(Unauthenticated):
        admission.admit("Bearer a.b.c", None, "read")
    secret.write_bytes(b"short")
    with pytest.raises(ConfigurationError, match=r"JWT_KEY_FILE=.*at least 32 bytes"):
        read(jwt_key_file=str(secret), **given).admission()


def test_keys_have_scopes_for_all_services_or_for_one() -> None:
    keys = f"a:click-count/read+console:{DIGEST}"
    own, other = read(api_keys=keys).admission("click-count"), read(api_keys=keys).admission("messaging")
    assert own.admit("Bearer key", None, "read").caller is not None
    for admission, scope in ((own, "write"), (other, "read"), (own, "replay"), (other, "write")):
        with pytest.raises(Forbidden):
            admission.admit("Bearer key", None, scope)
    assert other.admit("Bearer key", None, "console").caller is not None


def test_keys_in_a_file_are_added_to_those_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(
        f"\nalice:read:{DIGEST}\r\n\nbob:read:{sha256(b'bob').hexdigest()},carol:read:{'1' * 64}\n"
    )
    settings = read(api_keys_file=str(file), api_keys=f"dave:read:{sha256(b'dave').hexdigest()}")
    assert settings.authenticates
    callers = [
        settings.admission().admit(f"Bearer {key}", None, "read").caller for key in ("key", "bob", "dave")
    ]
    assert [caller and caller.name for caller in callers] == ["alice", "bob", "dave"]


@pytest.mark.parametrize("content", ["", "\n", "alice", f"alice:admin:{DIGEST}", "\u00e9"])
def test_a_file_without_keys_is_refused_at_the_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match="SERVICEKIT_API_KEYS_FILE=") as raised:
        read(api_keys_file=str(file)).admission()
    assert DIGEST not in str(raised.value)


def test_the_audit_trail_is_on_by_default_only_if_callers_authenticate() -> None:
    keys = {"api_keys": f"alice:read:{DIGEST}"}
    assert read(**keys).audits
    assert not read().audits
    assert read(audit="true").audits
    assert read(audit_topic="audit").audits
    assert not read(**keys, audit="false", audit_topic="audit").audits


def test_hosts_are_names_addresses_and_domains() -> None:
    found = read(hosts="Query, *.example.org,10.0.0.7, [fd00::7]").hosts
    assert found == {"query", "*.example.org", "10.0.0.7", "fd00::7"}


@pytest.mark.parametrize(
    "text", ["*", "query:8080", "http://query", "a,,b", "*.*.org", "a b", "query/", ".org"]
)
def test_an_invalid_host_name_is_rejected(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"SERVICEKIT_HOSTS=.*host names without a port"):
        read(hosts=text)


def test_the_default_burst_is_one_second_of_the_rate() -> None:
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
        ("grpc_streams_per_peer", "0"),
        ("grpc_streams_per_peer", "many"),
        ("trusted_proxies", "10.0.0.1/24"),
        ("trusted_proxies", "10.0.0.1,,10.0.0.2"),
        ("trusted_proxies", "proxy.example.org"),
        ("jwt_algorithm", "none"),
        ("jwt_algorithm", "RS256"),
        ("jwt_key_file", "/nowhere"),
        ("jwt_issuer", " i"),
        ("rate_limits", "1"),
    ],
)
def test_an_invalid_setting_is_reported_by_name(name: str, text: str) -> None:
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


def test_trusted_proxies_are_addresses_and_networks() -> None:
    proxies = EdgeSettings.from_environment({"SERVICEKIT_TRUSTED_PROXIES": "10.0.0.7, 2001:db8::/64"}).proxies
    assert proxies.trusts("10.0.0.7")
    assert proxies.trusts("2001:db8::5")
    assert not proxies.trusts("10.0.0.8")
    assert not EdgeSettings.from_environment({}).proxies
