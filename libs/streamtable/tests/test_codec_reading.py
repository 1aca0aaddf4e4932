"""Reading Avro: every byte is checked, and schemas resolve as the specification says."""

import math
import subprocess
import sys
from typing import Any

import pytest

from streamtable.codec import Avro, Plain
from streamtable.codec.reading import Unresolvable, make_reader
from streamtable.codec.schema import AvroSchema
from streamtable.errors import PoisonRecord

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


def decode(schema: Any, data: str) -> Any:
    return Avro(schema, Plain()).decode(bytes.fromhex(data))


def resolved(writer: Any, reader: Any, value: Any) -> Any:
    read = make_reader(AvroSchema.load(writer).tree, AvroSchema.load(reader).tree)
    data = Avro(writer, Plain()).encode(value)
    result, end = read(data, 0)
    assert end == len(data)
    return result


LONG_MAX = "fe" + "ff" * 8 + "01"  # 2**63 - 1
LONG_MIN = "ff" * 9 + "01"

POISON = [
    ("string", "", "middle"),
    ("string", "04", "from the end"),
    ("string", "0161", "negative"),
    ("string", "03616263", "negative"),
    ("string", "02ff", "utf-8"),
    ("string", "04c080", "utf-8"),
    ("string", "06eda080", "utf-8"),
    ("string", "8080808010", "from the end"),  # 2**31
    ("string", "8080808080808080" + "80" + "01", "negative|from the end"),  # 2**62 and beyond
    ("string", LONG_MIN, "negative"),
    ("string", LONG_MAX, "from the end"),
    ("bytes", "01", "negative"),
    ("bytes", "0261" + "00", "from the end"),
    ("long", "ff", "middle"),
    ("long", "ff" * 9 + "02", "64 bits"),
    ("long", "ff" * 9 + "7f", "64 bits"),
    ("long", "80" * 10 + "01", "10 bytes"),
    ("long", "ff" * 20 + "01", "10 bytes"),
    ("long", "0000", "from the end"),
    ("int", "8080808010", "32 bits"),  # 2**31
    ("int", "8180808010", "32 bits"),  # -2**31 - 1
    ("int", "808080808040", "32 bits"),  # 2**40
    ("int", "808080808000", "5 bytes"),  # a zero in six bytes
    ("boolean", "02", "boolean"),
    ("boolean", "07", "boolean"),
    ("boolean", "ff", "boolean"),
    ("float", "000000", "middle"),
    ("double", "00" * 7, "middle"),
    ("double", "00" * 9, "from the end"),
    (FIXED, "000000", "from the end"),
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
    (record(("a", record(("b", "boolean"), name="S"))), "05", r"R\.a\.b: a boolean"),
    (ROW, "4f626a01" + "00" * 40, "Row"),  # the first bytes of a container file
]


@pytest.mark.parametrize(("schema", "data", "reason"), POISON)
def test_bytes_that_are_not_what_the_schema_says_are_poison(schema: Any, data: str, reason: str) -> None:
    with pytest.raises(PoisonRecord, match=reason):
        decode(schema, data)
    decoded = Avro(schema, Plain()).decode_many([None, bytes.fromhex(data)])
    assert decoded.values == [None, None]
    assert list(decoded.poison) == [1]


def test_every_proper_prefix_of_a_record_is_poison_and_so_is_one_byte_more() -> None:
    codec = Avro(ROW, Plain())
    data = codec.encode(ROW_VALUE)
    for wrong in (*(data[:end] for end in range(len(data))), data + b"\x00"):
        with pytest.raises(PoisonRecord):
            codec.decode(wrong)
    assert codec.decode(data) == ROW_VALUE


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
    assert Avro(schema, Plain()).decode(b"\x02" * 60 + b"\x02" + b"\x00" * 60)
    with pytest.raises(PoisonRecord):
        Avro(schema, Plain()).decode(b"\x02" * 10_000)


def test_a_message_larger_than_the_limit_is_poison() -> None:
    codec = Avro("bytes", Plain(), max_bytes=100)
    assert len(codec.decode(codec.encode(b"x" * 90))) == 90
    with pytest.raises(PoisonRecord, match="at most 100"):
        codec.decode(codec.encode(b"x" * 100))
    assert list(codec.decode_many([codec.encode(b"x" * 100)]).poison) == [0]


HUNGRY = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (700_000_000, 700_000_000))
from streamtable.codec import Avro, Plain
from streamtable.errors import PoisonRecord
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
        Avro(schema, Plain()).decode(data)
    except PoisonRecord:
        print("poison")
