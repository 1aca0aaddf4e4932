"""A batch's records as Arrow columns. Only this module imports Arrow, which comes with the extra `arrow`."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime
from itertools import chain
from typing import Any

from microbatch.record import Record
from streamtable.errors import ConfigurationError


def columns(records: Sequence[Record[Any, Any]]) -> Any:
    """Return a `pyarrow.RecordBatch` with `key`, `value`, `offset`, `timestamp_ms`, one row for each record.

    An Avro record becomes a struct with the fields of the values. No `value` if the values have no common Arrow type, or
    are dates and datetimes, text and bytes, or whole numbers from 2^63 on.

    Raises:
        ConfigurationError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - 40 MB, needed only for columns
    except ImportError as error:
        raise ConfigurationError(
            "columns need pyarrow: install streamtable-microbatch with its extra [arrow]"
        ) from error
    found = {"key": pa.array([record.key for record in records])}
    values = [record.value for record in records]
    # Text and numbers, say, or whole numbers from 2^63 on.
    with suppress(pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        column = pa.array(values)
        if not _loses(column.type, values):
            found["value"] = column
    found["offset"] = pa.array([record.offset for record in records], pa.int64())
    found["timestamp_ms"] = pa.array([record.timestamp_ms for record in records], pa.timestamp("ms", "UTC"))
    return pa.RecordBatch.from_pydict(found)


def _loses(arrow: Any, values: Sequence[Any]) -> bool:
    """Return whether Arrow has cut times to dates, or made bytes of text, as it does without an error."""
    kinds = set(map(type, values))
    if dict in kinds:
        rows = [each for each in values if each]
        return any(_loses(part.type, [each.get(part.name) for each in rows]) for part in arrow)
    if kinds & {list, tuple}:
        return _loses(arrow.value_type, [*chain.from_iterable(each for each in values if each)])
    return {date, datetime} <= kinds or {str, bytes} <= kinds
