"""Envelopes and flattened records of the real connector, in each JSON form."""

from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, TypedDict
from uuid import UUID

import msgspec
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from libs.streamtable_capture.tests.recorded_topics import SCHEMAS, recorded
from libs.streamtable_capture.tests.shop_database import BIO
from libs.streamtable_capture.tests.shop_rows import BareTyped, Customer, Line, Typed
from libs.streamtable_codecs.tests.stand_in import StandIn
from msgspec import Struct

from streamtable import Avro, Plain
from streamtable.errors import DeserializationError, GraphError
from streamtable_capture import (
    JSON_TEXT,
    VARIABLE_SCALE_DECIMAL,
    ConnectKey,
    DatabaseChange,
    DatabaseSource,
    Debezium,
    Truncated,
    event_time,
)
from streamtable_capture.captured import PlainRows
from streamtable_capture.notes import JsonNotes
from streamtable_capture.rows import RowType
from streamtable_codecs import Confluent, FileRegistry

# ruff: noqa: DTZ001 - columns without a time zone are datetimes without one
VALUES = {
    "id": 1, "i2": 2, "r": 1.5, "d": 2.25, "n": Decimal("12345.67"), "vn": Decimal("-1234.5678"), "b": b"\0\1\xff",
    "u": UUID("6b29fc40-ca47-1067-b31d-00dd010662da"), "j": {"a": 1}, "jb": '{"b": [1, 2]}', "dt": date(2024, 2, 29),
    "tm": time(1, 2, 3, 4000), "tmu": time(1, 2, 3, 4), "ts3": datetime(2024, 2, 29, 1, 2, 3, 4000),
    "ts": datetime(1969, 12, 31, 23, 59, 59, 999999), "tz": datetime(2024, 2, 28, 23, 2, 3, 4, UTC),
    "iv": timedelta(days=2, hours=3), "bits": 0b1010101011, "e": "ok", "arr": [1, 2],
    "pt": bytes.fromhex("0101000000000000000000f03f0000000000000040"),
}  # fmt: skip
REGISTERED = Confluent(FileRegistry(SCHEMAS))
FORMS = {
    "plain": Debezium(Customer, unavailable="keep"),
    "schemas": Debezium(Customer, schemas=True, unavailable="keep"),
    "flat": Debezium(Customer, flattened=True, unavailable="keep"),
    "flat-schemas": Debezium(Customer, schemas=True, flattened=True, unavailable="keep"),
    "flat-tombstones": Debezium(Customer, flattened=True, unavailable="keep"),
    "avro": Debezium(Customer, schemas=REGISTERED, unavailable="keep"),
    "avro-flat": Debezium(Customer, schemas=REGISTERED, flattened=True, unavailable="keep"),
}
WITH_SCHEMAS: dict[str, bool | Confluent] = {
    "schemas": True,
    "flat-schemas": True,
    "avro": REGISTERED,
    "avro-flat": REGISTERED,
}


def changes(form: str, table: str, codec: Debezium[Any]) -> list[DatabaseChange[Any]]:
    return [codec.decode(record.value) for record in recorded(form, table) if record.value is not None]


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_the_same_in_every_form(form: str) -> None:
    found = changes(form, "customers", FORMS[form])
    rows = [change.after for change in found if change.after is not None]
    assert rows == [Customer(1, "ann", True, BIO), Customer(2, "bob", True, None)]
    assert [change.unavailable for change in found if change.unavailable] == [("bio",), ("bio",)]
    assert [change.known["name"] for change in found if change.known] == ["anna", "anna"]
    assert sum(change.deletes for change in found) == 2


@pytest.mark.parametrize("form", ["plain", "schemas", "flat", "flat-schemas", "avro", "avro-flat"])
def test_operations_positions_and_times_are_those_of_the_source(form: str) -> None:
    found = changes(form, "customers", FORMS[form])
    assert sorted(change.op for change in found) == ["c", "d", "d", "r", "r", "u"]
    assert all(change.source.lsn and event_time(change) == change.source.ts_ms > 1.7e12 for change in found)
    assert {change.source.qualified_table for change in found} == {"public.customers"}


@pytest.mark.parametrize("form", ["plain", "avro"])
def test_a_change_has_its_place_in_its_transaction(form: str) -> None:
    moved = [each for each in changes(form, "customers", FORMS[form]) if each.transaction]
    assert {each.transaction and each.transaction.total_order for each in moved if each.op in "dc"} == {1, 2}


