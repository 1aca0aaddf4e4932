"""Questions about the rows of a table to the processes that keep them: who is asked, for how long, and what an answer says."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

import grpc

from contracts.grpc.query.v1 import query_pb2
from streamtable import Ack, BadToken, Kafka, PartitionNotAssigned, Table, UnreadableRow
from streamtable.base.clock import Clock, SystemClock
from streamtable.base.closing import Closing
from streamtable.base.decoding import decoded
from streamtable.base.keys import encoded_keys, prefix_span, spans_of
from streamtable.base.own_process import OwnProcess
from streamtable.base.ports import Span, TopicInfo
from streamtable.base.topics import hash_of_rows
from streamtable.base.types import TopicPartition
from streamtable.errors import ConfigurationError, NotReady, RetryLater
from streamtable.tables.position import TablePosition
from streamtable.views.read_your_writes import CommitWatcher
from streamtable.views.rows import RowIterator, RowList
from streamtable.views.windows import END_MS, WindowRange
from streamtable_query.answers import KINDS, SOURCES, Asking, QueryAnswer, Routes, Source
from streamtable_query.channels import Channels, why_not
from streamtable_query.owners import PartitionOwner
from streamtable_query.protocol import KEYS_MAX, VERSION
from streamtable_query.ranges import QueryRange, RangePart, merged, read_on
from streamtable_query.sources import FoundRows, Kind, Page, RowSource
from streamtable_query.topic import QueriedTopic

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

_CALL_SECONDS_MAX: Final = 2.0
"""A process that does not answer within this time is asked again, after the coordinator: it may be frozen."""
_FIRST_CALL_SECONDS_MAX: Final = 0.4
"""The same, if another process can be asked instead."""
_PAUSE_SECONDS: Final = 0.02
_ASK_AGAIN_SECONDS: Final = 0.5
"""After an owner has failed, and a copy has answered, calls rely on a coordinator's answer for this long only."""


