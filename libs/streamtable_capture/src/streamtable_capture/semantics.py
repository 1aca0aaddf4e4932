"""Debezium's semantic types: how the connectors write dates, times, decimals and the like in JSON, and what they become.

A topic with schemas names the semantic type of each column. In a topic without schemas a date is a bare number, so the type
of the row says what it counts:

    class Order(msgspec.Struct):
        id: int
        placed: Annotated[datetime, MICRO_TIMESTAMP]
        total: Annotated[Decimal, decimal_bytes(scale=2)]
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Meta

EXTRA = "debezium"
"""The name in `Meta(extra=)` under which a field's `Semantic` is."""
Converter = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - columns without a time zone are datetimes without one
_EPOCH_DAY = date(1970, 1, 1)
_DAY_NS = 86_400_000_000_000


@dataclass(frozen=True)
class Semantic:
    """A semantic type.

    Attributes:
        name: Its name in Connect's schemas.
        scale: Of decimals: the number of digits behind the point; None if the schema says it, or each value.
    """

    name: str
    scale: int | None = None


def _meta(name: str, scale: int | None = None) -> Meta:
    return Meta(extra={EXTRA: Semantic(name, scale)})


DATE = _meta("io.debezium.time.Date")
"""Days since 1970: a `date`."""
TIME = _meta("io.debezium.time.Time")
"""Milliseconds since midnight: a `time`."""
MICRO_TIME = _meta("io.debezium.time.MicroTime")
"""Microseconds since midnight: a `time`."""
NANO_TIME = _meta("io.debezium.time.NanoTime")
"""Nanoseconds since midnight: a `time`, cut to microseconds."""
TIMESTAMP = _meta("io.debezium.time.Timestamp")
"""Milliseconds since 1970 without a time zone: a `datetime` without one."""
MICRO_TIMESTAMP = _meta("io.debezium.time.MicroTimestamp")
"""Microseconds since 1970 without a time zone: a `datetime` without one."""
NANO_TIMESTAMP = _meta("io.debezium.time.NanoTimestamp")
"""Nanoseconds since 1970 without a time zone: a `datetime` without one, cut to microseconds."""
MICRO_DURATION = _meta("io.debezium.time.MicroDuration")
"""Microseconds: a `timedelta`. The connector counts a year of an interval as 365.25 days, and a month as a twelfth."""
VARIABLE_SCALE_DECIMAL = _meta("io.debezium.data.VariableScaleDecimal")
"""A `numeric` without a scale: a `Decimal`."""
JSON_TEXT = _meta("io.debezium.data.Json")
"""JSON in a text: the value that it holds, or the text where the field is a `str`."""
BITS = _meta("io.debezium.data.Bits")
"""Bits as little-endian bytes: an `int`, or the bytes where the field is `bytes`."""
GEOMETRY = _meta("io.debezium.data.geometry.Geometry")
"""A geometry: its well-known binary where the field is `bytes`, else the object with `wkb` and `srid`."""


def decimal_bytes(scale: int) -> Meta:
    """Return the semantic type of a decimal that is written as bytes (`decimal.handling.mode=precise`): a `Decimal`.

    Args:
        scale: The digits behind the point, as the column declares them.
    """
    return _meta(_DECIMAL, scale)


def _bytes(value: str | bytes) -> bytes:
    """Return bytes, which JSON has in base64."""
    return value if isinstance(value, bytes) else b64decode(value, validate=True)


def _decimal(encoded: str | bytes, scale: int) -> Decimal:
    number = int.from_bytes(_bytes(encoded), "big", signed=True)
    return Decimal(f"{number}E{-scale}")  # whole: arithmetic rounds to the 28 digits of its context


def _variable_decimal(value: Mapping[str, Any]) -> Decimal:
    return _decimal(value["value"], value["scale"])


def _time(unit_ns: int) -> Converter:
    def convert(value: int) -> time:
        nanoseconds = value * unit_ns
        if not 0 <= nanoseconds < _DAY_NS:
            raise ValueError(f"{value} is not a time of day that Python has (24:00:00 is none)")
        return (_EPOCH + timedelta(microseconds=nanoseconds // 1000)).time()

    return convert


def _timestamp(unit_ns: int) -> Converter:
    return lambda value: _EPOCH + timedelta(microseconds=value * unit_ns // 1000)


def _day(value: int) -> date:
    return _EPOCH_DAY + timedelta(days=value)


def _bits(value: str | bytes) -> int:
    return int.from_bytes(_bytes(value), "little")


def _geometry(value: Mapping[str, Any]) -> bytes:
    return _bytes(value["wkb"])


_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MS, _US, _NS = 1_000_000, 1_000, 1
_CONVERTERS: Mapping[str, tuple[type, Converter]] = {
    "io.debezium.time.Date": (date, _day),
    "org.apache.kafka.connect.data.Date": (date, _day),
    "io.debezium.time.Time": (time, _time(_MS)),
    "org.apache.kafka.connect.data.Time": (time, _time(_MS)),
    "io.debezium.time.MicroTime": (time, _time(_US)),
    "io.debezium.time.NanoTime": (time, _time(_NS)),
    "io.debezium.time.Timestamp": (datetime, _timestamp(_MS)),
    "org.apache.kafka.connect.data.Timestamp": (datetime, _timestamp(_MS)),
    "io.debezium.time.MicroTimestamp": (datetime, _timestamp(_US)),
    "io.debezium.time.NanoTimestamp": (datetime, _timestamp(_NS)),
    "io.debezium.time.MicroDuration": (timedelta, lambda value: timedelta(microseconds=value)),
    "io.debezium.data.VariableScaleDecimal": (Decimal, _variable_decimal),
    "io.debezium.data.Bits": (int, _bits),
    "io.debezium.data.geometry.Geometry": (bytes, _geometry),
    "io.debezium.data.geometry.Geography": (bytes, _geometry),
    "io.debezium.data.geometry.Point": (bytes, _geometry),
}
"""By name: the type that a field must have for its values to be converted, and the converter."""


def converter(semantic: Semantic, wanted: frozenset[type]) -> Converter | None:
    """Return the function that converts a column's JSON value; None if the value is right as it is.

    Args:
        semantic: The semantic type of the column.
        wanted: The types of the row's field, without None; empty for a field of any type.
    """
    if semantic.name == "io.debezium.data.Json":
        return None if str in wanted else msgspec.json.decode
    if semantic.name == _DECIMAL:
        scale = semantic.scale
        if scale is None or (wanted and Decimal not in wanted):
            return None
        return lambda value: _decimal(value, scale)
    made, function = _CONVERTERS.get(semantic.name, (None, None))
    return function if made is not None and (not wanted or made in wanted) else None
