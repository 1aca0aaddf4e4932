"""The addresses of the brokers and the security settings of a job: the settings of the services, for both clients that the jobs use.

The services name librdkafka's options in their environment, `STREAMTABLE_KAFKA_SASL_USERNAME` for `sasl.username`. The
jobs ask and write with the library's clients, which are librdkafka too, and Spark reads with Kafka's Java client, which has
other names and needs certificates and keys as text. Files are read once, when the settings are built.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import streamtable
from streamtable import errors
from streamtable_spark.errors import ConfigurationError

SERVERS_VARIABLE: Final = "STREAMTABLE_BOOTSTRAP_SERVERS"
PREFIX: Final = "STREAMTABLE_KAFKA_"
SECURITY: Final = ("SECURITY_", "SASL_", "SSL_", "ENABLE_SSL_")
"""The prefix of the variables for security. All others tune the services' performance."""

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOGINS: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
KNOWN: Final = (
    "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "ssl.ca.location", "ssl.certificate.location",
    "ssl.key.location", "ssl.key.password", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
POLL: Final = "20000"
"""The maximum number of records of a poll. With Kafka's default of 500, polling takes Spark's source as long as reading."""
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_KEYS: Final = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


class Kafka(str):
    """The addresses of the brokers, with the settings of TLS and authentication.

    It is a text because most code only passes it on or names it in a message; secrets never appear in it. It can be
    sent to Spark's workers. A plain text becomes one without security.

    Args:
        servers: `host:port`, several separated by commas.
        options: The security settings of librdkafka.
        java: The same settings for Kafka's Java client.
    """

    __slots__ = ("_java", "_options")
    _java: dict[str, str]
    _options: dict[str, str]

    def __new__(
        cls, servers: str, options: Mapping[str, str] | None = None, java: Mapping[str, str] | None = None
    ) -> Self:
        if isinstance(servers, cls):
            return servers
        made = super().__new__(cls, servers)
        made._options, made._java = dict(options or {}), dict(java or {})
        return made

    def client(self, tuning: Mapping[str, str] | None = None) -> streamtable.Kafka:
        """Return the settings of the library's clients, with these options of librdkafka added."""
        return streamtable.Kafka(str(self), {**(tuning or {}), **self._options})

    def java(self) -> dict[str, str]:
        """Return the options of Kafka's Java client."""
        return {"bootstrap.servers": str(self), **self._java}

    def spark(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source and sink."""
        return {f"kafka.{name}": value for name, value in self.java().items()}

    def spark_source(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source, which reads committed records."""
        return {**self.spark(), "kafka.isolation.level": "read_committed", "kafka.max.poll.records": POLL}


def kafka_of(servers: str, environ: Mapping[str, str]) -> Kafka:
    """Read the addresses of the brokers and the security settings.

    Args:
        servers: `host:port`, several separated by commas.
        environ: The environment of the process; `docs/reference/settings.md` lists the variables that are read.

    Raises:
        ConfigurationError: Settings are invalid; the error lists everything that is wrong, with its variable.
    """
    secure = {
        variable: text
        for variable, text in environ.items()
        if variable.startswith(PREFIX) and variable.removeprefix(PREFIX).startswith(SECURITY)
    }
    try:
        settings = streamtable.Settings.from_environment({**secure, SERVERS_VARIABLE: servers})
    except errors.ConfigurationError as error:
        raise ConfigurationError(str(error)) from None
    options = dict(settings.kafka)
    if (mechanism := options.pop("sasl.mechanisms", None)) is not None:
        options["sasl.mechanism"] = mechanism
    security = _Security(options)
    java = security.java()
    if security.problems:
        problems = "\n".join(security.problems)
        raise ConfigurationError(f"settings are wrong; nothing was started:\n{problems}")
    return Kafka(servers, options, java)


class _Security:
    """Reads the options once and collects all their errors."""

    def __init__(self, options: dict[str, str]) -> None:
        self.problems: list[str] = []
        self._options = options

    def java(self) -> dict[str, str]:
        options = self._options
        for name in sorted(options.keys() - set(KNOWN)):
            self._wrong(name, f"jobs do not know it; they know {', '.join(map(variable_of, KNOWN))}")
        protocol = options.get("security.protocol", PLAINTEXT).upper()
        if protocol not in PROTOCOLS:
            self._wrong("security.protocol", f"{protocol!r}: {', '.join(PROTOCOLS)} are known")
            return {}
        for kind, of_use in (("sasl", "SASL_SSL"), ("ssl", "SSL or SASL_SSL")):
            for name in sorted(options):
                if name.startswith(f"{kind}.") and kind.upper() not in protocol.split("_"):
                    here = f"{variable_of('security.protocol')}={protocol}"
                    self._wrong(name, f"is of no use with {here}: set that to {of_use}, or leave this out")
        java = {} if protocol == PLAINTEXT else {"security.protocol": protocol}
        if protocol.startswith("SASL"):
            java |= self._login()
        if protocol.endswith("SSL"):
            java |= self._trust() | self._certificate() | self._names()
        return java

    def _login(self) -> dict[str, str]:
        mechanism = self._needed("sasl.mechanism", "one of " + ", ".join(LOGINS)).upper()
        user = self._needed("sasl.username", "the user's name")
        password = self._needed("sasl.password", "the user's password")
        if mechanism and mechanism not in LOGINS:
            self._wrong("sasl.mechanism", f"{mechanism!r}: jobs know {', '.join(LOGINS)}")
            return {}
        login = LOGINS.get(mechanism, "")
        return {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{login} required username={_quoted(user)} password={_quoted(password)};",
        }

    def _trust(self) -> dict[str, str]:
        if "ssl.ca.location" not in self._options:
            return {}  # both clients then trust the authorities that the machine trusts
        text = self._file("ssl.ca.location", (_CERTIFICATE,), "certificates in PEM")
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}

    def _certificate(self) -> dict[str, str]:
        if not self._options.keys() & {"ssl.certificate.location", "ssl.key.location", "ssl.key.password"}:
            return {}
        chain = self._file("ssl.certificate.location", (_CERTIFICATE,), "a certificate in PEM")
        key = self._file(
            "ssl.key.location", _KEYS, "a key in PEM, of PKCS#8 (`openssl pkcs8 -topk8` makes it of others)"
        )
        java = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
        if _KEYS[1] in key:
            java["ssl.key.password"] = self._needed("ssl.key.password", "what the key is encrypted with")
        return java

    def _names(self) -> dict[str, str]:
        algorithm = self._options.get("ssl.endpoint.identification.algorithm", "https").lower()
        if algorithm not in {"https", "none"}:
            self._wrong("ssl.endpoint.identification.algorithm", f"{algorithm!r}: https or none")
        return {"ssl.endpoint.identification.algorithm": "" if algorithm == "none" else algorithm}

    def _needed(self, name: str, what: str) -> str:
        if name not in self._options:
            self._wrong(name, f"is missing: {what}")
        return self._options.get(name, "")

    def _file(self, name: str, marks: tuple[str, ...], what: str) -> str:
        path = Path(self._needed(name, what))
        if name not in self._options:
            return ""
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            self._wrong(name, f"{path} cannot be read ({why}): a file with {what} is needed")
            return ""
        if not any(mark in text for mark in marks):
            self._wrong(name, f"{path} does not hold what is needed: {what}")
        return text

    def _wrong(self, name: str, why: str) -> None:
        self.problems.append(f"{variable_of(name)}: {why}")


def variable_of(name: str) -> str:
    """Return the name of the variable that sets an option of librdkafka."""
    return PREFIX + name.upper().replace(".", "_")


def _quoted(text: str) -> str:
    """Return the value as Java's login settings quote it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