"""


def test_no_small_message_fills_the_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-c", HUNGRY], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout.split()) == (0, ["poison"] * 6), run.stderr


def test_defaults_do_not_make_a_small_message_fill_the_memory() -> None:
    writer = record(("a", "boolean"))
    reader = record(("a", "boolean"), *((f"f{i}", "int", 0) for i in range(40)))
    read = make_reader(AvroSchema.load(array(writer)).tree, AvroSchema.load(array(reader)).tree)
    items = Avro("long", Plain()).encode(300_000)
    with pytest.raises(ValueError, match="block of 300000 items"):
        read(items + b"\x00" * 300_001, 0)


# ---- resolution ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", 5, 5),
        ("int", "double", 5, 5.0),
        ("long", "float", 2**40, float(2**40)),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", b"ab", "ab"),
        ("int", ["null", "long"], 5, 5),
        ("int", ["double", "int"], 5, 5),
        (["null", "int"], ["string", "long", "null"], 5, 5),
        (["null", "int"], "int", 5, 5),
        (array("int"), array(["null", "double"]), [1], [1.0]),
        (mapping("int"), mapping("long"), {"a": 1}, {"a": 1}),
        (record(("a", "int"), ("b", "string")), record(("b", "string")), {"a": 1, "b": "x"}, {"b": "x"}),
        (
            record(("a", "int")),
            record(("c", ["null", "int"], None), ("a", "long"), ("d", array("int"), [1])),
            {"a": 1},
            {"a": 1, "c": None, "d": [1]},
        ),
        (record(("a", "int"), name="x.R"), record(("a", "int"), name="y.R"), {"a": 1}, {"a": 1}),
        (record(("a", "int"), name="x.Old"), record(("a", "int"), aliases=["x.Old"]), {"a": 1}, {"a": 1}),
        (
            record(("old", "int")),
            {"type": "record", "name": "R", "fields": [{"name": "new", "aliases": ["old"], "type": "int"}]},
            {"old": 1},
            {"new": 1},
        ),
        (ENUM, {**ENUM, "symbols": ["C", "B", "A", "D"]}, "B", "B"),
        (ENUM, {**ENUM, "symbols": ["A", "X"], "default": "X"}, "B", "X"),
        (FIXED, {**FIXED, "name": "ns.F"}, b"abcd", b"abcd"),
    ],
)
def test_a_writers_value_arrives_as_the_reader_describes_it(
    writer: Any, reader: Any, value: Any, expected: Any
) -> None:
    result = resolved(writer, reader, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("writer", "reader", "place"),
    [
        ("long", "int", "long cannot be read as int"),
        ("string", "long", "string cannot be read as long"),
        (record(("a", "int")), record(("a", "int"), ("b", "int")), r"R\.b: .* no default"),
        (record(("a", "string")), record(("a", "int")), r"R\.a: string"),
        (record(("a", "int")), record(("a", "int"), name="Other"), "R is not Other"),
        (
            record(("a", "int")),
            record(("a", "int"), ("b", array("int"), ["x"])),
            r"R\.b: the default 'x' is no int",
        ),
        (FIXED, {**FIXED, "size": 5}, "fixed F"),
        (ENUM, {**ENUM, "name": "G"}, "E is not G"),
        (ENUM, {**ENUM, "symbols": ["X"]}, "no symbol"),
        (["int", "string"], "boolean", "no branch"),
        ("int", ["null", "string"], "any of null, string"),
        (array("int"), mapping("int"), "array cannot be read as map"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            "timestamp-millis cannot be read as timestamp-micros",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "decimal cannot be read",
        ),
    ],
)
def test_schemas_that_do_not_resolve_are_named_with_the_place(writer: Any, reader: Any, place: str) -> None:
    with pytest.raises(Unresolvable, match=place):
        make_reader(AvroSchema.load(writer).tree, AvroSchema.load(reader).tree)


def test_a_field_that_the_reader_drops_is_checked_all_the_same() -> None:
    writer = AvroSchema.load(record(("gone", "string"), ("kept", "int")))
    read = make_reader(writer.tree, AvroSchema.load(record(("kept", "int"))).tree)
    assert read(bytes.fromhex("026102"), 0) == ({"kept": 1}, 3)
    with pytest.raises(ValueError, match=r"\.gone: a negative length"):
        read(bytes.fromhex("016102"), 0)


def test_a_branch_or_symbol_that_the_reader_lacks_is_poison_only_where_it_is_used() -> None:
    union = make_reader(AvroSchema.load(["int", "string"]).tree, AvroSchema.load("int").tree)
    assert union(b"\x00\x02", 0) == (1, 2)
    with pytest.raises(ValueError, match="string cannot be read as int"):
        union(b"\x02\x02a", 0)
    enum = make_reader(AvroSchema.load(ENUM).tree, AvroSchema.load({**ENUM, "symbols": ["A"]}).tree)
    assert enum(b"\x00", 0) == ("A", 1)
    with pytest.raises(ValueError, match="'B' is unknown"):
        enum(b"\x02", 0)


def test_a_default_that_a_handler_changed_in_place_is_as_it_was_for_the_next_record() -> None:
    reader = AvroSchema.load(record(("a", "int"), ("l", array("int"), [1])))
    read = make_reader(AvroSchema.load(record(("a", "int"))).tree, reader.tree)
    row, _ = read(b"\x02", 0)
    row["l"].append(2)
    assert read(b"\x02", 0)[0] == {"a": 1, "l": [1]}


def test_defaults_become_the_values_that_reading_would_give() -> None:
    day = {"type": "int", "logicalType": "date"}
    inner = record(("x", "bytes"), ("y", "double", 2), name="Inner")
    reader = record(
        ("a", "int"),
        ("r", inner, {"x": "\xff"}),
        ("d", day, 1),
        ("m", mapping("float"), {"k": 1}),
        ("e", ENUM, "C"),
    )
    row = resolved(record(("a", "int")), reader, {"a": 1})
    assert row.pop("d").isoformat() == "1970-01-02"
    assert row == {"a": 1, "r": {"x": b"\xff", "y": 2.0}, "m": {"k": 1.0}, "e": "C"}
