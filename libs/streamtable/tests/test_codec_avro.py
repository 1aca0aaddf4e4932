"""The Avro codec: framing, the history of a schema, and errors by the names of the library."""

import json
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypedDict, assert_type, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamtable.base.topics import Stream
from streamtable.codec import Avro, Framing, Long, Plain, SingleObject, String
from streamtable.codec.lazy import Lazy
from streamtable.errors import ConfigurationError, DeserializationError, SerializationError
from streamtable.graph.aggregate import Count
from streamtable.graph.group import Group, Input, Persist
from streamtable_codecs import Confluent, TopicName
from streamtable_codecs.schemas import Definition, Registered
from streamtable_testing import Tester

if TYPE_CHECKING:
    from streamtable.base.ports import Codec


class Click(TypedDict):
    user: str
    at: int


@dataclass(frozen=True)
class Constant:
    """A record schema as in `contracts.records`, with a history that tests choose."""

    schema: str
    history: tuple[str, ...]
    row: type[Click] = Click


def click(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Click", "fields": fields})


V1 = click({"name": "user", "type": "string"})
V2 = click({"name": "user", "type": "string"}, {"name": "at", "type": "long", "default": 0})
CLICK = Constant(V2, (V1, V2))

VALUES: dict[str, list[Any]] = {
    "long": [0, -1, 2**63 - 1],
    "string": ["", "é€"],
    "double": [-0.5],
    "int": [2**31 - 1],
    "boolean": [True, False],
    "bytes": [b"", b"\x00"],
    "float": [0.25],
}


@pytest.mark.parametrize("name", ["long", "string", "double", "int", "boolean", "bytes", "float"])
def test_primitives_carry_the_single_object_header(name: Any) -> None:
    codec: Avro[Any] = Avro(name)
    for value in VALUES[name]:
        data = codec.encode(value)
        assert data == b"\xc3\x01" + codec.schema.fingerprint + Avro(name, Plain()).encode(value)
        assert codec.decode(data) == value
        assert codec.decode_many([None, data]).values == [None, value]


def test_plain_avro_has_nothing_in_front() -> None:
    codec = Avro("long", Plain())
    assert Plain().prefix(codec.schema) == b""
    assert codec.encode(1) == b"\x02"


def test_plain_bytes_that_are_not_what_the_schema_says_are_poison_with_place_and_size() -> None:
    codec = Avro(CLICK, Plain())
    good = codec.encode({"user": "alice", "at": 1})
    decoded = codec.decode_many([good, good + b"\x00", None, good])
    assert decoded.values == [{"user": "alice", "at": 1}, None, None, {"user": "alice", "at": 1}]
    assert decoded.poison[1].message == "Click: 1 bytes are left at the end of the message (8 bytes)"


def test_a_value_that_does_not_fit_is_unencodable_with_its_place() -> None:
    with pytest.raises(SerializationError, match=r"^Click\.at: more than 64 bits$"):
        Avro(CLICK).encode({"user": "alice", "at": 2**63})


def test_a_message_larger_than_the_limit_is_poison() -> None:
    codec = Avro("bytes", Plain(), max_bytes=100)
    assert len(codec.decode(codec.encode(b"x" * 90))) == 90
    with pytest.raises(DeserializationError, match="at most 100"):
        codec.decode(codec.encode(b"x" * 100))
    assert list(codec.decode_many([codec.encode(b"x" * 100)]).poison) == [0]


# ---- framing and history ------------------------------------------------------------------------------------------


def test_a_record_of_an_earlier_version_is_read_as_the_present_one() -> None:
    old, now = Avro(json.loads(V1)), Avro(CLICK)
    row: Click = {"user": "bob", "at": 7}
    column = [now.encode(row), old.encode({"user": "alice"}), None]
    assert now.decode_many(column).values == [row, {"user": "alice", "at": 0}, None]
    assert now.decode(column[1] or b"") == {"user": "alice", "at": 0}


def test_a_schema_of_a_program_may_be_given_with_its_earlier_versions() -> None:
    old, now = Avro(json.loads(V1)), Avro(json.loads(V2), history=[V1])
    assert now.decode(old.encode({"user": "alice"})) == {"user": "alice", "at": 0}
    with pytest.raises(
        DeserializationError, match=r"unknown schema, fingerprint [0-9a-f]{16}: give .*history"
    ):
        Avro(json.loads(V2)).decode(old.encode({"user": "alice"}))


def test_a_history_that_the_present_cannot_read_is_refused_when_the_codec_is_made() -> None:
    with pytest.raises(ConfigurationError, match=r"Click\.id: .*no default"):
        Avro(Constant(click({"name": "id", "type": "string"}), (V1,)))


def test_a_history_in_which_one_fingerprint_means_milliseconds_and_microseconds_is_refused() -> None:
    millis, micros = (
        click({"name": "at", "type": {"type": "long", "logicalType": f"timestamp-{unit}"}})
        for unit in ("millis", "micros")
    )
    with pytest.raises(ConfigurationError, match="timestamp-millis cannot be read as timestamp-micros"):
        Avro(Constant(micros, (millis,)))


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
def test_a_record_that_names_no_known_schema_is_poison_and_reported_in_hex(data: bytes, reason: str) -> None:
    codec = Avro("long")
    with pytest.raises(DeserializationError, match=reason):
        codec.decode(data)
    decoded = codec.decode_many([codec.encode(5), data, codec.encode(6)])
    assert decoded.values == [5, None, 6]
    assert reason in decoded.poison[1].message


def test_poison_is_reported_with_its_place_and_without_the_data() -> None:
    codec = Avro(CLICK)
    with pytest.raises(DeserializationError, match=r"^Click\.user: .*utf-8.*\(17 bytes\)$") as caught:
        codec.decode(codec.encode({"user": "alice", "at": 0})[:10] + b"\x0a\xff\xff\xff\xff\xff\x00")
    assert "ff" not in caught.value.message.replace("0xff", "")


def test_a_schema_that_is_not_safe_is_refused_when_the_codec_is_made() -> None:
    with pytest.raises(ConfigurationError, match="recursive"):
        Avro({"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]})


def test_a_decoder_that_met_thousands_of_unknown_schemas_has_not_grown() -> None:
    codec = Avro("long")
    unknown = [b"\xc3\x01" + number.to_bytes(8, "big") + b"\x00" for number in range(5_000)]
    assert len(codec.decode_many(unknown).poison) == 5_000
    assert len(codec._readers) + len(codec._by_text) <= 2


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


# ---- many at once ---------------------------------------------------------------------------------------------------

FLAT = click({"name": "user", "type": "string"}, {"name": "at", "type": ["null", "long"], "default": None})
ROWS = [{"user": f"user {number}", "at": number if number % 3 else None} for number in range(100)]


def eager(schema: Any = FLAT, framing: Framing | None = None) -> Avro[Any]:
    """A codec that reads every batch by columns."""
    codec: Avro[Any] = Avro(schema, framing)
    codec._columns_from = 1
    return codec


def one_by_one(codec: Avro[Any], data: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    values: list[Any] = []
    poison = {}
    for index, item in enumerate(data):
        try:
            values.append(None if item is None else codec.decode(item))
        except DeserializationError as error:
            values.append(None)
            poison[index] = error.message
    return values, poison


def many(codec: Avro[Any], data: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    decoded = codec.decode_many(data)
    return list(decoded.values), {index: error.message for index, error in decoded.poison.items()}


def test_a_large_batch_is_checked_at_once_and_its_values_are_made_when_looked_at() -> None:
    codec: Avro[Any] = Avro(FLAT)
    data = [codec.encode(row) for row in ROWS]
    assert isinstance(codec.decode_many(data).values, list), "at first it has to learn the prefix"
    decoded = codec.decode_many(data)
    assert isinstance(decoded.values, Lazy)
    assert len(decoded.values) == 100
    assert decoded.values == ROWS
    assert decoded.poison == {}
    assert isinstance(codec.decode_many(data[:10]).values, list), "small ones are not worth it"
    assert isinstance(codec.decode_many([*data, None]).values, list)


def test_what_is_wrong_in_a_large_batch_is_poison_with_the_reason_of_a_single_record() -> None:
    codec = eager(CLICK)
    rows = [{"user": "x" * number, "at": number} for number in range(20)]
    data: list[bytes | None] = [codec.encode(row) for row in rows]
    old = Avro(V1).encode({"user": "alice"})
    data[3:5] = [b"", old]
    data[7] = b"".join((data[7] or b"", b"\x00"))
    data[9] = (data[9] or b"").replace(b"xx", b"\xff\xfe", 1)
    many(codec, data)
    values, poison = many(codec, data)
    assert list(poison) == [3, 7, 9]
    assert values[4] == {"user": "alice", "at": 0}
    assert (values, poison) == one_by_one(Avro(CLICK), data)


def test_a_message_over_the_limit_is_poison_in_a_large_batch_too() -> None:
    codec: Avro[Any] = Avro(FLAT, max_bytes=50)
    data = [codec.encode({"user": "x" * (100 * (number == 5)), "at": None}) for number in range(100)]
    for _ in range(2):
        assert list(codec.decode_many(data).poison) == [5]


@pytest.mark.parametrize("framing", [Plain(), SingleObject()])
def test_a_schema_that_columns_do_not_know_is_read_one_by_one_for_ever(framing: Framing) -> None:
    codec = eager({"type": "array", "items": "long"}, framing)
    data = [codec.encode([number]) for number in range(5)]
    for _ in range(3):
        decoded = codec.decode_many(data)
        assert isinstance(decoded.values, list)
        assert decoded.values == [[number] for number in range(5)]


def test_a_topic_of_an_earlier_version_is_not_checked_twice_for_ever() -> None:
    codec = eager(CLICK)
    new = [codec.encode({"user": "u", "at": 1})] * 4
    old = [Avro(V1).encode({"user": "u"})] * 4
    codec.decode_many(new)
    assert isinstance(codec.decode_many(new).values, Lazy)
    assert isinstance(codec.decode_many(old).values, Lazy)
    lists = 0
    while isinstance(codec.decode_many(new).values, list):
        lists += 1
    assert 10 < lists < 1_000


def test_records_that_many_ids_of_a_registry_name_are_read_by_the_id_met_last() -> None:
    class Ids:
        subjects = TopicName()

        def schema(self, schema_id: int | str) -> Registered:
            return Registered("AVRO", FLAT)

        def id_of(self, subject: str, definition: Definition) -> int:
            return 1

    codec = eager(FLAT, Confluent(Ids(), "s"))
    first = [codec.encode(row) for row in ROWS]
    later = [b"\x00\x00\x00\x00\x02" + each[5:] for each in first]
    for batch in (first, first, later, first):
        assert codec.decode_many(batch).values == ROWS
    codec._pause = 0
    assert isinstance(codec.decode_many(later).values, Lazy)
    assert codec._pause == 0


TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("double", st.floats()),
    ("string", st.text(max_size=5)),
    ("bytes", st.binary(max_size=5)),
    ({"type": "enum", "symbols": ["A", "B"]}, st.sampled_from("AB")),
    ({"type": "fixed", "size": 2}, st.just(b"\x7f\xff")),
]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    fields, values = [], {}
    for number in range(draw(st.integers(1, 4))):
        node, each = draw(st.sampled_from(TYPES))
        node = {**node, "name": f"N{number}"} if isinstance(node, dict) else node
        if draw(st.booleans()):
            node, each = draw(st.permutations(["null", node])), st.none() | each
        fields.append({"name": f"f{number}", "type": node})
        values[f"f{number}"] = each
    rows = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=6))
    return {"type": "record", "name": "R", "fields": fields}, rows


def wounded(draw: Any, data: bytes, other: bytes) -> bytes | None:
    start = draw(st.integers(0, len(data)) | st.integers(min(10, len(data)), len(data)))
    wounds = [
        None,
        b"",
        data[:start],
        data + other[:start],
        data[:start] + other[start:],
        data[:start] + draw(st.binary(max_size=3)) + data[start + draw(st.integers(0, 2)) :],
        data[:start] + b"\xff" * 9 + b"\x01" + data[start + 1 :],
        data[:start] + draw(st.sampled_from(["é", "\U0001f600"])).encode() + data[start + 2 :],
        data[:start] + b"\xed\xa0\x80" + data[start + 3 :],
    ]
    return cast("bytes | None", draw(st.sampled_from(wounds)))


@settings(deadline=None, database=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(batches(), st.sampled_from([Plain, SingleObject]), st.data())
def test_many_at_once_have_the_values_and_the_poison_of_one_by_one(
    batch: tuple[Any, list[Any]], framing: type[Framing], data: st.DataObject
) -> None:
    schema, rows = batch
    codec = eager(schema, framing())
    good = [codec.encode(row) for row in rows]
    assert not codec.decode_many(good).poison
    messages: list[bytes | None] = [*good]
    for _ in range(data.draw(st.integers(0, 3))):
        index = data.draw(st.integers(0, len(good) - 1))
        messages[index] = wounded(data.draw, messages[index] or b"", data.draw(st.sampled_from(good)))
    expected = one_by_one(Avro(schema, framing()), messages)
    assert repr(many(codec, messages)) == repr(expected)
    assert codec._columns is not None or None in messages


def test_a_count_makes_no_values(tester: Tester, monkeypatch: pytest.MonkeyPatch) -> None:
    codec = eager()
    clicks = Stream("clicks", String(), codec)
    group = Group("count", Input(clicks, aggregate=Count()), Persist(Long()))
    tester.create(clicks)
    codec.decode(codec.encode(ROWS[0]))  # learns the prefix
    tester.run(group)
    monkeypatch.setattr(Lazy, "_values", lambda self: pytest.fail("the values were read"))
    tester.emit_many(clicks, [(f"user {number % 2}", row) for number, row in enumerate(ROWS)])
    assert tester.table(group) == {"user 0": 50, "user 1": 50}
    assert codec._columns is not None


def test_numpy_is_not_imported_before_a_large_batch_is_read() -> None:
    program = """
import sys
from streamtable import Avro
codec = Avro({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]})
data = [codec.encode({"a": number}) for number in range(1_000)]
for each in data:
    codec.decode(each)
codec.decode_many(data[:10])
assert "numpy" not in sys.modules
assert codec.decode_many(data).values[999] == {"a": 999}
assert "numpy" in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


def test_an_edited_scale_is_refused_where_the_history_names_it() -> None:
    old, new = (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale} for scale in (2, 3)
    )
    with pytest.raises(ConfigurationError, match="decimal cannot be read as decimal"):
        Avro(new, history=[old])
    # The wire does not say the scale, so without a history the documentation has to.
    assert Avro(new).decode(Avro(old).encode(Decimal("12.34"))) == Decimal("1.234")
