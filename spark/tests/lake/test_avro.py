"""Spark's columns against the services' own codec: each reads the bytes of the other, and the bytes are equal."""

import json
from random import Random
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as fn
from pyspark.testing import assertDataFrameEqual

from contracts import records
from contracts.schema import RecordSchema
from streamtable import Avro
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.transforms.avro import AvroCodec
from streamtable_spark.transforms.codecs import PlainCodec

EACH = 1_500
SCHEMAS = [value for value in vars(records).values() if isinstance(value, RecordSchema)]
V1 = json.dumps(
    {
        "type": "record",
        "name": "Visit",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "n", "type": "int"},
            {"name": "paid", "type": "boolean"},
        ],
    }
)
V2 = json.dumps(
    {
        "type": "record",
        "name": "Visit",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "n", "type": "long"},
            {"name": "paid", "type": "boolean"},
            {"name": "from", "type": ["null", "string"], "default": None},
        ],
    }
)
V3 = json.dumps(
    {
        "type": "record",
        "name": "Visit",
        "fields": [
            {"name": "visit", "aliases": ["id"], "type": "string"},
            {"name": "n", "type": "double"},
            {"name": "from", "type": ["null", "string"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["none"]},
        ],
    }
)


def made_up(random: Random, tree: Any) -> Any:
    """Return a value of a schema; ends of ranges and odd texts are frequent."""
    if isinstance(tree, list):
        return made_up(random, random.choice(tree))
    kind = tree["type"] if isinstance(tree, dict) else tree
    if kind == "record":
        return {entry["name"]: made_up(random, entry["type"]) for entry in tree["fields"]}
    if kind == "array":
        return [made_up(random, tree["items"]) for _ in range(random.choice([0, 1, 3]))]
    bits = 31 if kind == "int" else 63
    return {
        "null": None,
        "boolean": random.random() < 0.5,
        "int": random.choice([0, -1, 2**31 - 1, -(2**31), random.randrange(-(2**bits), 2**bits) % 1000]),
        "long": random.choice([0, 2**63 - 1, -(2**63), random.randrange(-(2**bits), 2**bits)]),
        "float": random.choice([0.0, -1.5, 2.0**20]),
        "double": random.choice([0.0, -0.0, 1e300, random.random()]),
        "string": random.choice(["", "alice", "ä🎵\u0000\n", "x" * 300, str(random.random())]),
        "bytes": random.choice([b"", b"\xc3\x01", random.randbytes(40)]),
    }[kind]


def plainly(value: Any) -> Any:
    """Return a row and its nested values in the form of the services."""
    if isinstance(value, Row):
        return {name: plainly(item) for name, item in value.asDict().items()}
    if isinstance(value, list):
        return [plainly(item) for item in value]
    if isinstance(value, dict):
        return {name: plainly(item) for name, item in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


CHOSEN = [
    records.USER_CLICK,
    records.USER_STATUS_CHANGE,
    records.FEED,
    records.MESSAGE_COUNTS,
    records.BLOCKED,
]


def plain(schema: str) -> AvroCodec:
    return AvroCodec(schema, framed=False)


@pytest.mark.parametrize("record", CHOSEN, ids=lambda record: record.name)
def test_what_the_services_write_is_read_and_written_again_byte_for_byte(
    spark: SparkSession, record: RecordSchema[Any]
) -> None:
    random, codec = Random(record.name), Avro(record)
    values = [made_up(random, json.loads(record.schema)) for _ in range(EACH)]
    encoded = [codec.encode(value) for value in values]
    frame = spark.createDataFrame(list(enumerate(encoded)), "n int, value binary")
    spark_codec = AvroCodec.released(record)
    again = spark_codec.encode(fn.col("decoded")).alias("again")
    rows = spark_codec.decode(frame).select("n", "decoded", "reason", again).collect()
    assert len(rows) == EACH
    for row in rows:
        assert row["reason"] is None
        assert plainly(row["decoded"]) == values[row["n"]]
        assert bytes(row["again"]) == encoded[row["n"]]


def test_the_prefix_of_every_record_is_the_one_that_the_services_write() -> None:
    for record in SCHEMAS:
        prefix = AvroCodec.released(record).prefix(record.schema)
        assert prefix == b"\xc3\x01" + record.fingerprint.to_bytes(8, "little")


def text(data: str | bytes) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return bytes([2 * len(data)]) + data


def test_three_versions_of_a_record_are_read_as_the_newest(spark: SparkSession) -> None:
    codec = AvroCodec(V3, (V1, V2))
    first, second, third = codec.writers
    values = [
        first + text("a") + b"\x02\x01",
        second + text("b") + b"\x04\x00\x02" + text("mail"),
        third + text("c") + bytes(8) + b"\x00" + b"\x04" + text("x") + text("y") + b"\x00",
    ]
    frame = spark.createDataFrame(list(enumerate(values)), "n int, value binary")
    found = codec.decode(frame).select("n", "decoded.*", "reason")
    expected = spark.createDataFrame(
        [(0, "a", 1.0, None, ["none"]), (1, "b", 2.0, "mail", ["none"]), (2, "c", 0.0, None, ["x", "y"])],
        "n int, visit string, n_ double, `from` string, tags array<string>",
    ).toDF("n", "visit", "n", "from", "tags")
    assertDataFrameEqual(
        found.drop("reason").toDF("k", "visit", "n", "from", "tags"),
        expected.toDF("k", "visit", "n", "from", "tags"),
    )
    assert [row["reason"] for row in found.collect()] == [None] * 3
    peeked = frame.select("n", codec.peek("visit").alias("visit"))
    assert {row["n"]: row["visit"] for row in peeked.collect()} == {0: "a", 1: "b", 2: "c"}


def test_what_cannot_be_read_gets_a_reason_and_harms_nothing_beside_it(spark: SparkSession) -> None:
    codec = AvroCodec(V2, (V1,))
    first, second = codec.writers
    whole = first + text("abc") + b"\x02\x01"
    cut = {f"cut to {size}": (whole[:size], "cut short") for size in range(10, len(whole))}
    poison = {
        **cut,
        "nothing at all": (None, "no value"),
        "empty": (b"", "shorter than the 10 bytes"),
        "nine bytes": (whole[:9], "shorter than the 10 bytes"),
        "one byte more": (whole + b"\x00", "left over"),
        "a checksum's length more": (whole + bytes(16), "left over"),
        "twice": (whole + whole[10:], "left over"),
        "boolean 2": (first + text("a") + b"\x02\x02", "not encoded as Avro"),
        "text that is not UTF-8": (first + text(b"\xff\xfe") + b"\x02\x01", "not UTF-8"),
        "nested text that is not UTF-8": (
            second + text("a") + b"\x02\x01\x02" + text(b"\xed\xa0\x80"),
            "not UTF-8",
        ),
        "a length of 2 GB": (first + b"\xfe\xff\xff\xff\x0f" + b"abc", "cut short"),
        "a length below 0": (first + b"\x01", "cut short"),
        "an int of 40 bits": (first + text("a") + b"\x80\x80\x80\x80\x80\x80\x01\x01", "cut short"),
        "a number of 20 bytes": (first + b"\x80" * 20 + b"\x01", "cut short"),
        "a branch that is not there": (second + text("a") + b"\x02\x01\x08", "cut short"),
        "a negative branch": (second + text("a") + b"\x02\x01\x01", "cut short"),
        "an unknown schema": (b"\xc3\x01" + b"12345678" + b"\x00", "not known: C3013132333435363738"),
        "another framing": (b"\x00\x00\x00\x00\x01" + b"hello, world", "does not begin with C3 01"),
        "a container file": (b"Obj\x01" + bytes(20), "does not begin with C3 01"),
    }
    rows = [(name, value) for name, (value, _) in poison.items()] + [("right", whole)]
    found = codec.decode(spark.createDataFrame(rows, "name string, value binary")).collect()
    assert {row["name"] for row in found} == {*poison, "right"}
    for row in found:
        if row["name"] == "right":
            assert row["reason"] is None
            assert plainly(row["decoded"]) == {"id": "abc", "n": 1, "paid": True, "from": None}
        else:
            assert row["decoded"] is None
            assert poison[row["name"]][1] in row["reason"], row["name"]


def test_arrays_in_several_blocks_are_read_and_huge_ones_refused(spark: SparkSession) -> None:
    codec = plain(json.dumps({"type": "array", "items": "string"}))
    rows = [
        (0, b"\x02" + text("a") + b"\x02" + text("b") + b"\x00"),
        (1, b"\x02" + text("a") + b"\x01\x04" + text("b") + b"\x00"),
        (2, b"\xfe\xff\xff\xff\x0f"),
        (3, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (4, b"\x02" + text(b"\xff") + b"\x00"),
    ]
    found = codec.decode(spark.createDataFrame(rows, "n int, value binary")).orderBy("n").collect()
    assert [row["decoded"] for row in found] == [["a", "b"], ["a", "b"], None, None, None]
    assert [row["reason"] is None for row in found] == [True, True, False, False, False]


def test_a_type_that_is_used_a_second_time_is_checked_there_too(spark: SparkSession) -> None:
    names = {
        "type": "record",
        "name": "Names",
        "fields": [{"name": "all", "type": {"type": "array", "items": "string"}}],
    }
    pair = {
        "type": "record",
        "name": "Pair",
        "namespace": "a.b",
        "fields": [{"name": "one", "type": names}, {"name": "other", "type": "a.b.Names"}],
    }
    rows = [
        (0, b"\x00" + b"\x02" + text("a") + b"\x02" + text("b") + b"\x00"),
        (1, b"\x00" + b"\x02" + text(b"\xff") + b"\x00"),
    ]
    found = (
        plain(json.dumps(pair))
        .decode(spark.createDataFrame(rows, "n int, value binary"))
        .orderBy("n")
        .collect()
    )
    assert plainly(found[0]["decoded"]) == {"one": {"all": []}, "other": {"all": ["a", "b"]}}
    assert [row["reason"] for row in found] == [None, "holds text that is not UTF-8"]


def test_a_value_is_read_from_the_one_encoding_that_it_has(spark: SparkSession) -> None:
    least = b"\xff" * 9 + b"\x01"
    click = json.dumps(
        {
            "type": "record",
            "name": "Click",
            "fields": [
                {"name": "id", "type": "string"},
                {"name": "at", "type": "long"},
                {"name": "n", "type": ["null", "int"]},
            ],
        }
    )
    values = {
        "short": (text("a") + b"\x02\x00", None),
        "long": (b"\xd8\x04" + b"x" * 300 + b"\xff\x7f\x02\x80\x80\x80\x80\x08", None),
        "the least numbers": (text("a") + least + b"\x02\xff\xff\xff\xff\x0f", None),
        "bits of a long that are ignored": (text("a") + b"\xff" * 9 + b"\x03\x00", "not encoded"),
        "bits of an int that are ignored": (text("a") + b"\x02\x02\xff\xff\xff\xff\x1f", "not encoded"),
        "a number with a byte too many": (text("a") + b"\x82\x00\x00", "not encoded"),
        "a length with a byte too many": (b"\x82\x00a\x02\x00", "not encoded"),
        "a branch with a byte too many": (text("a") + b"\x02\x80\x00", "not encoded"),
        "a byte behind it": (text("a") + b"\x02\x00\x00", "left over"),
        "a byte too few": (text("a") + b"\x02", "cut short"),
    }
    rows = [(name, value) for name, (value, _) in values.items()]
    found = plain(click).decode(spark.createDataFrame(rows, "name string, value binary")).collect()
    for row in found:
        fault = values[row["name"]][1]
        assert (row["reason"] is None) == (fault is None) == (row["decoded"] is not None), row
        assert fault is None or fault in row["reason"], row


def test_a_count_without_a_frame_is_read(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"\x54",), (b"\xff",), (b"",)], "value binary")
    assert [row["decoded"] for row in plain('"long"').decode(frame).collect()] == [42, None, None]


def test_null_is_a_value_where_the_schema_has_it(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"\x00",), (b"\x02\x54",), (b"\x09",)], "value binary")
    found = plain('["null", "long"]').decode(frame).collect()
    assert [row["decoded"] for row in found] == [None, 42, None]
    assert [row["reason"] is None for row in found] == [True, True, False]


