"""A value that fits exactly is written in the shortest form; any other is rejected with its place."""

import math
from decimal import Decimal
from fractions import Fraction
from struct import pack, unpack
from typing import Any

import numpy as np
import pytest

import exactavro
from exactavro import Schema, Unfit, make_writer

ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "a", "type": "int"},
        {"name": "b", "type": {"type": "record", "name": "S", "fields": [{"name": "c", "type": "string"}]}},
        {"name": "d", "type": ["null", "string"], "default": None},
    ],
}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def encode(schema: Any, value: Any) -> bytes:
    return exactavro.encode(make_writer(Schema.load(schema)), value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("int", 2**31),
        ("int", -(2**31) - 1),
        ("int", 1.0),
        ("int", True),
        ("long", 2**63),
        ("long", -(2**63) - 1),
        ("long", 10**400),
        ("long", 1.5),
        ("long", "1"),
        ("long", False),
        ("long", None),
        ("string", b"x"),
        ("string", 5),
        ("string", "\ud800"),
        ("bytes", "x"),
        ("bytes", 5),
        ("boolean", 1),
        ("boolean", "x"),
        ("float", 1e300),
        ("float", True),
        ("double", 10**400),
        ("double", "1"),
        ("double", True),
        (ENUM, "Z"),
        (ENUM, 0),
        (ENUM, ["A"]),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab"),
        ({"type": "array", "items": "string"}, "abc"),
        ({"type": "array", "items": "int"}, [1, None]),
        ({"type": "map", "values": "int"}, [("a", 1)]),
        ({"type": "map", "values": "int"}, {1: 1}),
        (["null", "int"], 2**31),
        (["null", "string"], 5),
        (["int", "string"], None),
    ],
)
def test_a_value_that_does_not_fit_is_refused(schema: Any, value: Any) -> None:
    with pytest.raises(Unfit):
        encode(schema, value)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": "x", "b": {"c": ""}, "d": None}, r"^\.a: must be an int, not str"),
        ({"a": 1, "b": {"c": 5}, "d": None}, r"^\.b\.c: must be a str"),
        ({"a": 1, "b": {"c": ""}, "d": None, "e": 1}, "unknown fields: e"),
        ({"a": 1, "b": {"c": ""}, "e": None}, "unknown fields: e"),
        ({"a": 1, "d": None}, r"^\.b: missing"),
        ({}, r"^\.a: missing"),
        ([1, {"c": ""}, None], "must be a dict"),
        (None, "must be a dict"),
    ],
)
def test_an_invalid_record_is_reported_with_the_place_of_the_error(value: Any, place: str) -> None:
    with pytest.raises(Unfit, match=place):
        encode(ROW, value)


def test_a_missing_field_is_written_as_its_default() -> None:
    assert encode(ROW, {"a": 1, "b": {"c": ""}}) == encode(ROW, {"a": 1, "b": {"c": ""}, "d": None})


@pytest.mark.parametrize(
    ("union", "value", "data"),
    [
        (["null", "int"], None, "00"),
        (["int", "null"], None, "02"),
        (["float", "double", "long"], 1, "0402"),
        (["float", "double"], 0.1, "029a9999999999b93f"),
        (["int", "long"], 2**40, "02" + "808080808040"),
        (["long", "boolean"], True, "0201"),
        (["bytes", "string"], "a", "020261"),
        ([{"type": "map", "values": "int"}, ROW], {"a": 1, "b": {"c": ""}}, "02" + "020000"),
    ],
)
def test_a_union_takes_the_branch_that_keeps_the_value_whole(union: Any, value: Any, data: str) -> None:
    assert encode(union, value).hex() == data


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 5])
def test_doubles_take_every_number(value: float) -> None:
    assert len(encode("double", value)) == 8


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("double", 2**53 + 1),
        ("double", -(2**53) - 1),
        ("double", Decimal("0.1")),
        ("double", Fraction(1, 3)),
        ("double", np.int64(2**53 + 1)),
        ("float", 2**24 + 1),
        ({"type": "array", "items": "double"}, [0.5, 2**60 + 1]),
    ],
)
def test_a_number_that_is_no_float_is_refused_where_it_would_be_rounded(schema: Any, value: Any) -> None:
    with pytest.raises(Unfit, match="would be rounded"):
        encode(schema, value)


@pytest.mark.parametrize("value", [2**53, Decimal("0.5"), Decimal("nan"), np.float32(0.1), np.float64(0.1)])
def test_a_number_of_another_type_is_written_where_a_double_holds_it(value: Any) -> None:
    assert encode("double", value) == pack("<d", value)
    assert encode("float", np.float64(0.1)) == pack("<f", 0.1)


