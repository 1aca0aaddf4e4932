"""Every error of the library, named after what went wrong; the tree says what to do about each.

    StreamtableError
    ├── ConfigurationError      correct the settings; nothing was started
    │   ├── GraphError          correct the group graph
    │   │   └── WrongPartition  send an event to the key with `loopback`; its row is in another partition
    │   ├── TopicMismatch       create or alter the topic, or correct the graph
    │   │   ├── TopicMissing    create the topic
    │   │   └── TopicShared     rename one of the groups that would share the topic
    │   └── UsedAfterFork       make the emitter, view or processor after the fork
    ├── DeserializationError            this record can never be processed: dead-letter it
    │   └── UnreadableRow       this row of a table cannot be decoded: write it again, or correct the codec
    ├── FutureEventTime         correct the clock of the program that wrote the record; it is a dead letter
    ├── InvalidEventTime        correct the function that takes the time from an event
    ├── SerializationError             correct the value; it does not fit its schema or Kafka's size limit
    ├── HandlerFailed           correct the handler; input was not lost, it is read again
    ├── RetryLater              the broker or a store is not answering: ask again
    │   ├── NotReady            the table is still being loaded: ask again
    │   ├── QueueFull           the record was not sent: send it again
    │   ├── RetryKeys           some rows of a central store were not read or written: ask for these again
    │   └── TransactionPending  a transaction holds the committed offsets and has not ended: ask again
    ├── ChangesMissed           changes were lost to a reader: watch again and read the rows; a tail continues after them
    ├── PartitionNotAssigned    the task of the partition runs in another process: query that one, or a view
    ├── Migrated                the partition belongs to another member now: drop its work
    ├── RewindNeeded            the commit certainly did not happen: drop the overlay, read again
    ├── OutcomeUnknown          the commit may have happened: new producer, recover every task
    ├── StoreCorrupted          throw the local copy away and load it again
    └── Fatal                   stop the process; a person must look
        ├── AuthorizationError         the broker does not let this user do it: grant the right
        ├── Fenced              another process uses this instance id
        ├── TransactionTimeoutRefused  raise transaction.max.timeout.ms of the brokers
        ├── StoreInUse          another process owns this folder
        ├── StoreBroken         the disk refuses writes
        ├── StateLost           table and committed offsets do not fit together
        ├── StateMeaningChanged a state table means something else than its rows: rename it, or reset the group
        └── InputLost           the committed input offset is no longer in the topic

An error carries its facts as fields (`topic`, `partition`, `offset` where they are known) and formats itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self


class StreamtableError(Exception):
    """Base of all errors of the library.

    Args:
        message: A description of the error and of the action to take.
        topic: The topic, if known.
        partition: The partition, if known.
        offset: The offset of the record, if known.
    """

    fatal: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def at(self, topic: str | None, partition: int | None, offset: int | None = None) -> Self:
        """Fill in topic, partition and offset. Returns itself, to raise."""
        self.topic, self.partition, self.offset = topic, partition, offset
        return self

    def __str__(self) -> str:
        place = self.topic or ""
        if self.partition is not None:
            place += f"[{self.partition}]"
        if self.offset is not None:
            place += f"@{self.offset}"
        return f"{self.message} ({place})" if place else self.message


class ConfigurationError(StreamtableError):
    """A setting is invalid. Nothing was started."""


class GraphError(ConfigurationError):
    """A group graph is contradictory; the message names both sides."""


class WrongPartition(GraphError):
    """A handler asks for the row of a key that belongs to another partition of the group's table.

    Args:
        key: The encoded key.
        key_partition: The partition of the table that the key belongs to.
        group: The group.
        topic: The group's table.
        partition: The partition of the task that was asked.
    """

    def __init__(self, key: bytes, key_partition: int, *, group: str, topic: str, partition: int) -> None:
        self.key, self.key_partition = key, key_partition
        super().__init__(
            f"a handler of group {group!r} asks for the row of key {key[:100]!r}, which belongs to partition "
            f"{key_partition} of the table, in the task of partition {partition}: no view would find it here. Send an "
            "event to that key with loopback(); the Loop's handler changes the row where it belongs",
            topic=topic,
            partition=partition,
        )


class TopicMismatch(ConfigurationError):
    """A topic is missing, or has another number of partitions than it needs."""


class TopicMissing(TopicMismatch):
    """A topic does not exist, or not yet for the broker that was asked."""


class TopicShared(TopicMismatch):
    """A topic of this group belongs to another group, whose name and a state's make the same name."""


