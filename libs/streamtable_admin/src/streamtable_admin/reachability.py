"""Checks that the brokers can be reached, at the bootstrap addresses and at the advertised ones."""

import socket
from collections.abc import Iterable, Iterator
from ipaddress import ip_address

from streamtable_admin.cluster import BrokerAddress
from streamtable_admin.findings import Finding, ok, problem, warning

TRAP = (
    "clients use only the advertised address. Brokers in containers often advertise a name that "
    "only other containers know: give the broker a listener for clients outside, and in advertised.listeners the "
    "address that those clients use"
)


def split(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Return the addresses; they have been validated already."""
    found = []
    for address in bootstrap_servers.split(","):
        host, _, port = address.strip().rpartition(":")
        found.append((host.strip("[]"), int(port)))
    return found


def refusal(host: str, port: int, timeout: float) -> str:
    """Return the reason why there is no connection; empty if there is one."""
    try:
        with socket.create_connection((host, port), timeout):
            return ""
    except socket.gaierror:
        return "the name cannot be resolved"
    except TimeoutError:
        return f"no response within {timeout:g} s (a firewall, or the wrong network)"
    except ConnectionRefusedError:
        return "nothing listens there"
    except OSError as error:
        return str(error.strerror or error)


def bootstrap(servers: str, timeout: float, answer: str = "") -> Iterator[Finding]:
    """Check the bootstrap addresses when no broker has answered; `answer` is the error of the client."""
    for host, port in split(servers):
        why = refusal(host, port, timeout)
        if why:
            yield problem("broker", f"{host}:{port}: {why}", "start it, or correct --bootstrap-servers")
        else:
            yield problem(
                "broker",
                f"{host}:{port}: a server listens, but does not respond like Kafka{answer and f': {answer}'}",
                "check the port, and whether the listener needs TLS or SASL (--option security.protocol=...)",
            )


def advertised(brokers: Iterable[BrokerAddress], servers: str, timeout: float) -> Iterator[Finding]:
    """Check the addresses that the brokers advertise."""
    from_outside = not all(loopback(host) for host, _ in split(servers))
    for broker in brokers:
        name = f"broker {broker.number}"
        why = refusal(broker.host, broker.port, timeout)
        address = f"advertises {broker.host}:{broker.port}"
        if why:
            yield problem(name, f"{address}: {why}", TRAP)
        elif from_outside and loopback(broker.host):
            yield warning(
                name, f"{address}, which is this machine, although the bootstrap address is {servers}", TRAP
            )
        else:
            yield ok(name, f"{address}, which is reachable from here")


def loopback(host: str) -> bool:
    """Return whether the address is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
