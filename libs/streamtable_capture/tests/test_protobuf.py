"""Envelopes in Protobuf, with bytes that confluent-kafka's serializer has written."""

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from libs.streamtable_codecs.tests.stand_in import StandIn
from msgspec import Struct

from streamtable.errors import DeserializationError
from streamtable_capture import Debezium, decimal_bytes
from streamtable_capture.protobuf import message_reader
from streamtable_codecs import Apicurio, Confluent, FileRegistry, Glue

PLACEHOLDER = "__debezium_unavailable_value"
PLACES = Confluent.places
F = FieldDescriptorProto
TYPES = {
    "string": F.TYPE_STRING,
    "int32": F.TYPE_INT32,
    "int64": F.TYPE_INT64,
    "bytes": F.TYPE_BYTES,
    "bool": F.TYPE_BOOL,
}


class Customer(Struct):
    id: int
    name: str
    total: Annotated[Decimal, decimal_bytes(2)] | None
    bio: str | None


def message(name: str, fields: str, nested: tuple[DescriptorProto, ...] = ()) -> DescriptorProto:
    """Return a message with fields as `int32 id`, or `optional string bio`; a type that is nested is a message."""
    made = DescriptorProto(name=name, nested_type=nested)
    for number, text in enumerate(fields.split(", "), 1):
        *optional, kind, field = text.split()
        one = made.field.add(name=field, number=number, label=F.LABEL_OPTIONAL)
        if kind in TYPES:
            one.type = TYPES[kind]
        else:
            one.type, one.type_name = F.TYPE_MESSAGE, f".shop.Envelope.{kind}"
        if optional and kind in TYPES:
            one.proto3_optional = True
            one.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field}")
    return made


def envelope_file() -> FileDescriptorProto:
    """Return an envelope as Connect's converter describes it, with `optional.for.nullables=true`."""
    value = message("Value", "int32 id, string name, optional bytes total, optional string bio")
    source = message(
        "Source", "string connector, int64 ts_ms, string db, string schema, string table, optional int64 lsn"
    )
    block = message("Block", "string id, int64 total_order, int64 data_collection_order")
    fields = "Value before, Value after, Source source, Block transaction, string op, optional int64 ts_ms"
    envelope = message("Envelope", fields, (value, source, block))
    return FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3", message_type=[envelope])


def change_of(envelope: Any, **row: Any) -> Any:
    return envelope(
        op="u", ts_ms=5, after=row,
        source={"connector": "postgresql", "schema": "public", "table": "customers", "lsn": 7, "ts_ms": 3},
        transaction={"id": "1:2", "total_order": 1, "data_collection_order": 1},
    )  # fmt: skip


def written(registry: StandIn, value: Any) -> bytes:
    with SchemaRegistryClient({"url": registry.url}) as client:
        serializer = ProtobufSerializer(type(value), client, {"use.deprecated.format": False})
        data = serializer(value, SerializationContext("shop.public.customers", MessageField.VALUE))
    assert isinstance(data, bytes)
    return data


def envelope_class() -> Any:
    pool = DescriptorPool()
    pool.Add(envelope_file())
    return GetMessageClass(pool.FindMessageTypeByName("shop.Envelope"))


def test_an_envelope_in_protobuf_becomes_a_change_with_its_row_position_and_transaction(
    registry: StandIn, framing: Confluent
) -> None:
    data = written(registry, change_of(envelope_class(), id=1, name="ann", total=b"\x04\xd2"))
    change = Debezium(Customer, schemas=framing).decode(data)
    assert change.after == Customer(1, "ann", Decimal("12.34"), None)
    assert (change.op, change.source.qualified_table, change.source.lsn) == ("u", "public.customers", 7)
    assert change.transaction is not None
    assert (change.transaction.id, change.before) == ("1:2", None)


def test_an_unavailable_value_in_protobuf_is_known_as_such(registry: StandIn, framing: Confluent) -> None:
    data = written(registry, change_of(envelope_class(), id=1, name="ann", bio=PLACEHOLDER))
    codec = Debezium(Customer, schemas=framing, unavailable="keep")
    assert codec.decode(data).unavailable == ("bio",)


def test_a_flattened_record_in_protobuf_becomes_a_change(registry: StandIn, framing: Confluent) -> None:
    row = message(
        "Row", "int32 id, string name, optional bytes total, optional string bio, string __op, int64 __lsn"
    )
    file = FileDescriptorProto(name="flat.proto", package="shop", syntax="proto3", message_type=[row])
    pool = DescriptorPool()
    pool.Add(file)
    made: Any = GetMessageClass(pool.FindMessageTypeByName("shop.Row"))
    data = written(registry, made(id=1, name="ann", __op="c", __lsn=9))
    codec = Debezium(Customer, schemas=framing, flattened=True)
    change = codec.decode(data)
    assert change.after == Customer(1, "ann", None, None)
    assert (change.op, change.source.lsn) == ("c", 9)


