"""The rows of the shop, as a program declares them."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from msgspec import Struct

from streamtable_capture import (
    BITS,
    DATE,
    GEOMETRY,
    JSON_TEXT,
    MICRO_DURATION,
    MICRO_TIME,
    MICRO_TIMESTAMP,
    TIME,
    TIMESTAMP,
    VARIABLE_SCALE_DECIMAL,
    decimal_bytes,
)


class Customer(Struct):
    id: int
    name: str
    active: bool
    bio: str | None = None


class Line(Struct):
    order_id: int
    line: int
    qty: int


class Typed(Struct):
    """Each column as its semantic type, declared as a topic without schemas needs it."""

    id: int
    i2: int | None
    r: float | None
    d: float | None
    n: Annotated[Decimal, decimal_bytes(2)] | None
    vn: Annotated[Decimal, VARIABLE_SCALE_DECIMAL] | None
    b: bytes | None
    u: UUID | None
    j: Annotated[Any, JSON_TEXT]
    jb: str | None
    dt: Annotated[date, DATE] | None
    tm: Annotated[time, TIME] | None
    tmu: Annotated[time, MICRO_TIME] | None
    ts3: Annotated[datetime, TIMESTAMP] | None
    ts: Annotated[datetime, MICRO_TIMESTAMP] | None
    tz: datetime | None
    iv: Annotated[timedelta, MICRO_DURATION] | None
    bits: Annotated[int, BITS] | None
    e: str | None
    arr: list[int] | None
    pt: Annotated[bytes, GEOMETRY] | None


class BareTyped(Struct):
    """The same columns without annotations, as a topic with schemas needs no more."""

    id: int
    i2: int | None
    r: float | None
    d: float | None
    n: Decimal | None
    vn: Decimal | None
    b: bytes | None
    u: UUID | None
    j: Any
    jb: str | None
    dt: date | None
    tm: time | None
    tmu: time | None
    ts3: datetime | None
    ts: datetime | None
    tz: datetime | None
    iv: timedelta | None
    bits: int | None
    e: str | None
    arr: list[int] | None
    pt: bytes | None
