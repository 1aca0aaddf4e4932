"""Records as changes, up to the first that has none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from microbatch.buffer import Chunk
from streamtable.base.types import RecordBatch
from streamtable.errors import DeserializationError, StreamtableError
from streamtable_sinks.target import Changes, SinkChange, SinkSource


@dataclass(frozen=True)
class DecodedChanges:
    """The changes of a batch, or where it has to be cut.

    Attributes:
        changes: The changes, if no record is bad. Of a table the last of each key.
        good: The number of records before the first bad one.
        bad: The errors of that one and of those that follow it without a gap.
    """

    changes: Changes
    good: int
    bad: Sequence[StreamtableError]


def decoded(
    source: SinkSource, chunks: Sequence[Chunk], known: Mapping[int, StreamtableError]
) -> DecodedChanges:
    """Decode a batch.

    Args:
        source: The source.
        chunks: The records.
        known: The errors of records that the target has refused, by offset.
    """
    counts = _last_of_each_key(chunks) if source.is_table else None
    changes: list[SinkChange] = []
    good = 0
    for chunk in chunks:
        part, errors = _decoded(source, chunk.records, known, counts)
        if errors:
            first = end = min(errors)
            while end in errors:
                end += 1
            return DecodedChanges((), good + first, [errors[index] for index in range(first, end)])
        changes += part
        good += len(chunk.records)
    return DecodedChanges(changes, good, ())


def _last_of_each_key(chunks: Sequence[Chunk]) -> frozenset[int]:
    """Return the offsets of the last record of each key."""
    last: dict[bytes | None, int] = {}
    for chunk in chunks:
        last.update(zip(chunk.records.keys, chunk.records.offsets, strict=True))
    return frozenset(last.values())


def _decoded(
    source: SinkSource,
    records: RecordBatch,
    known: Mapping[int, StreamtableError],
    counts: frozenset[int] | None,
) -> tuple[list[SinkChange], dict[int, StreamtableError]]:
    """Return the changes of records, and the errors by index. `counts`: the offsets of those that count; None: all."""
    offsets = records.offsets
    indexes: Sequence[int] = range(len(records))
    raw_keys: Sequence[bytes | None] = records.keys
    raw_values: Sequence[bytes | None] = records.values
    if counts is not None:
        indexes = [index for index in indexes if offsets[index] in counts]
        raw_keys, raw_values = ([column[index] for index in indexes] for column in (raw_keys, raw_values))
    keys, values = source.key.decode_many(raw_keys), source.value.decode_many(raw_values)
    errors = _missing(source, indexes, raw_keys, raw_values)
    errors.update((indexes[at], error) for bad in (values.poison, keys.poison) for at, error in bad.items())
    if known:
        errors.update((index, known[offsets[index]]) for index in indexes if offsets[index] in known)
    times = records.timestamps()
    each = zip(indexes, keys.values, values.values, strict=True)
    return [SinkChange(key, value, offsets[index], times[index]) for index, key, value in each], errors


def _missing(
    source: SinkSource, indexes: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> dict[int, StreamtableError]:
    raw, what = (keys, "key") if source.is_table else (values, "value: a tombstone is no event")
    if None not in raw:
        return {}
    error = DeserializationError(f"the record has no {what}")
    return {index: error for index, data in zip(indexes, raw, strict=True) if data is None}
