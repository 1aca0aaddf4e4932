"""The Avro codec against fastavro, against random bytes, and over the history of a schema."""

import json
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypedDict, assert_type

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamtable.codec import Avro, Confluent, Framing, Plain, SingleObject
from streamtable.codec.schema import AvroSchema, kind
from streamtable.errors import ConfigurationError, PoisonRecord

if TYPE_CHECKING:
    from streamtable.ports import Codec


class Click(TypedDict):
    user: str
    at: int


@dataclass(frozen=True)
class Constant:
    """What `contracts.records` has, with a history to play with."""

    schema: str
    history: tuple[str, ...]
    row: type[Click] = Click


def click(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Click", "fields": fields})


V1 = click({"name": "user", "type": "string"})
V2 = click({"name": "user", "type": "string"}, {"name": "at", "type": "long", "default": 0})
CLICK = Constant(V2, (V1, V2))

# A busy machine is slow; examples are not kept between runs.
PATIENT = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])

# ---- random schemas and values ------------------------------------------------------------------------------------

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=80),
    "string": st.text(max_size=80),
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, path: str = "T") -> Any:  # noqa: PLR0911 - one answer for each type
    """Schemas of every type; the branches of a union cannot be taken for one another."""
    names = ["boolean", "int", "long", "float", "double", "bytes", "string"]
    choice = draw(
        st.sampled_from(names + (["enum", "fixed", "record", "array", "map", "union"] * 2 if depth else []))
    )
    if choice == "enum":
        return {"type": "enum", "name": path, "symbols": [f"S{i}" for i in range(draw(st.integers(1, 70)))]}
    if choice == "fixed":
        return {"type": "fixed", "name": path, "size": draw(st.integers(1, 5))}
    if choice == "array":
        return {"type": "array", "items": draw(schemas(depth - 1, path + "a"))}
    if choice == "map":
        return {"type": "map", "values": draw(schemas(depth - 1, path + "m"))}
    if choice == "union":
        names = draw(st.permutations(["null", "boolean", "long", "string", "bytes"]))
        return names[: draw(st.integers(1, 5))]
    if choice == "record":
        types = [draw(schemas(depth - 1, f"{path}f{i}")) for i in range(draw(st.integers(1, 4)))]
        fields = [{"name": f"f{i}", "type": node} for i, node in enumerate(types)]
        return {"type": "record", "name": path, "fields": fields}
    return choice


def values(schema: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one answer for each type
    name = kind(schema)
    if name == "union":
        return st.one_of([values(branch) for branch in schema])
    if name == "enum":
        return st.sampled_from(schema["symbols"])
    if name == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    if name == "array":
        return st.lists(values(schema["items"]), max_size=4)
    if name == "map":
        return st.dictionaries(st.text(max_size=5), values(schema["values"]), max_size=4)
    if name == "record":
        return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})
    return VALUES[name]


def fastavro_bytes(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return out.getvalue()


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any]:
    schema = draw(schemas())
    return schema, draw(values(schema))


@settings(PATIENT, max_examples=300)
@given(cases())
def test_bytes_are_those_of_fastavro_and_come_back_as_the_value(case: tuple[Any, Any]) -> None:
    schema, value = case
    codec = Avro(schema, Plain())
    data = codec.encode(value)
    assert data == fastavro_bytes(schema, value)
    assert codec.decode(data) == value
    assert codec.decode_many([data, None]).values == [value, None]


