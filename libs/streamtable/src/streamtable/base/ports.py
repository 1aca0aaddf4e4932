"""The ports of the core: its interfaces to codecs, stores and the log (Kafka). It imports none of their implementations.

Each protocol states its guarantees, the calls that are never made, and the errors that it may raise; the implementations are
`streamtable.codec`, `streamtable.store` and `streamtable.kafka`, and for tests without a broker the Tester's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from streamtable.base.partitioner import Partitioner
from streamtable.base.types import (
    Ack,
    Committed,
    Headers,
    QueuedRecord,
    RecordBatch,
    TopicPartition,
    Watermarks,
)
from streamtable.errors import DeserializationError, StreamtableError

T = TypeVar("T")
K_contra = TypeVar("K_contra", contravariant=True)


# ---- codec --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """A decoded column.

    Attributes:
        values: One value for each item; None where the bytes were None, and where they are poison. They may be made
            only when they are read, from the bytes that were given.
        poison: The error for each index that could not be decoded. Empty in good times.
    """

    values: Sequence[T | None]
    poison: Mapping[int, DeserializationError]


@runtime_checkable
class Fields(Protocol):
    """Decoded records that give one of their fields without decoding the others."""

    def field(self, name: str) -> Sequence[Any]:
        """Return the value of the field for each record. Raises `KeyError`, or `TypeError` for a value that is no record."""


class Codec(Protocol[T]):
    """Converts values to bytes and back. It has no state that callers see, and threads may share it."""

    def encode(self, value: T) -> bytes:
        """Return the bytes of a value. Never called with None: a tombstone needs no codec.

        Raises:
            SerializationError: The value does not fit the schema.
        """

    def decode(self, data: bytes) -> T:
        """Return the value of bytes. Never called with None.

        Raises:
            DeserializationError: The bytes cannot be decoded. No other error is raised for them.
            RetryLater: The schema must be requested from a registry, which does not answer.
        """

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[T]:
        """Decode a column; one bad item does not stop the others. Raises only `RetryLater`."""


# ---- store --------------------------------------------------------------------------------------------------------


Span = tuple[bytes | None, bytes | None]
"""The first encoded key of a range, and the one behind the last; None: without a bound."""


@runtime_checkable
class OrderedKeys(Protocol[K_contra]):
    """The codec of keys that have an order, as ranges of keys need it."""

    def spans(self, start: K_contra | None, end: K_contra | None) -> Sequence[Span]:
        """Return the spans of encoded keys that hold the keys from `start` up to, not including, `end`, in their order.

        Args:
            start: The first key; None: from the beginning.
            end: The key behind the last one; None: to the end.
        """


@runtime_checkable
class CanonicalKeys(Protocol):
    """A codec that may encode equal values as different bytes, and has a canonical form that does not."""

    def for_keys(self) -> "Codec[Any]":
        """Return the codec of keys."""


@runtime_checkable
class VersionedKeys(Protocol):
    """A codec whose bytes name the schema that they were written with: a key written with two schemas is two keys.

    Attributes:
        recorded_key: As `EvolvingRows.recorded`, for keys: no change of the schema is accepted.
    """

    @property
    def recorded_key(self) -> str: ...

    def version(self, data: bytes) -> bytes:
        """Return the part of an encoded value that names its schema; empty if there is none."""


@runtime_checkable
class EvolvingRows(Protocol):
    """A codec whose schema is recorded with the rows of a table, so that a later one must accept these rows.

    Attributes:
        recorded: The text that is recorded for it, with the schema as `base.evolution.marked` returns it.
    """

    @property
    def recorded(self) -> str: ...


@runtime_checkable
class ExactRows(Protocol):
    """A codec that takes values which it reads as others, such as a tuple as a list, and has a form that refuses them."""

    def for_rows(self) -> "Codec[Any]":
        """Return the codec of rows: they are in memory as a function made them, and after a restart as they are read."""


@runtime_checkable
class TopicCodec(Protocol):
    """A codec whose bytes depend on the topic: its schema is registered under the topic's name."""

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> "Codec[Any]":
        """Return the codec of the keys or values of a topic; the same object for the same topic."""


@runtime_checkable
class PreparedCodec(Protocol):
    """A codec that looks up what it needs to write, such as the id of its schema, with its first value."""

    def prepare(self) -> object:
        """Look it up now. Called before a group starts that writes with it.

        Raises:
            ConfigurationError: It cannot write: its schema is not registered, or its registry refuses it.
            RetryLater: A registry does not answer.
        """


@runtime_checkable
class HeaderPrefix(Protocol):
    """A codec whose bytes begin with a prefix that producers may write into a header of the record instead.

    The engine, views and tails read such a value as if the prefix stood in front of it.

    Attributes:
        prefix_header: The name of the header; "" if there is none.
    """

    @property
    def prefix_header(self) -> str: ...


