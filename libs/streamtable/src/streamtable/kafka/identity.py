"""The identity of a client: which ACL it lacks when the broker refuses it, and why it cannot connect."""

import re
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError

from streamtable.auth import TokenSource
from streamtable.errors import AuthorizationError
from streamtable.kafka.errors import describe

LOOK_SECONDS = 1.0
CLUSTER = "kafka-cluster"
"""Kafka's name of the resource that stands for all of it."""

REFUSALS = {KafkaError._AUTHENTICATION, KafkaError._SSL}  # noqa: SLF001 - codes
UNRESOLVED = KafkaError._RESOLVE  # noqa: SLF001 - a code
_RESOLVED = re.compile(r"Failed to resolve '(.+):\d+'")
_STRANGER = "is of an authority that is not in {whom}: name the file with the right one by STREAMTABLE_KAFKA_SSL_CA_LOCATION"
_OTHER = "is for other names: connect to one of these, or give the broker one for {host}"
_WHY = {  # by OpenSSL's codes
    9: "is not valid yet: compare the clocks of both machines",
    10: "has expired: give the broker a new one",
    **dict.fromkeys((18, 19, 20, 21), _STRANGER),
    **dict.fromkeys((62, 64), _OTHER),
}


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The user and the servers of a client, for the errors that name them.

    Args:
        servers: The bootstrap servers, `host:port` separated by commas.
        user: Its SASL user name; "" if it has none.
        authorities: File or folder with the certificates that it trusts, in PEM; "" for the machine's own; None: not
            known here.
        group: The consumer group that it is a member of, or that it requests information about.
        transactional_id: The id of its transactions.
        tokens: What it logs in with in place of a password; None if there is none.
    """

    servers: str = ""
    user: str = ""
    authorities: str | None = ""
    group: str = ""
    transactional_id: str = ""
    tokens: TokenSource | None = None

    def lacks(self, error: KafkaError, operation: str, topic: str = "") -> AuthorizationError:
        """Return the error for a refusal (`FORBIDDEN`), with the ACL that is missing.

        Args:
            error: The error of the broker.
            operation: The operation that was refused, as an ACL names it.
            topic: The topic of the operation.
        """
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            resource, name = "group", self.group
            operation = "READ" if operation == "WRITE" else operation  # a writer also commits offsets
        elif error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            resource, name = "transactional id", self.transactional_id
        elif error.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            resource, name = "cluster", CLUSTER
            # A user who may write to any topic has this right too.
            operation = "IDEMPOTENT_WRITE" if operation == "WRITE" else operation
        else:
            resource, name = "topic", topic
        return AuthorizationError(
            user=self.user, operation=operation, resource=resource, name=name, reason=describe(error)
        )

    def explain(self, error: KafkaError) -> str:
        """Return the error, with what to do about it where that is known."""
        text = describe(error)
        if error.code() == KafkaError._AUTHENTICATION and self.tokens is not None:  # noqa: SLF001 - a code
            refused = f"the token of {self.tokens.name} cannot log in: the broker has to accept its issuer"
            return f"{self.tokens.failure or refused} ({text})"
        if error.code() == KafkaError._AUTHENTICATION:  # noqa: SLF001 - a code
            who = f"user {self.user!r}" if self.user else "this process, which names no user,"
            return (
                f"{who} cannot log in: correct STREAMTABLE_KAFKA_SASL_USERNAME, _PASSWORD and _MECHANISM, or give "
                f"the user this password, by 'streamtable users apply' ({text})"
            )
        if error.code() == KafkaError._SSL:  # noqa: SLF001 - a code
            return f"{self._distrust() or 'there is no TLS with the broker'} ({text})"
        if error.code() == UNRESOLVED:
            found = _RESOLVED.search(text)
            return (
                f"the host name {found[1] if found else ''!r} does not resolve on this machine: correct "
                "STREAMTABLE_BOOTSTRAP_SERVERS, or advertised.listeners of the broker that gives it"
            )
        return text

    def _distrust(self) -> str:
        """Return the reason why the first server that answers is not trusted; the client does not distinguish the causes."""
        for server in self.servers.split(",") if self.authorities is not None else ():
            host, _, port = server.strip().rpartition(":")
            if found := distrust(host.strip("[]"), int(port), self.authorities or ""):
                return found
        return ""


def distrust(host: str, port: int, authorities: str = "", seconds: float = LOOK_SECONDS) -> str:
    """Return the reason why a server's TLS certificate is not trusted, with advice; empty if it is, or without an answer.

    Args:
        host: The host of the server, for which its certificate must be valid.
        port: The port of the server.
        authorities: File or folder with those whose certificates are accepted, in PEM; "" for the machine's own.
        seconds: The maximum time of each step.
    """
    folder = Path(authorities).is_dir()
    file = authorities if authorities and not folder else None
    try:
        context = ssl.create_default_context(cafile=file, capath=authorities if folder else None)
    except OSError:  # an SSLError is an OSError
        return f"{authorities} has no certificates in PEM: correct STREAMTABLE_KAFKA_SSL_CA_LOCATION"
    try:
        plain = socket.create_connection((host, port), seconds)
        with plain, context.wrap_socket(plain, server_hostname=host):
            return ""
    except ssl.SSLCertVerificationError as error:
        why = _WHY.get(error.verify_code, f"is not accepted: {error.verify_message}")
        whom = authorities or "this machine's own list"
        return f"the certificate of {host}:{port} {why.format(host=host, whom=whom)}"
    except ssl.SSLError:
        return f"{host}:{port} does not speak TLS: correct the port, or STREAMTABLE_KAFKA_SECURITY_PROTOCOL"
    except OSError:
        return ""  # no server listens: the client reports that itself


class ConnectionErrors:
    """Collects the connection errors of a client that is not polled."""

    def __init__(self) -> None:
        self._errors: deque[KafkaError] = deque(maxlen=10)

    def heard(self, error: KafkaError) -> None:
        """Take an error; the client's error callback."""
        self._errors.append(error)

    def taken(self) -> KafkaError | None:
        """Return the latest error that the user has to mend, once, else None: a refusal, or a name that does not resolve."""
        found = sorted(
            (each for each in self._errors if each.code() in {*REFUSALS, UNRESOLVED}),
            key=lambda error: error.code() in REFUSALS,
        )
        self._errors.clear()
        return found[-1] if found else None
