"""Logical types: Python values both ways, and values outside of their range."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactavro import Malformed, Schema, Unfit, decode, encode, make_reader, make_writer


class Codec:
    def __init__(self, schema: Any) -> None:
        loaded = Schema.load(schema)
        self._write, self._read = make_writer(loaded), make_reader(loaded)

    def encode(self, value: Any) -> bytes:
        return encode(self._write, value)

    def decode(self, data: bytes) -> Any:
        return decode(self._read, data)


def codec(carrier: Any, logical: Any, **more: Any) -> Codec:
    return Codec({"type": carrier, "logicalType": logical, **more})


MONEY = codec("bytes", "decimal", precision=6, scale=2)
UUIDS = codec("string", "uuid")


def number(value: Any) -> Any:
    return Codec("long").encode(value)


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (codec("int", "date"), date(1969, 12, 31)),
        (codec("int", "date"), date.max),
        (codec("int", "time-millis"), time(23, 59, 59, 999_000)),
        (codec("long", "time-micros"), time(0, 0, 0, 1)),
        (codec("long", "timestamp-millis"), datetime(1969, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC)),
        (codec("long", "timestamp-micros"), datetime.max.replace(tzinfo=UTC)),
        (codec("long", "local-timestamp-millis"), datetime(2106, 2, 7)),  # noqa: DTZ001 - the local kind has no zone
        (codec("long", "local-timestamp-micros"), datetime.min),  # noqa: DTZ901 - the local kind has no zone
        (UUIDS, UUID(int=7)),
        (MONEY, Decimal("9999.99")),
        (MONEY, Decimal("-0.01")),
        (codec("fixed", "decimal", name="F", size=3, precision=6, scale=2), Decimal("-9999.99")),
    ],
)
def test_values_at_the_edge_of_their_range_come_back(codec: Any, value: Any) -> None:
    assert codec.decode(codec.encode(value)) == value


@settings(deadline=None, database=None)
@given(st.decimals(min_value=Decimal("-9999.99"), max_value=Decimal("9999.99"), places=2))
def test_decimals_come_back_exactly(value: Any) -> None:
    assert MONEY.decode(MONEY.encode(value)) == value


@pytest.mark.parametrize("value", [-129, -128, 127, 128, 0, 255, -256])
def test_a_decimal_takes_the_bytes_that_java_would_give_it(value: Any) -> None:
    written = MONEY.encode(Decimal(value).scaleb(-2))[1:]
    assert int.from_bytes(written, "big", signed=True) == value
    assert len(written) == (1 if -128 <= value <= 127 else 2)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (codec("long", "timestamp-millis"), number(2**60)),
        (codec("long", "timestamp-micros"), number(-(2**60))),
        (codec("long", "local-timestamp-millis"), number(2**62)),
        (codec("int", "date"), number(2**30)),
        (codec("int", "date"), number(-(2**31))),
        (codec("int", "time-millis"), number(86_400_000)),
        (codec("int", "time-millis"), number(-1)),
        (codec("long", "time-micros"), number(2**62)),
        (UUIDS, number(3) + b"abc"),
        (UUIDS, number(38) + b"{00000000-0000-0000-0000-000000000000}"),
        (UUIDS, number(36) + b"00000000-0000-0000-0000-00000000000g"),
        (UUIDS, number(36) + b"00000000000000000000000000000000----"),
        (UUIDS, number(36) + b"0000_000-0000-0000-0000-000000000000"),
        (MONEY, number(0)),
        (MONEY, number(2000) + b"\x7f" * 2000),
        (MONEY, number(3) + (1_000_000).to_bytes(3, "big")),
    ],
)
def test_numbers_outside_of_the_range_are_malformed(codec: Any, data: Any) -> None:
    with pytest.raises(Malformed):
        codec.decode(data)


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (codec("int", "date"), datetime(2020, 1, 1, tzinfo=UTC)),
        (codec("int", "date"), 5),
        (codec("int", "time-millis"), time(1, tzinfo=UTC)),
        (codec("long", "time-micros"), datetime(2020, 1, 1)),  # noqa: DTZ001 - the mistake under test
        (codec("long", "timestamp-millis"), datetime(2020, 1, 1)),  # noqa: DTZ001 - the mistake under test
        (codec("long", "local-timestamp-millis"), datetime(2020, 1, 1, tzinfo=UTC)),
        (codec("long", "timestamp-micros"), datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
        (codec("long", "timestamp-millis"), datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))),
        (UUIDS, "00000000-0000-0000-0000-000000000000"),
        (MONEY, Decimal("0.001")),
        (MONEY, Decimal("1.001")),
        (MONEY, Decimal(10_000)),
        (MONEY, Decimal("NaN")),
        (MONEY, Decimal("1E+999999")),
        (MONEY, Decimal("1E-999999")),
        (MONEY, 1.5),
    ],
)
def test_values_that_do_not_fit_are_refused(codec: Any, value: Any) -> None:
    with pytest.raises(Unfit):
        codec.encode(value)


def test_a_datetime_in_a_union_with_a_time_of_day_keeps_its_date() -> None:
    either = Codec(
        [
            {"type": "int", "logicalType": "time-millis"},
            {"type": "long", "logicalType": "local-timestamp-micros"},
        ]
    )
    for value in (datetime(2024, 6, 1, 12), time(12)):  # noqa: DTZ001 - local
        assert either.decode(either.encode(value)) == value


def test_a_time_is_cut_to_the_unit_and_kept_to_the_instant() -> None:
    millis = codec("long", "timestamp-millis")
    noon = datetime(2024, 6, 1, 12, 0, 0, 1_999, tzinfo=timezone(timedelta(hours=2)))
    assert millis.decode(millis.encode(noon)) == datetime(2024, 6, 1, 10, 0, 0, 1_000, tzinfo=UTC)


@pytest.mark.parametrize("name", ["later", "timestamp-nanos", "local-timestamp-nanos"])
def test_a_logical_type_that_python_does_not_have_is_its_carrier(name: str) -> None:
    codec_of_later = codec("long", name)
    assert codec_of_later.decode(codec_of_later.encode(5)) == 5
