"""Invalid or malicious Avro bytes, as the codec of a topic decodes them.

Each is poison, names the fault and its place, costs next to no time and memory, and leaves its neighbours in the
column alone. What exactavro refuses in schemas and in single types is tested there.
"""

import json
import math
import re
import time
import tracemalloc
from datetime import UTC, date, datetime
from datetime import time as day_time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from exactavro import Schema
from streamtable.codec import Avro, Plain
from streamtable.errors import DeserializationError
from streamtable_codecs import Confluent, TopicName
from streamtable_codecs.schemas import Definition, Registered

SECONDS_MAX = 1.0  # a thousand times what one takes: only a blow-up is slower, not a busy machine
BYTES_MAX = 1_000_000

INNER = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}
TYPES: dict[str, Any] = {
    "id": {"type": "string", "logicalType": "uuid"},
    "name": "string",
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "clock": {"type": "int", "logicalType": "time-millis"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "count": "int",
    "total": "long",
    "ok": "boolean",
    "ratio": "double",
    "share": "float",
    "raw": "bytes",
    "hash": {"type": "fixed", "name": "Hash", "size": 4},
    "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]},
    "note": ["null", "string", INNER],
    "tags": {"type": "array", "items": "string"},
    "places": {"type": "array", "items": "Point"},
    "matrix": {"type": "array", "items": {"type": "array", "items": "long"}},
    "by_name": {"type": "map", "values": "long"},
}
EVENT: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": name, "type": node} for name, node in TYPES.items()],
}
GOOD: dict[str, Any] = {
    "id": UUID(int=7),
    "name": "é",
    "at": datetime(2024, 6, 1, tzinfo=UTC),
    "micros": datetime(2024, 6, 1, tzinfo=UTC),
    "day": date(2024, 6, 1),
    "clock": day_time(12),
    "price": Decimal("12.50"),
    "count": -5,
    "total": 2**40,
    "ok": True,
    "ratio": 0.5,
    "share": 0.25,
    "raw": b"\x00",
    "hash": b"abcd",
    "kind": "B",
    "note": {"x": 1.0},
    "tags": ["a", "b"],
    "places": [{"x": 1.0}],
    "matrix": [[1], [2, 3]],
    "by_name": {"a": 1},
}
CODEC: Avro[Any] = Avro(EVENT)
PREFIX = b"\xc3\x01" + CODEC.schema.fingerprint


def _parts() -> dict[str, bytes]:
    """The bytes of each field of the good event."""
    named = {name: INNER if node == "Point" else node for name, node in TYPES.items()}
    named["places"] = {"type": "array", "items": INNER}
    return {name: Avro(node, Plain()).encode(GOOD[name]) for name, node in named.items()}


PARTS = _parts()


def event(**parts: bytes) -> bytes:
    """The good event with other bytes in some fields."""
    return PREFIX + b"".join((PARTS | parts).values())


def text(size: int, data: bytes) -> bytes:
    return Avro("long", Plain()).encode(size) + data


def varint(number: int) -> bytes:
    return Avro("long", Plain()).encode(number)


LONG_MIN = varint(-(2**63))
LONG_MAX = varint(2**63 - 1)