@runtime_checkable
class ShownValues(Protocol):
    """A codec whose values are objects of a class: it says how people are shown them.

    Attributes:
        title: The name of their type.
    """

    @property
    def title(self) -> str: ...

    def plain(self, value: Any) -> Any:
        """Return a value as dicts, lists, texts and numbers."""


@runtime_checkable
class ColumnValues(Protocol):
    """A codec whose values are objects of a class: it says which columns they have, in databases, files and Spark.

    Attributes:
        columns: The Avro schema of a row, parsed; `row` returns a value as it describes it.
    """

    @property
    def columns(self) -> Any: ...
    def row(self, value: Any) -> Any: ...


@runtime_checkable
class WindowedKeys(Protocol[K_contra]):
    """The codec of a windowed table's keys: the window follows the bytes of the key.

    Rows are in the partition of the key without its window, so all windows of a key are together.
    """

    def inner(self, data: bytes) -> bytes:
        """Return the bytes of the key without its window."""

    def bounds(self, key: K_contra, since_ms: int, until_ms: int) -> tuple[bytes, bytes]:
        """Return the first encoded key and the one behind the last, of the windows of a key in a range of time.

        Args:
            key: The key without a window.
            since_ms: The beginning of the range, in milliseconds since 1970.
            until_ms: Its end, exclusive.
        """

    def overlaps(self, data: bytes, since_ms: int, until_ms: int) -> bool:
        """Return whether the window of an encoded key overlaps the range."""