class UsedAfterFork(ConfigurationError):
    """An emitter, a view, a tail or a processor is used in a process that was forked after it was made."""


class DeserializationError(StreamtableError):
    """The bytes of a record cannot be decoded, now or later: it goes to the dead letters."""


class UnreadableRow(DeserializationError):
    """A row of a table cannot be decoded. Its key must be written again by a program that uses the table's codec.

    Args:
        reason: The error that the codec reports.
        key: The encoded key of the row.
        topic: The topic of the table.
        partition: The partition of the row.
        position: The offset before which the row's record lies, if known.
    """

    def __init__(
        self, reason: str, *, key: bytes, topic: str, partition: int, position: int | None = None
    ) -> None:
        self.key, self.position = key, position
        where = "" if position is None else f", written before offset {position},"
        super().__init__(
            f"the row for key {key!r}{where} cannot be decoded: {reason}. Was it written with another codec or by "
            "another program? Write the key again, or delete it",
            topic=topic,
            partition=partition,
        )


class FutureEventTime(StreamtableError):
    """The event time of a record is further ahead than the group allows: it goes to the dead letters."""


class InvalidEventTime(StreamtableError):
    """The function that takes the event time from a record returned an invalid one."""


class SerializationError(StreamtableError):
    """A value does not fit its schema, or is larger than Kafka accepts."""


class Rejected(StreamtableError):
    """The handler refuses the record: `Context.fail`, or `Batch.reject` of a micro-batch."""


class DoInstead(Exception):
    """Raised by a handler of one record: all that it has done is undone, and a function is called in its place.

    Args:
        function: Called with nothing, where the handler was called; it may do all that the handler may.
        reason: Why, for the log.
    """

    def __init__(self, function: Callable[[], None], reason: str) -> None:
        super().__init__(reason)
        self.function = function


class HandlerFailed(StreamtableError):
    """User code raised; the cause is chained. The effects of its record on tables and outputs are undone."""


class RetryLater(StreamtableError):
    """An external system does not answer at the moment."""


class AuthenticationFailed(RetryLater):
    """Kafka refuses the client's password, token or certificate, or the client the broker's certificate; or there is no token.

    The client tries again nevertheless: a password that is being changed is right at the next try, and a broker that starts or
    stops may break off a handshake.
    """


class NotReady(RetryLater):
    """The table is not loaded yet; a partial answer would look like a full one."""


class ChangesMissed(StreamtableError):
    """Changes were not delivered. A watch has ended: watch again, then read the rows. A tail continues after them."""


class QueueFull(RetryLater):
    """The producer's queue stayed full: the record was not sent, so it is certainly not in the topic."""


class RetryKeys(RetryLater):
    """A central store has not answered for these rows in time; the other rows of the call are done.

    Args:
        message: A description of the error and of the action to take.
        keys: The keys of the rows that are not read, or not known to be written.
    """

    def __init__(self, message: str, *, keys: Sequence[bytes]) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


class TransactionPending(RetryLater):
    """The committed offsets of a group are held by an open transaction, which may change them.

    Attributes:
        latest: The offsets as they were committed before that transaction, by `TopicPartition`, for a caller that may use
            them; empty if they are not known.
    """

    def __init__(self, message: str, latest: Mapping[Any, Any] | None = None) -> None:
        super().__init__(message)
        self.latest = latest or {}


class PartitionNotAssigned(StreamtableError):
    """A query is for a partition whose task does not run in this process. Query the process that runs it, or a view.

    Args:
        group: The group.
        topic: The table.
        partition: The partition of the query.
        assigned: The partitions whose tasks run in this process.
    """

    def __init__(self, group: str, topic: str, partition: int, assigned: Sequence[int]) -> None:
        self.group, self.assigned = group, tuple(sorted(assigned))
        here = ", ".join(map(str, self.assigned)) or "none"
        super().__init__(
            f"partition {partition} of group {group!r} is not assigned to this process, which has {here}: ask the process that "
            "has it, or a view of the table",
            topic=topic,
            partition=partition,
        )


class Migrated(StreamtableError):
    """The partition was assigned to another member: none of its work may be committed here."""


class RewindNeeded(StreamtableError):
    """The commit was refused or aborted: its work is dropped and its input read again."""


