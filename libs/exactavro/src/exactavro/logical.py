"""Logical types: Python values in place of the numbers, bytes and texts that carry them.

The values are `datetime.date`, `time`, `datetime` (UTC; naive for the local kinds), `Decimal` and `UUID`. A value out
of range is an error in both directions, never a wrong value. Unknown logical types are ignored, as the Avro
specification requires.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple
from uuid import UUID

from exactavro.schema import Node, kind, logical

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the local kinds have no time zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)
_DAY_MICROS = 86_400_000_000


class Conversion(NamedTuple):
    """Both directions between the carrying value and the Python value; each raises ValueError, TypeError or ArithmeticError."""

    load: Callable[[Any], Any]
    dump: Callable[[Any], Any]


def conversion(node: Node) -> Conversion | None:
    """Return the conversion of a node's values; None if it has no known logical type."""
    name = (kind(node), logical(node) or "")
    if isinstance(node, dict) and name in {("bytes", "decimal"), ("fixed", "decimal")}:
        return _decimal(node["precision"], node.get("scale", 0), node.get("size"))
    return _CONVERSIONS.get(name)


def _timestamp(epoch: datetime, unit: timedelta) -> Conversion:
    first = (datetime.min.replace(tzinfo=epoch.tzinfo) - epoch) // unit
    last = (datetime.max.replace(tzinfo=epoch.tzinfo) - epoch) // unit

    def dump(value: Any) -> int:
        # Division rounds down to the unit, so a clock's microseconds can be encoded as milliseconds.
        number: int = (value - epoch) // unit
        if not first <= number <= last:
            raise ValueError("before the year 1 or after the year 9999 in UTC")
        return number

    return Conversion(lambda number: epoch + number * unit, dump)


def _time_of_day(unit_micros: int) -> Conversion:
    def load(number: int) -> time:
        if not 0 <= number * unit_micros < _DAY_MICROS:
            raise ValueError("not a time of day")
        return (_LOCAL_EPOCH + number * unit_micros * _MICROSECOND).time()

    def dump(value: Any) -> int:
        if not isinstance(value, time):  # a datetime has these fields too
            raise TypeError("must be a time")
        if value.tzinfo is not None:
            raise ValueError("a time of day has no time zone")
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) // unit_micros

    return Conversion(load, dump)


def _load_uuid(text: str) -> UUID:
    value = UUID(text)
    if str(value) != text.lower():  # `UUID` also takes braces, prefixes, underscores, and hyphens anywhere
        raise ValueError("not a UUID")
    return value


def _dump_uuid(value: Any) -> str:
    if not isinstance(value, UUID):
        raise TypeError("must be a UUID")
    return str(value)


def _dump_date(value: date) -> int:
    if isinstance(value, datetime):
        raise TypeError("must be a date without time")
    return value.toordinal() - _EPOCH_DAY


def _decimal(precision: int, scale: int, size: int | None) -> Conversion:
    limit = 10**precision
    exact = Context(prec=precision + scale + 1, traps=[InvalidOperation])

    def load(data: bytes) -> Decimal:
        unscaled = int.from_bytes(data, "big", signed=True)
        if not data or not -limit < unscaled < limit:
            raise ValueError(f"not a decimal of {precision} digits")
        return Decimal(unscaled).scaleb(-scale, exact)

    def dump(value: Any) -> bytes:
        if not isinstance(value, Decimal) or not value.is_finite():
            raise TypeError("must be a finite Decimal")
        if value and not -scale <= value.adjusted() <= precision - scale:
            raise ValueError(f"not a decimal of {precision} digits, {scale} after the point")
        numerator, denominator = value.as_integer_ratio()
        unscaled: int
        unscaled, rest = divmod(numerator * 10**scale, denominator)
        if rest or not -limit < unscaled < limit:
            raise ValueError(f"not a decimal of {precision} digits, {scale} after the point")
        bits: int = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
        return unscaled.to_bytes(bits // 8 + 1 if size is None else size, "big", signed=True)

    return Conversion(load, dump)


EXPECTED = {
    "date": "a date without time",
    "time-millis": "a time",
    "time-micros": "a time",
    "timestamp-millis": "a datetime with a time zone",
    "timestamp-micros": "a datetime with a time zone",
    "local-timestamp-millis": "a datetime without a time zone",
    "local-timestamp-micros": "a datetime without a time zone",
    "decimal": "a finite Decimal",
    "uuid": "a UUID",
}
"""The description of the values of each logical type, for errors."""

_CONVERSIONS = {
    ("int", "date"): Conversion(lambda days: date.fromordinal(days + _EPOCH_DAY), _dump_date),
    ("int", "time-millis"): _time_of_day(1_000),
    ("long", "time-micros"): _time_of_day(1),
    ("long", "timestamp-millis"): _timestamp(_EPOCH, _MILLISECOND),
    ("long", "timestamp-micros"): _timestamp(_EPOCH, _MICROSECOND),
    ("long", "local-timestamp-millis"): _timestamp(_LOCAL_EPOCH, _MILLISECOND),
    ("long", "local-timestamp-micros"): _timestamp(_LOCAL_EPOCH, _MICROSECOND),
    ("string", "uuid"): Conversion(_load_uuid, _dump_uuid),
}