@pytest.mark.parametrize("form", ["plain", "flat"])
def test_without_schemas_values_become_what_the_fields_are_annotated_with(form: str) -> None:
    full, empty = (each.after for each in changes(form, "typed", Debezium(Typed, flattened=form == "flat")))
    assert {name: getattr(full, name) for name in VALUES} == VALUES
    assert {getattr(empty, name) for name in VALUES} == {2, None}


@pytest.mark.parametrize("form", WITH_SCHEMAS)
@pytest.mark.parametrize("row", [Typed, BareTyped])
def test_with_schemas_values_become_what_the_schema_says(form: str, row: type[Any]) -> None:
    codec = Debezium(row, schemas=WITH_SCHEMAS[form], flattened="flat" in form)
    full, empty = (each.after for each in changes(form, "typed", codec))
    assert {name: getattr(full, name) for name in VALUES} == VALUES
    assert {getattr(empty, name) for name in VALUES} == {2, None}


def test_a_bare_date_without_a_schema_is_poison_that_says_how_to_declare_it() -> None:
    with pytest.raises(DeserializationError, match="MICRO_TIMESTAMP"):
        changes("plain", "typed", Debezium(Struct_with("ts", datetime | None)))


def Struct_with(name: str, kind: Any) -> type[Any]:  # noqa: N802 - it makes a class
    return type("Row", (Struct,), {"__annotations__": {name: kind}})


DEEP = b"[" * 3_000 + b"]" * 3_000


@pytest.mark.parametrize("value", [b'"\xff"', DEEP], ids=["no-utf-8", "deep"])
@pytest.mark.parametrize(
    "codec",
    [
        Debezium(Struct_with("v", Any)),
        Debezium(dict),
        Debezium(Struct_with("v", Any), flattened=True),
        Debezium(Struct_with("v", Any), schemas=True),
        PlainRows(RowType(Struct_with("v", Any))),
        ConnectKey(v=str),
        JsonNotes(),
    ],
    ids=repr,
)
def test_text_that_is_not_utf_8_and_values_that_are_nested_too_deep_are_poison(
    codec: Any, value: bytes
) -> None:
    row = b'{"v":' + value + b"}"
    envelope = b'{"op":"c","__op":"c","v":' + value + b',"after":' + row + b"}"
    data = envelope if isinstance(codec, Debezium) else row
    if isinstance(codec, Debezium) and codec.schemas:
        data = b'{"schema":{"fields":[]},"payload":' + data + b"}"
    assert list(codec.decode_many([data]).poison) == [0]


def test_a_text_of_json_that_is_nested_too_deep_is_poison() -> None:
    codec = Debezium(Struct_with("v", Annotated[Any, JSON_TEXT]))
    data = msgspec.json.encode({"op": "c", "after": {"v": DEEP.decode()}})
    with pytest.raises(DeserializationError, match="column 'v' cannot be converted"):
        codec.decode(data)


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [1],
        [{"name": "io.debezium.time.Date"}],
        [{"field": "v", "name": "x", "parameters": None}],
        [{"field": "v", "name": "x", "parameters": {"scale": "two"}}],
    ],
)
def test_a_schema_in_a_record_that_has_not_the_form_of_one_is_poison(fields: Any) -> None:
    codec = Debezium(Struct_with("v", Any), schemas=True)
    schema = {"fields": [{"field": "after", "fields": fields}]}
    data = msgspec.json.encode({"schema": schema, "payload": {"op": "c", "after": {"v": 1}}})
    with pytest.raises(DeserializationError, match="no message with a schema"):
        codec.decode(data)


def test_a_field_of_a_plain_type_takes_the_value_as_the_connector_wrote_it() -> None:
    codec = Debezium(Struct_with("ts3", int | None), schemas=True)
    row: Any = changes("schemas", "typed", codec)[0].after
    assert row.ts3 == 1709168523004


@dataclass
class LineOfData:
    order_id: int
    line: int
    qty: int


class LineOfDict(TypedDict):
    order_id: int
    line: int
    qty: int


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Line, Line(1, 1, 5)),
        (LineOfData, LineOfData(1, 1, 5)),
        (LineOfDict, {"order_id": 1, "line": 1, "qty": 5}),
        (dict, {"order_id": 1, "line": 1, "qty": 5}),
        (dict[str, Any], {"order_id": 1, "line": 1, "qty": 5}),
    ],
)
@pytest.mark.parametrize("form", ["plain", "schemas", "flat", "flat-schemas", "avro", "avro-flat"])
def test_rows_are_structs_dataclasses_typed_dicts_or_dicts(form: str, row: type[Any], expected: Any) -> None:
    codec = Debezium(row, schemas=WITH_SCHEMAS.get(form, False), flattened="flat" in form)
    assert changes(form, "lines", codec)[0].after == expected


