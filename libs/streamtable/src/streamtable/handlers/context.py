"""The arguments of handlers: `Context` for one record, `Batch` for consecutive records.

Both are created once per partition and reused for each record, so a record costs no object. Keep no reference to them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

from streamtable.base.keys import encoded_keys
from streamtable.base.mapped import check_results
from streamtable.base.ports import Codec
from streamtable.base.topics import Stream, Table
from streamtable.base.types import Headers, RecordBatch
from streamtable.base.watermarks import own_headers, stamped, stamps
from streamtable.errors import GraphError, Rejected, StreamtableError
from streamtable.handlers.services import HandlerServices, JoinedRows, TableRows, Watermark
from streamtable.handlers.state_table import DeclaredState, StateTable
from streamtable.handlers.timers import Timers
from streamtable.tables.working_table import WorkingTable

K = TypeVar("K")
E = TypeVar("E")
V = TypeVar("V")
OK = TypeVar("OK")
OV = TypeVar("OV")
J = TypeVar("J")
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class DeclaredCall(Protocol[R_contra]):
    """A call as a graph declares it: an edge that `Context.call` is given."""

    def begin(self, ctx: "Context[Any, Any]", request: R_contra) -> None: ...


class _NoTable:
    """Stands in for the rows of a group without a table."""

    def __getattr__(self, name: str) -> NoReturn:
        # Not the record's fault: with any other error `on_error` would reject record after record.
        raise GraphError("this group keeps no table: add Persist(codec) to its graph")


class BaseContext(Generic[K, V]):
    """The base of contexts and batches: emitting, lookups and joins."""

    def __init__(self, table: WorkingTable[V] | None, services: HandlerServices) -> None:
        self._rows: TableRows[V] = cast("TableRows[V]", _NoTable()) if table is None else table
        self._services = services
        self._emit = self._emit_stamped if services.dated else services.emit
        self._records: RecordBatch

    @property
    def repeats(self) -> bool:
        """Whether records may be handled again, with the rows as they were left: the group runs at least once."""
        return self._services.repeats

    def work_on(self, rows: "TableRows[V]") -> None:
        """Read and write these rows from now on."""
        self._rows = rows

    @property
    def topic(self) -> str:
        return self._records.topic

    @property
    def partition(self) -> int:
        return self._records.partition

    @property
    def _event_clock(self) -> Watermark:
        if self._services.event_clock is None:
            raise GraphError("this group does not follow event time: add EventTime(), or time= to an Input")
        return self._services.event_clock

    def _late_before(self, late_before_ms: int | None, timestamp_ms: int) -> int:  # noqa: ARG002 - of those who know
        """Return the time before which windows are closed for a record that is emitted now."""
        # What falls due comes in time, however far the watermark has jumped: see `Due.holds`.
        return self._undecided(timestamp_ms)

    def _undecided(self, timestamp_ms: int) -> int:
        """Return the same for a record that no input record has made: it is in time unless its reader has advanced."""
        watermark = max(self._event_clock.watermark_ms, 0)
        return min(watermark, timestamp_ms) if timestamp_ms else watermark

    def _made_ms(self) -> int:
        """Return the event time of the record that emits now; 0, which Kafka's client takes for now: it has none, or there are many."""
        return 0

    def _emit_stamped(
        self, stream: Stream[Any, Any], key: Any, value: Any, headers: Headers, timestamp_ms: int
    ) -> None:
        if (in_band := self._services.dated.get(stream.name)) is not None:
            timestamp_ms = timestamp_ms or self._made_ms()
        if in_band:
            headers = stamped(headers, self._late_before(None, timestamp_ms))
        self._services.emit(stream, key, value, headers, timestamp_ms)

    def emit(
        self,
        stream: Stream[OK, OV],
        key: OK,
        value: OV | None,
        *,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> None:
        """Write a record to a declared output, in the same commit as everything else.

        Args:
            stream: The stream to write to, which the graph declares as `Output`.
            key: The key, which decides the partition.
            value: The value; None writes a tombstone.
            headers: The headers, names and bytes, written as they are.
            timestamp_ms: Milliseconds since 1970; 0: the event time of the record whose handler emits it, or of the timer, if the
                output has `watermarks` or `event_times`. For other outputs, and in batches, it is the time of the commit.

        Raises:
            SerializationError: The record does not fit the schema, or is larger than Kafka accepts.
            GraphError: The graph does not declare the stream as `Output`.
        """
        self._emit(stream, key, value, headers, timestamp_ms)

    def emit_many(
        self,
        stream: Stream[OK, OV],
        keys: Sequence[OK],
        values: Sequence[OV | None],
        *,
        raw_keys: Sequence[bytes] | None = None,
        timestamps_ms: Sequence[int] | None = None,
        late_before_ms: Sequence[int] | None = None,
        partitions: Sequence[int] | None = None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Write records to a declared output, in the same commit as everything else. Faster than `emit` for each.

        Args:
            stream: The stream to write to, which the graph declares as `Output`.
            keys: The key of each record.
            values: The value of each record; None writes a tombstone.
            raw_keys: The keys as they are encoded already, in place of `keys`.
            timestamps_ms: Milliseconds since 1970 for each record; None: as 0 for `emit`.
            late_before_ms: The `BatchContext.late_before_ms` of each record's input record, for `Output(watermarks=True)`.
            partitions: The partition of each record, or -1; None and -1: the key decides. A view, a lookup and a join look for
                a key in its partition only: give others only to readers that know where to look.
            headers: The headers of each record, names and bytes, written as they are; None: there are none.

        Raises:
            SerializationError: A record does not fit the schema, is larger than Kafka accepts, or is for a partition that the
                topic does not have.
            GraphError: The graph does not declare the stream as `Output`.
            ValueError: The arguments have different lengths.
        """
        own, in_band = headers is not None, self._services.dated.get(stream.name)
        if in_band is not None and timestamps_ms is None:
            timestamps_ms = [self._made_ms()] * len(values)
        if in_band:
            given: Iterable[Any] = late_before_ms or repeat(None, len(values))
            bounds = list(map(self._late_before, given, timestamps_ms or repeat(0)))
            headers = stamps(bounds) if headers is None else list(map(stamped, headers, bounds))
        self._services.emit_many(
            stream, keys, values, raw_keys, timestamps_ms, headers, partitions, own_headers=own
        )

    def loopback(self, stream: Stream[OK, OV], key: OK, event: OV, *, headers: Headers = ()) -> None:
        """Send an event to another key of this group, in the same commit: its `Loop` handles it there.

        Args:
            stream: The stream of the group's loop.
            key: The key of the row that the event is for.
            event: The event that the loop's handler is called with.
            headers: The headers, names and bytes, written as they are.

        Raises:
            SerializationError: The event does not fit the schema, or is larger than Kafka accepts.
            GraphError: The stream is not the group's loop.
        """
        if stream.name != self._services.loop:
            raise GraphError(
                f"{stream.name!r} is not the loop of this group: add Loop(stream, handler) to its graph"
            )
        self._emit(stream, key, event, headers, 0)

    def lookup(self, table: Table[OK, OV], key: OK) -> OV | None:
        """Return the row of any key of a table that the graph declares as `Lookup`; None if there is none.

        Raises:
            GraphError: The graph does not declare the table as `Lookup`.
            RetryLater: The local copy is damaged and is loaded again; the engine waits and reads the record again.
        """
        try:
            rows = self._services.lookups[table.name]
        except KeyError:
            raise GraphError(
                f"{table.name!r} is not looked up by this group: add Lookup(table) to its graph"
            ) from None
        row: OV | None = rows.get(key)
        return row

    def table(self, state: DeclaredState[OK, OV]) -> StateTable[OK, OV]:
        """Return the rows of a state table in this partition. Valid only during the call of the handler.

        Args:
            state: The table, which the graph has among its edges.

        Raises:
            GraphError: The graph does not have it.
        """
        found = self._services.states.get(state.name)
        if found is None or (found.state is not state and found.state != state):
            raise GraphError(f"the graph of this group has no state {state.name!r}: add it to its edges")
        return found

    def joined_rows(self, table: Table[Any, J]) -> JoinedRows:
        """Return the rows of a joined table in this partition, by encoded key. Raises `GraphError` as `Context.join`."""
        try:
            return self._services.joins[table.name]
        except KeyError:
            raise GraphError(
                f"{table.name!r} is not joined by this group: add Join(table) to its graph"
            ) from None

    def fail(self, reason: str) -> NoReturn:
        """Reject the record; the input's `on_error` decides what happens to it."""
        raise Rejected(reason)


class Context(BaseContext[K, V]):
    """One record and the row of its key. Valid only during the call of the handler."""

    key: K

    def __init__(self, table: WorkingTable[V] | None, services: HandlerServices) -> None:
        super().__init__(table, services)
        self.index = 0  # of the record within its batch
        self._raw_key: bytes | None = b""
        self.interrupted = False  # something has to be done before the next record, such as a commit

    @property
    def offset(self) -> int:
        return self._records.offsets[self.index]

    @property
    def raw_key(self) -> bytes:
        """The encoded key; empty in a stream without keys."""
        return self._raw_key or b""

    @property
    def raw_value(self) -> bytes | None:
        """The encoded value; None: the record is a tombstone."""
        return self._records.values[self.index]

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since 1970; -1 if the record has none. A replayed dead letter has its original timestamp."""
        return self._records.timestamp(self.index)

    @property
    def event_time_ms(self) -> int:
        """The event time in milliseconds since 1970: from `Input(time=)`, or else the record's timestamp."""
        times = self._records.times
        return self.timestamp_ms if times is None else times.event_ms[self.index]

    def _made_ms(self) -> int:
        # An event at 0 is one at 1, as in flows. The call of a record without a time has 0, too.
        return max(self.event_time_ms, int(self._records.times is not None))

    @property
    def watermark_ms(self) -> int:
        """The watermark of the partition before this record; -1 until every input has an event time.

        Raises:
            GraphError: The group does not follow event time.
        """
        times = self._records.times
        return self._event_clock.watermark_ms if times is None else times.watermarks_ms[self.index]

    @property
    def late_before_ms(self) -> int:
        """A window is closed for this record if it ended, grace included, at or before this time.

        The greatest event time seen in the record's input, including the record itself, or the watermark if that is
        greater, as after its input was idle. Raises like `watermark_ms`.
        """
        times = self._records.times
        return self._event_clock.watermark_of(0) if times is None else times.late_before_ms[self.index]

    def _late_before(self, late_before_ms: int | None, timestamp_ms: int) -> int:
        times = self._records.times
        if times is None:  # a timer, a visit, a change, or a record of the loop
            return self._undecided(timestamp_ms)
        return times.late_before_ms[self.index] if late_before_ms is None else late_before_ms

    @property
    def headers(self) -> Headers:
        return self._records.headers(self.index)

    @property
    def value(self) -> V | None:
        """The row of this key, with the changes of earlier records; None if there is none.

        A value that is changed in place must still be `set`, or the change is not written.
        """
        return None if self._raw_key is None else self._rows.get(self._raw_key)

    def set(self, value: V) -> None:
        """Write the row of this key."""
        if value is None:
            raise TypeError("a row cannot be None: use ctx.delete()")
        if self._raw_key is None:
            self.fail("a record without a key has no row to set")
        self._rows.put(self._raw_key, value)

    def delete(self) -> None:
        """Delete the row of this key."""
        if self._raw_key is not None:
            self._rows.put(self._raw_key, None)

    @property
    def timers(self) -> Timers:
        """The timers of this key. Raises `GraphError` if the graph has no `Timer`; a record without a key has none, and fails."""
        if self._services.timers is None:
            raise GraphError("the graph of this group has no timers: add a Timer to its edges")
        if self._raw_key is None:
            self.fail("a record without a key has no timers")
        return self._services.timers.of(self._raw_key)

    def call(self, call: "DeclaredCall[R]", request: R) -> None:
        """Call an API or a function outside, after the commit of this record; nothing waits for it. See `streamtable_calls`.

        Args:
            call: The call, which the graph has among its edges.
            request: Its argument, kept with its codec until the result is handled.

        Raises:
            GraphError: The graph does not have the call.
            SerializationError: The request does not fit its schema.
        """
        call.begin(self, request)

    def set_aside(self, error: StreamtableError) -> None:
        """Send the record to the dead letters with this reason, and keep all that the handler does: unlike `fail`."""
        self._services.set_aside(self._records, self.index, error)

    def join(self, table: Table[K, J]) -> J | None:
        """Return the row that a joined table has for this key; None if there is none.

        Args:
            table: The table, which the graph declares as `Join` or `Changes`.

        Raises:
            GraphError: The graph does not declare the table as joined.
            DeserializationError: The row cannot be decoded.
        """
        rows = self.joined_rows(table)
        return None if self._raw_key is None else rows.get(self._raw_key)

    def stand(self, records: RecordBatch, index: int, key: K) -> None:
        """Move to a record."""
        self.interrupted = False
        self._records, self.index, self.key = records, index, key
        self._raw_key = records.keys[index]

    def stand_at_row(self, raw_key: bytes, key: K) -> None:
        """Move to a row while staying at the record, whose key is another one."""
        self._raw_key, self.key = raw_key, key

    def each(
        self,
        records: RecordBatch,
        keys: Sequence[K],
        events: Sequence[E],
        handler: Callable[["Context[K, V]", E], object],
    ) -> int:
        """Call the handler for each record. After an exception, `index` is the failing record's.

        Returns:
            The number of records that were handled: fewer if something has to be done before the next.
        """
        self._records, self.interrupted = records, False
        for index, (raw, key, event) in enumerate(zip(records.keys, keys, events, strict=True)):
            self.index, self._raw_key, self.key = index, raw, key
            made = handler(self, event)
            if made is not None:
                check_results([made])
            if self.interrupted:
                return index + 1
        return len(records)


class BatchContext(BaseContext[K, V], Generic[K, E, V]):
    """Consecutive records of one partition, and the rows of the partition. Valid only during the call.

    Attributes:
        keys: The decoded keys, one for each record.
        events: The decoded events, one for each record.
    """

    keys: Sequence[K]
    events: Sequence[E]

    def __init__(self, table: WorkingTable[V] | None, key_codec: Codec[K], services: HandlerServices) -> None:
        super().__init__(table, services)
        self._key_codec = key_codec
        self._batch_keys: frozenset[bytes] | None = None  # the records' encoded keys, made when first needed

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def offsets(self) -> Sequence[int]:
        return self._records.offsets

    @property
    def raw_keys(self) -> Sequence[bytes]:
        """The encoded keys, one for each record; None in a stream without keys."""
        return cast("Sequence[bytes]", self._records.keys)  # with keys nearly always

    @property
    def raw_values(self) -> Sequence[bytes | None]:
        """The encoded events, one for each record."""
        return self._records.values

    @property
    def timestamps_ms(self) -> list[int]:
        return self._records.timestamps()

    @property
    def event_times_ms(self) -> Sequence[int]:
        """The event time of each record. See `Context.event_time_ms`."""
        times = self._records.times
        return self.timestamps_ms if times is None else times.event_ms

    @property
    def watermark_ms(self) -> int:
        """The watermark before the first of these records. See `Context.watermark_ms`."""
        times = self._records.times
        return self._event_clock.watermark_ms if times is None else times.watermarks_ms[0]

    @property
    def late_before_ms(self) -> Sequence[int]:
        """For each record, the time that windows are closed up to. See `Context.late_before_ms`."""
        times = self._records.times
        return [self._event_clock.watermark_of(0)] * len(self) if times is None else times.late_before_ms

    def _late_before(self, late_before_ms: int | None, timestamp_ms: int) -> int:
        # Which record it was made of is not known: none of them was late before the watermark.
        if late_before_ms is not None:
            return late_before_ms
        return self._undecided(timestamp_ms) if self._records.times is None else max(self.watermark_ms, 0)

    def headers(self, index: int) -> Headers:
        return self._records.headers(index)

    @property
    def own_headers(self) -> Sequence[Headers] | None:
        """The headers of each record, without the engine's own and those that name the schema of its bytes; None: there are none."""
        return own_headers(list(self._records.each_headers()))

    def get_many(self, keys: Iterable[K]) -> dict[K, V | None]:
        """Read rows of this partition by their keys, None where there is none.

        Args:
            keys: Keys of the records of this batch, or others that belong to the same partition.

        Raises:
            WrongPartition: A key belongs to another partition: send an event to it with `loopback`.
            ValueError: Two keys are equal in Python, and have a row each, such as 1 and True in JSON.
        """
        own, found = keys is self.keys, encoded_keys(self._key_codec, keys)
        encoded = list(found.values())
        if not own:
            self._refuse_other_partitions(encoded)
        return dict(zip(found, self._rows.get_many(encoded), strict=True))

    def put_many(self, rows: Mapping[K, V | None]) -> None:
        """Write rows of this partition; None deletes a row.

        Args:
            rows: Rows by key: of the records of this batch, or others that belong to the same partition.

        Raises:
            WrongPartition: A key belongs to another partition: send an event to it with `loopback`. No row is written.
        """
        table = self._rows
        encoded = list(map(self._key_codec.encode, rows))
        self._refuse_other_partitions(encoded)
        for key, row in zip(encoded, rows.values(), strict=True):
            table.put(key, row)

    def _refuse_other_partitions(self, encoded: Sequence[bytes]) -> None:
        """Raise `WrongPartition` unless all these keys belong here. Keys of this batch's records do."""
        if self._batch_keys is None:
            self._batch_keys = frozenset(cast("Sequence[bytes]", self._records.keys))
        if self._batch_keys.issuperset(encoded) or (own_keys := self._services.own_keys) is None:
            return
        # A key that another program has encoded in its own way is the same key: it came here with its record.
        again = map(self._key_codec.encode, self.keys)
        own_keys.refuse_others(encoded, self._batch_keys.union(again))

    def join(self, table: Table[K, J]) -> list[J | None]:
        """Return the row that a joined table has for the key of each record. Raises like `Context.join`."""
        rows = self.joined_rows(table)
        return [None if key is None else rows.get(key) for key in self._records.keys]

    def whole(
        self,
        records: RecordBatch,
        keys: Sequence[K],
        events: Sequence[E],
        handler: Callable[["BatchContext[K, E, V]"], object],
    ) -> None:
        """Call the handler once for all the records."""
        self._records, self.keys, self.events = records, keys, events
        self._batch_keys = None
        check_results([handler(self)])
