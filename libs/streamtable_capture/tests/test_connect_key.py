"""Keys are byte for byte those that Kafka Connect writes."""

import json
from typing import Any
from uuid import UUID

import pytest
from libs.streamtable_capture.tests.recorded_topics import SCHEMAS, recorded

from streamtable import Json, Table
from streamtable.base.partitioner import murmur2
from streamtable.errors import DeserializationError, GraphError, SerializationError
from streamtable.flow import Flow
from streamtable_capture import ConnectKey, key_schema
from streamtable_codecs import Confluent, FileRegistry

ODD_TEXT = 'é"/<a>\\ \x01\t\x7f\u2028 \U0001f600'
KEYS = {
    "customers": (ConnectKey(id=int), {1, 2, 7}),
    "lines": (ConnectKey(order_id=int, line=int), {(1, 1)}),
    "codes": (ConnectKey(code=str), {ODD_TEXT}),
    "typed": (ConnectKey(id=int), {1, 2}),
}


@pytest.mark.parametrize("table", KEYS)
def test_each_recorded_key_is_read_and_written_with_the_same_bytes_in_its_own_partition(table: str) -> None:
    codec, expected = KEYS[table]
    found = recorded("plain", table)
    assert {codec.decode(record.key or b"") for record in found} == expected
    for record in found:
        assert codec.encode(codec.decode(record.key or b"")) == record.key
        assert murmur2(record.key or b"") % 12 == record.partition


@pytest.mark.parametrize(
    "other",
    [ConnectKey(customer_id=int), ConnectKey(id=int, schema=key_schema("shop.customers.Key", id="int64"))],
)
def test_tables_whose_keys_have_other_columns_or_schemas_are_not_joined_by_them(other: ConnectKey) -> None:
    orders, customers = Table("orders", ConnectKey(id=int), Json()), Table("customers", other, Json())
    flow = Flow("f")
    with pytest.raises(GraphError, match=r"of keys by ConnectKey\(id=int\) with keys by ConnectKey\("):
        flow.table(orders).join("both", flow.table(customers), lambda order, customer: order)


@pytest.mark.parametrize(
    ("table", "columns", "types"),
    [
        ("customers", {"id": int}, {"id": "int32"}),
        ("lines", {"order_id": int, "line": int}, {"order_id": "int32", "line": "int32"}),
        ("codes", {"code": str}, {"code": "string"}),
        ("typed", {"id": int}, {"id": "int64"}),
    ],
)
def test_keys_with_schemas_are_the_same_bytes_too(
    table: str, columns: dict[str, type], types: dict[str, str]
) -> None:
    codec = ConnectKey(schema=key_schema(f"schemas.public.{table}.Key", **types), **columns)
    for record in recorded("schemas", table):
        assert codec.encode(codec.decode(record.key or b"")) == record.key


@pytest.mark.parametrize("table", KEYS)
def test_keys_in_avro_are_the_same_bytes_too(table: str) -> None:
    content, subject = json.loads(SCHEMAS.read_text()), f"avro.public.{table}-key"
    schema = content["schemas"][str(content["subjects"][subject])]
    framing = Confluent(FileRegistry(SCHEMAS), subject)
    codec = ConnectKey(schema=json.dumps(schema), framing=framing, **KEYS[table][0].columns)
    found = recorded("avro", table)
    assert {codec.decode(record.key or b"") for record in found} == KEYS[table][1]
    for record in found:
        assert codec.encode(codec.decode(record.key or b"")) == record.key
        assert murmur2(record.key or b"") % 12 == record.partition


def test_keys_in_avro_need_the_subject_of_the_raw_topic() -> None:
    with pytest.raises(GraphError, match="the same bytes in every topic"):
        ConnectKey(schema='"string"', framing=Confluent(FileRegistry(SCHEMAS)), id=str)


@pytest.mark.parametrize("value", [True, "1", 1.0, None, 1 << 63, (1,)])
def test_a_value_of_another_type_is_no_key(value: object) -> None:
    with pytest.raises(SerializationError, match=r"ConnectKey\(id=int\)"):
        ConnectKey(id=int).encode(value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"id":"1"}', "Expected `int`"),
        (b'{"id":1,"more":2}', "unknown field"),
        (b"{}", "missing required field `id`"),
        (b"1", "Expected `object`"),
        (b'{"schema":{},"payload":{"id":1}}', "give it as schema="),
    ],
)
def test_bytes_that_are_another_key_are_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(DeserializationError, match=why):
        ConnectKey(id=int).decode(data)


def test_a_key_without_the_declared_schema_is_refused() -> None:
    codec = ConnectKey(schema=key_schema("a.Key", id="int32"), id=int)
    with pytest.raises(DeserializationError, match="no schema, or another one"):
        codec.decode(b'{"id":1}')


def test_other_types_of_columns_are_written_as_connect_writes_them() -> None:
    codec = ConnectKey(u=UUID, b=bytes, f=bool)
    key = (UUID(int=1), b"\0\xff", True)
    assert json.loads(codec.encode(key)) == {"u": str(UUID(int=1)), "b": "AP8=", "f": True}
    assert codec.decode(codec.encode(key)) == key


@pytest.mark.parametrize("columns", [{}, {"id": float}])
def test_a_key_needs_columns_of_types_that_keys_have(columns: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match="ConnectKey has"):
        ConnectKey(**columns)


def test_the_text_of_a_key_names_its_columns() -> None:
    assert repr(ConnectKey(order_id=int, code=str)) == "ConnectKey(order_id=int, code=str)"
