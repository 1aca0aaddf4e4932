import time

import pytest

from servicekit.auth.proxies import NO_PROXIES, TrustedProxies, networks_of

PROXIES = TrustedProxies(networks_of("10.0.0.0/24, 2001:db8::1"))


@pytest.mark.parametrize(
    ("forwarded", "caller"),
    [
        ("for=192.0.2.60", "192.0.2.60"),
        ("For=192.0.2.60:4711;proto=http;by=203.0.113.43", "192.0.2.60"),
        ('for="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::17"),
        ("for=192.0.2.1, for=192.0.2.60", "192.0.2.60"),
        ("for=192.0.2.60, for=10.0.0.9", "192.0.2.60"),
        ("for=10.0.0.8, for=10.0.0.9", "10.0.0.8"),
        ("for=192.0.2.60, for=unknown", "10.0.0.1"),
        ("for=192.0.2.60, for=_hidden, for=10.0.0.9", "10.0.0.9"),
        ("for=999.0.0.1", "10.0.0.1"),
        ("forged=192.0.2.60", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
def test_the_caller_is_the_one_that_a_trusted_proxy_has_seen(forwarded: str, caller: str) -> None:
    assert PROXIES.caller("10.0.0.1", [forwarded]) == caller


@pytest.mark.parametrize(
    "fields",
    [
        # A proxy copies parts of the request, such as the host, into quoted strings.
        ['for=192.0.2.60;host="a, for=6.6.6.6"'],
        ['for=192.0.2.60;host="a;for=6.6.6.6;b="'],
        ['host="\\", for=6.6.6.6;a=\\"";for=192.0.2.60'],
        # A caller sends a field of its own, to which the proxy adds its hop, in the same field or another one.
        ['for="6.6.6.6, for=192.0.2.60'],
        ['for=6.6.6.6;host="a, for=192.0.2.60;proto=http'],
        ['for=6.6.6.6;host="', "for=192.0.2.60"],
        ["for=10.0.0.9", "for=192.0.2.60"],
        ['for="' + "6.6.6.6," * 1000, "for=192.0.2.60"],
        ["for=6.6.6.6, " * 1000 + "for=192.0.2.60"],
        ["for=192.0.2.60, ,"],
    ],
)
def test_no_text_of_a_caller_changes_the_hop_that_the_proxy_has_written(fields: list[str]) -> None:
    assert PROXIES.caller("10.0.0.1", fields) == "192.0.2.60"


@pytest.mark.parametrize(
    "field",
    [
        "for=192.0.2.60;for=6.6.6.6",
        'for="192.0.2.60',
        'for=192.0.2.60, "',
        "for=192.0.2.60 for=6.6.6.6",
        "for",
    ],
)
def test_a_malformed_hop_names_nobody(field: str) -> None:
    assert PROXIES.caller("10.0.0.1", [field]) == "10.0.0.1"


def test_a_long_field_of_quotes_is_read_in_little_time() -> None:
    began = time.process_time()
    for text in ('for="' * 4000, 'a=";' * 4000, ";" * 16_000, 'for="\\"' * 3000, " ," * 8000):
        PROXIES.caller("10.0.0.1", [text])
    assert time.process_time() - began < 0.5


def test_the_header_of_an_untrusted_peer_is_ignored() -> None:
    assert PROXIES.caller("192.0.2.1", ["for=192.0.2.60"]) == "192.0.2.1"
    assert NO_PROXIES.caller("10.0.0.1", ["for=192.0.2.60"]) == "10.0.0.1"
    assert PROXIES.caller(None, ["for=192.0.2.60"]) is None


def test_addresses_and_networks_are_trusted_in_either_notation() -> None:
    trusted = ("10.0.0.255", "::ffff:10.0.0.1", "2001:db8::1")
    assert [PROXIES.trusts(host) for host in trusted] == [True] * 3
    assert [PROXIES.trusts(host) for host in ("10.0.1.1", "2001:db8::2", "a name", None)] == [False] * 4


@pytest.mark.parametrize("text", ["", "10.0.0.0/33", "a name", "10.0.0.1/24"])
def test_invalid_addresses_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        networks_of(text)
