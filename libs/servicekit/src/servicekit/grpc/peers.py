"""The address of a caller: the other end of the connection, or the one a trusted proxy names."""

from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import unquote

from servicekit.auth.proxies import TrustedProxies


class PeerAddress(NamedTuple):
    """The other end of a connection."""

    host: str
    port: int

    @classmethod
    def of_grpc(cls, peer: str) -> "PeerAddress | None":
        """Read gRPC's name of a peer: "ipv4:127.0.0.1:5000", "ipv6:%5B::1%5D:5000"; None for other kinds."""
        kind, _, rest = unquote(peer).partition(":")
        host, _, port = rest.rpartition(":")
        if kind not in {"ipv4", "ipv6"} or not port.isdecimal():
            return None
        return cls(plain_host(host.strip("[]")), int(port))


def plain_host(host: str) -> str:
    """Return an IPv4-mapped IPv6 address as IPv4, and any other address as it is."""
    if ":" not in host:
        return host
    mapped = getattr(ip_address(host), "ipv4_mapped", None)
    return host if mapped is None else str(mapped)


def host_of(peer: str) -> str | None:
    """Return the address in gRPC's name of a peer; None for other kinds."""
    address = PeerAddress.of_grpc(peer)
    return None if address is None else address.host


def caller_host(context: Any, proxies: TrustedProxies) -> str | None:
    """Return the address of a call's caller; for a trusted proxy, the one in its metadata `forwarded`."""
    host = host_of(context.peer())
    if not proxies.trusts(host):
        return host
    named = [value for name, value in context.invocation_metadata() or () if name == "forwarded"]
    return proxies.caller(host, named)
