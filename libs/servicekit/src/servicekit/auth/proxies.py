"""Trusted proxies: proxies whose `Forwarded` header (RFC 7239) gives the address of the caller."""

import re
from collections.abc import Collection, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import islice
from typing import Final

Network = IPv4Network | IPv6Network
# RFC 7239, section 4. Colons and brackets may stand outside quotes, as several proxies write addresses.
_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE: Final = r"""[!#$%&'*+.^_`|~0-9A-Za-z:\[\]-]+|"(?:[^"\\]|\\.)*+\""""
_LAST_HOP: Final = re.compile(
    rf"(?:^|,)[ \t]*+((?:{_NAME})=(?:{_VALUE})(?:;[ \t]*+(?:{_NAME})=(?:{_VALUE}))*+)?[ \t]*+$"
)
_PAIR: Final = re.compile(rf"({_NAME})=({_VALUE})")
_NODE: Final = re.compile(r"(\[[0-9a-f:.]+\]|[0-9.]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_FIELD_CHARACTERS_MAX: Final = 2048
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

    def caller(self, host: str | None, forwarded: Sequence[str]) -> str | None:
        """Return the address of the caller: the last one in `Forwarded` that is not a trusted proxy's.

        Hops are read from the end, which the proxy next to this server has written: whatever a caller puts before it, also
        an unterminated quoted string, changes nothing.

        Args:
            host: The peer of the connection. If it is not a trusted proxy, the header is ignored.
            forwarded: The header's fields in the order of arrival. They are not joined, so that a caller's field cannot
                change how the proxy's is read.
        """
        hops = (hop for field in reversed(forwarded) for hop in _hops_from_end(field))
        for hop in islice(hops, _HOPS_MAX):
            if not self.trusts(host):
                break
            if hop is None:
                break  # malformed, obfuscated or unknown: the hops before it cannot be trusted
            host = hop
        return host


def _hops_from_end(field: str) -> Iterator[str | None]:
    """Yield the address of each hop of a header field, the last one first; None for one without a usable address."""
    rest = field[-_FIELD_CHARACTERS_MAX:]
    cut = len(rest) < len(field)
    while rest:
        found = _LAST_HOP.search(rest)
        if found is None or (cut and found.start() == 0 and rest[0] != ","):
            yield None
            return
        if found[1] is not None:
            yield _address(found[1])
        rest = rest[: found.start()]


def _address(hop: str) -> str | None:
    """Return the address in the parameter `for` of a hop; None if there is none, or there are several."""
    given = [value for name, value in _PAIR.findall(hop) if name.lower() == "for"]
    if len(given) != 1:
        return None
    node = _NODE.fullmatch(re.sub(r"\\(.)", r"\1", given[0].strip('"')))
    try:
        return None if node is None else str(ip_address(node[1].strip("[]")))
    except ValueError:
        return None


def networks_of(text: str) -> frozenset[Network]:
    """Read addresses and networks that are separated by commas. Raises `ValueError`."""
    return frozenset(ip_network(part.strip(" ")) for part in text.split(","))


NO_PROXIES: Final = TrustedProxies()
