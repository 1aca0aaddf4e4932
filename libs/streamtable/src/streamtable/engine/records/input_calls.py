"""Passes the records of an input to its handler, without those that do not decode, have failed, or are repeats."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any, Literal

from streamtable.base.ports import Decoded
from streamtable.base.types import RecordBatch
from streamtable.base.watermarks import Marked
from streamtable.engine.calls.careful import CarefulMode
from streamtable.engine.calls.handlers import NOT_THE_RECORDS_FAULT, TOMBSTONE, Handler, HandlerCalls
from streamtable.engine.firing.runner import DueRunner
from streamtable.engine.named.ids import AcceptedIds
from streamtable.engine.time.event_time import TimedInput
from streamtable.errors import DeserializationError, HandlerFailed, StreamtableError
from streamtable.graph.group import Input, OnError
from streamtable.graph.once import ids_of

WholeBatch = Callable[[RecordBatch, Sequence[Any], Sequence[Any]], None]
"""Handles records with their decoded keys and events in one call."""


@dataclass(frozen=True, slots=True)
class Events:
    """Records of an input with their decoded keys and events, one for each record."""

    records: RecordBatch
    keys: Sequence[Any]
    events: Sequence[Any]

    def __len__(self) -> int:
        return len(self.records)

    def part(self, begin: int, end: int) -> "Events":
        """Return the records from one index up to another."""
        return Events(self.records.part(begin, end), self.keys[begin:end], self.events[begin:end])

    def only(self, keep: Sequence[bool]) -> "Events":
        """Return the records whose `keep` is true."""
        return Events(
            self.records.only(list(keep)), list(compress(self.keys, keep)), list(compress(self.events, keep))
        )


@dataclass(eq=False)
class InputCalls:
    """Passes the records of one input to its handler, in one partition, by the stages that its edge needs.

    The stages are chosen once: marks of producers, event times, timers, records that no handler must see, repeats, calls. An
    input without options has the last two alone.

    Args:
        edge: The input.
        handler: Called for each record; None if the input has a batch handler or an aggregate.
        whole: Calls the batch handler or the aggregate.
        calls: Calls user code, and undoes what fails.
        accepted: The ids that were accepted; None if the input has no `once`.
        timed: Takes the event times of the records; None if the input does not advance event time.
        due: Fires timers in event time, between the records; None if the group has none.
    """

    _edge: Input[Any, Any, Any]
    _handler: Handler | None
    _whole: WholeBatch
    _calls: HandlerCalls
    _accepted: AcceptedIds | None
    _timed: TimedInput | None
    _due: DueRunner | None

    def __post_init__(self) -> None:
        self._call = self._call_each if self._accepted is None else self._call_new
        self._in_time = self._call_fit if self._due is None else self._before_timers
        marked = self._edge.watermarks
        self.handle: Callable[[RecordBatch], int] = self._handle_marked if marked else self._handle
        """Handles records. Returns the number of records taken: fewer if a commit must come first or the process must stop."""

    def _handle_marked(self, records: RecordBatch) -> int:
        """Handle records with producers' marks between them. Returns as `handle`."""
        marked, timed = Marked.read(records), self._timed
        assert timed is not None, "the graph follows event time then"
        if marked.keep is None:
            return self._handle(records, marked)
        if self._due is not None and not marked.keep[0]:
            # Timers that are due because of the first marks fire before the first record.
            timed.marked(marked, 0)
            return marked.keep.index(True) if True in marked.keep else len(records)
        taken = self._handle(marked.records, marked) if len(marked.records) else 0
        timed.marked(marked, taken)
        return _index_after(marked.keep, taken)

    def _handle(self, records: RecordBatch, marked: Marked | None = None) -> int:
        """Handle records without marks between them. Returns as `handle`."""
        edge, stream = self._edge, self._edge.stream
        keys, events = stream.key.decode_many(records.keys), stream.value.decode_many(records.values)
        keyless = edge.keyless or stream.keyless
        bad = unfit(records, keys, events, self._calls.mode, deletions=edge.tombstones, keyless=keyless)
        if self._timed is None:
            return self._in_time(Events(records, keys.values, events.values), bad)
        unfit_before = len(bad)
        records = self._timed.read(records, events.values, bad, marked)
        if len(bad) > unfit_before and not self._calls.careful and self._edge.on_error is OnError.STOP:
            self._stop_at_invalid_time(records, bad)
        taken = self._in_time(Events(records, keys.values, events.values), bad)
        self._timed.handled(records, taken, marked)
        return taken

    def _before_timers(self, decoded: Events, bad: Mapping[int, StreamtableError]) -> int:
        """Handle records up to the first before which a timer fires. Returns as `handle`."""
        assert self._due is not None, "this stage is for groups with timers"
        until = self._due.before_timers(decoded.records)
        return self._call_fit(decoded.part(0, until), {at: error for at, error in bad.items() if at < until})

    def _call_fit(self, decoded: Events, bad: Mapping[int, StreamtableError]) -> int:
        """Handle all records but the bad ones. Returns as `handle`."""
        if not bad:
            return self._call(decoded)
        # Skipped records may move the stream time of `once`, for the records after them and not for those before.
        in_order = self._calls.careful or self._accepted is not None
        return self._between(decoded, bad) if in_order else self._around(decoded, bad)

    def _stop_at_invalid_time(self, records: RecordBatch, bad: Mapping[int, StreamtableError]) -> None:
        """Rewind if a record has no valid event time; the records before it are handled again and committed."""
        for index, error in bad.items():
            if isinstance(error, HandlerFailed) and isinstance(error.__cause__, Exception):
                self._calls.look_closer(records, index, error.__cause__)

    def _around(self, decoded: Events, bad: Mapping[int, StreamtableError]) -> int:
        """Handle all records but the bad ones in one call."""
        keep = [index not in bad for index in range(len(decoded))]
        taken = _index_after(keep, self._call(decoded.only(keep)) if any(keep) else 0)
        for index in sorted(bad):
            if index < taken:
                self._calls.leave_out(self._edge.on_error, decoded.records, index, bad[index])
        return taken

    def _between(self, decoded: Events, bad: Mapping[int, StreamtableError]) -> int:
        """Handle the records between the bad ones, so that dead letters keep the order of the records."""
        begin, self._calls.context.interrupted = 0, False  # where all are repeats, no handler is called
        for end in [*sorted(bad), len(decoded)]:
            if begin < end:
                begin += self._call(decoded.part(begin, end))
                # Asked only here, where records were taken: nothing else of the batch is done before a timer that is due.
                if begin < end or self._calls.context.interrupted:
                    return begin
            if end < len(decoded):
                if not self._calls.leave_out(self._edge.on_error, decoded.records, end, bad[end]):
                    return end
                self._note_left_out(decoded.part(end, end + 1))
                begin = end + 1
        return len(decoded)

    # ---- events that count once ----------------------------------------------------------------------------------------

    def _call_new(self, decoded: Events) -> int:
        """Call the handler for the records that are no repeats."""
        accepted = self._accepted
        assert accepted is not None, "this stage is for inputs whose events count once"
        ids, failed = ids_of(accepted.once, decoded.events)
        if self._calls.careful:
            return self._call_once_carefully(decoded, accepted, ids, failed)
        if failed:
            index = min(failed)
            self._calls.look_closer(decoded.records, index, failed[index])
        keep = accepted.accept(ids, decoded.records.timestamps())
        if keep is None:
            taken = self._call_each(decoded)
        else:
            taken = _index_after(keep, self._call_each(decoded.only(keep)) if any(keep) else 0)
        if taken < len(decoded):
            accepted.take_back(taken)  # the others are passed again
        return taken

    def _call_once_carefully(
        self, decoded: Events, accepted: AcceptedIds, ids: Sequence[bytes], failed: Mapping[int, Exception]
    ) -> int:
        """Call the handler record by record: one that fails was not accepted. `ids`: of the records that have one."""
        following = iter(ids)
        for index in range(len(decoded)):
            if index in failed:
                if not self._calls.give_up(self._edge.on_error, decoded.records, index, failed[index]):
                    return index
                continue
            one, failures = decoded.part(index, index + 1), self._calls.failures
            if accepted.accept([next(following)], one.records.timestamps()) is not None:
                continue
            taken = self._call_each(one)
            if not taken:
                accepted.take_back(0)
                return index
            if self._calls.failures > failures:
                accepted.take_back(0, failed=True)
            if self._calls.context.interrupted:
                return index + 1
        return len(decoded)

    def _note_left_out(self, one: Events) -> None:
        """Let a record that is skipped move the stream time, if it has an id: as if its handler had failed."""
        accepted = self._accepted
        if accepted is not None and ids_of(accepted.once, one.events)[0]:
            accepted.left_out(one.records.timestamp(0))

    # ---- user code -------------------------------------------------------------------------------------------------------

    def _call_each(self, decoded: Events) -> int:
        calls, records, on_error = self._calls, decoded.records, self._edge.on_error
        if self._handler is not None:
            if calls.careful:
                return calls.each(on_error, records, decoded.keys, decoded.events, self._handler)
            # As `HandlerCalls.fast`, without its call: on the way to every handler.
            try:
                return calls.context.each(records, decoded.keys, decoded.events, self._handler)
            except NOT_THE_RECORDS_FAULT:
                raise
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                calls.look_closer(records, calls.context.index, error)
        if calls.careful:
            return calls.chunks(on_error, records, self._decode_and_call)
        whole = partial(self._whole, records, decoded.keys, decoded.events)
        calls.fast(records, whole, singly=False)
        return len(records)

    def _decode_and_call(self, records: RecordBatch) -> None:
        """Decode the records again, which a failed call may have changed."""
        keys = self._edge.stream.key.decode_many(records.keys).values
        self._whole(records, keys, self._edge.stream.value.decode_many(records.values).values)


