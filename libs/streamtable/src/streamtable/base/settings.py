"""All settings of the library: frozen, validated when built, read from the environment by one function, once.

The names are a contract: `STREAMTABLE_` and the field's name in capitals; `STREAMTABLE_KAFKA_...` for librdkafka's own.
"""

import difflib
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from streamtable.errors import ConfigurationError

PREFIX = "STREAMTABLE_"
KAFKA_PREFIX = "STREAMTABLE_KAFKA_"

REFUSED_KAFKA_OPTIONS: Mapping[str, str] = {
    "acks": "acknowledged records could be lost",
    "allow.auto.create.topics": "a topic made by accident has the wrong number of partitions",
    "auto.offset.reset": "a lost position would be skipped in silence",
    "bootstrap.servers": "use STREAMTABLE_BOOTSTRAP_SERVERS",
    "check.crcs": "damaged records would be read",
    "delivery.report.only.error": "offsets of changelog records come from delivery reports",
    "delivery.timeout.ms": "it has to fit into the transaction timeout",
    "enable.auto.commit": "offsets are committed together with their results",
    "enable.auto.offset.store": "offsets are committed together with their results",
    "enable.gapless.guarantee": "retries would double or reorder records",
    "enable.idempotence": "retries would double or reorder records",
    "enable.partition.eof": "the end of tables would not be noticed",
    "group.id": "it is the name of the group",
    "group.instance.id": "use STREAMTABLE_STATIC_MEMBERSHIP and STREAMTABLE_INSTANCE_ID",
    "group.protocol": "use STREAMTABLE_GROUP_PROTOCOL",
    "group.remote.assignor": "inputs and tables need the same partition numbers",
    "isolation.level": "records of aborted transactions would be read",
    "max.in.flight": "retries would reorder records",
    "max.in.flight.requests.per.connection": "retries would reorder records",
    "message.send.max.retries": "the delivery of records would fail too early",
    "message.timeout.ms": "it has to fit into the transaction timeout",
    "metadata.broker.list": "use STREAMTABLE_BOOTSTRAP_SERVERS",
    "partition.assignment.strategy": "inputs and tables need the same partition numbers",
    "partitioner": "keys would go to other partitions than those of their table",
    "plugin.library.paths": "it loads code",
    "request.required.acks": "acknowledged records could be lost",
    "retries": "the delivery of records would fail too early",
    "transaction.timeout.ms": "readers wait for open transactions; the library names this time itself",
    "transactional.id": "it is made of the group and the instance id",
}
"""The options of librdkafka that cannot be set, with the guarantee that each would break."""

_GuaranteeName = Literal["exactly_once", "at_least_once"]
GroupProtocol = Literal["consumer", "classic"]
LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]
Standby = Literal["all", "none"]

# Files hold these more safely than an environment does, which many programs can show.
_FROM_FILE = ("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.password", "ssl.keystore.password")
_SECRET = re.compile(r"password|secret|key|token|oauthbearer\.config")
_UNDERSCORED = {"log.level": "log_level"}  # the one name of librdkafka's with an underscore
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
_INSTANCE = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SHOWN_CHARS_MAX = 80
_YEAR = 365 * 86_400


class Address(NamedTuple):
    """The address of a server. Port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class KafkaOptions(Mapping[str, str]):
    """Options for librdkafka, by librdkafka's names. Its text does not show secrets."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def __getitem__(self, name: str) -> str:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return repr({name: "***" if _SECRET.search(name) else value for name, value in self.items()})


# ---- what a value has to look like; each raises ValueError with the expectation --------------------------------------


def _seconds(low: float, high: float) -> Callable[[object], float]:
    def check(value: object) -> float:
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"seconds, a plain decimal number from {low:g} to {high:g}")
        return float(value)

    return check


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in {"true", "false"}:
        raise ValueError("true or false")
    return value == "true"


def address_in(value: object, lowest_port: int = 0) -> Address:
    """Return the address in a text. Raises `ValueError` with the expected form."""
    expected = f"host:port with a port from {lowest_port} to 65535, an IPv6 address in brackets"
    if isinstance(value, Address):
        value = str(value)
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not _DECIMAL.fullmatch(port) or "." in port or not lowest_port <= int(port) <= 65_535:  # noqa: PLR2004 - ports
        raise ValueError(expected)
    try:
        if host.startswith("[") and host.endswith("]"):
            host = str(IPv6Address(host[1:-1]))
        elif re.fullmatch(r"[0-9.]+", host):
            host = str(IPv4Address(host))
        elif not _HOST.fullmatch(host):
            raise ValueError(expected)
    except AddressValueError:
        raise ValueError(expected) from None
    return Address(host, int(port))


