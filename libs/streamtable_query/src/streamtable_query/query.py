"""Queries of a group's table, answered by the process that has the partition of the key."""

import asyncio
import heapq
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar, cast

import grpc

from contracts.grpc.query.v1 import query_pb2
from contracts.grpc.query.v1.query_pb2_grpc import QueryStub
from streamtable import (
    Ack,
    BadToken,
    Codec,
    Group,
    Kafka,
    PartitionNotAssigned,
    Processor,
    Table,
    UnreadableRow,
)
from streamtable.base.clock import Clock, SystemClock
from streamtable.base.closing import Closing
from streamtable.base.keys import Span, as_key, spans_of
from streamtable.base.own_process import OwnProcess
from streamtable.base.topics import hash_of_rows
from streamtable.base.types import TopicPartition
from streamtable.errors import (
    ConfigurationError,
    DeserializationError,
    GraphError,
    NotReady,
    RetryLater,
)
from streamtable.tables.position import TablePosition
from streamtable.views.read_your_writes import CommitWatcher
from streamtable_query.owners import PartitionOwner, PartitionOwners
from streamtable_query.protocol import KEYS_MAX, REASON, VERSION

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

_TIMEOUT_SECONDS: Final = 10.0
_MAX_AGE_SECONDS: Final = 5.0
_CALL_SECONDS_MAX: Final = 2.0
"""A process that does not answer within this time is asked again, after the coordinator: it may be frozen."""
_PAUSE_SECONDS: Final = 0.02


class PartitionMoved(RetryLater):
    """A partition moved to another process between two pages of a strict range: read the range again."""


@dataclass(frozen=True, slots=True)
class QueryAnswer(Generic[V]):
    """A committed row, with how far and how old it is.

    Attributes:
        value: The row; None if the key has none.
        partition: The partition of the key.
        offset: The row holds everything below this offset in the table's topic.
        age_seconds: All that was committed until this many seconds before the answer is in the row: the group's coordinator
            confirmed then that the process has the partition, or a processor of this process committed then.
        source: "local": a processor of this process has answered; "instance": another process.
        address: The address of that process; "" for a local answer.
    """

    value: V | None
    partition: int
    offset: int
    age_seconds: float
    source: Literal["local", "instance"]
    address: str = ""


