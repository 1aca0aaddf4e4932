"""Resolution: a value of the writer's schema is read as the reader's schema, or the schemas are rejected."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from struct import pack, unpack
from typing import Any

import pytest

from exactavro import Schema, Unusable, decode, encode, make_reader, make_writer
from exactavro.reading import Reader

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
FIXED = {"type": "fixed", "name": "F", "size": 4}
RENAMED = {"type": "record", "name": "R", "fields": [{"name": "new", "aliases": ["old"], "type": "int"}]}


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


def mapping(values: Any) -> Any:
    return {"type": "map", "values": values}


def record(*fields: Any, name: str = "R", **more: Any) -> Any:
    fields_of = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return {"type": "record", "name": name, "fields": fields_of, **more}


def decimal(precision: int, scale: int) -> Any:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def at(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def reader_of(writer: Any, reader: Any) -> Reader:
    return make_reader(Schema.load(writer), Schema.load(reader))


def resolved(writer: Any, reader: Any, value: Any) -> Any:
    return decode(reader_of(writer, reader), encode(make_writer(Schema.load(writer)), value))


def test_defaults_do_not_make_a_small_message_fill_the_memory() -> None:
    writer = record(("a", "boolean"))
    reader = record(("a", "boolean"), *((f"f{i}", "int", 0) for i in range(40)))
    read = reader_of(array(writer), array(reader))
    items = encode(make_writer(Schema.load("long")), 300_000)
    with pytest.raises(ValueError, match="block of 300000 items"):
        read(items + b"\x00" * 300_001, 0)


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", 5, 5),
        ("int", "double", 5, 5.0),
        ("long", "float", 2**40, float(2**40)),
        ("long", "float", 2**40 + 1, float(2**40)),  # as Java's cast
        ("int", "double", 2**31 - 1, float(2**31 - 1)),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", b"ab", "ab"),
        ("int", ["null", "long"], 5, 5),
        ("int", ["double", "int"], 5, 5),
        ("long", ["double", {"type": "long", "logicalType": "timestamp-micros"}], 2**51 + 1, at(2**51 + 1)),
        (
            record(),
            record(("a", "int", -(2**31)), ("b", "long", -(2**63))),
            {},
            {"a": -(2**31), "b": -(2**63)},
        ),
        (record(), record(("x", "float", 0.1)), {}, {"x": unpack("<f", pack("<f", 0.1))[0]}),
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
            RENAMED,
            {"old": 1},
            {"new": 1},
        ),
        (record(("old", "int"), ("new", "int")), RENAMED, {"old": 1, "new": 2}, {"new": 2}),
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
        (record(), record(("b", "bytes", "\u20ac")), r"R\.b: the default '€' is no bytes"),
        (record(), record(("b", FIXED, "abc")), r"R\.b: the default 'abc' is no fixed F: must be 4 bytes"),
        (record(), record(("b", mapping("int"), {"k": 2**31})), "more than 32 bits"),
        (record(), record(("b", ["long"], 2**63)), "fits no branch"),
        (record(), record(("b", array(ENUM), ["Z"])), "is no enum E: not one of its symbols"),
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
            {"type": "long", "logicalType": "timestamp-nanos"},
            {"type": "long", "logicalType": "timestamp-micros"},
            "timestamp-nanos cannot be read as timestamp-micros",
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            {"type": "long", "logicalType": "local-timestamp-nanos"},
            "local-timestamp-micros cannot be read as local-timestamp-nanos",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "decimal cannot be read",
        ),
    ],
)
def test_schemas_that_do_not_resolve_are_named_with_the_place(writer: Any, reader: Any, place: str) -> None:
    with pytest.raises(Unusable, match=place):
        reader_of(writer, reader)


def test_a_field_that_the_reader_drops_is_checked_all_the_same() -> None:
    read = reader_of(record(("gone", "string"), ("kept", "int")), record(("kept", "int")))
    assert read(bytes.fromhex("026102"), 0) == ({"kept": 1}, 3)
    with pytest.raises(ValueError, match=r"\.gone: a negative length"):
        read(bytes.fromhex("016102"), 0)


def test_a_branch_or_symbol_that_the_reader_lacks_is_poison_only_where_it_is_used() -> None:
    union = reader_of(["int", "string"], "int")
    assert union(b"\x00\x02", 0) == (1, 2)
    with pytest.raises(ValueError, match="string cannot be read as int"):
        union(b"\x02\x02a", 0)
    enum = reader_of(ENUM, {**ENUM, "symbols": ["A"]})
    assert enum(b"\x00", 0) == ("A", 1)
    with pytest.raises(ValueError, match="'B' is unknown"):
        enum(b"\x02", 0)


def test_a_default_that_a_handler_changed_in_place_is_as_it_was_for_the_next_record() -> None:
    read = reader_of(record(("a", "int")), record(("a", "int"), ("l", array("int"), [1])))
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


LESS = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("writer", "reader", "reason"),
    [
        (ENUM, LESS, r"enum E: 'C' is none of its symbols, and it has no default"),
        (array(ENUM), array(LESS), "enum E: 'C'"),
        (mapping(["null", "int"]), mapping("int"), "null cannot be read as int"),
        (record(("a", ENUM)), ["null", record(("a", LESS))], r"R\.a: enum E: 'C'"),
        (ENUM, [LESS, "string"], "enum E: 'C'"),
        (decimal(6, 2), decimal(4, 2), "not every decimal can be read as decimal"),
        ("bytes", decimal(4, 2), "not every bytes can be read as decimal"),
        ("string", {"type": "string", "logicalType": "uuid"}, "not every string can be read as uuid"),
        ("int", {"type": "int", "logicalType": "time-millis"}, "not every int can be read as time-millis"),
        ("bytes", "string", "not every bytes can be read as string"),
    ],
)
def test_what_can_be_read_in_part_is_refused_where_the_whole_is_to_be_read(
    writer: Any, reader: Any, reason: str
) -> None:
    make_reader(Schema.load(writer), Schema.load(reader))
    with pytest.raises(Unusable, match=reason):
        make_reader(Schema.load(writer), Schema.load(reader), whole=True)


def test_an_enum_with_a_default_and_a_union_with_all_branches_are_read_whole() -> None:
    money, more = decimal(4, 2), decimal(6, 2)
    writer, reader = (
        record(("a", ENUM), ("b", ["null", "int"]), ("c", money)),
        record(("a", {**LESS, "default": "A"}), ("b", ["long", "null"]), ("c", more)),
    )
    read = make_reader(Schema.load(writer), Schema.load(reader), whole=True)
    data = encode(make_writer(Schema.load(writer)), {"a": "C", "b": 1, "c": Decimal("1.25")})
    assert decode(read, data) == {"a": "A", "b": 1, "c": Decimal("1.25")}