def _servers(value: object) -> str:
    expected = "host:port, several separated by commas, each once, ports from 1 to 65535, IPv6 in brackets"
    try:
        parts = value.split(",") if isinstance(value, str) else []
        addresses = [str(address_in(part.strip(" "), lowest_port=1)) for part in parts]
    except ValueError:
        raise ValueError(expected) from None
    if not addresses or len({address.lower() for address in addresses}) < len(addresses):
        raise ValueError(expected)
    return ",".join(addresses)


def legal_instance_id(value: object) -> str:
    """Return the id if it is valid in a transactional id and a client's name. Raises `ValueError` with the rule."""
    if not isinstance(value, str) or not _INSTANCE.fullmatch(value):
        raise ValueError("1 to 100 of the characters a-z A-Z 0-9 . _ - (the default is the host name)")
    return value


def _folder(value: object) -> Path:
    expected = "a folder to keep tables in; not a file"
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError(expected)
    try:
        path = Path(value).expanduser().absolute()
        nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    except RuntimeError:
        raise ValueError(
            f"{expected}; ~ has no meaning here, as there is no home folder: set HOME or give a whole path"
        ) from None
    except OSError:  # a name that is too long
        raise ValueError(expected) from None
    if not nearest.is_dir():
        raise ValueError(expected)
    return path


def _kafka_options(value: object) -> KafkaOptions:
    options = KafkaOptions(value) if isinstance(value, Mapping) else KafkaOptions({})
    refused = sorted(REFUSED_KAFKA_OPTIONS.keys() & options.keys())
    if refused:
        raise ValueError(
            "\n".join(
                f"{_variable_of_option(name)}: refused: {REFUSED_KAFKA_OPTIONS[name]}" for name in refused
            )
        )
    return options


def _one_of(literal: object) -> Callable[[object], object]:
    choices = get_args(literal)

    def check(value: object) -> object:
        if value not in choices:
            raise ValueError(" or ".join(choices))
        return value

    return check


# ---- the settings ----------------------------------------------------------------------------------------------------