class Query(Closing, Generic[K, V]):
    """Asks for rows of a table where they are kept: in the processors of its group. It holds no rows. Any thread.

        with Query(Kafka("127.0.0.1:9092"), ORDERS, ORDERS.table) as orders:
            orders.get("alice")

    The group's coordinator says which process has a partition; the answer is used for `max_age` seconds, and until a
    process says that the partition is not there. While a partition moves, or its process does not answer, a call waits,
    `timeout` seconds at most, and then raises `NotReady`: "no answer" never looks like "no row".

    It needs the permission to DESCRIBE the group and the table's topic.

    Args:
        kafka: The cluster.
        group: The group.
        table: One of its tables, such as `group.table`.
        local: A processor of the group in this process: a key whose partition it has, and has committed within `max_age`,
            costs no network.
        timeout: The seconds that a call may take.
        max_age: The seconds that an answer of the coordinator is relied on. A process that was frozen for longer than its
            session may answer with rows as old as that, and no older.
        credentials: TLS of the query servers, with a client certificate if they ask for one; None: plain text.
        metadata: Sent with each call, such as an API key.
        clock: Monotonic time.

    Raises:
        GraphError: The group does not keep the table.
    """

    def __init__(
        self,
        kafka: Kafka,
        group: Group[Any, Any],
        table: Table[K, V],
        *,
        local: Processor | None = None,
        timeout: float = _TIMEOUT_SECONDS,
        max_age: float = _MAX_AGE_SECONDS,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.table = table
        if table.name not in group.tables:
            raise GraphError(
                f"group {group.name!r} does not keep the table {table.name!r}: its tables are "
                f"{', '.join(group.tables) or 'none'}"
            )
        self._here = OwnProcess(f"the query of {table.name!r}")
        self._group = group
        self._local = local
        self._timeout, self._max_age = timeout, max_age
        self._clock = clock or SystemClock()
        self._hash = hash_of_rows(self.table)
        self._cluster = kafka.admin()
        self._owners = PartitionOwners(
            group.name, group.inputs[0].stream.name, lambda: self._cluster, self._clock
        )
        self._commits = CommitWatcher(lambda: self._cluster, self._clock)
        self._commits.start()
        self._channels = _Channels(credentials, metadata or {})
        self._partitions, self._counted_at = 0, float("-inf")

    def close(self) -> None:
        """Close all connections. May be called twice."""
        self._commits.close()
        self._channels.close()
        self._cluster.close()

    # ---- questions -------------------------------------------------------------------------------------------------

    def get(
        self, key: K, *, after: Ack | None = None, timeout: float | None = None, max_age: float | None = None
    ) -> QueryAnswer[V]:
        """Return the committed row of a key.

        Args:
            key: The key.
            after: An event whose effect the row must show: the ack of an emitter, or `Ack.parse` of a token. An event in another
                partition than the key's changes other rows: for it the call only waits until the group has committed it.
            timeout: As in the constructor, for this call.
            max_age: As in the constructor, for this call; 0: the coordinator is asked now.

        Raises:
            NotReady: No process has answered for the partition in time; the message says why.
            UnreadableRow: The row cannot be decoded.
            BadToken: `after` is in no partition of the table.
            ConfigurationError: The process answers no queries, or refuses this caller.
        """
        ask = self._asking(timeout, max_age)
        data = self.table.key.encode(key)
        partition = self._partition_of(data)
        end = 0 if after is None else self._end_of(after, ask)
        # The end is an offset of the event's partition; of another one it would say nothing.
        same = after is not None and after.partition == partition
        return self._get(ask, partition, [data], end if same else 0)[0]

    def get_many(
        self, keys: Iterable[K], *, timeout: float | None = None, max_age: float | None = None
    ) -> dict[K, QueryAnswer[V]]:
        """Return the answers for many keys, also for those that have no row. Raises like `get`."""
        ask = self._asking(timeout, max_age)
        keys_of: dict[int, dict[bytes, K]] = {}
        for key in keys:
            data = self.table.key.encode(key)
            keys_of.setdefault(self._partition_of(data), {})[data] = key
        found: dict[K, QueryAnswer[V]] = {}
        for partition, encoded in keys_of.items():
            datas = list(encoded)
            for first in range(0, len(datas), KEYS_MAX):
                part = datas[first : first + KEYS_MAX]
                answers = self._get(ask, partition, part, 0)
                found |= {as_key(encoded[data]): answer for data, answer in zip(part, answers, strict=True)}
        return found

    async def aget(
        self,
        key: K,
        *,
        after: Ack | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as `get`
        max_age: float | None = None,
    ) -> QueryAnswer[V]:
        """Return the row of a key as `get` does, without blocking the event loop."""
        return await asyncio.to_thread(self.get, key, after=after, timeout=timeout, max_age=max_age)

    def range(
        self,
        start: K | None = None,
        end: K | None = None,
        *,
        partition: int | None = None,
        strict: bool = False,
        timeout: float | None = None,
    ) -> Iterator[tuple[K, V]]:
        """Iterate over rows in the order of encoded keys. Each partition is read in pages, each of them as committed.

        Args:
            start: The first key; None: from the first.
            end: The first key behind the range; None: to the last.
            partition: The partition to read; None: all, merged.
            strict: Raise `PartitionMoved` if a partition moves between two of its pages; otherwise it is read on where it
                is now.
            timeout: The seconds that each page may take; default: as in the constructor.

        Raises:
            GraphError: The encoded keys are in no order that a range could follow.
            PartitionMoved: See `strict`.
            NotReady: As in `get`.
            UnreadableRow: As in `get`.
        """
        numbers = range(self._count()) if partition is None else [partition]
        for span in spans_of(self.table.key, start, end, self.table.name):
            read = [self._pages(number, span, timeout, strict=strict) for number in numbers]
            for number, data, row in heapq.merge(*read, key=lambda each: each[1]):
                yield (
                    self._decoded(self.table.key, number, data, data),
                    self._decoded(self.table.value, number, data, row),
                )

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _asking(self, timeout: float | None, max_age: float | None) -> "_Asking":
        self._here.check()
        return _Asking(
            self._clock.monotonic() + (self._timeout if timeout is None else timeout),
            self._max_age if max_age is None else max_age,
        )

    def _count(self) -> int:
        """Return the number of partitions of the table. A table that was created again may have others."""
        now = self._clock.monotonic()
        if now - self._counted_at > self._max_age:
            topic = self._cluster.topics([self.table.name]).get(self.table.name)
            if topic is None:
                raise NotReady(f"Kafka has no topic {self.table.name!r}: has its group been started?")
            self._partitions, self._counted_at = topic.partitions, now
        return self._partitions

    def _partition_of(self, key: bytes) -> int:
        return self._hash(key) % self._count()

    def _end_of(self, ack: Ack, ask: "_Asking") -> int:
        """Return the offset in the table's topic that an answer must have reached to show the effect of an event."""
        if not 0 <= ack.partition < self._count():
            raise BadToken(
                f"no event in partition {ack.partition} has an effect on {self.table.name!r}, which has {self._count()}"
            ).at(*ack)
        place = TopicPartition(ack.topic, ack.partition)
        left = max(0.0, ask.deadline - self._clock.monotonic())
        committed = self._commits.wait(self._group.name, place, ack.offset, left)
        written = TablePosition.decode(committed.metadata)
        end = None if written is None else written.end_of(self._group.name, self.table.name)
        if end is None:  # set by a tool, without a position: the event is in the table's state of now
            table = TopicPartition(self.table.name, ack.partition)
            end = self._cluster.stable_ends([table])[table]
        return end

    def _get(self, ask: "_Asking", partition: int, keys: list[bytes], end: int) -> list[QueryAnswer[V]]:
        if (near := self._get_here(partition, keys, end, ask.max_age)) is not None:
            return near
        request = query_pb2.GetRequest(
            version=VERSION,
            group=self._group.name,
            table=self.table.name,
            partition=partition,
            keys=keys,
        )

        def read(stub: QueryStub, seconds: float) -> query_pb2.GetResponse:
            answer = stub.Get(request, timeout=seconds, metadata=self._channels.metadata)
            if answer.offset < end:
                raise NotReady(
                    f"the process is at offset {answer.offset} of {self.table.name!r}, not yet at {end}"
                )
            return answer

        owner, found = self._ask(ask, partition, read)
        age = self._clock.monotonic() - owner.confirmed_at
        return [
            QueryAnswer(
                self._decoded(self.table.value, partition, key, row.value) if row.HasField("value") else None,
                partition,
                found.offset,
                age,
                "instance",
                str(owner.address),
            )
            for key, row in zip(keys, found.rows, strict=True)
        ]

    def _get_here(
        self, partition: int, keys: list[bytes], end: int, max_age: float
    ) -> list[QueryAnswer[V]] | None:
        """Return the answers of this process; None if another one has to be asked.

        After a freeze this process may still seem to have a partition that is at work elsewhere, so its last commit counts.
        """
        if self._local is None:
            return None
        with suppress(PartitionNotAssigned, NotReady):
            found = [
                self._local.get(self.table, self.table.key.decode(key), partition=partition) for key in keys
            ]
            if all(each.offset >= end and each.age_seconds <= max_age for each in found):
                return [
                    QueryAnswer(each.value, partition, each.offset, each.age_seconds, "local")
                    for each in found
                ]
        return None

    def _pages(
        self, partition: int, span: Span, timeout: float | None, *, strict: bool
    ) -> Iterator[tuple[int, bytes, bytes]]:
        start, end = span
        request = query_pb2.RangeRequest(
            version=VERSION,
            group=self._group.name,
            table=self.table.name,
            partition=partition,
            start=start,
            end=end,
        )
        before: PartitionOwner | None = None
        while True:
            owner, page = self._ask(
                self._asking(timeout, None),
                partition,
                lambda stub, seconds: stub.Range(request, timeout=seconds, metadata=self._channels.metadata),
            )
            if strict and before is not None and before.address != owner.address:
                raise PartitionMoved(
                    f"partition {partition} of {self.table.name!r} moved from {before.address} to {owner.address} while it "
                    "was read: read the range again"
                )
            before = owner
            yield from ((partition, entry.key, entry.value) for entry in page.entries)
            if not page.more:
                return
            request.start = page.entries[-1].key + b"\0"

    def _ask(
        self, ask: "_Asking", partition: int, read: Callable[[QueryStub, float], R]
    ) -> tuple[PartitionOwner, R]:
        """Return the answer of the process that has a partition, and the process. Raises like `get`."""
        since = self._clock.monotonic() - ask.max_age
        while True:
            try:
                owner = self._owners.owner(partition, since)
                left = min(_CALL_SECONDS_MAX, ask.deadline - self._clock.monotonic())
                return owner, read(self._channels.stub(owner), max(left, 0.001))
            except grpc.RpcError as error:
                reason = self._why_not(error)
            except RetryLater as error:
                reason = error.message
            if self._clock.monotonic() >= ask.deadline:
                raise NotReady(
                    f"no answer for partition {partition} of {self.table.name!r} in time: {reason}",
                    topic=self.table.name,
                    partition=partition,
                )
            self._clock.sleep(_PAUSE_SECONDS)
            since = self._clock.monotonic()  # it may have moved: ask the coordinator, not the memory

    def _why_not(self, error: grpc.RpcError) -> str:
        """Return the reason for which another try may succeed. Raises `ConfigurationError` if none will."""
        call = cast("grpc.Call", error)
        text = f"{call.code().name}: {call.details()}"
        if call.code() in _PERMANENT:
            raise ConfigurationError(
                f"the query server refuses the call, {text}: give Query the credentials and the metadata that it asks for, "
                "and the same version"
            ) from error
        # A refusal of the query service says all by itself; gRPC's own errors need their code.
        ours = any(key == REASON for key, _ in call.trailing_metadata() or ())
        return str(call.details()) if ours else text

    def _decoded(self, codec: Codec[R], partition: int, key: bytes, data: bytes) -> R:
        try:
            return codec.decode(data)
        except DeserializationError as error:
            raise UnreadableRow(error.message, key=key, topic=self.table.name, partition=partition) from error


_PERMANENT: Final = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.INVALID_ARGUMENT,
}


@dataclass(frozen=True, slots=True)
class _Asking:
    """The limits of one call: a monotonic time, and seconds."""

    deadline: float
    max_age: float


class _Channels:
    """The connections to query servers, each made when it is first used. Any thread."""

    def __init__(self, credentials: grpc.ChannelCredentials | None, metadata: Mapping[str, str]) -> None:
        self._credentials = credentials
        self.metadata = tuple(metadata.items())
        self._made: dict[str, tuple[grpc.Channel, QueryStub]] = {}
        self._lock = threading.Lock()

    def stub(self, owner: PartitionOwner) -> QueryStub:
        address = str(owner.address)
        with self._lock:
            if address not in self._made:
                channel = (
                    grpc.insecure_channel(address)
                    if self._credentials is None
                    else grpc.secure_channel(address, self._credentials)
                )
                self._made[address] = channel, QueryStub(channel)
            return self._made[address][1]

    def close(self) -> None:
        with self._lock:
            made, self._made = self._made, {}
        for channel, _ in made.values():
            channel.close()
