"""Values as bytes that are in the same order as the values, so that a store keeps them in order."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import isinf, isnan
from struct import Struct
from typing import Any
from uuid import UUID

_EXPONENT = Struct(">I")
_EXPONENT_ZERO = 1 << 31
_INVERTED = bytes(range(255, -1, -1))
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ordered_bytes(value: Any, *, descending: bool = False) -> bytes:
    """Encode a value so that the order of the bytes is the order of the values. No result is a prefix of another.

    Equal numbers are the same bytes, whatever their types; NaN is greater than all others. Values of different kinds, such as
    a number and a text, have an order, but no defined one.

    Args:
        value: An int, float, Decimal, str, bytes, date, datetime, time, timedelta or UUID, or a tuple or list of them.
        descending: Make the order of the bytes the opposite.

    Raises:
        TypeError: The value is of another type.
    """
    data = _encoded(value)
    return inverted(data) if descending else data


def inverted(data: bytes) -> bytes:
    """Return bytes that are in the opposite order, if none is a prefix of another."""
    return data.translate(_INVERTED)


def _encoded(value: Any) -> bytes:  # noqa: PLR0911 - one for each type
    match value:
        case int() | float() | Decimal():
            return b"\x01" + _number(value)
        case str():
            return b"\x02" + _ended(value.encode("utf-8", "surrogatepass"))
        case bytes():
            return b"\x03" + _ended(value)
        case datetime():
            aware = value.tzinfo is not None
            since = (value if aware else value.replace(tzinfo=UTC)) - _EPOCH
            return (b"\x04" if aware else b"\x05") + _number(since // _MICROSECOND)
        case date():
            return b"\x06" + _number(value.toordinal())
        case time() if value.tzinfo is None:
            return b"\x07" + _ended(value.isoformat("microseconds").encode())
        case timedelta():
            return b"\x08" + _number(value // _MICROSECOND)
        case UUID():
            return b"\x09" + value.bytes
        case tuple() | list():
            return b"\x0a" + b"".join(b"\x01" + _encoded(each) for each in value) + b"\x00"
    raise TypeError(
        f"a value of type {type(value).__name__} cannot be kept in order: take a number, a text, a time, or a tuple of them"
    )


def _number(value: float | Decimal) -> bytes:
    if isinstance(value, int):
        negative, text = value < 0, str(abs(value))
        exponent, digits = len(text) - 1, text.rstrip("0")
    elif isnan(value):
        return b"\x05"
    elif isinf(value):
        return b"\x00" if value < 0 else b"\x04"
    else:
        exact = Decimal(value)
        parts = exact.as_tuple()
        negative, exponent = bool(parts.sign), exact.adjusted()
        digits = "".join(map(str, parts.digits)).strip("0")
    if not digits:
        return b"\x02"
    data = _EXPONENT.pack(exponent + _EXPONENT_ZERO) + digits.encode() + b"\x00"
    return b"\x01" + inverted(data) if negative else b"\x03" + data


def _ended(data: bytes) -> bytes:
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"