HOSTILE_FIELDS: list[tuple[str, str, bytes, str]] = [
    # ---- lengths
    ("length -1", "name", varint(-1), "a negative length"),
    ("length -2^63", "name", LONG_MIN, "a negative length"),
    ("length 2^31", "raw", varint(2**31), "runs .* over the end of the message"),
    ("length 2^62", "name", varint(2**62), "runs .* over the end|utf-8"),
    ("length 2^63-1", "raw", LONG_MAX, "runs .* over the end of the message"),
    # ---- indexes
    ("enum -1", "kind", varint(-1), "symbol -1 of an enum of 3"),
    ("enum n", "kind", varint(3), "symbol 3 of an enum of 3"),
    ("enum 2^31-1", "kind", varint(2**31 - 1), "symbol 2147483647"),
    ("enum 2^40", "kind", varint(2**40), "32 bits"),
    ("union -1", "note", varint(-1), "branch -1 of a union of 3"),
    ("union n", "note", varint(3), "branch 3 of a union of 3"),
    ("union 2^40", "note", varint(2**40), "32 bits"),
    # ---- blocks
    ("block of INT64_MIN", "tags", LONG_MIN + b"\x00", "a block of 9223372036854775808 items"),
    ("block of INT64_MAX", "tags", LONG_MAX, "a block of 9223372036854775807 items"),
    ("block of 2^40 empty texts", "tags", varint(2**40) + b"\x00" * 8, "a block of 1099511627776 items"),
    ("block of 2^40 records", "places", varint(2**40) + b"\x00" * 8, "a block of 1099511627776 items"),
    ("block of 2^31 arrays", "matrix", varint(2**31) + b"\x00" * 8, "a block of 2147483648 items"),
    ("block of 2^40 pairs", "by_name", varint(2**40) + b"\x00" * 8, "a block of 1099511627776 items"),
    ("inner block of 2^62", "matrix", varint(1) + varint(2**62), "a block of 4611686018427387904 items"),
    ("block with a negative size", "tags", varint(-1) + varint(-1) + b"\x00\x00", "a block of -1 bytes"),
    ("block larger than it says", "tags", varint(-1) + varint(0) + b"\x02a\x00", "another size"),
    ("block that ends in the next message", "tags", varint(-1) + varint(10**6) + b"\x02a\x00", "a block of"),
    ("array without its end", "by_name", varint(1) + b"\x02a\x02", "ends in the middle"),
    ("array nested deeper than the schema", "matrix", b"\x02" * 10_000, "."),
    ("the same key twice", "by_name", varint(2) + b"\x02a\x02\x02a\x04\x00", "the same key twice"),
    ("a key that is no text", "by_name", varint(1) + b"\x02\xff\x02\x00", "utf-8"),
    # ---- numbers
    ("varint of 10 bytes over 64 bits", "total", b"\xff" * 9 + b"\x02", "more than 64 bits"),
    ("varint of 11 bytes", "total", b"\x80" * 10 + b"\x01", "more than 10 bytes"),
    ("varint of 20 bytes", "total", b"\xff" * 19 + b"\x01", "more than 10 bytes"),
    ("varint without end", "total", b"\x80" * 100_000, "more than 10 bytes"),
    ("int over 32 bits", "count", varint(2**31), "32 bits"),
    ("int under 32 bits", "count", varint(-(2**31) - 1), "32 bits"),
    ("int 2^40", "count", varint(2**40), "32 bits"),
    ("boolean 2", "ok", b"\x02", "a boolean that is 2"),
    ("boolean 255", "ok", b"\xff", "a boolean that is 255"),
    # ---- texts
    ("UTF-8 cut short", "name", text(1, b"\xc3"), "utf-8"),
    ("overlong UTF-8", "name", text(2, b"\xc0\x80"), "utf-8"),
    ("a surrogate", "name", text(3, b"\xed\xa0\x80"), "utf-8"),
    ("beyond Unicode", "name", text(4, b"\xf5\x80\x80\x80"), "utf-8"),
    ("Latin-1", "name", text(3, b"caf\xe9"[1:]), "utf-8"),
    # ---- logical types
    ("timestamp 2^60", "at", varint(2**60), "."),
    ("timestamp -2^60", "at", varint(-(2**60)), "."),
    ("timestamp in microseconds 2^62", "micros", varint(2**62), "."),
    ("timestamp before year 1", "at", varint(-62_135_596_800_001), "."),
    ("date 2^30", "day", varint(2**30), "."),
    ("date -2^31", "day", varint(-(2**31)), "."),
    ("time of a whole day", "clock", varint(86_400_000), "not a time of day"),
    ("time -1", "clock", varint(-1), "not a time of day"),
    ("uuid of 3 characters", "id", text(3, b"abc"), "UUID"),
    ("uuid with a bad digit", "id", text(36, b"00000000-0000-0000-0000-00000000000g"), "."),
    ("uuid in braces", "id", text(38, b"{00000000-0000-0000-0000-000000000000}"), "not a UUID"),
    ("decimal of 2000 bytes", "price", text(2000, b"\x7f" * 2000), "not a decimal of 9 digits"),
    ("decimal of one digit more", "price", text(4, (10**9).to_bytes(4, "big")), "not a decimal of 9 digits"),
    ("decimal of no bytes", "price", text(0, b""), "not a decimal of 9 digits"),
]


def poison_of(codec: Avro[Any], data: bytes, good: tuple[bytes, Any]) -> DeserializationError:
    """The error, the same alone and in a column; with the limits and the neighbours checked."""
    tracemalloc.start()
    try:
        started = time.thread_time()
        with pytest.raises(DeserializationError) as caught:
            codec.decode(data)
        column = codec.decode_many([good[0], data, None, good[0]])
        assert time.thread_time() - started < SECONDS_MAX
        assert tracemalloc.get_traced_memory()[1] < BYTES_MAX + 4 * len(data)
    finally:
        tracemalloc.stop()
    assert column.values == [good[1], None, None, good[1]]
    assert {index: error.message for index, error in column.poison.items()} == {1: caught.value.message}
    return caught.value


def event_poison(data: bytes) -> str:
    return poison_of(CODEC, data, (event(), GOOD)).message


@pytest.mark.parametrize(
    ("field", "data", "reason"),
    [case[1:] for case in HOSTILE_FIELDS],
    ids=[case[0] for case in HOSTILE_FIELDS],
)
def test_a_hostile_field_is_poison_and_reported_with_its_place(field: str, data: bytes, reason: str) -> None:
    whole = event(**{field: data})
    message = event_poison(whole)
    assert re.fullmatch(rf"Event\.{field}\b.*({reason}).* \({len(whole)} bytes\)", message), message
    # Cut behind the field, and with something there for a wrong length to swallow.
    before = sum(len(PARTS[name]) for name in list(PARTS)[: list(PARTS).index(field)])
    upto = whole[: len(PREFIX) + before + len(data)]
    for forged in (upto, upto + b"\x00" * 64):
        assert event_poison(forged).startswith("Event")