def test_a_flattened_dict_has_all_columns_of_its_table_and_no_fields_of_the_connector() -> None:
    columns = {"id": 1, "__v": 3, "__typename": "Order", "_id": 7}
    marks = {"__op": "c", "__deleted": "false", "__lsn": 5, "__table": "t", "__ts_ms": 9}
    named = {"__source_ts_ms": 8, "__source_txId": 4, "__transaction_id": "4:5"}
    data = msgspec.json.encode({**columns, **marks, **named})
    assert Debezium(dict, flattened=True).decode(data).after == columns


def test_an_unavailable_value_is_poison_that_names_column_table_and_remedy() -> None:
    record = next(each for each in recorded("plain", "customers") if each.value and b'"op":"u"' in each.value)
    with pytest.raises(
        DeserializationError,
        match=r"'bio' in table 'public\.customers'.*public\.customers REPLICA IDENTITY FULL",
    ):
        Debezium(Customer).decode(record.value or b"")


class Named(Struct):
    id: int
    name: str


PLACEHOLDER, ENCODED = "__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
UNSENT: dict[str, Any] = {
    "text": PLACEHOLDER,
    "bytea": ENCODED,
    "hstore": f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}',
    "hstore, in the mode map": {PLACEHOLDER: PLACEHOLDER},
    "text[]": [PLACEHOLDER],
    "bytea[]": [ENCODED],
    "uuid[]": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    "int[], bigint[], date[]": list(PLACEHOLDER.encode()),
    "float8[], after 3.6": [float(byte) for byte in PLACEHOLDER.encode()],
}
"""The placeholders of the connector 3.6.0 for a value that the database did not send, by the type of the column."""


@pytest.mark.parametrize("placeholder", ['a "quoted" one', "back\\slash", "two\nlines", "\U0001f6ab"])
def test_a_placeholder_that_json_escapes_is_refused_as_it_would_be_taken_for_a_value(
    placeholder: str,
) -> None:
    with pytest.raises(GraphError, match="characters that JSON escapes"):
        Debezium(dict, placeholder=placeholder)


class OfAny(Struct):
    id: int
    c: Any


@pytest.mark.parametrize("unsent", UNSENT.values(), ids=UNSENT)
@pytest.mark.parametrize("row", [OfAny, dict])
@pytest.mark.parametrize("flattened", [False, True])
def test_a_value_that_the_database_did_not_send_is_recognized_in_a_column_of_any_type(
    unsent: Any, row: type[Any], *, flattened: bool
) -> None:
    columns = {"id": 1, "c": unsent}
    data = msgspec.json.encode(
        {**columns, "__op": "u"} if flattened else {"op": "u", "after": columns, "source": {}}
    )
    kept = Debezium(row, flattened=flattened, unavailable="keep").decode(data)
    assert (kept.after, kept.unavailable) == (None, ("c",))
    with pytest.raises(DeserializationError, match=r"the value of 'c' .* is unavailable"):
        Debezium(row, flattened=flattened).decode(data)


@pytest.mark.parametrize(
    ("kind", "unsent"),
    [
        ("string", UNSENT["hstore"]),
        ({"type": "array", "items": "bytes"}, [PLACEHOLDER.encode()]),
        ({"type": "array", "items": "string"}, UNSENT["uuid[]"]),
    ],
)
def test_a_value_that_the_database_did_not_send_is_recognized_in_avro(
    registry: StandIn, framing: Confluent, kind: Any, unsent: Any
) -> None:
    fields = [{"name": "id", "type": "int"}, {"name": "c", "type": kind}, {"name": "__op", "type": "string"}]
    schema = msgspec.json.encode({"type": "record", "name": "Row", "fields": fields}).decode()
    with SchemaRegistryClient({"url": registry.url}) as client:
        number = client.register_schema("rows-value", Schema(schema, "AVRO"))
    data = Avro(schema, Plain()).encode({"id": 1, "c": unsent, "__op": "u"})
    codec = Debezium(OfAny, schemas=framing, flattened=True, unavailable="keep")
    assert codec.decode(b"\0" + number.to_bytes(4, "big") + data).unavailable == ("c",)


def test_an_unavailable_column_that_the_rows_do_not_have_is_passed_over() -> None:
    assert [each.after for each in changes("plain", "customers", Debezium(Named)) if each.op == "u"] == [
        Named(1, "anna")
    ]


