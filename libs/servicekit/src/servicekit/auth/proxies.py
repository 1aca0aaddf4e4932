"""Trusted proxies: proxies whose `Forwarded` header (RFC 7239) gives the address of the caller."""

import re
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

Network = IPv4Network | IPv6Network
_FOR: Final = re.compile(
    r'(?:^|;)\s*for="?(\[[0-9a-f:.]+\]|[0-9.]+)(?::[0-9]{1,5})?"?\s*(?:;|$)', re.IGNORECASE
)
_HOPS_MAX: Final = 16


class TrustedProxies:
    """Proxies whose `Forwarded` header is trusted.

    Args:
        networks: The addresses of the proxies.
    """

    def __init__(self, networks: Collection[Network] = ()) -> None:
        self._networks = tuple(networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, host: str | None) -> bool:
        """Return whether this is the address of a trusted proxy."""
        if not self._networks or host is None:
            return False
        try:
            address = ip_address(host)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)

    def caller(self, host: str | None, forwarded: str | None) -> str | None:
        """Return the address of the caller: the last one in `Forwarded` that is not a trusted proxy's.

        Args:
            host: The peer of the connection. If it is not a trusted proxy, the header is ignored.
            forwarded: The header; several are joined by commas.
        """
        if not forwarded or not self.trusts(host):
            return host
        for hop in reversed(forwarded.split(",")[-_HOPS_MAX:]):
            found = _FOR.search(hop.strip())
            if found is None:
                break  # obfuscated or unknown: the hops before it cannot be trusted
            try:
                host = str(ip_address(found[1].strip("[]")))
            except ValueError:
                break
            if not self.trusts(host):
                break
        return host


def networks_of(text: str) -> frozenset[Network]:
    """Read addresses and networks that are separated by commas. Raises `ValueError`."""
    return frozenset(ip_network(part.strip(" ")) for part in text.split(","))


NO_PROXIES: Final = TrustedProxies()