def test_each_prefix_of_a_good_record_is_poison_and_so_is_one_with_a_tail() -> None:
    data = event()
    for end in range(len(data)):
        assert event_poison(data[:end])
    assert event_poison(data + b"\x00").startswith("Event: 1 bytes are left at the end of the message")
    assert event_poison(data * 2).startswith(f"Event: {len(data)} bytes are left")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "begins with nothing"),
        (b"\x00", "begins with 00"),
        (b"\xc3", "begins with c3"),
        (b"\xc3\x01", "begins with c301"),
        (b"\xc3\x02" + PREFIX[2:] + event()[10:], "begins with c302"),
        (b"\x00\x00\x00\x00\x07" + event()[10:], "begins with 0000000007"),
        (event()[10:], "not Avro single-object encoding"),
        (b"Obj\x01" + b"\x04\x14avro.codec\x08null\x16avro.schema" + b"\x00" * 64, "begins with 4f626a01"),
        (b"\xc3\x01" + b"\xff" * 8 + event()[10:], "unknown schema, fingerprint ffffffffffffffff"),
        (
            b"\xc3\x01" + Schema.load("long").fingerprint + event()[10:],
            "unknown schema, fingerprint d054e144",
        ),
        (b'{"id": "7"}', "begins with 7b226964"),
    ],
)
def test_a_record_that_names_no_known_schema_is_poison_and_reported_in_hex(data: bytes, reason: str) -> None:
    assert reason in event_poison(data)


class Ids:
    """A registry that knows one schema for each number."""

    subjects = TopicName()

    def __init__(self, *schemas: Any) -> None:
        self._schemas = {number: json.dumps(schema) for number, schema in enumerate(schemas, 1)}

    def schema(self, schema_id: int | str) -> Registered:
        if schema_id not in self._schemas:
            raise DeserializationError(f"schema id {schema_id}: unknown")
        return Registered("AVRO", self._schemas[int(schema_id)])

    def id_of(self, subject: str, definition: Definition) -> int:
        return 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "begins with nothing"),
        (b"\x00\x00\x00\x00", "begins with 00000000"),
        (b"\x01\x00\x00\x00\x01" + event()[10:], "schema id 00000001-4830-.*: unknown"),
        (b"\x00\x00\x00\x00\x00" + event()[10:], "schema id 0"),
        (b"\x00\xff\xff\xff\xff" + event()[10:], "schema id 4294967295"),  # -1, read as Java writes it
        (b"\x00\x80\x00\x00\x00" + event()[10:], "schema id 2147483648"),
        (b"\x00\x00\x00\x00\x09" + event()[10:], "schema id 9"),
        (b"\x00\x00\x00\x00\x02" + event()[10:], "long cannot be read as record Event"),
        (b"\x00\x00\x00\x00\x01\x02", r"Event\.id"),
        (event(), "begins with c301"),
    ],
)
def test_a_forged_schema_id_is_poison(data: bytes, reason: str) -> None:
    codec: Avro[Any] = Avro(EVENT, Confluent(Ids(EVENT, "long"), "events-value"))
    assert re.search(reason, poison_of(codec, data, (codec.encode(GOOD), GOOD)).message)


@pytest.mark.parametrize(
    ("field", "data", "check"),
    [
        ("ratio", bytes.fromhex("000000000000f87f"), math.isnan),
        ("ratio", bytes.fromhex("000000000000f07f"), lambda v: v == math.inf),
        ("ratio", bytes.fromhex("000000000000f0ff"), lambda v: v == -math.inf),
        ("ratio", bytes.fromhex("0000000000000080"), lambda v: math.copysign(1, v) == -1),
        ("share", bytes.fromhex("0000c07f"), math.isnan),
        ("total", b"\x80\x00", lambda v: v == 0),  # longer than need be, as some writers pad
        ("total", LONG_MAX, lambda v: v == 2**63 - 1),
        ("name", text(3, b"a\x00b"), lambda v: v == "a\x00b"),
        ("tags", varint(-1) + varint(2) + b"\x02a" + varint(1) + b"\x02b\x00", lambda v: v == ["a", "b"]),
        ("price", text(9, b"\x00" * 8 + b"\x01"), lambda v: v == Decimal("0.01")),
    ],
)
def test_what_is_odd_but_lawful_is_read_and_comes_back(field: str, data: bytes, check: Any) -> None:
    row = CODEC.decode(event(**{field: data}))
    assert check(row[field])
    assert repr(CODEC.decode(CODEC.encode(row))) == repr(row)


def test_a_record_over_the_limit_of_bytes_is_poison_before_it_is_looked_at() -> None:
    codec: Avro[Any] = Avro(EVENT, max_bytes=1_000)
    message = poison_of(codec, event(raw=text(5_000_000, b"x" * 5_000_000)), (event(), GOOD)).message
    assert message.startswith("Event: 50001")
    assert message.endswith("at most 1000")
