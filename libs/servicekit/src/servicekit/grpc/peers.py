"""The address of a caller: the other end of the connection, or the one a trusted proxy names."""

from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from servicekit.auth.proxies import TrustedProxies


def host_of(peer: str) -> str | None:
    """Return the address in gRPC's name of a peer, "ipv4:127.0.0.1:5000" or "ipv6:%5B::1%5D:5000"; None for other kinds.

    An IPv4-mapped IPv6 address is returned as IPv4.
    """
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in {"ipv4", "ipv6"} or not port.isdecimal():
        return None
    address = ip_address(host.strip("[]"))
    return str(getattr(address, "ipv4_mapped", None) or address)


def caller_host(context: Any, proxies: TrustedProxies) -> str | None:
    """Return the address of a call's caller; for a trusted proxy, the one in its metadata `forwarded`."""
    host = host_of(context.peer())
    if not proxies.trusts(host):
        return host
    named = [value for name, value in context.invocation_metadata() or () if name == "forwarded"]
    return proxies.caller(host, named)
