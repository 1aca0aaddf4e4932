"""The log on Apache Kafka: the only package that imports the Kafka client.

Nothing is made at import and nothing before a method is called. Clients do not survive a fork: start processes by
spawn, and make the clients in the process that uses them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import Producer as Client
from confluent_kafka.admin import AdminClient

from streamtable.auth import TokenFunction, TokenSource, named
from streamtable.base.partitioner import LIBRDKAFKA, Partitioner
from streamtable.base.settings import GroupProtocol, NativeChoice, Settings, default_of
from streamtable.base.tracing import Tracer
from streamtable.errors import AuthenticationFailed, ConfigurationError
from streamtable.kafka import options
from streamtable.kafka.admin import BrokerAddress, GroupDescription, GroupMember, KafkaAdmin
from streamtable.kafka.client_log import ClientLog
from streamtable.kafka.cluster import Isolation
from streamtable.kafka.consumer import KafkaGroupConsumer
from streamtable.kafka.errors import cause, describe
from streamtable.kafka.fetch import Records
from streamtable.kafka.identity import ClientIdentity, ConnectionErrors
from streamtable.kafka.native import chosen, records_of
from streamtable.kafka.options import BATCH_BYTES, DELIVERY_TIMEOUT_S, TRANSACTION_TIMEOUT_S
from streamtable.kafka.producer import KafkaProducer
from streamtable.kafka.reader import KafkaTableReader
from streamtable.kafka.transactional import KafkaTransactionalProducer
from streamtable.observe import log_as_set, log_to_stderr_by_default

__all__ = ["BrokerAddress", "GroupDescription", "GroupMember", "Kafka", "KafkaAdmin"]

A = TypeVar("A", bound=KafkaAdmin)


@dataclass(frozen=True)
class Kafka:
    """A Kafka cluster and how to talk to it. Implements `ports.Log`; building it connects to nothing.

    Args:
        bootstrap_servers: `host:port`, separated by commas.
        options: Settings of librdkafka for all clients, over the library's own; those that would break a guarantee
            are refused.
        group_protocol: "consumer", or "classic". On a broker that does not offer the consumer protocol (before 4.0, or
            without group.version=1), groups use the classic one by themselves, and log that.
        static_membership: A restarted instance gets its partitions back without a rebalance; after a kill it waits
            until its former session has ended.
        admin_timeout: Seconds to wait for each answer about topics.
        native: Whether the inner loops of the package `streamtable-native` are used: "auto", "required" or "off".
        tracer: Traces the work of emitters, processors and views that are given this cluster; None: no tracing.
        token: Returns a `streamtable.auth.Token` to log in with (SASL/OAUTHBEARER, over TLS unless the option
            `security.protocol` is SASL_PLAINTEXT). It is called from several threads: when clients are made, and
            before tokens expire, also for clients that are idle.

    Raises:
        ConfigurationError: The addresses are malformed, or an option is refused.
    """

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold a password
    group_protocol: GroupProtocol = default_of("group_protocol")  # noqa: RUF009 - a text
    static_membership: bool = default_of("static_membership")
    admin_timeout: float = 10.0
    native: NativeChoice = default_of("native")  # noqa: RUF009 - a text
    tracer: Tracer | None = field(default=None, repr=False, compare=False)
    token: TokenFunction | None = field(default=None, repr=False)
    _tokens: TokenSource | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def from_settings(cls, settings: Settings) -> "Kafka":
        """Return the cluster that the settings name. Connects to nothing; logs are written as the settings say."""
        log_as_set(settings.log_format, settings.log_level)  # a process that reads settings comes by here
        return cls(
            settings.bootstrap_servers,
            settings.kafka,
            group_protocol=settings.group_protocol,
            static_membership=settings.static_membership,
            native=settings.native,
            token=named(settings.kafka_token),
        )

    def __post_init__(self) -> None:
        options.check(self.bootstrap_servers, self.options)
        if self.token is not None:
            options.check_token(self.options)
            object.__setattr__(self, "options", {**options.TOKENS, **self.options})  # the class is frozen
            object.__setattr__(self, "_tokens", TokenSource(self.token))
        log_to_stderr_by_default()  # whatever is going to be logged, this was made before

    def cluster(self) -> KafkaAdmin:
        return self.admin()

    def admin(self) -> KafkaAdmin:
        """The cluster with the operations for administrators."""
        return self.admin_of(KafkaAdmin)

    def admin_of(self, kind: type[A]) -> A:
        """The cluster with the operations of this class, such as `streamtable_admin.rights.UserAdmin`."""
        connection_errors = ConnectionErrors()
        # These clients are not polled, so their log lines would pile up; their errors come with the answers.
        quiet = {"log_level": 0, "error_cb": connection_errors.heard}

        def outsider(group: str, isolation: Isolation) -> Consumer:
            asking = {**options.outsider(group), "isolation.level": isolation, **quiet}
            consumer: Consumer = _made(Consumer, self._config("cluster", asking))
            return consumer

        def client() -> AdminClient:
            made: AdminClient = _made(AdminClient, self._config("cluster", quiet))
            return made

        return kind(client, outsider, self._caller(), connection_errors, self.admin_timeout)

    def group_consumer(self, group: str, instance_id: str) -> KafkaGroupConsumer:
        config = options.consumer(group)
        if self.static_membership:
            config["group.instance.id"] = instance_id
        # Only so the client says that it has passed transaction markers.
        config["enable.partition.eof"] = True
        log, config = self._watched(f"{group}.{instance_id}", config, group=group)

        def create(protocol: GroupProtocol) -> Consumer:
            made: Consumer = _made(Consumer, options.member(config, protocol))
            return made

        return KafkaGroupConsumer(create, self._records, log, self.group_protocol)

    def transactional_producer(
        self,
        transactional_id: str | None,
        batch_bytes: int = BATCH_BYTES,
        transaction_seconds: float = TRANSACTION_TIMEOUT_S,
    ) -> KafkaTransactionalProducer:
        config = options.producer() | {"batch.size": min(batch_bytes, 1_000_000)}
        if transactional_id is not None:
            config |= options.transactional(transactional_id, transaction_seconds)
        log, config = self._watched(
            transactional_id or "transactional", config, transactional_id=transactional_id or ""
        )
        if transactional_id is not None:
            config = options.timed_within(config)
        return KafkaTransactionalProducer(
            _made(Client, config),
            log,
            transactional=transactional_id is not None,
            transaction_seconds=transaction_seconds,
            native=chosen(self.native),
        )

    def producer(
        self, partitioner: Partitioner = "murmur2", delivery_timeout: float = DELIVERY_TIMEOUT_S
    ) -> KafkaProducer:
        config: dict[str, object] = options.producer(delivery_timeout) | {
            "partitioner": LIBRDKAFKA[partitioner]
        }
        log, config = self._watched("producer", config)
        return KafkaProducer(_made(Client, config), log, delivery_timeout)

    def table_reader(self, name: str) -> KafkaTableReader:
        log, config = self._watched(name, options.consumer(name) | {"enable.partition.eof": True}, group=name)
        consumer = _made(Consumer, config)
        return KafkaTableReader(consumer, self._records(consumer), log)

    def _records(self, consumer: Consumer) -> Records:
        return records_of(consumer, chosen(self.native))

    def _config(self, client_id: str, config: Mapping[str, object]) -> dict[str, object]:
        login = {} if self._tokens is None else self._tokens.login()
        return {**options.client(self.bootstrap_servers, client_id), **login, **config, **self.options}

    def _caller(self, **names: str) -> ClientIdentity:
        authorities = None if "ssl.ca.pem" in self.options else self.options.get("ssl.ca.location", "")
        user = self.options.get("sasl.username", "")
        return ClientIdentity(self.bootstrap_servers, user, authorities, tokens=self._tokens, **names)

    def _watched(
        self, client_id: str, config: Mapping[str, object], **names: str
    ) -> tuple[ClientLog, dict[str, object]]:
        log = ClientLog(client_id, self.bootstrap_servers, caller=self._caller(**names))
        return log, {**self._config(client_id, config), "error_cb": log.error, "logger": log}


def _made(kind: Any, config: dict[str, object]) -> Any:
    try:
        return kind(config)
    except TypeError as error:
        if "as type unicode string" in str(error) and all(isinstance(name, str) for name in config):
            # Ctrl-C has come inside of the client, which takes that for a name or a value that is no text.
            raise KeyboardInterrupt from error
        raise
    except KafkaException as error:
        if cause(error).code() == KafkaError.SASL_AUTHENTICATION_FAILED:
            raise AuthenticationFailed(f"the Kafka client has no token ({describe(cause(error))})") from error
        raise ConfigurationError(
            f"the Kafka client refuses its settings ({describe(cause(error))})"
        ) from error