@pytest.mark.parametrize("schema", ["bytes", {"type": "fixed", "name": "F", "size": 6}])
def test_a_view_of_items_of_several_bytes_is_written_as_its_bytes(schema: Any) -> None:
    items = memoryview(b"abcdef").cast("H")
    assert encode(schema, items) == encode(schema, items.tobytes())


def test_an_int_subclass_is_a_number_and_a_str_subclass_is_text() -> None:
    class Number(int):
        pass

    class Text(str):
        __slots__ = ()

    assert encode("long", Number(1)) == b"\x02"
    assert encode("string", Text("a")) == b"\x02a"


def groups_of_seven(number: int) -> bytes:
    """Return the varint of a zigzag number as the specification describes it."""
    groups = []
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def test_every_length_of_a_long_is_written_as_the_specification_says() -> None:
    by_itself = make_writer(Schema.load("long"))
    in_a_record = make_writer(
        Schema.load({"type": "record", "name": "Row", "fields": [{"name": "at", "type": "long"}]})
    )
    edges = {sign * (1 << bits) + beside for bits in range(63) for sign in (1, -1) for beside in (-1, 0, 1)}
    for value in sorted(edges | {2**63 - 1, -(2**63)}):
        expected = groups_of_seven(value * 2 if value >= 0 else -value * 2 - 1)
        assert by_itself(value) == expected
        assert in_a_record({"at": value}) == expected


@pytest.mark.parametrize("prefix", [b"", b"\xc3\x01 100 %b"])
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("long", 300),
        (["null", "long"], None),
        ({"type": "array", "items": "long"}, []),
        ({"type": "record", "name": "Nothing", "fields": []}, {}),
        (ROW, {"a": 1, "b": {"c": "x"}, "d": "y"}),
        (ROW, {"a": 1, "b": {"c": "x"}}),  # which takes the default
    ],
)
def test_a_prefix_stands_once_in_front_of_a_value_of_any_kind(prefix: bytes, schema: Any, value: Any) -> None:
    loaded = Schema.load(schema)

    assert make_writer(loaded, prefix)(value) == prefix + make_writer(loaded)(value)


def test_a_dict_of_another_class_has_the_same_prefix() -> None:
    class Row(dict[str, Any]):
        pass

    row = {"a": 1, "b": {"c": "x"}, "d": None}
    write = make_writer(Schema.load(ROW), b"before")

    assert write(Row(row)) == write(row)


@pytest.mark.parametrize(
    ("union", "value"),
    [
        (["int", "double"], 2**53 + 1),
        (["double", "int"], -(2**53) - 1),
        (["long", "double"], 2**63 + 1),
        (["int", "float"], 2**31 + 1),
        (["float", "double"], 2**53 + 1),
        (["null", "string", "float"], 2**24 + 1),
        (["int", "double"], 10**400),
    ],
)
def test_a_union_refuses_a_whole_number_that_none_of_its_branches_holds_exactly(
    union: Any, value: int
) -> None:
    with pytest.raises(Unfit, match="fits no branch"):
        encode(union, value)


@pytest.mark.parametrize(
    ("union", "value"), [(["int", "double"], 2**53), (["int", "float", "double"], 2**31 + 1)]
)
def test_a_union_takes_a_float_branch_that_holds_a_whole_number_exactly(union: Any, value: int) -> None:
    assert unpack("<d", encode(union, value)[1:]) == (value,)


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ({"type": "array", "items": "int"}, [1, "x"], "[1]: must be an int, not str"),
        ({"type": "map", "values": "int"}, {"a": 1, "k": "x"}, "['k']: must be an int, not str"),
        (
            {"type": "array", "items": {"type": "map", "values": "int"}},
            [{"k": ""}],
            "[0]['k']: must be an int",
        ),
        ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "Z", "must be one of X, Y, not 'Z'"),
        ({"type": "int", "logicalType": "date"}, "x", "must be a date without time, not str"),
        ({"type": "int", "logicalType": "time-millis"}, 5, "must be a time, not int"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            "x",
            "must be a datetime with a time zone, not str",
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            5,
            "must be a datetime without a time zone, not",
        ),
    ],
)
def test_an_error_names_the_place_and_the_expected_value(schema: Any, value: Any, text: str) -> None:
    with pytest.raises(Unfit) as caught:
        encode(schema, value)
    assert text in str(caught.value)