class CommittedRows(Protocol):
    """The rows of a partition as of the last commit, by key."""

    def get(self, key: bytes) -> bytes | None: ...
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def scan(
        self, start: bytes | None = None, end: bytes | None = None
    ) -> AbstractContextManager[Iterator[tuple[bytes, bytes]]]: ...

    def ranges(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        """Return the rows of several short ranges as `scan` does, for a lookup each; less if they come in order."""

    def rows_in(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """As `ranges`, in one list."""


class Store(CommittedRows, Protocol):
    """The rows of one partition on this machine, in key order, with a checkpoint that is written atomically with them.

    One thread writes; any may read. All may raise `StoreCorrupted` (load again) and `StoreBroken` (disk full or failing).
    """

    def write(
        self, changes: Iterable[tuple[bytes, bytes | None]], checkpoint: bytes, *, bulk: bool = False
    ) -> None:
        """Write rows (None deletes) and the checkpoint, all or nothing, also under kill -9.

        Args:
            changes: Rows in any order; of two with the same key the later wins.
            checkpoint: Opaque bytes, replaced by each write; `checkpoint()` returns them.
            bulk: Faster, for loading: a crash may lose the latest bulk writes, but never one in the middle: a reader
                finds a prefix of the writes, with the checkpoint that belongs to it.
        """

    def checkpoint(self) -> bytes | None:
        """Return the checkpoint of the last write; None for a new store."""

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> AbstractContextManager[Iterator[tuple[bytes, bytes]]]:
        """Yield rows with start <= key < end in key order (`reverse`: descending), as of now.

        A damaged file raises `StoreCorrupted` at the latest when the iterator ends; it never ends early in silence.
        """

    def size_bytes(self) -> int:
        """About how many bytes the store takes on disk and in memory tables."""

    @property
    def release_requested(self) -> bool:
        """Whether another process on this machine has asked for the store since it was opened."""

    def close(self) -> None:
        """Flush and release the lock. Waits for open scans of other threads; may be called twice."""


class Stores(Protocol):
    """The stores of a process."""

    def open(self, table: str, partition: int, *, spare: bool = False) -> Store:
        """Open a store, or create it.

        Args:
            table: The table of the rows.
            partition: The number of the partition.
            spare: Not for work: another process that holds the store is not asked to release it.

        Raises:
            StoreCorrupted: Its files are damaged; `destroy` it and open again.
            StoreInUse: Another process holds it; the message says which.
        """

    def destroy(self, table: str, partition: int) -> None:
        """Delete the rows of a store that is not open. No error if there is none."""

    def present(self) -> Mapping[tuple[str, int], float]:
        """Return table and partition of each store on disk, with the wall time in seconds of its last use."""

    def close(self) -> None: ...


# ---- log ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the broker describes it.

    Attributes:
        topic_id: Changes when the topic is deleted and created again.
        delete_retention_ms: The milliseconds that a tombstone stays in a compacted topic.
        max_message_bytes: The largest record batch that the topic accepts.
        keeps_timestamps: Whether records keep the timestamps of their producers (CreateTime).
        timestamp_before_max_ms: The milliseconds that such a timestamp may be behind the broker's clock.
        timestamp_after_max_ms: The milliseconds that it may be ahead of the broker's clock.
        retention_ms: The milliseconds after its timestamp when a record may be deleted; None: never by age.
        own_settings: The names of the settings that the topic has itself; all others are the broker's defaults.
    """

    name: str
    partitions: int
    topic_id: str
    compacted: bool
    delete_retention_ms: int
    max_message_bytes: int
    keeps_timestamps: bool = True
    timestamp_before_max_ms: int = (1 << 63) - 1
    timestamp_after_max_ms: int = (1 << 63) - 1
    retention_ms: int | None = None
    own_settings: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as declared (`config` has the required values) or as found (`config` has all values).

    Attributes:
        own_settings: The names of the settings that a topic that was found has itself.
    """

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)
    topic_id: str = ""
    own_settings: frozenset[str] = frozenset()


class ClusterClient(Protocol):
    """Queries about topics. Any thread."""

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        """Return the topics among these that exist. Raises `RetryLater`."""

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the ids of the topics among these that exist: a cheap query, repeated often. Raises `RetryLater`."""

    def watermarks(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        """Return the first and the end offset of each partition. Raises `RetryLater`."""

    def stable_ends(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the last stable offset of each partition, where committed records end. Raises `RetryLater`."""

    def stable_offsets(
        self, group: str, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        """Return the committed offsets of the group after any pending transaction; None where there are none.

        Raises `RetryLater`, also while a transaction is pending: "unstable" is never "none". If it is known that this is
        the reason, the error is `TransactionPending`.
        """

    def group_names(self) -> frozenset[str]:
        """Return the names of the groups that this user may see. Raises `RetryLater`."""

    def group_members(self, group: str) -> Sequence[str]:
        """Return the ids of the members of a group, in the order of the range assignor. Raises `RetryLater`."""

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete the records of each partition below an offset for good.

        Raises:
            RetryLater: There is no answer; some may be deleted.
            AuthorizationError: The user lacks the right DELETE on the topic.
            ConfigurationError: Kafka refuses, as for a compacted topic.
        """

    def offsets_partition(self, group: str) -> TopicPartition | None:
        """Return the partition that holds the committed offsets of the group; None if it is not known."""

    @property
    def servers(self) -> str:
        """The addresses of Kafka, for commands in error messages."""

    def close(self) -> None: ...


class RebalanceListener(Protocol):
    """Called from within `GroupConsumer.poll` and `close`. An exception here ends the process."""

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        """Take these partitions; they arrive paused and stay so until resumed."""

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        """Release these partitions. They stay assigned until this returns, so it is the last moment to commit."""

    def lost(self, places: Sequence[TopicPartition]) -> None:
        """Drop these partitions without a commit: other members own them already."""


class Membership(Protocol):
    """A member's identity in its group at this moment. Opaque but for its id."""

    @property
    def member_id(self) -> str: ...


class GroupConsumer(Protocol):
    """A member of a group. One thread. Never commits by itself, never resets offsets."""

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None: ...

    def poll(self, max_records: int, timeout: float) -> list[RecordBatch]:
        """Return at most `max_records` records, split by partition; none after `timeout` seconds without any.

        Batches may hold records of partitions that a rebalance took away during the call.

        Raises:
            InputLost: The position is outside of the offsets that the partition still holds.
            Fatal: The client cannot continue.
        """

    def join_again(self) -> None:
        """Leave the group, and join it as a new member, which revokes all partitions, at the next poll or at once."""

    def passed(self) -> Mapping[TopicPartition, int]:
        """Return the partitions that were read to their end since the last call, and the position there.

        The position lies beyond transaction markers and aborted records, which are never returned: everything
        committed below it has been returned by `poll`. A `seek` withdraws the reports before it.
        """

    def end(self, place: TopicPartition) -> int:
        """Return the end of the partition as the client knows it, without a request; 0 if it is not known yet."""

    def pause(self, places: Iterable[TopicPartition]) -> None: ...

    def resume(self, places: Iterable[TopicPartition]) -> None: ...

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Continue reading from here; prefetched records are dropped."""

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit outside of a transaction (at least once).

        Raises:
            Migrated: The group refused: these partitions are not ours any more.
            RetryLater: No answer; the commit may have happened, committing again is harmless.
        """

    def membership(self) -> Membership: ...

    def close(self) -> None:
        """Leave the group (the listener's `revoked` is called first)."""


class TransactionalProducer(Protocol):
    """A producer with transactions. One thread. Records are visible only after `commit`."""

    def open(self, timeout: float) -> None:
        """Begin an epoch, which fences earlier producers with the same transactional id. Raises `RetryLater`, `Fatal`."""

    def begin(self) -> None: ...

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int = -1,
        headers: Headers = (),
        timestamp_ms: int = 0,
        tracked: bool = False,
        refused: Callable[[StreamtableError], None] | None = None,
    ) -> None:
        """Queue a record; waits while the queue is full.

        Args:
            partition: -1: by murmur2 of the key.
            timestamp_ms: 0: now.
            tracked: Remember the offset it gets, for `flush`. Without a transactional id every record's report is
                looked at, tracked or not.
            refused: Called if the broker refuses this very record for good, before `flush` or `commit` raises.

        Raises:
            SerializationError: Larger than the client's or the topic's limit, or a header's name is no UTF-8.
        """

    def produce_records(self, records: Sequence[QueuedRecord]) -> None:
        """Queue records as `produce` does, none of them tracked. The hot path of a commit with outputs."""

    def produce_rows(
        self,
        topic: str,
        partition: int,
        rows: Sequence[tuple[bytes, bytes | None]],
        last_headers: Headers = (),
    ) -> None:
        """Queue rows as `produce` does; only the last is tracked and has the headers. The hot path of a commit."""

    def flush(self, timeout: float) -> Mapping[TopicPartition, int]:
        """Wait until all queued records are acknowledged.

        Returns:
            The last offset of the tracked records since the last flush, by partition.

        Raises:
            RewindNeeded: A record failed, or a tracked one has no known offset: the work must be repeated.
            SerializationError: The broker refuses a record for good.
        """

    def send_offsets(self, offsets: Mapping[TopicPartition, Committed], membership: Membership) -> None:
        """Add input offsets to the transaction. Raises `RewindNeeded`, `Migrated`, `OutcomeUnknown`, `Fenced`."""

    def commit(self, timeout: float) -> None:
        """Commit. Raises `RewindNeeded` (certainly not committed), `OutcomeUnknown`, `Fenced`."""

    def abort(self, timeout: float) -> None:
        """Abort. After `OutcomeUnknown` the producer must not be used: a late request could end a later transaction."""

    def close(self) -> None:
        """Drop all queued records and disconnect, without waiting for the broker."""


class TableReader(Protocol):
    """Reads changelogs from given offsets, committed records only, outside of any group. One thread."""

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too, from these offsets."""

    def unassign(self, places: Iterable[TopicPartition]) -> None: ...

    def poll(self, max_records: int, timeout: float) -> list[RecordBatch]: ...

    def position(self, place: TopicPartition) -> int:
        """Return the next offset: all committed records before it have been returned.

        It passes transaction markers and compacted gaps once the end has been seen, so it, not the last record's
        offset, shows whether a target is reached.
        """

    def close(self) -> None: ...


class Producer(Protocol):
    """Sends single records, each with its own acknowledgement, for emitters. Any thread."""

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        done: Callable[[Ack | StreamtableError], None],
        *,
        partition: int = -1,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> None:
        """Queue a record; waits while the queue is full.

        Args:
            topic: It must exist.
            key: Bytes, or None for any partition.
            value: Bytes, or None for a tombstone.
            done: Called once, from a thread of the producer's: with the acknowledgement of all in-sync replicas, or
                with `RetryLater` (not delivered in time) or `SerializationError` (too large). It must not block or raise.
            partition: -1: by the stream's partitioner, of the whole key.
            headers: The headers, written as they are.
            timestamp_ms: 0: now.

        Raises:
            QueueFull: There was no room in the queue for as long as a delivery may take; the record was not sent, and
                `done` is not called.
        """

    def flush(self, timeout: float) -> int:
        """Wait until all records are acknowledged or have failed. Returns the number that are not acknowledged yet."""

    def close(self, timeout: float) -> None:
        """Flush, then fail the remaining records with `RetryLater`, then disconnect."""


class Log(Protocol):
    """Makes the clients of a log. `streamtable.kafka.Kafka` is the real one."""

    def cluster(self) -> ClusterClient: ...

    def group_consumer(self, group: str, instance_id: str) -> GroupConsumer: ...

    def transactional_producer(
        self, transactional_id: str | None, batch_bytes: int = 65_536, transaction_seconds: float = 10.0
    ) -> TransactionalProducer:
        """Return the producer of a group's member.

        Args:
            transactional_id: The id that fences its predecessors; None: no transactions.
            batch_bytes: The most bytes of records that may be sent in one batch: at most the `max.message.bytes` of the topics.
            transaction_seconds: The seconds after which the broker aborts an open transaction.
        """

    def producer(self, partitioner: Partitioner = "murmur2", delivery_timeout: float = 120.0) -> Producer:
        """Return a producer. `delivery_timeout`: the seconds after which an unacknowledged record fails."""

    def table_reader(self, name: str) -> TableReader: ...


JsonValue = dict[str, Any] | list[Any] | str | int | float | bool | None
