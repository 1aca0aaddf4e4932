"""Each type as a column: valid bytes yield their value, and bytes that a reader would reject are marked bad."""

from typing import Any

import pytest

from exactavro import Malformed, Schema, decode, encode, make_reader, make_writer
from exactavro.columns import make_column_reader

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
FIXED = {"type": "fixed", "name": "F", "size": 3}
MB = 1_000_000


def record(*types: Any) -> Schema:
    fields = [{"name": f"f{number}", "type": node} for number, node in enumerate(types)]
    return Schema.load({"type": "record", "name": "R", "fields": fields})


GOOD: list[tuple[Any, list[Any]]] = [
    ("null", [None]),
    ("boolean", [True, False]),
    ("int", [0, -1, 63, -64, 64, 2**31 - 1, -(2**31)]),
    ("long", [0, 2**55 - 1, 2**55, -(2**55) - 1, 2**62 - 1, 2**62, 2**63 - 1, -(2**63)]),
    ("float", [0.5, -0.0, float("inf"), -3.5]),
    ("double", [5e-324, -0.0, 1e308, -1.0]),
    ("string", ["", "a", "é", "\x00", "x" * 63, "x" * 64, "\U0001f600" * 100, "x" * 10_000]),
    ("bytes", [b"", b"\xff", b"\x80" * 200]),
    ({"type": "string"}, ["a"]),
    (ENUM, ["A", "C"]),
    (FIXED, [b"abc", b"\xff\x00\x80"]),
]


@pytest.mark.parametrize(("node", "values"), GOOD, ids=lambda each: str(each)[:20])
@pytest.mark.parametrize("wrap", ["alone", "optional", "or null"])
def test_values_of_every_type_come_back_as_they_were(node: Any, values: list[Any], wrap: str) -> None:
    if wrap != "alone" and node != "null":
        node = ["null", node] if wrap == "optional" else [node, "null"]
        values = [None, *values, None]
    schema = record("long", node, "string")
    write = make_writer(schema)
    rows = [{"f0": number, "f1": value, "f2": "end"} for number, value in enumerate(values * 2)]
    reader = make_column_reader(schema, b"\xc3")
    assert reader is not None
    columns = reader.read([b"\xc3" + encode(write, row) for row in rows], MB)
    assert columns.unsure == []
    assert repr(columns.values()) == repr(rows)


BAD = [
    ("boolean", "02"),
    ("boolean", "ff"),
    ("boolean", ""),
    ("int", "8080808010"),  # 2**31
    ("int", "8180808010"),  # -2**31 - 1
    ("int", "ffffffff1f"),  # -2**32 and more
    ("int", "808080808000"),  # a zero of six bytes
    ("int", "80"),
    ("long", "ffffffffffffffffff02"),  # more than 64 bits
    ("long", "80808080808080808080"),
    ("long", "8080808080808080808000"),  # eleven bytes
    ("long", "ffffffffffffffff"),
    ("float", "000000"),
    ("double", "00000000000000"),
    ("string", "01"),  # a negative length
    ("string", "0461"),  # beyond the end
    ("string", "fcffffffffffffffff01"),  # 2**63 - 2
    ("string", "feffffffffffffffff01"),  # 2**63 - 1: the position after it has no 64 bits
    ("string", "ffffffffffffffffff01"),  # -2**63
    ("string", "02ff"),
    ("string", "04c3"),
    ("string", "06eda080"),  # a lone surrogate
    ("string", "04c080"),  # an overlong encoding of U+0000
    ("bytes", "01"),
    ("bytes", "0461"),
    ("bytes", "feffffffffffffffff01"),
    (ENUM, "06"),
    (ENUM, "01"),
    (ENUM, "808080808001"),
    (FIXED, "6162"),
    (["null", "string"], "04"),
    (["null", "string"], "01"),
    (["null", "string"], "02"),
    (["null", "string"], "0203"),
    (["string", "null"], "000261ff"),
    (["null", "int"], "028080808010"),
    ("null", "00"),
    ("long", "0000"),
]


@pytest.mark.parametrize(("node", "body"), BAD)
def test_what_a_reader_refuses_is_in_doubt_wherever_it_lies(node: Any, body: str) -> None:
    schema = record("long", node)
    good = b"P\x02" + {"null": b"", "boolean": b"\x01"}.get(str(node), good_bytes(node))
    bad = b"P\x02" + bytes.fromhex(body)
    with pytest.raises(Malformed):
        decode(make_reader(schema), bad, 1)
    reader = make_column_reader(schema, b"P")
    assert reader is not None
    for messages in ([bad], [bad, good], [good, bad], [good, bad, bad, good]):
        columns = reader.read(messages, MB)
        assert columns.unsure == [number for number, each in enumerate(messages) if each is bad]
        expected = decode(make_reader(schema), good, 1)
        assert columns.values() == [None if each is bad else expected for each in messages]


def good_bytes(node: Any) -> bytes:
    values = {str(known): values[0] for known, values in GOOD} | {str(["string", "null"]): None}
    return encode(make_writer(Schema.load(node)), values.get(str(node)))


def test_a_number_of_nine_bytes_takes_nothing_of_what_follows_it() -> None:
    schema = record("long", "long")
    rows = [{"f0": number, "f1": -1} for number in (2**55, 2**61, -(2**55) - 1)]
    reader = make_column_reader(schema, b"")
    assert reader is not None
    assert reader.read([encode(make_writer(schema), row) for row in rows], MB).values() == rows


def test_an_index_of_more_bytes_than_needed_is_left_to_the_reader() -> None:
    schema = record(["null", "long"])
    reader = make_column_reader(schema, b"")
    assert reader is not None
    assert decode(make_reader(schema), b"\x82\x00\x0a") == {"f0": 5}
    assert reader.read([b"\x82\x00\x0a", b"\x02\x0a"], MB).unsure == [0]


def test_numbers_of_more_bytes_than_needed_are_read_as_the_reader_reads_them() -> None:
    schema = record("long")
    reader = make_column_reader(schema, b"")
    assert reader is not None
    messages = [b"\x8a" + b"\x80" * size + b"\x00" for size in range(9)]
    columns = reader.read(messages, MB)
    assert columns.unsure == []
    assert columns.values() == [decode(make_reader(schema), each) for each in messages]


@pytest.mark.parametrize(
    "node",
    [
        {"type": "array", "items": "long"},
        {"type": "map", "values": "long"},
        {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "long"}]},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "fixed", "name": "Nothing", "size": 0},
        ["null", {"type": "int", "logicalType": "date"}],
        ["null"],
        ["long"],
        ["long", "string"],
        ["null", "long", "string"],
        ["null", {"type": "array", "items": "long"}],
    ],
)
def test_other_types_are_not_read_this_way(node: Any) -> None:
    assert make_column_reader(record("long", node), b"") is None
