"""A batch's records as Arrow columns. Only this module imports Arrow, which comes with the extra `arrow`."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from microbatch.record import Record
from streamtable.errors import ConfigurationError


def columns(records: Sequence[Record[Any, Any]]) -> Any:
    """Return a `pyarrow.RecordBatch` with `key`, `value`, `offset`, `timestamp_ms`, one row for each record.

    An Avro record becomes a struct with the fields of the values. No `value` if the values have no common Arrow type.

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
    with suppress(pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):  # text and numbers, say
        found["value"] = pa.array([record.value for record in records])
    found["offset"] = pa.array([record.offset for record in records], pa.int64())
    found["timestamp_ms"] = pa.array([record.timestamp_ms for record in records], pa.timestamp("ms", "UTC"))
    return pa.RecordBatch.from_pydict(found)