def test_before_is_the_old_row_as_far_as_the_database_says_it() -> None:
    gone = [each for each in changes("plain", "customers", FORMS["plain"]) if each.deletes]
    assert gone[0].before == Customer(1, "", True, None)
    assert changes("plain", "lines", Debezium(Line))[0].before is None


def test_before_that_lacks_columns_says_so_when_it_is_asked_for() -> None:
    class Strict(Struct):
        id: int
        bio: str

    codec = Debezium(Strict, unavailable="keep")
    data = next(
        each.value for each in recorded("plain", "customers") if each.value and b'"op":"d"' in each.value
    )
    gone = codec.decode(data)
    with pytest.raises(DeserializationError, match=r"Expected `str`, got `null`.*bio"):
        _ = gone.before


def test_a_truncation_is_fatal() -> None:
    with pytest.raises(Truncated, match=r"'public\.lines' was truncated at position \d+"):
        changes("truncates", "lines", Debezium(Line))


@pytest.mark.parametrize(
    ("form", "codec", "why"),
    [
        ("schemas", Debezium(Line), "declare schemas=True"),
        ("plain", Debezium(Line, schemas=True), "declare schemas=False"),
        ("flat", Debezium(Line), "declare flattened=True"),
        ("plain", Debezium(Line, flattened=True), "missing required field `order_id`"),
        ("plain", Debezium(Named), "Named: Object missing required field `id`"),
        (
            "plain",
            Debezium(Line, table="public.customers"),
            "of table 'public.lines', not of 'public.customers'",
        ),
    ],
)
def test_another_form_is_refused_with_the_declaration_that_fits(
    form: str, codec: Debezium[Any], why: str
) -> None:
    with pytest.raises(DeserializationError, match=why):
        changes(form, "lines", codec)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b'{"op":1}', b'{"op":"c","after":3}', b"\xff"])
@pytest.mark.parametrize("codec", FORMS.values(), ids=list(FORMS))
def test_hostile_bytes_are_poison(codec: Debezium[Any], data: bytes) -> None:
    with pytest.raises(DeserializationError):
        codec.decode(data)


@pytest.mark.parametrize("digits", ["12345678901234567890123456789012345678", "-1", "0", "9" * 60])
@pytest.mark.parametrize("scale", [0, 2, 40, -3])
def test_a_decimal_has_all_its_digits(digits: str, scale: int) -> None:
    number = int(digits)
    data = b64encode(number.to_bytes(32, "big", signed=True)).decode()
    kind: Any = Annotated[Decimal, VARIABLE_SCALE_DECIMAL]
    codec = Debezium(Struct_with("n", kind))
    row: Any = codec.decode(
        b'{"op":"c","after":{"n":{"scale":%d,"value":"%s"}}}' % (scale, data.encode())
    ).after
    assert row.n.as_tuple() == (number < 0, tuple(map(int, digits.lstrip("-"))), -scale)


def test_a_column_that_cannot_be_converted_is_named() -> None:
    codec = Debezium(
        Struct_with("tm", Annotated[time, Typed.__annotations__["tm"].__args__[0].__metadata__[0]])
    )
    with pytest.raises(DeserializationError, match=r"column 'tm'.*24:00:00 is none"):
        codec.decode(b'{"op":"c","after":{"tm":86400000}}')


@pytest.mark.parametrize("row", [int, list[int], str, object])
def test_rows_have_fields(row: type[Any]) -> None:
    with pytest.raises(GraphError, match="rows cannot be"):
        Debezium(row)


def test_a_change_can_be_written_for_tests() -> None:
    codec = Debezium(Line)
    change = codec.decode(
        codec.encode(DatabaseChange(op="c", after=Line(1, 2, 3), source=DatabaseSource(lsn=5, table="lines")))
    )
    assert (change.op, change.after, change.source.lsn) == ("c", Line(1, 2, 3), 5)


def test_two_versions_of_a_schema_in_one_topic_are_told_apart() -> None:
    codec: Any = Debezium(Struct_with("at", datetime), schemas=True)

    def message(semantic: str, value: int) -> bytes:
        column = f'{{"type":"int64","optional":false,"name":"io.debezium.time.{semantic}","field":"at"}}'
        after = f'{{"type":"struct","fields":[{column}],"field":"after"}}'
        return f'{{"schema":{{"fields":[{after}]}},"payload":{{"op":"c","after":{{"at":{value}}}}}}}'.encode()

    for _ in range(2):
        assert codec.decode(message("Timestamp", 1_000)).after.at == datetime(1970, 1, 1, 0, 0, 1)
        assert codec.decode(message("MicroTimestamp", 1_000)).after.at == datetime(1970, 1, 1, 0, 0, 0, 1000)