def test_a_filter_on_the_reason_does_not_decode_a_value_a_second_time(spark: SparkSession) -> None:
    frame = AvroCodec.released(records.USER_CLICK).decode(spark.createDataFrame([Row(value=b"")]))
    plan = frame.where("reason IS NULL")._jdf.queryExecution().executedPlan()
    assert plan.toString().count("from_avro(") == 1


def record(*kinds: Any) -> str:
    fields = [{"name": f"x{number}", "type": kind} for number, kind in enumerate(kinds)]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}


def test_decimals_in_more_bytes_than_needed_are_in_quarantine_and_no_others(spark: SparkSession) -> None:
    """The comparison of bytes also finds a boolean that is 2, and numbers that are too large for their type."""
    codec = AvroCodec(record(DECIMAL, "boolean", "int"), framed=False)
    bodies = [
        b"\x02\x80\x01\x0a",
        b"\x04\xff\x80\x01\x0a",
        b"\x02\x80\x02\x0a",
        b"\x02\x80\x01\xfe\xff\xff\xff\x7f",
    ]
    frame = spark.createDataFrame([(body,) for body in bodies], "value binary")
    rows = codec.decode(frame).select("decoded", "reason").collect()
    assert [str(each) for each in rows[0]["decoded"]] == ["-1.28", "True", "5"], rows[0]["reason"]
    assert [row["decoded"] for row in rows[1:]] == [None, None, None]
    assert all(row["reason"] for row in rows[1:])


