"""The `Host` names that a server accepts. This prevents DNS rebinding from other sites."""

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

_HOST: Final = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{0,5})?")
_HOST_CHARACTERS_MAX: Final = 260  # 253 of a name, and a port
_LOCAL: Final = "localhost"


@dataclass(frozen=True, slots=True)
class OwnHosts:
    """The hosts of a server: loopback, the address where a connection arrived, and these names.

    Attributes:
        names: Further host names and addresses, in lower case; `*.example.org` stands for all names below that domain.
    """

    names: frozenset[str] = frozenset()

    def include(self, host: str | None, local: str | None) -> bool:
        """Return whether a request may name this host.

        Args:
            host: The header `Host`; a request without one is no browser's, and names nothing that could be foreign.
            local: The address of the server's end of the connection.
        """
        if host is None:
            return True
        return len(host) <= _HOST_CHARACTERS_MAX and _include(self, host, local)

    def names_include(self, name: str) -> bool:
        """Return whether this host name is one of `names`, or below one of their domains."""
        domains = (f"*{name[at:]}" for at, letter in enumerate(name) if letter == ".")
        return name in self.names or any(domain in self.names for domain in domains)


@lru_cache(maxsize=256)  # of each request on a kept connection the answer is the same
def _include(own: OwnHosts, host: str, local: str | None) -> bool:
    name = host_name(host)
    if name is None:
        return False
    return is_loopback(name) or own.names_include(name) or _is_same_address(name, local)


def host_name(host: str) -> str | None:
    """Return the name or address in a header `Host`, in lower case and without the port; None if it holds neither."""
    found = _HOST.fullmatch(host.lower())
    return None if found is None else (found["six"] or found["name"].rstrip(".") or None)


def is_loopback(name: str) -> bool:
    """Return whether a host name or address can be reached from its own machine only."""
    address = _address(name)
    if address is None:
        return name == _LOCAL or name.endswith(f".{_LOCAL}")
    return address.is_loopback


def is_unspecified(name: str) -> bool:
    """Return whether a server that is bound to this address listens on all addresses of its machine."""
    address = _address(name)
    return address is not None and address.is_unspecified


def _is_same_address(name: str, local: str | None) -> bool:
    address = _address(name)
    return address is not None and local is not None and address == _address(local)


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(name)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