class Settings(BaseModel):
    """The settings of a process, read from its environment.

    Attributes:
        bootstrap_servers: The brokers of Kafka, `host:port` separated by commas.
        kafka: Options for librdkafka that break no guarantee.
        kafka_token: The function that returns tokens to log in with; see `streamtable.auth.named`.
        instance_id: The name of this process within its group; stable over restarts, different for each replica.
        state_dir: The folder of tables on disk; created when needed.
        http_address: The address of the REST server.
        grpc_address: The address of the gRPC server.
        metrics_address: The address of the metrics of a process without a REST server; None: they are not served.
        guarantee: The guarantee of results in Kafka.
        commit_interval: Seconds between commits.
        log_format: The format of log lines; None: console if standard error is a terminal, else json.
        log_level: The lowest level of log lines that are written.
        static_membership: Keep partitions over a restart; a killed process is then waited for.
        state_retention: Seconds that the tables of partitions that moved to other members are kept on disk.
        standby: `all`: keep a standby replica of every partition of the group's tables whose task runs elsewhere.
        purge: Delete the records of topics between the groups of a flow once they are committed.
        group_protocol: `classic` for brokers before 4.0.
        start_timeout: Seconds to wait for Kafka's first answer; None: no limit.
        shutdown_timeout: Seconds for the last commit and for leaving the group.
        stall_timeout: Seconds without progress after which a processor is not ready.
        stall_exit: Seconds without progress after which a processor's process exits; None: it never does.
        hanging_transaction_timeout: Seconds that partitions wait for a transaction that has not ended before that is
            reported.
        store: URL of the central store of micro-batches, which may hold a password; read by `streamtable-microbatch`.
        failpoint: The step at which to crash; for fault tests only.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
        validate_default=True,
    )

    bootstrap_servers: Annotated[str, BeforeValidator(_servers)] = "127.0.0.1:9092"
    kafka: Annotated[KafkaOptions, BeforeValidator(_kafka_options)] = KafkaOptions({})
    kafka_token: str | None = None
    instance_id: Annotated[str, BeforeValidator(legal_instance_id)] = Field(
        default_factory=socket.gethostname
    )
    state_dir: Annotated[Path, BeforeValidator(_folder)] = Path("~/.local/state/streamtable")
    http_address: Annotated[Address, BeforeValidator(address_in)] = Address("127.0.0.1", 8080)
    grpc_address: Annotated[Address, BeforeValidator(address_in)] = Address("127.0.0.1", 50051)
    metrics_address: Annotated[Address, BeforeValidator(address_in)] | None = None
    guarantee: Annotated[_GuaranteeName, BeforeValidator(_one_of(_GuaranteeName))] = "exactly_once"
    commit_interval: Annotated[float, BeforeValidator(_seconds(0.01, 60))] = 0.2
    log_format: Annotated[LogFormat, BeforeValidator(_one_of(LogFormat))] | None = None
    log_level: Annotated[LogLevel, BeforeValidator(_one_of(LogLevel))] = "info"
    static_membership: Annotated[bool, BeforeValidator(_boolean)] = False
    state_retention: Annotated[float, BeforeValidator(_seconds(0, 10 * _YEAR))] = 86_400.0
    standby: Annotated[Standby, BeforeValidator(_one_of(Standby))] = "none"
    purge: Annotated[bool, BeforeValidator(_boolean)] = True
    group_protocol: Annotated[GroupProtocol, BeforeValidator(_one_of(GroupProtocol))] = "consumer"
    start_timeout: Annotated[float, BeforeValidator(_seconds(1, 86_400))] | None = None
    shutdown_timeout: Annotated[float, BeforeValidator(_seconds(1, 3_600))] = 30.0
    stall_timeout: Annotated[float, BeforeValidator(_seconds(1, 86_400))] = 30.0
    stall_exit: Annotated[float, BeforeValidator(_seconds(1, 86_400))] | None = None
    hanging_transaction_timeout: Annotated[float, BeforeValidator(_seconds(1, 86_400))] = 90.0
    store: str | None = Field(default=None, repr=False)
    failpoint: str | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Return the settings of the environment.

        Args:
            environ: None: the process's own environment, as it is now.

        Raises:
            ConfigurationError: Lists everything that is wrong, with variable, value and expectation.
        """
        environ = os.environ if environ is None else environ
        problems: list[str] = []
        values: dict[str, Any] = {}
        options: dict[str, str] = {}
        for variable, text in environ.items():
            if not variable.upper().startswith(PREFIX):
                continue
            field = variable.removeprefix(PREFIX).lower()
            is_option = variable.startswith(KAFKA_PREFIX) and field not in {"kafka_", "kafka_token"}
            if variable != variable.upper() or not (
                is_option or field in cls.model_fields.keys() - {"kafka"}
            ):
                problems.append(
                    f"{variable}: there is no such setting{_suggestion(variable, cls.model_fields)}"
                )
            elif text != text.strip() or not text or not text.isprintable():
                shown = "" if is_option or field == "store" else f"={text!r}"
                problems.append(f"{variable}{shown}: expected text without surrounding spaces, and not empty")
            elif is_option and (name := _option_of_variable(variable)).removesuffix(".file") in _FROM_FILE:
                try:
                    options[name.removesuffix(".file")] = _secret(name, text)
                except ValueError as error:
                    problems.append(f"{variable}: {error}")
            elif is_option:
                options[_option_of_variable(variable)] = text
            else:
                values[field] = text
        if state_home := environ.get("XDG_STATE_HOME"):
            values.setdefault("state_dir", str(Path(state_home) / "streamtable"))
        try:
            settings = cls(kafka=KafkaOptions(options), **values)
        except ValidationError as error:
            problems += [_problem(details["loc"][0], details, values) for details in error.errors()]
        if problems:
            raise ConfigurationError(
                "\n".join(["settings are wrong; nothing was started:", *sorted(problems)])
            )
        return settings


def _problem(field: int | str, details: Any, values: Mapping[str, str]) -> str:
    expected = str(details.get("ctx", {}).get("error", details["msg"]))
    if field == "kafka":
        return expected
    text = values.get(str(field))
    if text is None:
        shown = " (its default)"
    elif "@" in text:  # the form of a URL with a password
        shown = ""
    else:
        shown = f"={text[:_SHOWN_CHARS_MAX]!r}" + "..." * (len(text) > _SHOWN_CHARS_MAX)
    return f"{PREFIX}{str(field).upper()}{shown}: expected {expected}"


def _suggestion(variable: str, fields: Mapping[str, object]) -> str:
    known = [PREFIX + field.upper() for field in fields] + [KAFKA_PREFIX + "..."]
    close = difflib.get_close_matches(variable.upper(), known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def _secret(option: str, text: str) -> str:
    """Return the value of a secret option, or the content of the file that it names, without the trailing newline."""
    if not option.endswith(".file"):
        return text
    try:
        secret = Path(text).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"{text} cannot be read: {reason}") from None
    if not secret or not secret.isprintable() or secret != secret.strip():
        raise ValueError(f"{text}: expected one line with the secret, without surrounding spaces")
    return secret


def _option_of_variable(variable: str) -> str:
    name = variable.removeprefix(KAFKA_PREFIX).lower().replace("_", ".")
    return _UNDERSCORED.get(name, name)


def _variable_of_option(name: str) -> str:
    return KAFKA_PREFIX + name.upper().replace(".", "_")
