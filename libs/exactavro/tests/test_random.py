"""Random schemas, values and bytes: the results agree with fastavro where it is right, and errors where it is not."""

from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactavro import Malformed, Schema, decode, encode, make_reader, make_writer
from exactavro.schema import kind

# A busy machine is slow; examples are not kept between runs.
PATIENT = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])

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
    """Schemas of every type; the branches of a union are distinguishable."""
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
        # fastavro keeps the order of the entries; here they are sorted, by the encoded keys.
        return st.dictionaries(st.text(max_size=5), values(schema["values"]), max_size=4).map(
            lambda entries: dict(sorted(entries.items(), key=lambda entry: encoded_text(entry[0])))
        )
    if name == "record":
        return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})
    return VALUES[name]


def encoded_text(text: str) -> bytes:
    return fastavro_bytes("string", text)


@settings(PATIENT, max_examples=50)
@given(
    st.dictionaries(st.text(max_size=5), st.integers(0, 9)).flatmap(
        lambda e: st.permutations(list(e.items()))
    )
)
def test_equal_maps_have_equal_bytes(entries: list[tuple[str, int]]) -> None:
    write = make_writer(Schema.load({"type": "map", "values": "int"}))
    assert encode(write, dict(entries)) == encode(write, dict(sorted(entries)))


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
    loaded = Schema.load(schema)
    data = encode(make_writer(loaded), value)
    assert data == fastavro_bytes(schema, value)
    assert decode(make_reader(loaded), data) == value


@settings(PATIENT, max_examples=200)
@given(cases(), st.data())
def test_damaged_bytes_are_refused_or_are_read_as_fastavro_reads_them(
    case: tuple[Any, Any], data: st.DataObject
) -> None:
    schema, value = case
    damaged = bytearray(encode(make_writer(Schema.load(schema)), value))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged)))
        damaged[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    judge(schema, bytes(damaged))


@settings(PATIENT, max_examples=200)
@given(schemas(), st.binary(max_size=60))
def test_random_bytes_are_refused_or_are_read_as_fastavro_reads_them(schema: Any, data: bytes) -> None:
    judge(schema, data)


def judge(schema: Any, data: bytes) -> None:
    loaded = Schema.load(schema)
    read = make_reader(loaded)
    try:
        value = decode(read, data)
    except Malformed:
        return
    stream = BytesIO(data)
    assert repr(schemaless_reader(stream, parse_schema(schema), None)) == repr(value)
    assert stream.tell() == len(data)
    assert repr(decode(read, encode(make_writer(loaded), value))) == repr(value)