class OutcomeUnknown(StreamtableError):
    """The commit may have succeeded or not: only the broker knows, so everything recovers again."""


class StoreCorrupted(StreamtableError):
    """The local copy is damaged: discard it and load it from the changelog."""


class Fatal(StreamtableError):
    """The process must stop: continuing would lose or duplicate records."""

    fatal = True


class AuthorizationError(Fatal):
    """The broker denies this user the operation: grant the ACL.

    Args:
        user: The SASL name of the user; "" if there is none.
        operation: The ACL operation, such as READ.
        resource: The kind of resource: topic, group, transactional id or cluster.
        name: The name of the resource; "" if it is not known here.
        reason: The broker's message.
    """

    def __init__(self, *, user: str, operation: str, resource: str, name: str, reason: str) -> None:
        self.user, self.operation, self.resource, self.name = user, operation, resource, name
        who = f"user {user!r}" if user else "this process, which names no user,"
        of_any_use = " (READ and WRITE bring it)" if operation == "DESCRIBE" else ""
        super().__init__(
            f"{who} lacks the right {operation}{of_any_use} on {resource}{f' {name!r}' if name else ''}: grant it ('streamtable users "
            f"apply' grants what topics.yaml says), then start again ({reason})",
            topic=name if resource == "topic" and name else None,
        )


class Fenced(Fatal):
    """Another process has started with the same transactional id."""


class TransactionTimeoutRefused(Fatal):
    """The broker's `transaction.max.timeout.ms` is less than the transaction timeout that the producer asks for."""


class StoreInUse(Fatal):
    """Another process holds the folder's lock."""


class StoreBroken(Fatal):
    """The disk is full or failing; reads may work, writes do not."""


class StateLost(Fatal):
    """The table exists but its offsets do not: starting over would count twice."""


def built_again(group: str) -> str:
    """Return how all tables of a group are built again. The groups of a flow are reset in an order of their own."""
    reset = f"'streamtable group reset {group} --to earliest --empty-table'"
    return f"build all tables again: {reset}, or for a group of a flow docs/explanation/flows.md#process-history-again"


class StateMeaningChanged(Fatal):
    """The rows of a table of the group were written with another meaning than the program declares.

    Args:
        state: The name of the state; `table` for the group's own table, `ids` for the ids of `Once`; `event time` for the
            source of the event time of an input; empty for a topic of a flow's own, whose records are not kept as rows.
        group: The group that keeps it.
        recorded: The meaning that is recorded with the rows.
        declared: The meaning that the program declares.
        topic: The changelog of the table.
        reason: Why the declared schema does not accept the rows, if nothing else has changed.
    """

    def __init__(
        self, *, state: str, group: str, recorded: str, declared: str, topic: str, reason: str = ""
    ) -> None:
        self.state, self.group, self.recorded, self.declared = state, group, recorded, declared
        another = {
            "table": "Restore the old declaration; or give the group another name",
            "ids": "Restore the old declaration; or give the flow, or the group, another name",
            "event time": "Restore the old declaration; or give the flow, or the group, another name",
            "": "Give the step a new name, with a topic of its own; or restore the old codecs",
        }.get(state, "Give the state a new name, which begins empty; or restore the old declaration")
        if declared.startswith("version "):
            another = (
                "Restore the old version= and its functions; or give the flow, or the group, another name"
            )
        elif declared.startswith("changes of "):
            another = "Restore the steps between; or read the table in a group of its own, which begins with the rows that are there, by steps with new names (flow.table(..., group=...)); or give the flow another name"
        elif declared.startswith("keys "):
            another = "Restore the old codec of the keys; or give the group another name"
        elif state.startswith("timer "):
            another = "Restore the old declaration; or add a timer with a new name, and keep this one with the old declaration and a handler that does nothing, for those that are pending"
        text = f"the state {state!r} of group {group!r} means {declared!r}, but its rows were written as {recorded!r}"
        if reason and recorded == declared:
            text = f"rows of the state {state!r} of group {group!r} do not fit its type any more: {reason}"
        elif not state:
            text = f"an inner topic of group {group!r} means {declared!r}, but records in it were written as {recorded!r}"
        elif state == "event time":
            text = f"the event time of an input of group {group!r} means {declared!r}, but its records were handled as {recorded!r}"
        super().__init__(f"{text}. {another}; or {built_again(group)}", topic=topic)


class InputLost(Fatal):
    """Committed input was deleted before it was read: continuing would lose records silently."""
