"""The groups that the simulation runs, and the results of their handlers.

An event is a number. For each key and input, the handlers keep the number of events and a checksum over their offsets
and numbers in order, so a row shows whether an event was lost, doubled or swapped. Emitted records name their source.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from struct import Struct
from typing import Any
from zlib import crc32

from tests.simulation.due import DueHandlers
from tests.simulation.shape import JobShape, Kind

from streamtable.base.topics import Stream, Table
from streamtable.base.types import Headers
from streamtable.codec.plain import Json, Long, String
from streamtable.graph.aggregate import Sum
from streamtable.graph.group import (
    Changes,
    EventTime,
    Group,
    Input,
    Join,
    Loop,
    OnError,
    Output,
    Persist,
    Visit,
)
from streamtable.graph.once import Once
from streamtable.graph.row_change import RowChange
from streamtable.handlers.context import BatchContext, Context

_STEP = Struct(">qq")
ROW_BYTES_MAX = 20_000
ENFORCED_BYTES_MAX = 5_000
"""The largest record that the broker accepts in output topics; the limit that it reports is higher."""
_MANY = [0] * ROW_BYTES_MAX
_OFFSET_BITS, _PARTITION_BITS = 40, 4
LATE_BEFORE = "late-before"
"""The header of an output with the `late_before_ms` that its handler has seen, in groups that follow it."""

Row = list[int]
"""The number of events and their checksum for each topic of the group; at least once: the places of all events, in order."""


class Refused(Exception):
    """A handler rejects an event."""


class Flaky(Exception):
    """A handler fails for a reason unrelated to its event."""


def source_id(topic: int, partition: int, offset: int) -> int:
    """Return the place of a record as one number, which handlers emit, and which is the event of a downstream group."""
    return ((topic << _PARTITION_BITS) | partition) << _OFFSET_BITS | offset


def source_of(number: int) -> tuple[int, int, int]:
    """Return topic, partition and offset of a `source_id`."""
    place, offset = divmod(number, 1 << _OFFSET_BITS)
    return *divmod(place, 1 << _PARTITION_BITS), offset


@dataclass(frozen=True)
class Job:
    """A group of the simulation.

    Attributes:
        reads: The streams that it reads.
        topics: Its inputs, the retry topic last; a topic's number is its index here.
        output: The topic that it emits to; None if it emits nothing.
        joined: The table that it joins, if any.
        visits: The topic of its visits, if any.
        carried: Whether its streams carry watermarks.
    """

    shape: JobShape
    exact: bool
    group: Group[Any, Any]
    reads: Sequence[str]
    topics: Sequence[str]
    output: str | None
    joined: str | None
    visits: str | None
    carried: bool = False

    def bad(self, event: int) -> bool:
        """Return whether its handler rejects the event. Only aggregates also reject replayed events."""
        if self.shape.on_error is OnError.STOP:
            return False
        return event % 100 < self.shape.failing if self.shape.failing else event % 13 == 5

    def swells(self, event: int) -> bool:
        """Return whether its handler makes an invalid row, which is noticed only at the commit."""
        return not self.shape.deletes and self.bad(event) and event % 2 == 0

    def choke(self, event: int) -> int:
        """Return the size of a header that makes an output too large for the broker, detected at once or not; 0: none."""
        if not self.shape.chokes or not self.bad(event) or self.swells(event):
            return 0
        return (0, ROW_BYTES_MAX, 0, ENFORCED_BYTES_MAX)[event % 4]

    def loops_to(self, topic: str, event: int) -> str | None:
        """Return the key that the handler loops an event to; replayed events are not looped."""
        return f"k{event % 7}" if self.shape.loops and topic in self.reads and event % 3 == 0 else None

    def change(self, old: int | None, new: int | None) -> int:
        """Return a change of a joined row as an event."""
        return crc32(_STEP.pack(-1 if old is None else old, -1 if new is None else new))

    def deletes(self, event: int) -> bool:
        return self.shape.deletes and event % 7 == 3

    def follow(self, row: Row | None, source: int, event: int) -> Row | None:
        """Return the row after an event; it is changed in place."""
        topic, _, offset = source_of(source)
        if not self.exact:
            row = row or []
            if source not in row:
                row.append(source)
            return row
        if self.deletes(event):
            return None
        row = row or [0] * (2 * len(self.topics))
        row[2 * topic] += 1
        row[2 * topic + 1] = crc32(_STEP.pack(offset, event), row[2 * topic + 1])
        return row


class Handlers:
    """The actions of a job's handlers.

    Attributes:
        job: The job of the handlers; it is made after them.
    """

    job: Job

    def __init__(self, name: str, flaky: Callable[[], bool]) -> None:
        self.retry = f"{name}-retry"
        self.output = Stream(f"{name}-out", String(), Long())
        self.loop = Stream(f"{name}-loop", String(), Long())
        self.joined = Table(f"{name}-joined", String(), Long())
        self.due: DueHandlers | None = None
        self._flaky = flaky

    def each(self, ctx: Context[str, Row], event: int) -> None:
        job = self.job
        source = source_id(job.topics.index(ctx.topic), ctx.partition, ctx.offset)
        row = job.follow(ctx.value, source, event)
        if job.swells(event) and ctx.topic != self.retry:
            row = [*(row or ()), *_MANY]
        if row is None:
            ctx.delete()
        else:
            ctx.set(row)
        late = self._late(ctx.topic, ctx.late_before_ms) if job.shape.idle_after else ()
        ctx.emit(self.output, ctx.key, source, headers=late)
        if (size := job.choke(event)) and ctx.topic != self.retry:
            ctx.emit(self.output, ctx.key, source, headers=[("h", bytes(size))])
        if (key := job.loops_to(ctx.topic, event)) is not None:
            ctx.loopback(self.loop, key, source)
        if self.due is not None:
            self.due.set(ctx, source, event, exact=job.exact)
        self._fail_if_bad(event, ctx.topic)  # at the end: its earlier effects must leave no trace

    def whole(self, batch: BatchContext[str, int, Row]) -> None:
        job = self.job
        rows = batch.get_many(batch.keys)
        late_before = batch.late_before_ms if job.shape.idle_after else [0] * len(batch)
        for key, event, offset, late in zip(
            batch.keys, batch.events, batch.offsets, late_before, strict=True
        ):
            source = source_id(job.topics.index(batch.topic), batch.partition, offset)
            rows[key] = row = job.follow(rows[key], source, event)
            if job.swells(event) and batch.topic != self.retry:
                rows[key] = [*(row or ()), *_MANY]
            batch.emit(self.output, key, source, headers=self._late(batch.topic, late))
            if (size := job.choke(event)) and batch.topic != self.retry:
                batch.emit(self.output, key, source, headers=[("h", bytes(size))])
            self._fail_if_bad(event, batch.topic)
        batch.put_many(rows)

    def _late(self, topic: str, late_before_ms: int) -> Headers:
        if not self.job.shape.idle_after or topic not in self.job.reads:
            return ()
        return [(LATE_BEFORE, b"%d" % late_before_ms)]

    def weigh(self, event: int) -> int:
        if self.job.swells(event):
            return 1 << 63
        if self.job.bad(event):
            raise Refused(f"event {event}")
        if self._flaky():
            raise Flaky
        return event

    def changed(self, ctx: Context[str, Row], change: RowChange[int]) -> None:
        assert ctx.topic == self.retry or ctx.join(self.joined) == change.new
        self.each(ctx, self.job.change(change.old, change.new))

    def visit(self, ctx: Context[str, Row], _: str) -> None:
        ctx.emit(self.output, ctx.key, source_id(self.job.topics.index(ctx.topic), ctx.partition, ctx.offset))
        if self._flaky():
            raise Flaky

    def _fail_if_bad(self, event: int, topic: str) -> None:
        makes_it_bad = self.job.swells(event) or self.job.choke(event)
        if self.job.bad(event) and topic != self.retry and not makes_it_bad:
            raise Refused(f"event {event}")
        if self._flaky():
            raise Flaky


def make_job(
    name: str,
    shape: JobShape,
    reads: Sequence[str],
    *,
    exact: bool,
    flaky: Callable[[], bool],
    carried: bool = False,
    passes_on: bool = False,
) -> Job:
    """Return a group that reads these topics.

    Args:
        name: The name of the group.
        shape: The shape of the job.
        reads: The topics.
        exact: Whether it runs exactly once.
        flaky: Returns whether a handler fails now, although its event is valid.
        carried: The topics that carry watermarks.
        passes_on: Whether its output carries watermarks.
    """
    do = Handlers(name, flaky)
    handlers: dict[Kind, dict[str, Any]] = {
        Kind.RECORD: {"handler": do.each},
        Kind.BATCH: {"batch": do.whole},
        Kind.AGGREGATE: {"aggregate": Sum(do.weigh)},
    }
    emits = shape.kind is not Kind.AGGREGATE
    edges: list[Any] = [Output(do.output, watermarks=passes_on)] if emits else []
    for topic in reads:
        stream = Stream(topic, String(), Long())
        once = Once[int](lambda event: event, timedelta(seconds=shape.once)) if shape.once else None
        kind = handlers[shape.kind]
        edges.append(Input(stream, on_error=shape.on_error, once=once, watermarks=carried, **kind))
    edges.append(Persist(Json() if emits else Long()))
    if shape.idle_after:
        edges.append(EventTime(timedelta(seconds=shape.idle_after)))
    extra: list[str] = []
    if shape.loops:
        edges.append(Loop(do.loop, do.each, on_error=shape.on_error))
        extra.append(do.loop.name)
    if shape.changes:
        edges.append(Changes(do.joined, do.changed, start="earliest", on_error=shape.on_error))
        extra.append(do.joined.name)
    elif shape.joins:
        edges.append(Join(do.joined))
    if shape.due:
        do.due = DueHandlers(name, event_time=bool(shape.idle_after))
        edges += do.due.edges
    if shape.visits:
        edges.append(Visit("visit", do.visit, on_error=shape.on_error))
        extra.append(f"{name}-visits")
    do.job = Job(
        shape,
        exact,
        Group(name, *edges),
        reads,
        topics=(*reads, *extra, do.retry),
        output=do.output.name if emits else None,
        joined=do.joined.name if shape.joins else None,
        visits=f"{name}-visits" if shape.visits else None,
        carried=carried,
    )
    return do.job
