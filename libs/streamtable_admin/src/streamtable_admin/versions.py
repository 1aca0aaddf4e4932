"""The capabilities of a broker, from an ApiVersions request on a separate connection.

The client library sends this request too, but does not expose the response. A listener without TLS and SASL answers it
for any client.
"""

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from streamtable.errors import RetryLater

API_VERSIONS = 18
CONSUMER_GROUP_HEARTBEAT = 68
_VERSION = 3  # the first version whose response has features
_ANSWER_BYTES_MAX = 1 << 20
_CLIENT = b"streamtable-admin"
_FINALIZED_FEATURES = 2  # a tag
_VARINT_BITS_MAX = 35  # five bytes


@dataclass(frozen=True, slots=True)
class Abilities:
    """The capabilities of a broker.

    Attributes:
        apis: The highest version of each request, by API key.
        features: The finalized level of each feature of the cluster, by name.
    """

    apis: Mapping[int, int]
    features: Mapping[str, int]

    @property
    def consumer_groups(self) -> bool:
        """Whether groups can use the consumer protocol (KIP-848)."""
        return CONSUMER_GROUP_HEARTBEAT in self.apis and self.features.get("group.version", 0) >= 1


def ask(host: str, port: int, timeout: float) -> Abilities:
    """Request the capabilities of a broker.

    Args:
        host: The name or address of the broker.
        port: The port of a listener without TLS.
        timeout: The seconds for each step.

    Raises:
        RetryLater: There is no connection or no valid response (a listener with TLS or SASL).
    """
    text = b"".join(bytes([len(word) + 1]) + word for word in (_CLIENT, b"1"))
    body = struct.pack(">hhih", API_VERSIONS, _VERSION, 1, len(_CLIENT)) + _CLIENT + b"\0" + text + b"\0"
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 0 < size <= _ANSWER_BYTES_MAX:
                raise ValueError(f"a response of {size} bytes")
            return parse(_exactly(connection, size))
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise RetryLater(f"{host}:{port} does not report its API versions ({error})") from error


def parse(answer: bytes) -> Abilities:
    """Parse the response, without its length. Raises `ValueError`, `IndexError`, `struct.error` for an invalid one."""
    _, error = struct.unpack_from(">ih", answer)
    if error:
        raise ValueError(f"error code {error}")
    cursor = _Cursor(answer, 6)
    apis = {}
    for _ in range(cursor.varint() - 1):
        number, _, highest = cursor.unpack(">hhh")
        cursor.skip_tags()
        apis[number] = highest
    cursor.unpack(">i")  # throttle time
    features: dict[str, int] = {}
    for _ in range(cursor.varint()):
        tag, size = cursor.varint(), cursor.varint()
        end = cursor.at + size
        if tag == _FINALIZED_FEATURES:
            for _ in range(cursor.varint() - 1):
                name = cursor.text()
                highest, _ = cursor.unpack(">hh")
                cursor.skip_tags()
                features[name] = highest
        cursor.at = end
    return Abilities(apis, features)


class _Cursor:
    """Reads Kafka's compact encoding."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def unpack(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > _VARINT_BITS_MAX:
                raise ValueError("a varint that is too long")
            if byte < 0x80:  # noqa: PLR2004 - the continuation bit
                return value

    def text(self) -> str:
        size = self.varint() - 1
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.at += self.varint()


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ValueError("the connection was closed")
        data += part
    return data
