"""A broker with TLS, SASL/SCRAM authentication and ACLs that deny by default."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localkafka.certificates import Authority

LISTENER = "SASL_SSL"
MECHANISM = "SCRAM-SHA-512"
BROKER = "broker"
"""The brokers' own user: brokers authenticate to each other by password, and to controllers by their certificate's
name."""


@dataclass(frozen=True)
class Security:
    """The security settings of a broker: SASL/SCRAM over TLS with ACLs, for clients and between brokers.

    Initially only the administrator is authorized, and grants the other users their ACLs.

    Args:
        users: Passwords by user name. The administrator can add users later.
        administrator: The user that is authorized for everything.
        authority: Signs the brokers' certificates, which are for 127.0.0.1; clients must trust it.
        own_password: The password of the brokers' own user, the same for all brokers of a cluster.
    """

    users: Mapping[str, str] = field(repr=False)
    administrator: str = "admin"
    authority: Authority = field(default_factory=lambda: Authority("localkafka"))
    own_password: str = field(default_factory=secrets.token_urlsafe, repr=False)

    def __post_init__(self) -> None:
        if self.administrator not in self.users:
            raise ValueError(f"the administrator {self.administrator!r} is not among the users")
        if BROKER in self.users:
            raise ValueError(f"{BROKER!r} is the brokers' own user: choose another name")

    def client(self, user: str, folder: Path) -> dict[str, str]:
        """The librdkafka options of one of the users; `folder` is the argument of `write`."""
        return {
            "security.protocol": LISTENER,
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self.users[user],
            "ssl.ca.location": str(authority_file(folder)),
        }

    def write(self, folder: Path) -> None:
        """Write a broker's certificate and key, and the authority's certificate, into the broker's folder."""
        self.authority.issue(BROKER).write_together(folder / "broker.pem")
        authority_file(folder).write_bytes(self.authority.certificate)

    def properties(self, folder: Path) -> dict[str, str]:
        """Return the broker properties for the files in this folder."""
        jaas = (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{BROKER}" password="{self.own_password}";'
        )
        return {
            "listener.security.protocol.map": f"CONTROLLER:SSL,{LISTENER}:SASL_SSL",
            "inter.broker.listener.name": LISTENER,
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}.sasl.jaas.config": jaas,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority_file(folder)),
            # Controllers authenticate brokers by their certificates; clients have none.
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{BROKER};User:{self.administrator}",
        }

    def formatting(self) -> list[str]:
        """The arguments of the storage tool that create the initial users' credentials."""
        known = {**self.users, BROKER: self.own_password}
        return [
            part
            for name, password in known.items()
            for part in ("--add-scram", f"{MECHANISM}=[name={name},password={password}]")
        ]


def authority_file(folder: Path) -> Path:
    """The path of the authority's certificate, in PEM, which clients must trust."""
    return folder / "authority.crt"