def unfit(
    records: RecordBatch,
    keys: Decoded[Any],
    events: Decoded[Any],
    mode: CarefulMode,
    *,
    deletions: bool | Literal["skip"] = False,
    keyless: bool = False,
) -> dict[int, StreamtableError]:
    """Return the records that no handler must see, by index.

    Args:
        records: Records of one topic.
        keys: Their decoded keys.
        events: Their decoded values.
        mode: The careful mode of the partition, and the records that have failed.
        deletions: Whether a record without a value has a meaning, or is skipped without a dead letter ("skip").
        keyless: Whether a record needs no key.
    """
    bad: dict[int, StreamtableError] = {}
    if not keyless and None in records.keys:
        for index in (index for index, key in enumerate(records.keys) if key is None):
            bad[index] = DeserializationError(
                "the record has no key; a stream without keys has key=NoKey(). In a topic between groups of a flow the function "
                "of group_by() or key_by() has returned None as the key: filter such records out before that step"
            )
    if deletions is not True and None in records.values:
        for index, value in enumerate(records.values):
            if value is None and index not in bad:
                missing = DeserializationError("the record has no value: a tombstone is no event")
                bad[index] = TOMBSTONE if deletions else missing
    return bad | {**events.poison, **keys.poison, **mode.condemned(records)}


def _index_after(keep: Sequence[bool], done: int) -> int:
    """Return the number of records that are done when the first `done` kept ones are, with the left-out ones before them."""
    kept = [index for index, good in enumerate(keep) if good]
    return len(keep) if done == len(kept) else kept[done]
