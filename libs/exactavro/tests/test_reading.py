"""Readers check every byte."""

import math
import subprocess
import sys
from typing import Any

import pytest

import exactavro
from exactavro import Malformed, Schema, encode, make_reader, make_writer
from exactavro.reading import ITEM_NODES_MAX, Blocks

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
FIXED = {"type": "fixed", "name": "F", "size": 4}
ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "n", "type": "int"},
        {"name": "e", "type": ENUM},
        {"name": "u", "type": ["null", "double"]},
        {"name": "l", "type": {"type": "array", "items": "long"}},
    ],
}
ROW_VALUE = {"id": "x", "n": -5, "e": "B", "u": 1.5, "l": [1, 300]}


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


def mapping(values: Any) -> Any:
    return {"type": "map", "values": values}


def record(*fields: Any, name: str = "R", **more: Any) -> Any:
    fields_of = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return {"type": "record", "name": name, "fields": fields_of, **more}


def decode(schema: Any, data: str | bytes) -> Any:
    raw = bytes.fromhex(data) if isinstance(data, str) else data
    return exactavro.decode(make_reader(Schema.load(schema)), raw)


LONG_MAX = "fe" + "ff" * 8 + "01"  # 2**63 - 1
LONG_MIN = "ff" * 9 + "01"

POISON = [
    ("string", "", "middle"),
    ("string", "04", "runs 2 bytes over the end"),
    ("string", "0161", "negative"),
    ("string", "03616263", "negative"),
    ("string", "02ff", "utf-8"),
    ("string", "04c080", "utf-8"),
    ("string", "06eda080", "utf-8"),
    ("string", "8080808010", "over the end"),  # 2**31
    ("string", "8080808080808080" + "80" + "01", "negative|over the end"),  # 2**62 and beyond
    ("string", LONG_MIN, "negative"),
    ("string", LONG_MAX, "over the end"),
    ("bytes", "01", "negative"),
    ("bytes", "0261" + "00", "are left"),
    ("long", "ff", "middle"),
    ("long", "ff" * 9 + "02", "64 bits"),
    ("long", "ff" * 9 + "7f", "64 bits"),
    ("long", "80" * 10 + "01", "10 bytes"),
    ("long", "ff" * 20 + "01", "10 bytes"),
    ("long", "0000", "1 bytes are left"),
    ("int", "8080808010", "32 bits"),  # 2**31
    ("int", "8180808010", "32 bits"),  # -2**31 - 1
    ("int", "808080808040", "32 bits"),  # 2**40
    ("int", "808080808000", "5 bytes"),  # a zero in six bytes
    ("boolean", "02", "boolean"),
    ("boolean", "07", "boolean"),
    ("boolean", "ff", "boolean"),
    ("float", "000000", "middle"),
    ("double", "00" * 7, "middle"),
    ("double", "00" * 9, "1 bytes are left"),
    (FIXED, "000000", "over the end"),
    (ENUM, "01", "symbol -1"),
    (ENUM, "06", "symbol 3"),
    (ENUM, "ffffffff0f", "symbol -2147483648"),
    (["null", "string"], "01", "branch -1"),
    (["null", "string"], "04", "branch 2"),
    (["null", "string"], "0261", "negative"),
    (array("long"), "", "middle"),
    (array("long"), "0202", "middle"),
    (array("long"), LONG_MAX, "block of 9223372036854775807"),
    (array("long"), LONG_MIN + "00", "block of"),
    (array("long"), "808080808040", "block of"),
    (array("long"), "03080202" + "00", "block"),  # two items in 4 bytes, says the block; they take two
    (array("long"), "0301" + "020200", "block of -1"),
    (array("long"), "0306" + "020200", "another size"),  # three bytes, says the block; they take two
    (mapping("long"), "0108" + "02610200", "another size"),
    (array("double"), "04" + "00" * 9, "block of 2"),
    (array(array("long")), "02" + LONG_MAX, "block of"),
    (mapping("long"), "02" + LONG_MAX, "block of|negative|end"),
    (mapping("long"), "04" + "026102" + "026104" + "00", "same key twice"),
    (mapping("long"), "02" + "02ff02" + "00", "utf-8"),
    (record(("a", record(("b", "boolean"), name="S"))), "05", r"^\.a\.b: a boolean"),
    (
        record(("a", "bytes"), ("b", "null"), ("c", "int")),
        "08" + "00" * 2,
        r"^\.a: runs 2 bytes over the end",
    ),
    (ROW, "4f626a01" + "00" * 40, "negative"),  # the first bytes of a container file
]


