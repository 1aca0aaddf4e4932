"""The address at which a process answers queries, as part of its Kafka client id.

Kafka shows the client id of each member of a group beside its partitions. So the group itself says where each partition is
answered for: there is no registry, no further topic, and nothing to go stale.
"""

import re
from dataclasses import dataclass, replace
from socket import gethostname
from typing import Final

from streamtable import Kafka
from streamtable.errors import ConfigurationError

_MARK: Final = "streamtable-query@"
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class QueryAddress:
    """The host and the port at which other processes reach a query server.

    Attributes:
        host: A host name or an address; IPv6 in brackets.
        port: The port, 1 to 65535.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "QueryAddress":
        """Return the address in `host:port`. Raises `ConfigurationError`."""
        found = _ADDRESS.fullmatch(text)
        if found is None or not 0 < int(found["port"]) < 1 << 16:
            raise ConfigurationError(
                f"query address {text!r} is no address: write host:port, such as pod-3.orders:7070, where "
                "other processes reach this one"
            )
        return cls(found["host"], int(found["port"]))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def own_address(text: str) -> QueryAddress:
    """Return the address of this process: in `:port`, its host is the host name of this machine. Raises `ConfigurationError`."""
    return QueryAddress.parse(f"{gethostname()}{text}" if text.startswith(":") else text)


def advertise(kafka: Kafka, address: str) -> Kafka:
    """Return the cluster with an address in the client id, so that `Query` finds the processors of this process.

        app = App(advertise(Kafka("127.0.0.1:9092"), "pod-3.orders:7070"), "state")

    Args:
        kafka: The cluster.
        address: `host:port` where other processes reach the `QueryServer` of this process. `:port` stands for the host name of
            this machine, as of a container, which others must be able to resolve.

    Raises:
        ConfigurationError: The address is malformed, or the cluster has an option `client.id` already.
    """
    if "client.id" in kafka.options:
        raise ConfigurationError(
            "the option client.id cannot be set for a process that answers queries: it holds the query address"
        )
    return replace(kafka, options={**kafka.options, "client.id": f"{_MARK}{own_address(address)}"})


def advertised(client_id: str) -> QueryAddress | None:
    """Return the address in the client id of a member; None if it has none."""
    if not client_id.startswith(_MARK):
        return None
    try:
        return QueryAddress.parse(client_id.removeprefix(_MARK))
    except ConfigurationError:  # another program uses the mark: it is no address of ours
        return None
