"""The output records and dead letters of a task since the last commit, encoded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import add
from typing import Any

import structlog

from streamtable.base.clock import Clock
from streamtable.base.deadletter import Origin, OutputRecord, dead_letter, headers_size
from streamtable.base.limited_log import LimitedLog
from streamtable.base.ports import TopicInfo, WindowedKeys
from streamtable.base.topics import Stream, hash_of_rows
from streamtable.base.types import Headers, RecordBatch
from streamtable.base.watermarks import STAMP_BYTES
from streamtable.engine.output.acceptance import Acceptance, refusal
from streamtable.errors import GraphError, SerializationError, StreamtableError
from streamtable.graph.group import Group, OnError
from streamtable.tables.working_table import refuse_if_larger

log = structlog.get_logger()


UNKNOWN = -1
"""In place of a record's index: one of several records that were handled in one call."""


@dataclass(frozen=True, slots=True)
class OutputSource:
    """The input record that has made an output; `index` is its index in `records`, or `UNKNOWN`."""

    records: RecordBatch
    index: int
    on_error: OnError


class OutputBuffer:
    """Collects the records to be sent with the next commit.

    Args:
        group: The group whose handlers emit them.
        topics: All topics of the group as the broker describes them.
        clock: The clock, for the time in dead letters.

    Attributes:
        sources: The source of each of the first records, as far as it is known (None: the engine itself).
    """

    def __init__(self, group: Group[Any, Any], topics: Mapping[str, TopicInfo], clock: Clock) -> None:
        self.records: list[OutputRecord] = []
        self.bytes = 0
        self.dead_letters: list[str] = []  # of each among the records, the topic that it was read from
        self.sources: list[OutputSource | None] = []
        self._group = group
        self._topics = topics
        self._clock = clock
        self._limited_log = LimitedLog(log, clock)
        declared = [edge.stream for edge in group.outputs]
        if group.loop is not None:
            declared.append(group.loop.stream)
        self._accepted = {each.name: Acceptance(topics[each.name], clock) for each in declared}
        self._hashes = {
            each.name: hash_of_rows(each)
            for each in declared
            if each.partitioner != "murmur2" or isinstance(each.key, WindowedKeys)
        }  # of streams whose partitions the client would not choose: it knows one partitioner and no windows

    def emit(
        self,
        stream: Stream[Any, Any],
        key: Any,
        value: Any,
        headers: Headers,
        timestamp_ms: int,
        partition: int = -1,
    ) -> None:
        """As `handler_services.Emit`. `partition` -1: the partition of the key."""
        name = stream.name
        accepted = self._accepted.get(name)
        if accepted is None:
            raise GraphError(
                f"group {self._group.name!r} emits to {name!r}, which is not declared: add Output(...) to its graph"
            )
        try:
            raw_key = None if key is None else stream.key.encode(key)
            data = None if value is None else stream.value.encode(value)
        except SerializationError as error:
            raise refusal(name, f"cannot be written: {error.message}") from error
        if partition >= 0:
            accepted.check_partition(partition)
        elif name in self._hashes and raw_key is not None:
            partition = self._hashes[name](raw_key) % self._topics[name].partitions
        if headers or timestamp_ms or raw_key is None:  # asked here, as a call costs each record
            accepted.check(raw_key, headers, timestamp_ms)
        record = OutputRecord(name, raw_key, data, headers, timestamp_ms, partition)
        size = record.size if headers else len(raw_key or b"") + len(data or b"")
        if size > accepted.bytes_max:  # asked here, as making the text would cost each record
            refuse_if_larger(size, accepted.bytes_max, f"the record for {name!r}")
        self.records.append(record)
        self.bytes += size

    def emit_many(
        self,
        stream: Stream[Any, Any],
        keys: Sequence[Any],
        values: Sequence[Any],
        raw_keys: Sequence[bytes] | None,
        timestamps_ms: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
        partitions: Sequence[int] | None = None,
        *,
        own_headers: bool = False,
    ) -> None:
        """As `handler_services.EmitMany`: what `emit` does, with one check of each kind for all records.

        Without `own_headers`, each record has the header `LATE_BEFORE` alone.
        """
        name = stream.name
        columns = {"keys": keys if raw_keys is None else raw_keys, "timestamps": timestamps_ms}
        for what, column in (columns | {"headers": headers, "partitions": partitions}).items():
            if column is not None and len(column) != len(values):
                raise ValueError(f"{len(values)} values are emitted to {name!r} with {len(column)} {what}")
        accepted = self._accepted.get(name)
        if accepted is None or not values or (raw_keys is None and None in keys):  # one by one
            for index, value in enumerate(values):
                key = keys[index] if raw_keys is None else stream.key.decode(raw_keys[index])
                own = () if headers is None else headers[index]
                time_ms = 0 if timestamps_ms is None else timestamps_ms[index]
                self.emit(stream, key, value, own, time_ms, -1 if partitions is None else partitions[index])
            return
        encode = stream.value.encode
        try:
            raw = list(map(stream.key.encode, keys)) if raw_keys is None else raw_keys
            data = [None if value is None else encode(value) for value in values]
        except SerializationError as error:
            raise refusal(name, f"cannot be written: {error.message}") from error
        times: Iterable[int] = repeat(0)
        if timestamps_ms is not None:
            times = timestamps_ms
            for time in {min(timestamps_ms), max(timestamps_ms)}:
                accepted.check(raw[0], (), time)
        key_sizes, value_sizes = list(map(len, raw)), [0 if item is None else len(item) for item in data]
        more = 0 if headers is None or own_headers else STAMP_BYTES
        if own_headers and headers is not None:
            for key, each in zip(raw, headers, strict=True):
                accepted.check(key, each, 0)
            value_sizes = list(map(add, value_sizes, map(headers_size, headers)))
        # Perhaps: if they are of one record.
        if max(key_sizes) + max(value_sizes) + more > accepted.bytes_max:
            largest = max(map(sum, zip(key_sizes, value_sizes, strict=True))) + more
            refuse_if_larger(largest, accepted.bytes_max, f"the record for {name!r}")
        each_headers: Iterable[Headers] = repeat(()) if headers is None else headers
        places: Iterable[int] = repeat(-1)
        if hash_key := self._hashes.get(name):
            count = self._topics[name].partitions
            places = [hash_key(key) % count for key in raw]
        if partitions is not None:
            accepted.check_partition(max(partitions))
            places = [place if place >= 0 else own for place, own in zip(partitions, places, strict=False)]
        fields = zip(repeat(name), raw, data, each_headers, times, places)
        # Half the cost of calling the class.
        self.records.extend(map(tuple.__new__, repeat(OutputRecord), fields))
        self.bytes += sum(key_sizes) + sum(value_sizes) + more * len(data)

    # ---- undo ------------------------------------------------------------------------------------------------------

    def made_by(self, source: OutputSource | None) -> None:
        """Note the source of the records that were added since the last call."""
        if new := len(self.records) - len(self.sources):
            self.sources.extend([source] * new)

    def back_to(self, count: int, bytes_: int, dead_letters: int) -> None:
        """Drop all but the first `count` records, which have so many bytes and dead letters among them."""
        self.bytes = bytes_
        del self.records[count:], self.sources[count:], self.dead_letters[dead_letters:]

    # ---- the engine's own --------------------------------------------------------------------------------------------

    def add(self, record: OutputRecord) -> None:
        """Add a record of the engine's own, without checks."""
        self.records.append(record)
        self.bytes += record.size

    def set_aside(self, records: RecordBatch, index: int, error: StreamtableError) -> None:
        """Send a record to the dead letters."""
        origin = Origin.of(records, index)
        if records.topic == self._group.retry:
            origin = Origin.read(records.headers(index)) or origin
        error.at(records.topic, records.partition, records.offsets[index])
        topic = self._topics[self._group.dead_letters]
        letter = dead_letter(
            records,
            index,
            error,
            origin=origin,
            group=self._group.name,
            topic=topic.name,
            now=self._clock.now(),
            bytes_max=topic.max_message_bytes,
        )
        self._limited_log.warning("record goes to the dead letters", group=self._group.name, error=str(error))
        # Not its origin: headers of a record in the retry topic may name any.
        self.dead_letters.append(records.topic)
        self.add(letter)

    def forget(self) -> None:
        """Drop all records: they are committed or undone."""
        self.records = []
        self.sources, self.dead_letters = [], []
        self.bytes = 0