@pytest.mark.parametrize(("schema", "data", "reason"), POISON)
def test_bytes_that_are_not_what_the_schema_says_are_refused(schema: Any, data: str, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        decode(schema, data)


def test_every_proper_prefix_of_a_record_is_refused_and_so_is_one_byte_more() -> None:
    data = encode(make_writer(Schema.load(ROW)), ROW_VALUE)
    for wrong in (*(data[:end] for end in range(len(data))), data + b"\x00"):
        with pytest.raises(Malformed):
            decode(ROW, wrong)
    assert decode(ROW, data) == ROW_VALUE


def test_a_value_may_begin_behind_a_prefix() -> None:
    assert exactavro.decode(make_reader(Schema.load("string")), b"\xc3\x01\x02a", 2) == "a"


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ("long", LONG_MAX, 2**63 - 1),
        ("long", LONG_MIN, -(2**63)),
        ("long", "8000", 0),  # longer than need be, as some writers pad
        ("int", "ffffffff0f", -(2**31)),
        ("double", "000000000000f07f", math.inf),
        ("double", "0000000000000080", 0.0),
        ("string", "0ac3a9e282ac", "é€"),
        (array("long"), "03040202" + "0102" + "0400", [1, 1, 2]),  # two blocks that tell their sizes
        (array("long"), "0202" + "0204" + "00", [1, 2]),  # two blocks
        (mapping("long"), "0106026102" + "00", {"a": 1}),
        (array("string"), "00", []),
    ],
)
def test_unusual_but_lawful_bytes_are_read(schema: Any, data: str, value: Any) -> None:
    assert decode(schema, data) == value


def test_nan_is_a_double_like_any_other() -> None:
    assert math.isnan(decode("double", "000000000000f87f"))


def test_a_list_nested_as_deep_as_schemas_may_be_is_read() -> None:
    schema: Any = "int"
    for _ in range(60):
        schema = array(schema)
    assert decode(schema, b"\x02" * 60 + b"\x02" + b"\x00" * 60)
    with pytest.raises(Malformed):
        decode(schema, b"\x02" * 10_000)


HUNGRY = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (700_000_000, 700_000_000))
from exactavro import Malformed, Schema, decode, make_reader
many = bytes.fromhex("80808080800400")
wide = {"type": "record", "name": "W", "fields": [{"name": "b", "type": "boolean"}]}
now = {**wide, "fields": wide["fields"] + [{"name": f"f{i}", "type": "int", "default": 0} for i in range(40)]}
for schema, data in [
    ("string", bytes.fromhex("feffffffffffffffff01")),
    ("bytes", bytes.fromhex("80808080808080804000")),
    ({"type": "array", "items": "long"}, many),
    ({"type": "array", "items": {"type": "array", "items": "string"}}, many * 1000),
    ({"type": "map", "values": "bytes"}, many),
    ({"type": "array", "items": {**now}}, b"\\x80\\x80\\x80\\x08" + b"\\x00" * 9_000_000),
]:
    try:
        decode(make_reader(Schema.load(schema)), data)
    except Malformed:
        print("refused")
"""


def test_no_small_message_fills_the_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-c", HUNGRY], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout.split()) == (0, ["refused"] * 6), run.stderr


def test_blocks_of_an_array_hold_as_many_items_as_are_allowed_and_not_one_more() -> None:
    two = Blocks(0, ITEM_NODES_MAX // 2)
    one_item = b"\x02"
    assert two.start(one_item, 0, 1) == (1, 1, -1)
    with pytest.raises(Malformed, match="a block of 1 items"):
        two.start(one_item, 0, 2)
