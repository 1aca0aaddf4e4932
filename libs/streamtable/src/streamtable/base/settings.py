"""All settings of the library: frozen, validated when built, read from the environment by one function, once.

The names are a contract: `STREAMTABLE_` and the field's name in capitals; `STREAMTABLE_KAFKA_...` for librdkafka's own.
"""

import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import field
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from streamtable.base.environment import EnvironmentSettings, Flag, one_of, seconds, secret_in

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
NativeChoice = Literal["auto", "required", "off"]
LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]
Standby = Literal["none", "1", "2", "3", "all"]
COPIES: Mapping[Standby, bool | int] = {"all": True, "none": False, "1": 1, "2": 2, "3": 3}
"""The option `standby` of a processor, by the setting."""

# Files hold these more safely than an environment does, which many programs can show.
_FROM_FILE = ("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.password", "ssl.keystore.password")
_SECRET = re.compile(r"password|secret|key|token|oauthbearer\.config")
_UNDERSCORED = {"log.level": "log_level"}  # the one name of librdkafka's with an underscore
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
_INSTANCE = re.compile(r"[A-Za-z0-9._-]{1,100}")
_YEAR = 365 * 86_400


class Address(NamedTuple):
    """The address of a server. Port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HostName(str):
    """The name of the host as the default of an instance id: several processes of a host may have that."""

    __slots__ = ()

    @classmethod
    def own(cls) -> Self:
        """Return the name of this host."""
        return cls(socket.gethostname())


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
        variables = {name: KAFKA_PREFIX + name.upper().replace(".", "_") for name in refused}
        raise ValueError(
            "\n".join(f"{variables[name]}: refused: {REFUSED_KAFKA_OPTIONS[name]}" for name in refused)
        )
    return options


# ---- the settings ----------------------------------------------------------------------------------------------------


class Settings(EnvironmentSettings):
    """The settings of a process, read from its environment: the table from which options, defaults and their page are made.

    Attributes:
        bootstrap_servers: The brokers of Kafka.
        kafka: Options for librdkafka that break no guarantee.
        kafka_token: The function that returns [tokens to log in with](../operate/security.md#log-in-by-tokens):
            `MODULE:FUNCTION`, `aws_msk_iam:REGION`, `azure:NAMESPACE` or `gcp`. Default: none.
        instance_id: The name of this process within its group: stable across restarts, different for each replica. Default:
            the host name; further processors of the group on the same host get `-2`, `-3`, … behind it.
        state_dir: The folder of tables and views; a service's views are in `services/<service>-<instance id>`. Default:
            `$XDG_STATE_HOME/streamtable`, or `~/.local/state/streamtable`.
        http_address: The address of the REST server; port 0: a free port, printed.
        grpc_address: The address of the gRPC server.
        metrics_address: The address where a process without a REST server serves `/metrics`, `/livez`, `/readyz`. Default:
            none.
        guarantee: The guarantee of results in Kafka.
        commit_interval: The time between commits.
        log_format: The format of log lines. Default: console in a terminal, else json.
        log_level: The lowest level of log lines that are written.
        static_membership: `true`: a restarted instance gets its partitions back without a rebalance; a killed process is
            waited for.
        state_retention: The time that the state of revoked partitions is kept.
        standby: The number of processes that may be lost at once while a warm copy of each partition remains at its next owner:
            `1`, `2` or `3`: each costs about one more copy of the group's tables; `all`: every process keeps a copy
            of all partitions; `none`: no copies.
        purge: `true`: a group deletes from the [topics between the groups of a
            flow](../explanation/flows.md#topics-between-groups-are-purged) what it has committed; `false`: they keep it.
        group_protocol: `classic` is for brokers before 4.0.
        native: `auto`: the inner loops of the package `streamtable-native` are used where it is installed and can be loaded;
            `required`: a process that cannot load it does not start; `off`: Python does the same work.
        start_timeout: The time until Kafka must have answered; then the process stops. Default: waits forever, and logs it.
        shutdown_timeout: The time for a clean shutdown: commit and leave the group.
        stall_timeout: The time without progress after which a processor is [not
            ready](../operate/troubleshooting.md#a-processor-has-stalled). Set more than the longest call of a handler or of a
            micro-batch's `process`.
        stall_exit: The time without progress after which a processor's process exits with code 75, so that a supervisor
            restarts it; at least `STREAMTABLE_STALL_TIMEOUT`. Default: never.
        hanging_transaction_timeout: The time that partitions wait for an open transaction before it is
            [reported](../operate/runbooks.md#streamtabletransactionhangs), and the processor is not ready. Set more than the
            transactions of all programs that write to the inputs may take (`transaction.timeout.ms`; Kafka's default is 60 s).
        store: Where micro-batches keep their rows: `embedded:`, in the group's table and `STREAMTABLE_STATE_DIR`, or the URL
            of a central store: [its parameters](stores.md). It is never shown, as it may contain a password. Default:
            `embedded:`.
        failpoint: The point to crash at, for fault tests only. Default: none.
    """

    env_prefix: ClassVar[str] = PREFIX
    env_others: ClassVar[tuple[str, ...]] = (f"{KAFKA_PREFIX}...",)

    bootstrap_servers: Annotated[str, _servers] = "127.0.0.1:9092"
    kafka: Annotated[KafkaOptions, _kafka_options] = field(default_factory=lambda: KafkaOptions({}))
    kafka_token: str | None = None
    instance_id: Annotated[str, legal_instance_id] = field(default_factory=HostName.own)
    state_dir: Annotated[Path, _folder] = Path("~/.local/state/streamtable")
    http_address: Annotated[Address, address_in] = Address("127.0.0.1", 8080)
    grpc_address: Annotated[Address, address_in] = Address("127.0.0.1", 50051)
    metrics_address: Annotated[Address, address_in] | None = None
    guarantee: Annotated[_GuaranteeName, one_of(*get_args(_GuaranteeName))] = "exactly_once"
    commit_interval: Annotated[float, seconds(0.01, 60)] = 0.2
    log_format: Annotated[LogFormat, one_of(*get_args(LogFormat))] | None = None
    log_level: Annotated[LogLevel, one_of(*get_args(LogLevel))] = "info"
    static_membership: Flag = False
    state_retention: Annotated[float, seconds(0, 10 * _YEAR)] = 86_400.0
    standby: Annotated[Standby, one_of(*get_args(Standby))] = "none"
    purge: Flag = True
    group_protocol: Annotated[GroupProtocol, one_of(*get_args(GroupProtocol))] = "consumer"
    native: Annotated[NativeChoice, one_of(*get_args(NativeChoice))] = "auto"
    start_timeout: Annotated[float, seconds(1, 86_400)] | None = None
    shutdown_timeout: Annotated[float, seconds(1, 3_600)] = 30.0
    stall_timeout: Annotated[float, seconds(1, 86_400)] = 30.0
    stall_exit: Annotated[float, seconds(1, 86_400)] | None = None
    hanging_transaction_timeout: Annotated[float, seconds(1, 86_400)] = 90.0
    store: str | None = field(default=None, repr=False)
    failpoint: str | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **defaults: Any) -> Self:
        """Return the settings of the environment.

        Args:
            environ: None: the process's own environment, as it is now.
            defaults: The values of settings for which there is no variable.

        Raises:
            ConfigurationError: Lists everything that is wrong, with variable, value and expectation.
        """
        environ = os.environ if environ is None else environ
        problems: list[str] = []
        options: dict[str, str] = {}
        others = {name: text for name, text in environ.items() if not _is_option(name)}
        for variable in environ.keys() - others.keys():
            name, text = _option_of_variable(variable), environ[variable]
            try:
                if text != text.strip() or not text or not text.isprintable():
                    raise ValueError("expected text without surrounding spaces, and not empty")
                if name.endswith(".file") and name.removesuffix(".file") in _FROM_FILE:
                    name, text = name.removesuffix(".file"), secret_in(text)
            except ValueError as error:
                problems.append(f"{variable}: {error}")
            else:
                options[name] = text
        if state_home := environ.get("XDG_STATE_HOME"):
            defaults.setdefault("state_dir", str(Path(state_home) / "streamtable"))
        return cls._read(others, {"kafka": KafkaOptions(options)} | defaults, problems)

    @classmethod
    def variables(cls) -> dict[str, str]:
        # The options of librdkafka are read otherwise.
        return {name: field for name, field in super().variables().items() if field != "kafka"}


def default_of(name: str) -> Any:
    """Return the default of a setting, which stands here alone."""
    return Settings.declared[name].default


def _is_option(variable: str) -> bool:
    named = variable.startswith(KAFKA_PREFIX) and variable == variable.upper()
    return named and variable not in {KAFKA_PREFIX, f"{KAFKA_PREFIX}TOKEN"}


def _option_of_variable(variable: str) -> str:
    name = variable.removeprefix(KAFKA_PREFIX).lower().replace("_", ".")
    return _UNDERSCORED.get(name, name)
