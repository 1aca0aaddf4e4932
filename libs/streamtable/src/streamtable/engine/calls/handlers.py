"""Calls user code: fast over whole batches, or carefully, so that a failing record is undone alone (`engine.calls.careful`)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

import structlog

from streamtable.base.clock import Clock
from streamtable.base.limited_log import LimitedLog
from streamtable.base.mapped import check_results
from streamtable.base.message import MadeMessage
from streamtable.base.types import RecordBatch
from streamtable.engine.calls.careful import CarefulMode
from streamtable.engine.calls.undo import RecordUndo
from streamtable.engine.due.chunks import entry_of
from streamtable.engine.output.buffer import UNKNOWN, OutputBuffer, OutputSource
from streamtable.errors import (
    DeserializationError,
    DoInstead,
    Fatal,
    GraphError,
    HandlerFailed,
    RetryLater,
    RewindNeeded,
    StoreCorrupted,
    StreamtableError,
)
from streamtable.graph.group import OnError
from streamtable.handlers.context import Context

log = structlog.get_logger()

Handler = Callable[[Any, Any], object]
Around = Callable[[Handler], Handler]
"""Makes a handler of a handler, for tracing and the like; asked in each partition for each handler of the graph."""

NOT_THE_RECORDS_FAULT = (Fatal, StoreCorrupted, GraphError, RetryLater)
"""The errors of handlers that are not caused by the record."""

TOMBSTONE = DeserializationError("the record has no value, and its input skips tombstones")
"""Stands for the reason why a tombstone is skipped, which is no fault."""

T = TypeVar("T")


@dataclass(eq=False)
class HandlerCalls:
    """Calls the handlers of one partition of a group, with the parts that each way to call them shares.

    Args:
        group: The group's name.
        mode: The careful mode of the partition, and the records that have failed.
        undo: Undoes the effects of a failed handler.
        context: The context that handlers of single records are called with.
        outgoing: The outputs; dead letters are added to them.
        clock: The clock, for the log.

    Attributes:
        careful: Whether each record since the last rewind can be undone by itself.
        stopped: The failure of a record whose `on_error` says stop; None if there is none. The records before it are
            committed first.
    """

    _group: str
    mode: CarefulMode
    undo: RecordUndo
    context: Context[Any, Any]
    outgoing: OutputBuffer
    clock: Clock
    stopped: HandlerFailed | None = None
    records: int = 0  # handled since the last commit
    failures: int = 0  # records that were undone alone, since the start

    def __post_init__(self) -> None:
        self.careful = self.mode.active
        self.tombstones = Counter[str]()  # skipped since the last commit, by topic
        self._limited_log = LimitedLog(log, self.clock)

    def fast(self, records: RecordBatch, call: Callable[[], T], *, singly: bool) -> T:
        """Run a function that calls handlers. `singly`: the context knows which record failed.

        Raises:
            RewindNeeded: One has failed. The records since the last commit must be read again, and handled carefully.
        """
        try:
            return call()
        except NOT_THE_RECORDS_FAULT:
            raise
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            index = self.context.index if singly else 0 if len(records) == 1 else None
            self.look_closer(records, index, error)

    def each(
        self,
        on_error: OnError,
        records: RecordBatch,
        keys: Sequence[Any],
        events: Sequence[Any],
        handler: Handler,
    ) -> int:
        """Call a handler for each record, carefully. Returns the number of records that were handled."""
        for index, (key, event) in enumerate(zip(keys, events, strict=True)):
            self.context.stand(records, index, key)
            if not self.attempt(on_error, records, index, partial(handler, self.context, event)):
                return index
            if self.context.interrupted:
                return index + 1
        return len(records)

    def chunks(self, on_error: OnError, records: RecordBatch, call: Callable[[RecordBatch], None]) -> int:
        """Call a handler of consecutive records for a few at a time; if that fails, for one at a time.

        Returns:
            How many were handled.
        """
        for first in range(0, len(records), self.mode.batch_records):
            chunk = records.part(first, min(first + self.mode.batch_records, len(records)))
            if len(chunk) > 1:
                keep = partial(self.undo.keep, chunk, UNKNOWN, on_error)
                if self.alone(partial(call, chunk), keep, _known(chunk.keys)) is None:
                    continue
            for index in range(len(chunk)):
                one = chunk.part(index, index + 1)
                if not self.attempt(on_error, one, 0, partial(call, one)):
                    return first + index
        return len(records)

    def attempt(
        self,
        on_error: OnError,
        records: RecordBatch,
        index: int,
        call: Callable[[], object],
        rows: Sequence[bytes] = (),
    ) -> bool:
        """Run the handler of one record. In careful mode a failure is undone and given to `on_error`.

        Args:
            on_error: The policy of the handler's edge.
            records: The batch of the record.
            index: The record's index in them.
            call: Calls the handler.
            rows: The keys of the rows that it works on, if they are not the record's own.

        Returns:
            False if the process is to stop at this record.
        """
        if not self.careful:
            self.fast(records, call, singly=True)
            return True
        keep = partial(self.undo.keep, records, index, on_error)
        error = self.alone(call, keep, rows or _known(records.keys[index : index + 1]))
        if error is not None and rows:
            error.add_note(f"at the row of key {self.context.raw_key!r}")
        return error is None or self.give_up(on_error, records, index, error)

    def alone(
        self, call: Callable[[], Any], keep: Callable[[], None], rows: Sequence[bytes]
    ) -> Exception | None:
        """Call a handler, carefully: if it fails, what it has done is undone.

        Args:
            call: Calls the handler.
            keep: Keeps its effects. Raises `SerializationError` if they do not fit.
            rows: The keys of the joined rows that it can reach.

        Returns:
            The error that it has failed with; None: its effects are kept.
        """
        self.undo.begin()
        try:
            check_results([call()])
            keep()
        except NOT_THE_RECORDS_FAULT:
            raise
        except DoInstead as instead:
            self.undo.undo(rows)
            self.mode.begin(0)
            return self.alone(instead.function, keep, rows)
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            self.undo.undo(rows)
            return error
        return None

    def row(self, on_error: OnError, record: RecordBatch, key: bytes, call: Callable[[], object]) -> None:
        """Run a visit's handler for one row, carefully; a row that fails, or whose outputs Kafka refuses, is skipped."""
        # A place of its own: an output that Kafka refuses belongs to this row, not to the visit.
        message = MadeMessage(key, None, (1, record.timestamp(0)), (), record.first_offset)
        row = RecordBatch(f"{record.topic}, row {key[:100]!r}", record.partition, [message])
        refused = self.mode.failure_of(row.topic, row.first_offset)
        error = refused or self.alone(call, partial(self.undo.keep, row, 0, on_error), [key])
        if error is not None:
            self.mode.begin(0)
            failed = refused or self._failure(row, 0, error)
            self._limited_log.warning(
                "row is skipped", group=self._group, key=key, error=str(failed), exc_info=error
            )

    def leave_out(self, on_error: OnError, records: RecordBatch, index: int, error: StreamtableError) -> bool:
        """Treat a record as `on_error` says. Returns False if the process must stop at it."""
        if error is TOMBSTONE:
            self.tombstones[records.topic] += 1
        elif not isinstance(error, HandlerFailed) or on_error is OnError.DEAD_LETTER:
            self.outgoing.set_aside(records, index, error)
        elif on_error is OnError.SKIP:
            self._limited_log.warning("record is skipped", group=self._group, error=str(error))
        else:
            self.stopped = self._stop(error)
            return False
        return True

    def give_up(self, on_error: OnError, records: RecordBatch, index: int, error: Exception) -> bool:
        """Count a record as failed and treat it as `on_error` says. Returns False if the process must stop at it."""
        self.failures += 1
        self.mode.begin(0)
        return self.leave_out(on_error, records, index, self._failure(records, index, error))

    def look_closer(self, records: RecordBatch, index: int | None, error: Exception) -> NoReturn:
        """Rewind after a failure, to handle the records since the last commit again, carefully.

        Raises:
            RewindNeeded: Always.
        """
        self._limited_log.warning(
            "handler failed: rewinding to the last commit, records are reprocessed one by one",
            error=str(self._failure(records, index, error)),
            exc_info=error,
        )
        self.mode.begin(self.records + len(records))
        offset = None if index is None else records.offsets[index]
        raise RewindNeeded("a handler failed").at(*records.place, offset) from error

    # ---- what fails after its handler has returned ---------------------------------------------------------------------

    def refused(self, outputs: Iterable[int], error: StreamtableError) -> bool:
        """Find the records that have made the outputs that Kafka refused.

        Args:
            outputs: Their indexes, as far as they are known.
            error: The error that Kafka has returned.

        Returns:
            False if trying again would end as it did.
        """
        self.mode.begin(self.records, singly=True)
        if not self.careful:
            return True  # now the records are not known; next time they are
        goes_on, blamed = False, set[bytes | None]()
        for output in sorted(outputs):
            source = self.outgoing.sources[output] if output < len(self.outgoing.sources) else None
            if source is None:
                continue
            if source.index != UNKNOWN:  # else next time its records are given to the handler one by one
                key = source.records.keys[source.index]
                # A later one may have failed because of what this one did.
                if key is None or key not in blamed:
                    self._condemn(source, error)
                blamed.add(key)
            goes_on = True
        return goes_on

    def encoded(self, encode: Callable[[], T]) -> T:
        """Return the result of `encode`, which encodes rows that were changed since the last commit.

        Raises:
            RewindNeeded: A row does not fit its schema or its topic: the records since the last commit are read again
                one by one, to find the one that made it.
        """
        try:
            return encode()
        except (Fatal, StoreCorrupted):
            raise
        except StreamtableError as error:
            self.mode.begin(self.records)
            raise RewindNeeded(error.message).at(error.topic, error.partition) from error

    # ---- commit and rewind ---------------------------------------------------------------------------------------------

    def committed(self) -> None:
        """Forget the records that were handled: they are committed."""
        self._forget()
        if not self.mode.active:
            self.careful = False

    def rewind(self) -> None:
        """Forget the records that were handled: they are undone."""
        self._forget()
        self.careful = self.mode.active
        self.stopped = None

    def _forget(self) -> None:
        self.records = 0
        self.tombstones = Counter()
        self.undo.forget()

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _condemn(self, source: OutputSource, error: Exception) -> None:
        records, index, on_error = source.records, source.index, source.on_error
        failed = self._failure(records, index, error)
        self._limited_log.warning(
            "record failed after its handler had returned, its batch is undone and read again",
            group=self._group,
            error=str(failed),
            then=on_error.value,
            exc_info=error,
        )
        offset, key = records.offsets[index], records.keys[index]
        self.mode.begin(self.records)
        # A row that was due stands in no topic: its entry is its place.
        place = entry_of(records.timestamp(index), key or b"") if offset < 0 else offset
        self.mode.condemn(records.topic, place, failed, key)

    def _failure(self, records: RecordBatch, index: int | None, error: Exception) -> HandlerFailed:
        failed = HandlerFailed(f"the handler of group {self._group!r} raised {type(error).__name__}: {error}")
        failed.__cause__ = error
        return failed.at(*records.place, None if index is None else records.offsets[index])

    def _stop(self, failed: HandlerFailed) -> HandlerFailed:
        place = f"{self._group} {failed.topic} {failed.partition} {failed.offset}"
        skip = f", or continue without this record: 'streamtable group skip {place}'"
        stands_in_topic = failed.offset is not None and failed.offset >= 0
        stopped = HandlerFailed(f"{failed.message}. Correct the handler{skip if stands_in_topic else ''}")
        stopped.__cause__ = failed.__cause__
        return stopped.at(failed.topic, failed.partition, failed.offset)


def _known(keys: Iterable[bytes | None]) -> list[bytes]:
    return [key for key in keys if key is not None]
