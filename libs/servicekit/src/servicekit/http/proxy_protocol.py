"""Version 2 of the PROXY protocol: the header with which a TCP load balancer names the caller of a connection.

The specification is https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt. Version 1, which is text, is rejected:
proxies that support it support version 2 too.
"""

from ipaddress import ip_address
from struct import Struct
from typing import Final, NamedTuple

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
HEADER_BYTES_MAX: Final = 2048
"""The addresses take 36 bytes at most; the rest are fields that are skipped."""
_FIXED: Final = Struct(">12sBBH")
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_ADDRESSES: Final = {0x11: (4, Struct(">HH")), 0x21: (16, Struct(">HH"))}
"""The size of an address and the format of the two ports, by family and transport: TCP over IPv4 and over IPv6."""


class ProxyHeaderError(Exception):
    """A connection of a trusted proxy does not begin with a valid header."""


class ProxyHeader(NamedTuple):
    """The header of a connection.

    Attributes:
        size: The size of the header in bytes; the request follows it.
        caller: The address and port of the caller; None for the proxy's own connections (health checks) and for unknown
            callers.
    """

    size: int
    caller: tuple[str, int] | None


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """Return the header that a connection begins with; None if more bytes are needed.

    Raises:
        ProxyHeaderError: It does not begin with one.
    """
    if data[: len(SIGNATURE)] != SIGNATURE[: len(data)]:
        raise ProxyHeaderError("the header of the PROXY protocol, version 2, is missing")
    if len(data) < _FIXED.size:
        return None
    _, command, family, length = _FIXED.unpack_from(data)
    size = _FIXED.size + length
    if command not in {_LOCAL, _PROXY} or size > HEADER_BYTES_MAX:
        raise ProxyHeaderError("the header of the PROXY protocol is not valid")
    if len(data) < size:
        return None
    if command == _LOCAL or family not in _ADDRESSES:
        return ProxyHeader(size, None)
    address_bytes, ports = _ADDRESSES[family]
    if length < 2 * address_bytes + ports.size:
        raise ProxyHeaderError("the header of the PROXY protocol is too short for its addresses")
    address = ip_address(data[_FIXED.size : _FIXED.size + address_bytes])
    port, _ = ports.unpack_from(data, _FIXED.size + 2 * address_bytes)
    return ProxyHeader(size, (str(address), port))