class TableQueries(Closing, Generic[K, V]):
    """Asks processes for rows of a table. Any thread. `Query` and `SharedView` say which processes.

    Args:
        kafka: The cluster.
        table: The table.
        members: The name of the consumer group whose members answer.
        writer: The name of the group that writes the table, for `after`.
        routes: Returns who can answer for a partition, given what asks the cluster and the clock.
        near: What answers without the network; None: nothing.
        copies: Whether all that answer are copies, also what is near.
        limits: The limits of calls that give no others, with `deadline` in seconds from the call.
        channels: The connections to the processes, closed with this.
        clock: Wall and monotonic time.
    """

    def __init__(
        self,
        kafka: Kafka,
        table: Table[K, V],
        members: str,
        writer: str,
        routes: Callable[[Callable[[], Any], Clock], Routes],
        near: RowSource | None,
        limits: Asking,
        *,
        copies: bool,
        channels: Channels,
        clock: Clock | None,
    ) -> None:
        self.kafka, self.table = kafka, table
        self._here = OwnProcess(f"the query of {table.name!r}")
        self._members, self._writer = members, writer
        self._near, self._copies = near, copies
        self.limits = limits
        """The limits of calls that give no others."""
        self._clock = clock or SystemClock()
        self._hash = hash_of_rows(table)
        self._cluster = kafka.admin()
        self._routes = routes(lambda: self._cluster, self._clock)
        self._commits = CommitWatcher(lambda: self._cluster, self._clock)
        self._commits.start()
        self._channels = channels
        self.topic = QueriedTopic(table.name, self._cluster, self._clock, limits.max_age)
        self._suspected_at = float("-inf")  # when a copy had to answer in place of the owner

    def close(self) -> None:
        """Close all connections. May be called twice."""
        if self._here.elsewhere:  # in a forked process there is nothing to close
            return
        self._commits.close()
        self._channels.close()
        self._cluster.close()

    def check(self) -> None:
        """Raise the error that has stopped this process's own part, if one has."""

    def check_access(self, timeout: float) -> None:
        """Ask for one row, of any key.

        Raises:
            ConfigurationError: The process that is asked refuses all calls, as without a key that it knows.
            NotReady: No process answers within `timeout` seconds.
        """
        self._found(self._asking(timeout, None, None), 0, [b""], 0)  # an answer without a key has no offset

    # ---- questions -------------------------------------------------------------------------------------------------

    def get(
        self,
        key: K,
        *,
        after: Ack | None = None,
        timeout: float | None = None,
        max_age: float | None = None,
        stale_ok: float | None = None,
    ) -> QueryAnswer[V]:
        """Return the committed row of a key.

        Args:
            key: The key.
            after: An event whose effect the row must show: the ack of an emitter, or `Ack.parse` of a token. An event in another
                partition than the key's changes other rows: for it the call only waits until the group has committed it.
            timeout: As in the constructor, for this call.
            max_age: As in the constructor, for this call; 0: the coordinator is asked now.
            stale_ok: As in the constructor, for this call.

        Raises:
            NotReady: No process has answered for the partition in time; the message says why.
            UnreadableRow: The row cannot be decoded.
            BadToken: `after` is in no partition of the table.
            ConfigurationError: The process answers no queries, or refuses this caller.
        """
        ask = self._asking(timeout, max_age, stale_ok)
        data = self.table.key.encode(key)
        partition = self._hash(data) % ask.partitions
        end = 0 if after is None else self._end_of(after, ask)
        # The end is an offset of the event's partition; of another one it would say nothing.
        same = after is not None and after.partition == partition
        return self._get(ask, partition, [data], end if same else 0)[0]

    def get_many(
        self,
        keys: Iterable[K],
        *,
        timeout: float | None = None,
        max_age: float | None = None,
        stale_ok: float | None = None,
    ) -> dict[K, QueryAnswer[V]]:
        """Return the answers for many keys, also for those that have no row.

        Raises like `get`, and `ValueError` for keys that are equal in Python and have a row each, such as 1 and True in JSON.
        """
        ask = self._asking(timeout, max_age, stale_ok)
        keys_of: dict[int, dict[bytes, K]] = {}
        for key, data in encoded_keys(self.table.key, keys).items():
            keys_of.setdefault(self._hash(data) % ask.partitions, {})[data] = key
        found: dict[K, QueryAnswer[V]] = {}
        for partition, encoded in keys_of.items():
            datas = list(encoded)
            for first in range(0, len(datas), KEYS_MAX):
                part = datas[first : first + KEYS_MAX]
                answers = self._get(ask, partition, part, 0)
                found |= {encoded[data]: answer for data, answer in zip(part, answers, strict=True)}
        return found

    async def aget(
        self,
        key: K,
        *,
        after: Ack | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as `get`
        max_age: float | None = None,
        stale_ok: float | None = None,
    ) -> QueryAnswer[V]:
        """Return the row of a key as `get` does, without blocking the event loop."""
        return await asyncio.to_thread(
            self.get, key, after=after, timeout=timeout, max_age=max_age, stale_ok=stale_ok
        )

    def range(
        self,
        start: K | None = None,
        end: K | None = None,
        *,
        partition: int | None = None,
        strict: bool = False,
        timeout: float | None = None,
        stale_ok: float | None = None,
    ) -> QueryRange[K, V]:
        """Iterate over rows in the order of encoded keys. Each partition is read in pages, each of them as committed.

        Args:
            start: The first key; None: from the first.
            end: The first key behind the range; None: to the last.
            partition: The partition to read; None: all, merged.
            strict: Raise `PartitionMoved` if a partition moves between two of its pages; otherwise it is read on where it
                is now.
            timeout: The seconds that each page may take; default: as in the constructor.
            stale_ok: As in the constructor, for each page.

        Returns:
            An iterator; its `parts` say how far and how old the rows of each partition are.

        Raises:
            GraphError: The encoded keys are in no order that a range could follow.
            PartitionMoved: See `strict`.
            NotReady: As in `get`.
            UnreadableRow: As in `get`.
            ValueError: The table has no such partition.
        """
        self._here.check()
        topic = self.topic.known()
        if partition is not None and partition not in range(topic.partitions):
            raise ValueError(f"{self.table.name!r} has {topic.partitions} partitions, from 0: no {partition}")
        parts: dict[int, RangePart] = {}

        def rows() -> Iterator[tuple[K, V]]:
            numbers = range(topic.partitions) if partition is None else [partition]
            for span in spans_of(self.table.key, start, end, self.table.name):
                read = (
                    self._pages(topic, each, span, timeout, stale_ok, parts, strict=strict)
                    for each in numbers
                )
                for number, data, row in merged(read):
                    yield self._row(number, data, row)

        return QueryRange(rows(), parts)

    def iterate(
        self,
        prefix: K | None = None,
        after: K | None = None,
        on_unreadable: Callable[[UnreadableRow], object] | None = None,
    ) -> Iterator[tuple[K, V]]:
        """Iterate over the rows of all partitions as `View.iterate` does, each page as committed. Raises like `range`.

        Args:
            prefix: A key whose encoded bytes all keys begin with; None: all.
            after: The key to begin behind; None: from the first.
            on_unreadable: Called with the error of each row that is skipped because it cannot be decoded.
        """
        self._here.check()
        key = self.table.key
        start, end = (None, None) if prefix is None else prefix_span(key, prefix, self.table.name)
        if after is not None:
            start = max(start or b"", key.encode(after) + b"\0")
        topic = self.topic.known()
        read = (self._pages(topic, each, (start, end)) for each in range(topic.partitions))
        for number, data, row in merged(read):
            try:
                found = self._row(number, data, row)
            except UnreadableRow as error:
                if on_unreadable is not None:
                    on_unreadable(error)
            else:
                yield found

    def windows(self, key: object, since_ms: int = 0, until_ms: int = END_MS) -> RowList[K, V]:
        """Return the windows of a key that overlap a range of time, in order of time, as `View.windows` does. Raises like `get`."""
        self._here.check()
        span = WindowRange.of(self.table, key, since_ms, until_ms)
        topic = self.topic.known()
        partition = self._hash(span.start) % topic.partitions
        read = self._pages(topic, partition, (span.start, span.end))
        found = span.of_key((data, row) for _, data, row in read)
        return RowIterator(found, partial(self._row, partition), bool).taken()

    def wait_for(self, ack: Ack, timeout: float) -> int:
        """Wait until the effect of an event shows. All later answers of this object show it too, whichever process answers.

        Returns:
            The offset in the table's topic that answers about the partition must have reached to show it.

        Raises:
            NotReady: It does not within `timeout` seconds, or does not answer.
            BadToken: The table has no partition of that number.
        """
        ask = self._asking(timeout, None, None)
        end = self._end_of(ack, ask)
        # Any key will do: the answer's offset counts, and no service has an empty key.
        self._found(ask, ack.partition, [b""], end)
        self.topic.hold({ack.partition: end}, ask.topic_id)
        return end

    @property
    def not_ready(self) -> str:
        """The reason why some key cannot be answered for at the moment; empty if each partition has a process to ask.

        Raises:
            AuthorizationError: A permission is missing.
        """
        ask = self.limits
        now = self._clock.monotonic()
        try:
            count = self.topic.partitions
            for partition in range(count):
                self._routes.routes(
                    partition, count, now - ask.max_age, now + ask.deadline, copies=ask.stale_ok is not None
                )
        except (RetryLater, ConfigurationError) as error:
            return error.message
        return ""

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _asking(self, timeout: float | None, max_age: float | None, stale_ok: float | None) -> Asking:
        self._here.check()
        usual = self.limits
        deadline = self._clock.monotonic() + (usual.deadline if timeout is None else timeout)
        topic = self.topic.known(deadline)
        max_age = usual.max_age if max_age is None else max_age
        stale_ok = usual.stale_ok if stale_ok is None else stale_ok
        return Asking(deadline, max_age, stale_ok, topic.partitions, topic.topic_id)

    def _end_of(self, ack: Ack, ask: Asking) -> int:
        """Return the offset in the table's topic that an answer must have reached to show the effect of an event."""
        if not 0 <= ack.partition < ask.partitions:
            raise BadToken(
                f"no event in partition {ack.partition} has an effect on {self.table.name!r}, which has {ask.partitions}"
            ).at(*ack)
        place = TopicPartition(ack.topic, ack.partition)
        left = max(0.0, ask.deadline - self._clock.monotonic())
        committed = self._commits.wait(self._writer, place, ack.offset, left)
        written = TablePosition.decode(committed.metadata)
        end = None if written is None else written.end_of(self._writer, self.table.name)
        if end is None:  # set by a tool, without a position: the event is in the table's state of now
            table = TopicPartition(self.table.name, ack.partition)
            end = self._cluster.stable_ends([table])[table]
        return end

    def _get(self, ask: Asking, partition: int, keys: list[bytes], end: int) -> list[QueryAnswer[V]]:
        found, source, address = self._found(ask, partition, keys, end)
        codec, name = self.table.value, self.table.name
        rest = partition, found.offset, found.age_seconds, source, address
        return [
            QueryAnswer(None if value is None else decoded(codec, value, name, partition, key), *rest)
            for key, value in zip(keys, found.values, strict=True)
        ]

    def _found(
        self, ask: Asking, partition: int, keys: list[bytes], end: int
    ) -> tuple[FoundRows, Source, str]:
        """Return encoded rows that hold everything below `end`, with their source and its address."""
        end = max(end, self.topic.held(partition))
        if (near := self._get_near(ask, partition, keys, end)) is not None:
            return near, "view" if near.kind == "view" else "local", ""
        found, kind, age, address = self._call(ask, partition, end, "Get", query_pb2.GetRequest, keys=keys)
        values = [row.value if row.HasField("value") else None for row in found.rows]
        return FoundRows(values, found.offset, age, kind), SOURCES[kind], address

    def _call(
        self, ask: Asking, partition: int, least: int, method: str, request: Callable[..., Any], **asked: Any
    ) -> tuple[Any, Kind, float, str]:
        """Return the response of another process that holds everything below `least`, with its source, its age and the address."""
        asked |= {"table": self.table.name, "partition": partition, "stale_ok": ask.stale_ok}
        confirmed_since = self._clock.monotonic() - max(ask.max_age, ask.stale_ok or 0.0)

        def read(owner: PartitionOwner, seconds: float, topic_id: str) -> Any:
            sent = request(version=VERSION, group=self._members, topic_id=topic_id, **asked)
            stub = self._channels.stub(owner.address)
            answer = getattr(stub, method)(sent, timeout=seconds, metadata=self._channels.metadata)
            if answer.offset < least:
                raise NotReady(
                    f"the process is at offset {answer.offset} of {self.table.name!r}, not yet at {least}"
                )
            if KINDS.get(answer.source, "task") == "task" and owner.confirmed_at < confirmed_since:
                # Asked for a copy: it may have been frozen since another process has the partition.
                raise NotReady(f"whether {owner.address} still has the partition is not known")
            return answer

        owner, asked_at, found = self._ask(ask, partition, read)
        kind, now = KINDS.get(found.source, "task"), self._clock.monotonic()
        # What a copy says of its age is at most as old as the call.
        age = now - owner.confirmed_at if kind == "task" else found.age_seconds + (now - asked_at)
        return found, kind, age, str(owner.address)

    def _get_near(self, ask: Asking, partition: int, keys: Sequence[bytes], end: int) -> FoundRows | None:
        """Return the answer of this process; None if another one has to be asked.

        After a freeze this process may still seem to have a partition that is at work elsewhere, so its last commit counts.
        """
        if self._near is not None:
            with suppress(PartitionNotAssigned, NotReady):
                if self._copies:
                    self._check_copies(self._near, ask)
                stale_ok = ask.stale_ok if self._copies else None
                found = self._near.get(self.table.name, partition, keys, stale_ok)
                if found.offset >= end and (self._copies or found.age_seconds <= ask.max_age):
                    return found
        return None

    def _check_copies(self, near: RowSource, ask: Asking) -> None:
        """Raise `NotReady` if the copies of this process are still of an earlier topic, or of the next one already."""
        if near.topic_id(self.table.name) != ask.topic_id:
            raise NotReady(f"the topic {self.table.name!r} was created again")

    def _row(self, partition: int, key: bytes, row: bytes) -> tuple[K, V]:
        table, place = self.table, (self.table.name, partition, key)
        return decoded(table.key, key, *place), decoded(table.value, row, *place)

    def _pages(
        self,
        topic: TopicInfo,
        partition: int,
        span: Span,
        timeout: float | None = None,
        stale_ok: float | None = None,
        parts: dict[int, RangePart] | None = None,
        *,
        strict: bool = False,
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the partition, the encoded key and the encoded row of each row of a partition; `parts` gets what they are from."""
        start, end = span
        parts, place = {} if parts is None else parts, TopicPartition(self.table.name, partition)
        while True:
            page, address = self._page(self._asking(timeout, None, stale_ok), partition, start, end)
            if self.topic.id != topic.topic_id:  # a page is of no later topic than is known after it
                raise NotReady(
                    f"the topic {topic.name!r} was deleted and created again while it was read: read the range again"
                )
            parts[partition] = read_on(parts.get(partition), page, address, place, strict=strict)
            yield from ((partition, key, value) for key, value in page.entries)
            if not page.more:
                return
            start = page.entries[-1][0] + b"\0"

    def _page(self, ask: Asking, partition: int, start: bytes | None, end: bytes | None) -> tuple[Page, str]:
        """Return a page, and the address of who has answered; "": this process."""
        least = self.topic.held(partition)
        if self._near is not None and self._copies:
            with suppress(PartitionNotAssigned, NotReady):
                self._check_copies(self._near, ask)
                near = self._near.page(self.table.name, partition, start, end, ask.stale_ok)
                if near.offset >= least:
                    return near, ""
        found, kind, age, address = self._call(
            ask, partition, least, "Range", query_pb2.RangeRequest, start=start, end=end
        )
        entries = [(entry.key, entry.value) for entry in found.entries]
        return Page(entries, found.more, found.offset, age, kind), address

    def _ask(
        self, ask: Asking, partition: int, read: Callable[[PartitionOwner, float, str], R]
    ) -> tuple[PartitionOwner, float, R]:
        """Return who has answered for a partition, when it was asked, and the answer. Raises like `get`."""
        now = self._clock.monotonic()
        since = max(now - ask.max_age, min(self._suspected_at, now - _ASK_AGAIN_SECONDS))
        copies = ask.stale_ok is not None
        before: list[str] = []  # of the round before: the last one may have had no time for an answer
        while True:
            reasons: list[str] = []
            owners: Sequence[PartitionOwner] = ()
            count, topic_id = ask.partitions, ""
            try:
                topic = self.topic.known(ask.deadline)  # of now: a table may be created again
                count, topic_id = topic.partitions, topic.topic_id
                owners = self._routes.routes(partition, count, since, ask.deadline, copies=copies)
            except RetryLater as error:
                reasons.append(error.message)
            if count != ask.partitions:  # the rows of a key are in another partition
                raise NotReady(f"{self.table.name!r} was created again with {count} partitions: ask again")
            for number, owner in enumerate(owners):
                most = _CALL_SECONDS_MAX if number == len(owners) - 1 else _FIRST_CALL_SECONDS_MAX
                asked_at = self._clock.monotonic()
                left = max(0.001, min(most, ask.deadline - asked_at))
                try:
                    answer = read(owner, left, topic_id)
                except grpc.RpcError as error:
                    reasons.append(why_not(error))
                except RetryLater as error:
                    reasons.append(error.message)
                else:
                    self._channels.answered()
                    if number:
                        self._suspected_at = asked_at
                    return owner, asked_at, answer
            if self._clock.monotonic() >= ask.deadline:
                raise NotReady(
                    f"no answer for partition {partition} of {self.table.name!r} in time: "
                    f"{'; '.join(dict.fromkeys([*before, *reasons]))}",
                    topic=self.table.name,
                    partition=partition,
                )
            before = reasons
            self._clock.sleep(_PAUSE_SECONDS)
            since = self._clock.monotonic()  # it may have moved: ask the coordinator, not the memory
