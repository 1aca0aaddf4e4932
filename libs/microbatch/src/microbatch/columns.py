"""A batch's records as Arrow columns. Only this module imports Arrow, which comes with the extra `arrow`."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from itertools import chain
from typing import Any

from microbatch.record import Record
from streamtable.errors import ConfigurationError

_NUMBERS = frozenset({int, float, Decimal})
_LISTS = (list, tuple, set, frozenset)


def columns(records: Sequence[Record[Any, Any]]) -> Any:
    """Return a `pyarrow.RecordBatch` with `key`, `value`, `offset`, `timestamp_ms`, one row for each record.

    An Avro record becomes a struct with the fields of the values. No `key`, or no `value`, if they have no common Arrow type, or
    are of several types other than numbers, times with and without a time zone, or whole numbers from 2^63 on.

    Raises:
        ConfigurationError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - 40 MB, needed only for columns
    except ImportError as error:
        raise ConfigurationError("columns need pyarrow: pip install streamtable-microbatch[arrow]") from error
    found = {}
    for name in ("key", "value"):
        values = [getattr(record, name) for record in records]
        # Text and numbers, say, or whole numbers from 2^63 on, or text that UTF-8 cannot hold. Arrow's errors are among these.
        with suppress(ValueError, TypeError, NotImplementedError, OverflowError):
            column = pa.array(values)
            if not _loses(column.type, values):
                found[name] = column
    found["offset"] = pa.array([record.offset for record in records], pa.int64())
    found["timestamp_ms"] = pa.array([record.timestamp_ms for record in records], pa.timestamp("ms", "UTC"))
    return pa.RecordBatch.from_pydict(found)


def _loses(arrow: Any, values: Sequence[Any]) -> bool:
    """Return whether Arrow has made others of values, without an error: bytes of text, dates of times, or times of numbers."""
    kinds = set(map(_kind, values)) - {type(None)}
    if dict in kinds:
        rows = [each for each in values if each]
        return any(_loses(part.type, [each.get(part.name) for each in rows]) for part in arrow)
    if kinds & {*_LISTS}:
        return _loses(arrow.value_type, [*chain.from_iterable(each for each in values if each)])
    zones = {each.tzinfo is None for each in values if isinstance(each, datetime | time)}
    several = len(kinds) > 1 and not kinds <= _NUMBERS
    return several or len(zones) > 1 or (time in kinds and False in zones)  # Arrow drops the zone of a time


def _kind(value: Any) -> type:
    """Return the type that Arrow takes a value for: of an enum's member, or of a named tuple, the type that it extends."""
    kind = next(each for each in type(value).__mro__ if not issubclass(each, Enum))
    return next((base for base in (dict, *_LISTS) if issubclass(kind, base)), kind)