def test_a_map_in_protobuf_becomes_a_dict() -> None:
    entry = message("TagsEntry", "string key, string value")
    entry.options.map_entry = True
    row = message("Row", "int32 id", (entry,))
    row.field.add(
        name="tags", number=2, label=F.LABEL_REPEATED, type=F.TYPE_MESSAGE, type_name=".Row.TagsEntry"
    )
    file = FileDescriptorProto(name="tagged.proto", syntax="proto3", message_type=[row])
    pool = DescriptorPool()
    pool.Add(file)
    made: Any = GetMessageClass(pool.FindMessageTypeByName("Row"))
    read = message_reader(base64.b64encode(file.SerializeToString()).decode(), PLACES.end, PLACES.name)
    data = made(id=1, tags={"a": "b", "c": ""}).SerializeToString()
    assert read(b"\0" + data) == {"id": 1, "tags": {"a": "b", "c": ""}}
    assert read(b"\0") == {"id": 0, "tags": {}}


def test_googles_own_messages_become_plain_values() -> None:
    row = DescriptorProto(name="Row")
    for number, kind in enumerate(("Timestamp", "StringValue", "Struct"), 1):
        row.field.add(
            name=kind,
            number=number,
            label=F.LABEL_OPTIONAL,
            type=F.TYPE_MESSAGE,
            type_name=f".google.protobuf.{kind}",
        )
    imports = [f"google/protobuf/{name}.proto" for name in ("timestamp", "wrappers", "struct")]
    file = FileDescriptorProto(name="own.proto", syntax="proto3", dependency=imports, message_type=[row])
    read = message_reader(base64.b64encode(file.SerializeToString()).decode(), PLACES.end, PLACES.name)
    # {"Timestamp": 1 s, "StringValue": "a", "Struct": {"b": 1.0}}
    found = read(bytes.fromhex("00 0a020801 12030a0161 1a100a0e0a016212091100000000 0000f03f"))
    assert (found["Timestamp"], found["StringValue"]) == (1_000, "a")
    assert found["Struct"]["fields"]["b"]["number_value"] == 1.0


def test_a_framing_names_the_message_of_a_file_in_its_own_form(tmp_path: Path) -> None:
    file = envelope_file()
    file.message_type.insert(0, message("Other", "int32 id"))
    guid = "11111111-1111-1111-1111-111111111111"
    text = base64.b64encode(file.SerializeToString()).decode()
    schemas = {each: {"schemaType": "PROTOBUF", "schema": text} for each in ("7", guid)}
    (tmp_path / "schemas.json").write_text(json.dumps({"schemas": schemas}))
    registry = FileRegistry(tmp_path / "schemas.json")
    body = change_of(envelope_class(), id=1, name="ann").SerializeToString()
    for framing, data in (
        (Confluent(registry), bytes(4) + b"\7" + b"\2\2"),
        (Confluent(registry), b"\1" + UUID(guid).bytes + b"\2\2"),
        (Apicurio(registry), bytes(8) + b"\7" + b"\x0a\x0a\x08Envelope"),
        (Glue(registry), b"\3\0" + UUID(guid).bytes + b"\0"),  # the first by name
    ):
        codec = Debezium(Customer, schemas=framing)
        assert codec.decode(data + body).after == Customer(1, "ann", None, None)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\x00\x00\x01\x02\x0c", r"no message at the place \[6\]"),
        (b"\x00\x00\x00\x00\x01\x00\xff", "not a message shop.Envelope"),
        (b"\x00\x00\x00\x00\x01\xff\xff", "not the place of a message"),
        (b"\x00\x00\x00\x00\x02\x00", "has the source of a Protobuf schema only"),
        (b'{"op":"c"}', "has the connector another converter"),
    ],
)
def test_records_that_cannot_be_read_say_why(data: bytes, why: str, tmp_path: Path) -> None:
    text = base64.b64encode(envelope_file().SerializeToString()).decode()
    file = tmp_path / "schemas.json"
    source = 'syntax = "proto3"; message Envelope { string op = 1; }'
    schemas = {
        number: {"schemaType": "PROTOBUF", "schema": each} for number, each in (("1", text), ("2", source))
    }
    file.write_text(json.dumps({"schemas": schemas}))
    with pytest.raises(DeserializationError, match=why):
        Debezium(Customer, schemas=Confluent(FileRegistry(file))).decode(data)
