"""The records between two steps of a flow, as columns: a step costs no object per record."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, repeat
from typing import Any, TypeVar

from streamtable.base.ports import Codec
from streamtable.base.topics import Stream
from streamtable.base.types import Headers
from streamtable.handlers.context import BaseContext

T = TypeVar("T")
Order = tuple[int, ...]


def timestamps_of(times: Sequence[int]) -> Sequence[int]:
    """Return event times as the timestamps of output records.

    Kafka's client takes 0 for now. So an event at 0 is written as one at 1, and a record without a time as one of now.
    """
    if min(times, default=1) > 0:
        return times
    return [0 if time < 0 else time or 1 for time in times]


Scope = BaseContext[Any, Any]
"""The part of a task that steps can use: what is common to the arguments of all handlers."""


@dataclass(slots=True)
class Columns:
    """Records, or changes of the rows of a table.

    Attributes:
        codec: The codec of the keys; None after a step that has changed them.
        raw_keys: The encoded keys; None after a step that has changed them.
        decoded_keys: The keys; None until a step asks for them.
        values: The values. Of changes: the new rows, None for a deleted one.
        times: The event times.
        late_before: A window that closes at this time or before is closed for the record; None where no step asks for them.
        order: The order for merging branches: the index of the input record in its batch, then the number of each step
            that branched the flow, and the index among the records that a step has made of one. So the output of
            an earlier step comes first, as Kafka Streams forwards it. None as with `late_before`.
        olds: The rows before the changes, None for a new row. None: these are records, not changes.
        raw_values: The encoded values as they were read, and their codec; None after a step that has changed them.
        headers: The headers of each record, without the engine's; None: no record has any, or no step writes records.
    """

    codec: Codec[Any] | None
    raw_keys: Sequence[bytes] | None
    decoded_keys: Sequence[Any] | None
    values: Sequence[Any]
    times: Sequence[int]
    late_before: Sequence[int] | None
    order: Sequence[Order] | None
    olds: Sequence[Any] | None = None
    raw_values: "tuple[Codec[Any], Sequence[bytes | None]] | None" = None
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def keys(self) -> Sequence[Any]:
        """The decoded keys, decoded at first use."""
        if self.decoded_keys is None:
            assert self.codec is not None, "keys are there in one form or the other"
            assert self.raw_keys is not None, "keys are there in one form or the other"
            # The engine has skipped the records whose keys are poison.
            self.decoded_keys = self.codec.decode_many(self.raw_keys).values
        return self.decoded_keys

    @property
    def encoded_keys(self) -> Sequence[bytes]:
        """The encoded keys, for a step that keeps state by key: the builder refuses one after changed keys."""
        assert self.raw_keys is not None, "the builder refuses state after changed keys"
        return self.raw_keys

    def keyed_times(self) -> tuple[Sequence[bytes], Sequence[int], Sequence[int]]:
        """Return the encoded keys, the event times and `late_before`, for a step that keeps state by time."""
        assert self.late_before is not None, "the plan requests them"
        return self.encoded_keys, self.times, self.late_before

    def with_values(self, values: Sequence[Any], olds: Sequence[Any] | None = None) -> "Columns":
        """Return the same records with other values."""
        return replace(self, values=values, olds=olds, raw_values=None)

    def with_keys(self, keys: Sequence[Any]) -> "Columns":
        """Return the same records with other keys."""
        return replace(self, codec=None, raw_keys=None, decoded_keys=keys, raw_values=None)

    def paired(
        self, indexes: Sequence[int], values: Sequence[Any], times: Sequence[int], late_before: Sequence[int]
    ) -> "Columns":
        """Return one record for each of these indexes, in order, with another value and other times, and without headers."""
        raw_keys, order = self.encoded_keys, self.order
        keys = list(map(raw_keys.__getitem__, indexes))
        if order is not None:
            place = 0
            made: list[Order] = []
            for number, index in enumerate(indexes):
                place = place + 1 if number and indexes[number - 1] == index else 0
                made.append((*order[index], place))
            order = made
        return Columns(self.codec, keys, None, values, times, late_before, order)

    def by(self, codec: Codec[Any], raw_keys: Sequence[bytes]) -> "Columns":
        """Return the same records by other keys, encoded already."""
        return replace(self, codec=codec, raw_keys=raw_keys, decoded_keys=None, raw_values=None)

    def without_headers(self) -> "Columns":
        """Return the same records without headers: a result of several records has the headers of none."""
        return self if self.headers is None else replace(self, headers=None)

    def only_changes(self) -> "Columns":
        """Return the changes without those from no row to no row."""
        pairs = zip(self.values, self.olds or (), strict=True)
        return self.only([new is not None or old is not None for new, old in pairs])

    def only(self, keep: Sequence[Any]) -> "Columns":
        """Return the records whose `keep` is true."""
        if all(keep):
            return self
        return self._each(lambda column: list(compress(column, keep)))

    def at(self, indexes: Sequence[int]) -> "Columns":
        """Return the records with these indexes."""
        return self._each(lambda column: list(map(column.__getitem__, indexes)))

    def repeated(self, counts: Iterable[int]) -> "Columns":
        """Return each record as often as `counts` says."""
        counts = list(counts)
        made = self._each(lambda column: list(chain.from_iterable(map(repeat, column, counts))))
        if self.order is not None:
            made.order = [
                (*each, place)
                for each, count in zip(self.order, counts, strict=True)
                for place in range(count)
            ]
        return made

    def branched(self, step: int) -> "Columns":
        """Return the same records as they go to one of several steps, which has this number."""
        if self.order is None:
            return self
        made = self.with_values(self.values, self.olds)
        made.order = [(*each, step) for each in self.order]
        return made

    def joined(self, others: Sequence["Columns"]) -> "Columns":
        """Return these records and others of the same batch, in the order of the input."""
        every = [self, *others]
        keyed = all(each.raw_keys is not None for each in every)
        order = _concatenated([each.order for each in every])
        assert order is not None, "the plan requests it where branches are merged"
        whole = Columns(
            self.codec if keyed else None,
            _concatenated([each.raw_keys for each in every]) if keyed else None,
            None if keyed else _concatenated([each.keys for each in every]),
            list(chain.from_iterable(each.values for each in every)),
            list(chain.from_iterable(each.times for each in every)),
            _concatenated([each.late_before for each in every]),
            order,
            headers=_all_headers(every),
        )
        return whole.at(sorted(range(len(order)), key=order.__getitem__))

    def _each(self, change: Callable[[Sequence[Any]], Sequence[Any]]) -> "Columns":
        def changed(column: Sequence[Any] | None) -> Sequence[Any] | None:
            return None if column is None else change(column)

        return Columns(
            self.codec,
            changed(self.raw_keys),
            # Decoded again if a step needs them: usually none does, so they are not decoded here.
            None if self.raw_keys is not None else changed(self.decoded_keys),
            change(self.values),
            change(self.times),
            changed(self.late_before),
            changed(self.order),
            changed(self.olds),
            None if self.raw_values is None else (self.raw_values[0], change(self.raw_values[1])),
            changed(self.headers),
        )


def _all_headers(every: Sequence[Columns]) -> list[Headers] | None:
    """Return the headers of several columns joined into one; None if there are none."""
    if all(each.headers is None for each in every):
        return None
    return list(chain.from_iterable(each.headers or repeat((), len(each)) for each in every))


def _concatenated(columns: Sequence[Sequence[T] | None]) -> list[T] | None:
    """Return several columns joined into one; None if one of them is missing."""
    there = [column for column in columns if column is not None]
    return list(chain.from_iterable(there)) if len(there) == len(columns) else None


def emit(scope: Scope, stream: Stream[Any, Any], records: Columns) -> None:
    """Write records to a stream, with the bytes of their keys if it has the same codec."""
    raw = records.raw_keys if same_bytes(records.codec, stream.key) else None
    keys = () if raw is not None else records.keys
    times = {"timestamps_ms": timestamps_of(records.times), "late_before_ms": records.late_before}
    scope.emit_many(stream, keys, records.values, raw_keys=raw, headers=records.headers, **times)


def same_bytes(one: object, other: object) -> bool:
    """Return whether two codecs are known to encode keys equally, without calling them."""
    # Codecs without arguments are equal if their classes are; others only if they are the same object.
    return one is other or (
        type(one) is type(other) and one is not None and not getattr(one, "__dict__", True)
    )
