"""Translates the client's error codes into the library's errors."""

from confluent_kafka import KafkaError, KafkaException

from streamtable.base.types import Headers
from streamtable.errors import (
    Fatal,
    Fenced,
    InputLost,
    Migrated,
    SerializationError,
    StreamtableError,
    TransactionTimeoutRefused,
)


def _codes(names: str) -> frozenset[int]:
    return frozenset(getattr(KafkaError, name) for name in names.split())


END = _codes("_PARTITION_EOF")
"""Not an error: the end of a partition has been reached."""

STATE = _codes("_STATE")
"""The client cannot do this now."""

DEAD = _codes("_FATAL")
"""The client failed for good earlier; `poll` says why, once."""

FENCED = _codes("_FENCED INVALID_PRODUCER_EPOCH PRODUCER_FENCED")
"""The transactional id has got a newer epoch."""

MIGRATED = _codes(
    "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID STALE_MEMBER_EPOCH FENCED_MEMBER_EPOCH "
    "REBALANCE_IN_PROGRESS _ASSIGNMENT_LOST"
)
"""The group does not count the sender as the owner any more."""

# After a damaged batch the client continues behind it: to log that would lose records in silence.
LOST = _codes(
    "OFFSET_OUT_OF_RANGE _AUTO_OFFSET_RESET _LOG_TRUNCATION _BAD_MSG _BAD_COMPRESSION INVALID_MSG INVALID_RECORD"
)
"""The records at the reading position cannot be had."""

PASSING = MIGRATED | _codes(
    "_ALL_BROKERS_DOWN _AUTHENTICATION _MAX_POLL_EXCEEDED _RESOLVE _RETRY _SSL _TIMED_OUT _TRANSPORT "
    "_UNKNOWN_PARTITION _UNKNOWN_TOPIC _WAIT_COORD BROKER_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS "
    "COORDINATOR_NOT_AVAILABLE FENCED_LEADER_EPOCH FETCH_SESSION_ID_NOT_FOUND GROUP_MAX_SIZE_REACHED "
    "INVALID_FETCH_SESSION_EPOCH KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE NETWORK_EXCEPTION NOT_COORDINATOR "
    "NOT_LEADER_FOR_PARTITION OFFSET_NOT_AVAILABLE PREFERRED_LEADER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE "
    "REQUEST_TIMED_OUT THROTTLING_QUOTA_EXCEEDED UNKNOWN_LEADER_EPOCH UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PART "
    "UNSTABLE_OFFSET_COMMIT"
)
"""The errors that a consumer reports and recovers from by itself: they are logged, never raised."""


TOO_LONG = _codes("INVALID_TRANSACTION_TIMEOUT")
"""The transaction timeout is more than the broker's `transaction.max.timeout.ms`."""

REFUSED = _codes("MSG_SIZE_TOO_LARGE INVALID_TIMESTAMP INVALID_RECORD")
"""The topic will never accept this record."""


def refused(error: KafkaError, topic: str | None) -> SerializationError:
    text = "the topic or the client accepts no record of this size, with this timestamp, or without a key"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        text = (
            "the topic or the client accepts no record or batch of this size; if this record is smaller than the topic's "
            "max.message.bytes, it was refused with its batch: set the Kafka option batch.size below that limit"
        )
    return SerializationError(f"{text} ({describe(error)})", topic=topic)


def sendable(headers: Headers, topic: str) -> list[tuple[str, str | bytes | None]]:
    """Return headers for the client, which crashes on a name that is not valid UTF-8."""
    try:
        for name, _ in headers:
            name.encode()
    except (UnicodeEncodeError, AttributeError) as error:
        raise SerializationError(
            f"a header's name is not a text that UTF-8 can hold: {error}", topic=topic
        ) from error
    return list(headers)


def cause(exception: KafkaException) -> KafkaError:
    """Return the client's error inside of its exception."""
    error: KafkaError = exception.args[0]
    return error


def describe(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"


FORBIDDEN = _codes(
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED"
)
"""A person has to grant something."""


def forbidden(error: KafkaError) -> KafkaError | None:
    """Return the broker's refusal in an error, if there is one: a failed client names it in its text only."""
    if error.code() in FORBIDDEN:
        return error
    return forbidden_in(error.str()) if error.code() in DEAD else None


def forbidden_in(text: str) -> KafkaError | None:
    """Return the broker's refusal in a text of the client."""
    found = (code for code in sorted(FORBIDDEN) if KafkaError(code).str() in text)
    code = next(found, None)
    return None if code is None else KafkaError(code, text)


def fatal(error: KafkaError, doing: str) -> Fatal:
    """Return the error to raise when the client cannot continue."""
    if error.code() in FENCED:
        return Fenced(
            f"{doing} was refused: another process uses the same transactional id; give each process an instance id "
            "of its own, by STREAMTABLE_INSTANCE_ID or instance_id= of App.run (by default it is the host's name, numbered on each host) "
            f"({describe(error)})"
        )
    if error.code() in TOO_LONG:
        return TransactionTimeoutRefused(
            f"{doing} was refused: raise transaction.max.timeout.ms of the brokers, by default 15 minutes, to 160 seconds at "
            f"least ({describe(error)})"
        )
    return Fatal(f"{doing} failed for good ({describe(error)})")


def migrated(error: KafkaError, doing: str) -> Migrated:
    return Migrated(f"{doing} was refused: the group has moved on ({describe(error)})")


def unreadable(error: KafkaError, topic: str, partition: int, offset: int | None) -> StreamtableError:
    """Return the error to raise for a permanent error that a consumer delivered in place of a record."""
    if error.code() in LOST:
        text = (
            "the records at the reading position are gone or damaged, or larger when unpacked than the Kafka option "
            "receive.message.max.bytes: raise it, or find out which records were lost and reset the offsets "
            f"({describe(error)})"
        )
        return InputLost(text, topic=topic, partition=partition, offset=offset)
    return fatal(error, "reading").at(topic, partition, offset)