@settings(PATIENT, max_examples=500)
@given(cases(), st.data())
def test_damaged_bytes_are_poison_or_are_read_as_fastavro_reads_them(
    case: tuple[Any, Any], data: st.DataObject
) -> None:
    schema, value = case
    codec = Avro(schema, Plain())
    damaged = bytearray(codec.encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged)))
        damaged[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    judge(codec, schema, bytes(damaged))


@settings(PATIENT, max_examples=500)
@given(schemas(), st.binary(max_size=60))
def test_random_bytes_are_poison_or_are_read_as_fastavro_reads_them(schema: Any, data: bytes) -> None:
    judge(Avro(schema, Plain()), schema, data)


def judge(codec: Avro[Any], schema: Any, data: bytes) -> None:
    try:
        value = codec.decode(data)
    except PoisonRecord:
        assert list(codec.decode_many([data]).poison) == [0]
        return
    stream = BytesIO(data)
    assert repr(schemaless_reader(stream, parse_schema(schema), None)) == repr(value)
    assert stream.tell() == len(data)
    again = codec.encode(value)
    assert repr(codec.decode(again)) == repr(value)


@pytest.mark.parametrize("name", ["long", "string", "double", "int", "boolean", "bytes", "float"])
def test_primitives_carry_the_single_object_header_before_fastavros_bytes(name: Any) -> None:
    codec: Avro[Any] = Avro(name)
    header = b"\xc3\x01" + AvroSchema.load(name).fingerprint

    @PATIENT
    @given(VALUES[name])
    def check(value: Any) -> None:
        data = codec.encode(value)
        assert data == header + fastavro_bytes(name, value)
        assert codec.decode(data) == value

    check()


# ---- framing and history ------------------------------------------------------------------------------------------


def test_a_record_of_an_earlier_version_is_read_as_the_present_one() -> None:
    old, now = Avro(json.loads(V1)), Avro(CLICK)
    row: Click = {"user": "bob", "at": 7}
    column = [now.encode(row), old.encode({"user": "alice"}), None]
    assert now.decode_many(column).values == [row, {"user": "alice", "at": 0}, None]
    assert now.decode(column[1] or b"") == {"user": "alice", "at": 0}


def test_a_history_that_the_present_cannot_read_is_refused_when_the_codec_is_made() -> None:
    with pytest.raises(ConfigurationError, match=r"Click\.id: .*no default"):
        Avro(Constant(click({"name": "id", "type": "string"}), (V1,)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "begins with nothing"),
        (b"\xc3", "begins with c3"),
        (b"\xc3\x01" + b"\x00" * 7, "begins with c301"),
        (b"\xc3\x02" + b"\x00" * 9, "begins with c302"),
        (b"Obj\x01" + b"\x00" * 20, "begins with 4f626a01"),
        (bytes.fromhex("c3010102030405060708") + b"\x00", "fingerprint 0807060504030201"),
    ],
)
def test_a_record_that_names_no_known_schema_is_poison_and_told_in_hex(data: bytes, reason: str) -> None:
    codec = Avro("long")
    with pytest.raises(PoisonRecord, match=reason):
        codec.decode(data)
    decoded = codec.decode_many([codec.encode(5), data, codec.encode(6)])
    assert decoded.values == [5, None, 6]
    assert reason in decoded.poison[1].message


def test_poison_is_told_with_its_place_and_without_the_data() -> None:
    codec = Avro(CLICK)
    with pytest.raises(PoisonRecord, match=r"^Click\.user: .*utf-8.*\(17 bytes\)$") as caught:
        codec.decode(codec.encode({"user": "alice", "at": 0})[:10] + b"\x0a\xff\xff\xff\xff\xff\x00")
    assert "ff" not in caught.value.message.replace("0xff", "")


def test_a_schema_that_is_not_safe_is_refused_when_the_codec_is_made() -> None:
    with pytest.raises(ConfigurationError, match="recursive"):
        Avro({"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]})


def test_a_decoder_that_met_thousands_of_unknown_schemas_has_not_grown() -> None:
    codec = Avro("long")
    unknown = [b"\xc3\x01" + number.to_bytes(8, "big") + b"\x00" for number in range(5_000)]
    assert len(codec.decode_many(unknown).poison) == 5_000
    assert len(codec._readers) + len(codec._by_fingerprint) <= 2


def test_types_follow_from_the_schema() -> None:
    clicks: Codec[Click] = Avro(CLICK)
    counts: Codec[int] = Avro("long")
    framing: Framing = SingleObject()
    assert_type(Avro("string"), Avro[str])
    assert_type(Avro("double", framing), Avro[float])
    assert_type(Avro("boolean"), Avro[bool])
    assert_type(Avro("bytes"), Avro[bytes])
    assert_type(Avro(CLICK), Avro[Click])
    assert_type(Avro({"type": "array", "items": "int"}), Avro[Any])
    assert repr(counts) == "Avro('long', SingleObject)"
    assert repr(clicks) == "Avro('Click', SingleObject)"
    assert Confluent.size == 5
