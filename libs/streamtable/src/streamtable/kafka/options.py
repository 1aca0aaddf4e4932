"""The options of the Kafka clients, by kind of client."""

import math
from collections.abc import Mapping

from streamtable.base.settings import REFUSED_KAFKA_OPTIONS, GroupProtocol
from streamtable.errors import ConfigurationError

TRANSACTION_TIMEOUT_S = 10.0
DELIVERY_TIMEOUT_S = 120.0
BATCH_BYTES = 65_536
"""For topics whose limit is not known: a batch above `max.message.bytes` is refused whole, however small its records."""
_DELIVERY_TIMEOUT_MIN_S = 0.1  # the client sends a batch after some milliseconds only
_DELIVERY_TIMEOUT_MAX_S = 3_600.0
_REQUEST_TIMEOUT_MS = 30_000
ABILITIES = "feature"
"""The value of `debug` with which the client logs what a broker supports, at each new connection and at no other time."""
TOKENS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


def check(bootstrap_servers: str, options: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` for addresses without a port and for refused options."""
    for address in bootstrap_servers.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:  # noqa: PLR2004 - ports
            raise ConfigurationError(
                f"bootstrap servers {bootstrap_servers!r}: expected host:port, separated by commas"
            )
    for name, value in options.items():
        if name in REFUSED_KAFKA_OPTIONS:
            raise ConfigurationError(f"Kafka option {name!r} cannot be set: {REFUSED_KAFKA_OPTIONS[name]}")
        if not isinstance(value, str):
            text = f"expected text, as '1' or 'true', not {type(value).__name__}"
            advice = ": use token= of Kafka" if name == "oauth_cb" else ""
            raise ConfigurationError(f"Kafka option {name!r}: {text}{advice}")


def check_token(options: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` for options that contradict a login by token."""
    for name, start in (
        ("security.protocol", "SASL"),
        ("sasl.mechanism", "OAUTH"),
        ("sasl.mechanisms", "OAUTH"),
    ):
        if not (value := options.get(name, start)).upper().startswith(start):
            raise ConfigurationError(f"Kafka option {name!r} is {value!r}, which takes no token=: remove one")


def client(bootstrap_servers: str, client_id: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": client_id,
        "statistics.interval.ms": 0,
        # A restarted broker is found again within two seconds, not the default ten.
        "reconnect.backoff.max.ms": 2_000,
        "socket.keepalive.enable": True,
        # As in Kafka's Java client; librdkafka's default is a minute. A leader that stands still, or whose machine has lost
        # its power, keeps its connections: clients look for the new one when a request has timed out. A link must carry
        # a fetch (fetch.max.bytes) within that time.
        "socket.timeout.ms": _REQUEST_TIMEOUT_MS,
    }


def consumer(group: str) -> dict[str, object]:
    return {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "check.crcs": True,
        # The default, a second's pause of a partition whose queue was full, starves a fast reader.
        "fetch.queue.backoff.ms": 5,
        # A partition that is resumed waits until the fetch of the others has returned; the default is 500.
        "fetch.wait.max.ms": 100,
        # Twice the default: long runs of one partition meet the same keys again, so a commit has fewer rows to write.
        # All partitions of a broker together may send no more than the queue is to hold.
        "max.partition.fetch.bytes": 2 << 20,
        "fetch.max.bytes": 8 << 20,
        "queued.max.messages.kbytes": 8_192,
        "queued.min.messages": 10_000,
    }


def member(config: Mapping[str, object], protocol: GroupProtocol) -> dict[str, object]:
    """Return the options of a consumer, completed for a member of its group with this protocol."""
    if protocol == "classic":
        return {**config, "partition.assignment.strategy": "range"}
    debug = ",".join(filter(None, (str(config.get("debug", "")), ABILITIES)))
    return {**config, "group.protocol": "consumer", "group.remote.assignor": "range", "debug": debug}


def outsider(group: str) -> dict[str, object]:
    """Return the options of a consumer that queries the committed offsets of a group and reads nothing.

    The client looks for the new coordinator when a request has timed out, and partitions could not recover meanwhile.
    Requests and responses are small, so that a few seconds are enough on a slow link, too.
    """
    return {**consumer(group), "socket.timeout.ms": 3_000}


def producer(delivery_timeout: float = DELIVERY_TIMEOUT_S) -> dict[str, object]:
    """Return the options of a producer that fails a record after `delivery_timeout` seconds.

    Raises:
        ConfigurationError: The timeout is not within its bounds.
    """
    low, high = _DELIVERY_TIMEOUT_MIN_S, _DELIVERY_TIMEOUT_MAX_S
    if not (math.isfinite(delivery_timeout) and low <= delivery_timeout <= high):
        raise ConfigurationError(
            f"delivery timeout {delivery_timeout!r}: expected {low:g} to {high:g} seconds"
        )
    return {
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "batch.size": BATCH_BYTES,
        "compression.type": "lz4",
        "queue.buffering.max.kbytes": 32_768,
        "queue.buffering.max.messages": 200_000,
        "message.timeout.ms": round(delivery_timeout * 1000),
        # The topic's own limit is the one that counts; the default here, 1,000,000, is below Kafka's.
        "message.max.bytes": 64 << 20,
    }


def transactional(
    transactional_id: str, transaction_seconds: float = TRANSACTION_TIMEOUT_S
) -> dict[str, object]:
    milliseconds = round(transaction_seconds * 1000)
    return {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": milliseconds,
        # A record that cannot be delivered must fail while its transaction can still be aborted.
        "message.timeout.ms": milliseconds - 1_000,
    }


def timed_within(config: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a transactional producer, whose requests time out before the transaction does.

    The client refuses any other. A longer `socket.timeout.ms`, such as for a slow link, remains for other clients.
    """
    asked, longest = str(config["socket.timeout.ms"]), int(str(config["transaction.timeout.ms"])) - 100
    if asked.isdecimal():
        return {**config, "socket.timeout.ms": min(int(asked), longest)}
    return dict(config)  # the client says what is wrong with it