def test_bytes_that_a_later_schema_reads_as_text_must_be_utf_8(spark: SparkSession) -> None:
    before, now = record("bytes"), record("string")
    codec = AvroCodec(now, (before,))
    bodies = [codec.prefix(before) + body for body in (b"\x04\xc3\xa4", b"\x02\xff")]
    found = codec.decode(spark.createDataFrame([(body,) for body in bodies], "value binary"))
    first, second = found.select("decoded", "reason").collect()
    assert (first["decoded"]["x0"], first["reason"]) == ("ä", None)
    assert (second["decoded"], second["reason"]) == (None, "does not resolve to the reader's schema")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (record({**DECIMAL, "precision": 40}), "a decimal of 40 digits"),
        (record("int").replace("]", ', {"name": "X0", "type": "int"}]'), "differ only in case"),
    ],
)
def test_a_schema_that_spark_has_no_columns_for_is_refused(text: str, said: str) -> None:
    for reader, older in ((text, ()), (record("int"), (text,))):
        with pytest.raises(ConfigurationError, match=said):
            AvroCodec(reader, older)


def test_a_json_value_with_text_behind_it_is_refused(spark: SparkSession) -> None:
    right = ['{"a":1}', "[1]", " 1 ", '"x"', "null", '{"a":{"b":[]}}']
    behind = [
        '{"a":1} x',
        '{"a":1}{"b":2}',
        '{"a":1}]',
        "1 2",
        "1,2",
        '1,"b":2',
        "1],[2",
        '1},{"b":2',
        "[1]]",
        "",
        "{",
    ]
    frame = spark.createDataFrame([(text.encode(),) for text in right + behind], "value binary")
    rows = PlainCodec("json").decode(frame).select("value", "reason").collect()
    assert [bytes(row["value"]).decode() for row in rows if row["reason"] is None] == right
