import pytest

from streamtable.base.hosts import OwnHosts, host_name, is_loopback, is_unspecified


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Example.org:8080", "example.org"),
        ("example.org.", "example.org"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:8080", "::1"),
        ("localhost:", "localhost"),
        ("", None),
        (".", None),
        ("::1", None),
        ("user@localhost", None),
        ("localhost/path", None),
        ("localhost:port", None),
        ("localhost, evil", None),
        ("localhost\u0660", None),
    ],
)
def test_a_host_header_holds_a_name_and_perhaps_a_port(host: str, name: str | None) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:80", "app.localhost", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::ffff:127.0.0.1]"],
)
def test_every_server_answers_to_loopback(host: str) -> None:
    assert OwnHosts().include(host, "10.0.0.7")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "notlocalhost",
        "0.0.0.0",
        "[::]",
        "10.0.0.8",
        "127.0.0.1.evil.example",
    ],
)
def test_no_server_answers_to_names_and_addresses_that_are_not_its_own(host: str) -> None:
    assert not OwnHosts().include(host, "10.0.0.7")
    assert not OwnHosts().include(host, None)


def test_a_server_answers_to_the_address_at_which_the_connection_has_arrived() -> None:
    assert OwnHosts().include("10.0.0.7:8080", "10.0.0.7")
    assert OwnHosts().include("10.0.0.7:8080", "::ffff:10.0.0.7")
    assert OwnHosts().include("[fd00::7]", "fd00:0::7")


def test_what_is_longer_than_any_host_name_is_none() -> None:
    assert OwnHosts(frozenset({"*.example.org"})).include(f"{'a.' * 100}example.org", None)
    assert not OwnHosts(frozenset({"*.example.org"})).include(f"{'a.' * 200}example.org", None)


def test_a_request_without_a_host_is_no_browsers() -> None:
    assert OwnHosts().include(None, None)


def test_a_star_stands_for_all_names_below_a_domain() -> None:
    own = OwnHosts(frozenset({"query", "*.example.org"}))
    assert all(own.include(host, None) for host in ("Query:8080", "a.example.org", "a.b.example.org."))
    assert not any(own.include(host, None) for host in ("example.org", "badexample.org", "query.evil", "*"))


def test_loopback_and_wildcard_addresses_are_recognized() -> None:
    assert all(is_loopback(name) for name in ("localhost", "127.0.0.1", "::1"))
    assert not any(is_loopback(name) for name in ("0.0.0.0", "::", "10.0.0.1", "machine"))
    assert all(is_unspecified(name) for name in ("0.0.0.0", "::"))
    assert not any(is_unspecified(name) for name in ("127.0.0.1", "machine", "10.0.0.1"))
