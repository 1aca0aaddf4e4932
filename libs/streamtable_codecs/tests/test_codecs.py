"""Protobuf and JSON Schema: plain, behind ids of a registry, and as rows of a group."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libs.streamtable_codecs.tests.messages import MONEY, OLD_STYLE, SHOP, changed, messages, shop
from libs.streamtable_codecs.tests.stand_in import StandIn, serving

from localkafka.certificates import Authority
from streamtable import (
    Avro,
    Codec,
    Context,
    Group,
    Input,
    Long,
    Loop,
    Output,
    Persist,
    State,
    Stream,
    String,
    Table,
)
from streamtable.base.evolution import evolved
from streamtable.errors import (
    ConfigurationError,
    DeserializationError,
    RetryLater,
    SerializationError,
    StateMeaningChanged,
)
from streamtable_codecs import (
    Apicurio,
    Basic,
    Bearer,
    Confluent,
    FileRegistry,
    Glue,
    HttpRegistry,
    JsonSchema,
    Protobuf,
    RecordName,
    Tls,
    TopicName,
    TopicRecordName,
)
from streamtable_codecs.messages import message_at, messages_in
from streamtable_codecs.places import Indexes, Names, Numbers
from streamtable_codecs.plan import schemas_of
from streamtable_testing import Tester

UUID = "9ff70b46-9a26-4a0a-9a3f-0d2f6e7d8c11"


class Order(msgspec.Struct, frozen=True):
    id: str
    cents: int = 0


SCHEMA = {"type": "object", "title": "Order", "properties": {"id": {"type": "string"}}, "required": ["id"]}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving() as server:
        yield server


@pytest.fixture
def registry(server: StandIn) -> Iterator[HttpRegistry]:
    made = HttpRegistry(server.url, register="missing", wait=lambda _: None)
    yield made
    made.close()


def values(codec: Codec[Any], topic: str = "orders") -> Any:
    return Stream(topic, String(), codec).value


def refused(codec: Any, data: bytes) -> str:
    with pytest.raises(DeserializationError) as error:
        codec.decode(data)
    return error.value.message


# ---- Protobuf -----------------------------------------------------------------------------------------------------------


def test_a_plain_message_is_its_bytes() -> None:
    order = shop("Order")(id="a", state=1)
    codec = Protobuf(shop("Order"))
    assert codec.encode(order) == order.SerializeToString()
    assert codec.decode(order.SerializeToString()) == order
    assert codec.decode_many([order.SerializeToString(), None, b"\xff"]).values[:2] == [order, None]


def test_fields_that_the_class_does_not_know_are_kept() -> None:
    data = changed("Order")(id="a", more="x").SerializeToString()
    codec = Protobuf(shop("Order"))
    assert codec.encode(codec.decode(data)) == data


def test_bytes_that_are_no_message_are_poison() -> None:
    assert refused(Protobuf(shop("Order")), b"\x0a\xff").startswith("Order: not such a message: ")
    assert refused(Protobuf(shop("Order"), max_bytes=3), b"\x0a\x02aa") == "Order: 4 bytes, at most 3"


def test_a_required_field_that_is_missing_is_poison() -> None:
    kind = messages(old=OLD_STYLE)("shop.Strict")
    assert refused(Protobuf(kind), b"") == "Strict: required fields are missing: id"
    with pytest.raises(SerializationError, match=r"Strict: .*required"):
        Protobuf(kind).encode(kind())


def test_another_message_is_not_written() -> None:
    with pytest.raises(SerializationError, match="Order: expected Order, got Head"):
        Protobuf(shop("Order")).encode(shop("Head")())


def test_equal_keys_have_equal_bytes_and_a_message_with_floats_is_no_key() -> None:
    keys = Stream("s", Protobuf(shop("Key")), String()).key
    one, other = ({f"k{n}": "v" for n in order} for order in (range(20), reversed(range(20))))
    assert keys.encode(shop("Key")(tags=one)) == keys.encode(shop("Key")(tags=other))
    with pytest.raises(
        ConfigurationError, match=r"cannot be the codec of a key: equal values of shop\.Order\.weight"
    ):
        Stream("s", Protobuf(shop("Order")), String())


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("Head", "00"),
        ("Order", "0202"),
        ("Order.Line", "040200"),
        ("Order.Line.Deep", "06020000"),
        ("Key", "0204"),
    ],
)
def test_confluent_s_place_of_a_message_is_written_in_zig_zag_varints(name: str, data: str) -> None:
    places, file = Indexes(), messages_in(SHOP)
    place = places.written(shop(name).DESCRIPTOR)
    assert place.hex() == data
    assert places.end(b"xx" + place + b"rest", 2) == 2 + len(place)
    assert places.name(place, *file) == f"shop.{name}"


@pytest.mark.parametrize(
    ("name", "data"),
    [("Head", "00"), ("Key", "01"), ("Key.TagsEntry", "02"), ("Order", "03"), ("Order.Line.Deep", "06")],
)
def test_glue_s_number_of_a_message_is_its_place_among_all_full_names(name: str, data: str) -> None:
    # Sorted: Head, Key, Key.TagsEntry, Order, Order.CountsEntry, Order.Line, Order.Line.Deep, Order.Note.
    places, file = Numbers(), messages_in(Protobuf(shop("Order")).definition.text)
    place = places.written(shop(name).DESCRIPTOR)
    assert place.hex() == data
    assert places.end(place + b"rest", 0) == 1
    assert places.name(place, *file) == f"shop.{name}"
    with pytest.raises(IndexError, match="of the number 8"):
        places.name(b"\x08", *file)


def test_apicurio_s_message_with_the_name_stands_before_a_message_of_the_top_level() -> None:
    places, file = Names(), messages_in(SHOP)
    place = places.written(shop("Order").DESCRIPTOR)
    assert place == b"\x07\x0a\x05Order"
    assert places.end(b"x" + place + b"rest", 1) == 9
    assert places.name(place, *file) == "shop.Order"
    with pytest.raises(
        ConfigurationError, match=r"cannot name shop\.Order\.Line, which is inside of another"
    ):
        places.written(shop("Order.Line").DESCRIPTOR)
    with pytest.raises(IndexError, match="of the name 'Line' at its top level"):
        places.name(b"\x06\x0a\x04Line", *file)
    for bad in (b"\x00", b"\x01\x0b"):
        with pytest.raises(DeserializationError, match="not the name of a message"):
            places.name(bad, *file)
    with pytest.raises(DeserializationError, match="9 bytes, with 1 left"):
        places.end(b"\x09\x0a", 0)


def test_the_messages_of_a_source_are_found_as_in_its_descriptor() -> None:
    source, descriptor = (messages_in(text) for text in (SHOP, Protobuf(shop("Order")).definition.text))
    for place in ((0,), (1,), (1, 0), (1, 0, 0), (1, 1), (2,)):
        assert message_at(*source, place)[0] == message_at(*descriptor, place)[0]
    assert message_at(*source, (1, 0, 0))[0] == "shop.Order.Line.Deep"


def test_each_bad_prefix_has_a_message_of_its_own(server: StandIn, registry: HttpRegistry) -> None:
    codec = values(Protobuf(shop("Order"), Confluent(registry)))
    good = codec.encode(shop("Order")(id="a"))
    number = int.from_bytes(good[1:5], "big")
    assert good[:7].hex() == f"00{number:08x}0202"
    values(Avro("long", Confluent(registry)), "numbers").encode(1)
    avro = registry.registered("numbers-value", _long()) or 0
    assert refused(codec, b"\x02" + good[1:]).startswith("not Confluent's format: begins with 02")
    assert refused(codec, b"\x01" + good[1:5]).startswith("not Confluent's format: begins with 01")
    assert refused(codec, b"").startswith("not Confluent's format: begins with nothing")
    assert refused(codec, b"\x00\x00\x00\x00\x63" + good[5:]) == "schema id 99: the registry does not know it"
    assert (
        refused(codec, b"\x00" + avro.to_bytes(4, "big") + b"\x00")
        == f"schema id {avro}: a schema of type AVRO, not Protobuf"
    )
    assert refused(codec, good[:5] + b"\x02\x0a") == f"schema id {number} has no message at the place [5]"
    assert refused(codec, good[:5] + b"\x02\x01") == f"schema id {number} has no message at the place [-1]"
    assert refused(codec, good[:5] + b"\x00") == f"schema id {number}: a message shop.Head, not shop.Order"
    assert refused(codec, good[:5] + b"\x80") == "not the place of a message: 80"
    assert refused(codec, good[:5] + b"\x7f") == "not the place of a message: it has -64 indexes"
    assert codec.decode(good) == shop("Order")(id="a")


def _long() -> Any:
    from streamtable_codecs.schemas import Definition  # noqa: PLC0415 - of the registry's inside

    return Definition("AVRO", '"long"', "long")


def test_a_writer_whose_fields_have_other_types_is_refused(registry: HttpRegistry) -> None:
    writer = values(Protobuf(changed("Head"), Confluent(registry, "s")))
    reader = values(Protobuf(shop("Head"), Confluent(registry, "s")))
    message = refused(reader, writer.encode(changed("Head")(a=5)))
    assert (
        "cannot be read, by numbers of fields: $.1: enum or int32 or int64 or uint32 was written, and string is read"
        in message
    )


LIST = 'syntax = "proto2"; message E { optional string key = 1; optional int64 value = 2; } message M { repeated E e = 1; }'
MAP = 'syntax = "proto2"; message M { map<string, int64> e = 1; }'
GROUP = 'syntax = "proto2"; message M { optional group R = 1 { optional int64 a = 1; } }'
MESSAGE = 'syntax = "proto2"; message R { optional int64 a = 1; } message M { optional R r = 1; }'
DELIMITED = """edition = "2023"; option features.message_encoding = DELIMITED;
message R { int64 a = 1; map<string, R> nested = 2; } message M { R r = 1; map<string, R> more = 2; }"""


@pytest.mark.parametrize(
    ("written", "read", "fits"),
    [
        (LIST, MAP, False),
        (MAP, LIST, True),
        (MAP, MAP, True),
        (LIST, LIST, True),
        (GROUP, MESSAGE, False),
        (MESSAGE, GROUP, False),
        (GROUP, GROUP, True),
        (DELIMITED, DELIMITED, True),
        (DELIMITED, MESSAGE, False),
        (MESSAGE, DELIMITED, False),
    ],
)
def test_a_list_is_not_read_as_a_map_that_has_each_key_once_nor_a_group_as_a_message(
    registry: HttpRegistry, written: str, read: str, *, fits: bool
) -> None:
    old, new = (messages(m=each)("M") for each in (written, read))
    assert (evolved(Protobuf(old).recorded, Protobuf(new).recorded)[1] == "") == fits
    data = values(Protobuf(old, Confluent(registry, "s"))).encode(old())
    reader = values(Protobuf(new, Confluent(registry, "s")))
    if fits:
        assert reader.decode(data) == new()
    else:
        assert "cannot be read, by numbers of fields: $.1" in refused(reader, data)


def test_keys_with_lists_are_those_that_were_recorded_before_lists_differed_from_maps() -> None:
    codec = Protobuf(messages(m=LIST)("M"))
    assert '["array", "list"]' in codec.recorded
    recorded = codec.for_keys().recorded
    assert '{"1": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/E"}}' in recorded


def test_a_schema_that_a_registry_has_as_source_is_enough(server: StandIn, registry: HttpRegistry) -> None:
    codec = values(Protobuf(shop("Order"), Confluent(registry)))
    data = codec.encode(shop("Order")(id="a"))
    found = server.schemas[int.from_bytes(data[1:5], "big") - 1]
    found["schema"] = SHOP
    assert values(Protobuf(shop("Order"), Confluent(HttpRegistry(server.url)))).decode(data).id == "a"


def test_messages_stand_behind_apicurio_s_and_glue_s_prefixes(
    server: StandIn, registry: HttpRegistry, tmp_path: Path
) -> None:
    order = shop("Order")(id="a")
    apicurio = values(Protobuf(shop("Order"), Apicurio(registry)))
    data = apicurio.encode(order)
    number = len(server.schemas)
    assert data == b"\x00" + number.to_bytes(8, "big") + b"\x07\x0a\x05Order" + order.SerializeToString()
    assert apicurio.decode(data) == order
    assert (
        refused(apicurio, data[:9] + b"\x06\x0a\x04Head")
        == f"schema id {number}: a message shop.Head, not shop.Order"
    )
    assert "has no message of the name 'Line'" in refused(apicurio, data[:9] + b"\x06\x0a\x04Line")

    path = tmp_path / "schemas.json"
    text = {"schemaType": "PROTOBUF", "schema": Protobuf(shop("Order")).definition.text}
    path.write_text(json.dumps({"schemas": {UUID: text}, "subjects": {"orders-value": UUID}}))
    glue = values(Protobuf(shop("Order"), Glue(FileRegistry(path))))
    data = glue.encode(order)
    assert data == bytes.fromhex("0300" + UUID.replace("-", "") + "03") + order.SerializeToString()
    assert glue.decode(data) == order
    assert refused(glue, data[:18] + b"\x00") == f"schema id {UUID}: a message shop.Head, not shop.Order"
    assert refused(glue, data[:18]) == "not the place of a message: nothing"


def test_the_fields_of_an_imported_message_are_compared_too(server: StandIn, registry: HttpRegistry) -> None:
    changed_money = MONEY.replace("int64 cents = 1", "string cents = 1")
    other = messages(money=changed_money, shop=SHOP)("shop.Order")
    writer = values(Protobuf(other, Confluent(registry, "s")))
    data = writer.encode(other(lines=[{"price": {"cents": "5"}}]))
    reader = values(Protobuf(shop("Order"), Confluent(HttpRegistry(server.url), "s")))
    assert "Order by schema id 2 cannot be read, by numbers of fields: $.2" in refused(reader, data)


def test_imports_in_a_file_are_compared_when_it_is_read_and_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "schemas.json"
    other = messages(money=MONEY.replace("int64 cents = 1", "string cents = 1"), shop=SHOP)("shop.Order")

    def codec(reader: Any, written: Any) -> Any:
        definition = Protobuf(written).definition
        ((name, money),) = definition.imports
        file = {"schemaType": "PROTOBUF", "schema": definition.text, "references": {name: 1}}
        schemas = {"1": {"schemaType": "PROTOBUF", "schema": money.text}, "2": file}
        path.write_text(json.dumps({"schemas": schemas, "subjects": {"s": 2}}))
        return values(Protobuf(reader, Confluent(FileRegistry(path), "s")))

    value = other(lines=[{"price": {"cents": "5"}}])
    data = codec(other, other).encode(value)
    assert codec(other, other).decode(data) == value
    assert "Order by schema id 2 cannot be read, by numbers of fields: $.2" in refused(
        codec(shop("Order"), other), data
    )
    with pytest.raises(ConfigurationError, match="no subject 's' with the schema"):
        codec(other, shop("Order")).encode(value)


@settings(max_examples=200, deadline=None)
@given(st.text(), st.integers(-(2**31), 2**31 - 1), st.dictionaries(st.text(), st.text(), max_size=3))
def test_a_message_comes_back_as_it_was(name: str, shelf: int, tags: dict[str, str]) -> None:
    key = shop("Key")(shop=name, shelf=shelf, tags=tags)
    codec = Protobuf(shop("Key"))
    assert codec.decode(codec.encode(key)) == key


# ---- JSON Schema --------------------------------------------------------------------------------------------------------


def test_json_of_a_type_stands_behind_the_id_of_its_schema(server: StandIn, registry: HttpRegistry) -> None:
    codec = values(JsonSchema(Order, Confluent(registry)))
    data = codec.encode(Order("a", 5))
    assert data == b"\x00\x00\x00\x00\x01" + b'{"id":"a","cents":5}'
    assert codec.decode(data) == Order("a", 5)
    assert server.schemas[0]["schemaType"] == "JSON"
    assert codec.decode_many([data, data[:5] + b"{}", None]).values == [Order("a", 5), None, None]
    assert codec.decode_many([data, data]).values == [Order("a", 5), Order("a", 5)]
    assert refused(codec, data[:5] + b'{"id":5}') == "Order: $.id: expected str, got int"
    assert refused(codec, b"\x00\x00\x00\x00\x09{}") == "schema id 9: the registry does not know it"
    assert refused(codec, b'{"id":"a"}').startswith("not Confluent's format: begins with 7b")


def test_values_of_a_schema_are_plain_json_that_fits_it() -> None:
    codec = JsonSchema(SCHEMA)
    assert codec.decode(codec.encode({"id": "a", "more": [1]})) == {"id": "a", "more": [1]}
    assert refused(codec, b'{"id":5}') == "Order: $.id: 5 is not of type 'string'"
    with pytest.raises(SerializationError, match=r"Order: \$: 'id' is a required property"):
        codec.encode({})
    with pytest.raises(ConfigurationError, match="JsonSchema: "):
        JsonSchema({"type": "nothing"})
    with pytest.raises(ConfigurationError, match="not JSON"):
        JsonSchema("{")


@pytest.mark.parametrize("kind", [{"type": "array"}, list[int]], ids=repr)
def test_rows_of_a_json_schema_with_a_tuple_are_refused(kind: Any) -> None:
    codec = JsonSchema(kind)
    assert codec.encode((1, 2)) == b"[1,2]"
    with pytest.raises(SerializationError, match=r"tuple.* would be read as .*list: write list\(\.\.\.\)"):
        Persist(codec).value.encode((1, 2))


def test_the_default_of_a_schema_may_change_and_the_type_of_a_field_may_not() -> None:
    def group(cents: Any) -> Group[str, Any]:
        schema = {**SCHEMA, "properties": {"id": {"type": "string"}, "cents": cents}}
        return Group("g", Input(names, lambda ctx, name: ctx.set({"id": name})), Persist(JsonSchema(schema)))

    names = Stream("names", String(), String())
    first, second = group({"type": "integer", "default": 5}), group({"type": "integer"})
    with Tester() as tester:
        tester.run(first)
        tester.emit(names, "a", "x")
        tester.stop(first)
        tester.start(second)
        assert tester.table(second) == {"a": {"id": "x"}}
        tester.stop(second)
        with pytest.raises(StateMeaningChanged, match=r"\$\.cents: integer was written"):
            tester.start(group({"type": "string"}))


def test_a_record_can_be_checked_by_the_schema_of_its_writer_too(
    server: StandIn, registry: HttpRegistry
) -> None:
    short = {**SCHEMA, "properties": {"id": {"type": "string", "maxLength": 3}}}
    data = values(JsonSchema(short, Confluent(registry, "s"))).encode({"id": "abc"})[:5] + b'{"id":"abcd"}'
    assert values(JsonSchema(Order, Confluent(registry, "s"))).decode(data) == Order("abcd")
    both = values(JsonSchema(Order, Confluent(registry, "s"), validate="writer"))
    assert refused(both, data) == "Order: $.id: 'abcd' is too long (by the writer's schema)"


def test_a_writer_s_schema_is_read_with_those_that_it_refers_to(
    server: StandIn, registry: HttpRegistry
) -> None:
    server.answer(
        "POST",
        "/subjects/id.json/versions",
        {},
        {"schema": '{"type":"string","maxLength":3}', "schemaType": "JSON"},
    )
    body = {
        "schema": '{"type":"object","properties":{"id":{"$ref":"id.json"}}}',
        "schemaType": "JSON",
        "references": [{"name": "id.json", "subject": "id.json", "version": 1}],
    }
    server.answer("POST", "/subjects/orders-value/versions", {}, body)
    codec = values(JsonSchema(Order, Confluent(registry), validate="writer"))
    assert codec.decode(b'\x00\x00\x00\x00\x02{"id":"abc"}') == Order("abc")
    assert "is too long" in refused(codec, b'\x00\x00\x00\x00\x02{"id":"abcd"}')


def test_a_name_of_a_writer_s_reference_is_relative_to_the_identifier_of_its_schema(
    server: StandIn, registry: HttpRegistry
) -> None:
    def register(subject: str, schema: dict[str, Any], *names: str) -> None:
        references = [{"name": each, "subject": each, "version": 1} for each in names]
        body = {"schema": json.dumps(schema), "schemaType": "JSON", "references": references}
        assert server.answer("POST", f"/subjects/{subject}/versions", {}, body)[0] == 200

    register("short.json", {"maxLength": 3})
    register("id.json", {"type": "string", "$ref": "short.json"}, "short.json")
    properties = {"id": {"$ref": "id.json"}}
    register("orders-value", {"$id": "http://shop/order.json", "properties": properties}, "id.json")
    codec = values(JsonSchema(Order, Confluent(registry), validate="writer"))
    assert codec.decode(b'\x00\x00\x00\x00\x03{"id":"abc"}') == Order("abc")
    assert "is too long" in refused(codec, b'\x00\x00\x00\x00\x03{"id":"abcd"}')


RECURSIVE = {"title": "Order", "type": "object", "properties": {"next": {"$ref": "#"}}}
DEEP, LESS_DEEP = (b'{"next":' * levels + b"{}" + b"}" * levels for levels in (400, 250))


def test_a_record_that_is_nested_too_deep_for_its_schema_is_poison(registry: HttpRegistry) -> None:
    codec = JsonSchema(RECURSIVE)
    assert codec.decode(b'{"next":{"next":{}}}') == {"next": {"next": {}}}
    assert refused(codec, DEEP) == "Order: nested too deep"
    with pytest.raises(SerializationError, match="nested too deep"):
        codec.encode(json.loads(LESS_DEEP))  # as much as orjson writes
    written = values(JsonSchema(RECURSIVE, Confluent(registry, "s"))).encode({})
    by_writer = values(JsonSchema(Order, Confluent(registry, "s"), validate="writer"))
    deep = b'{"id":"a",' + DEEP[1:]
    assert refused(by_writer, written[:5] + deep) == "Order: nested too deep (by the writer's schema)"


@pytest.mark.parametrize("place", ["gone.json", "#/definitions/gone"])
def test_a_record_whose_writer_s_schema_refers_to_nothing_is_poison(
    server: StandIn, registry: HttpRegistry, place: str
) -> None:
    schema = json.dumps({"type": "object", "properties": {"id": {"$ref": place}}})
    server.answer("POST", "/subjects/s/versions", {}, {"schema": schema, "schemaType": "JSON"})
    codec = values(JsonSchema(Order, Confluent(registry, "s"), validate="writer"))
    assert "gone" in refused(codec, b'\x00\x00\x00\x00\x01{"id":"abc"}')


def test_a_writer_s_schema_that_refers_to_what_is_no_schema_makes_its_records_poison(
    server: StandIn, registry: HttpRegistry
) -> None:
    other = {"schema": '{"$schema":5}', "schemaType": "JSON"}
    server.answer("POST", "/subjects/id.json/versions", {}, other)
    references = [{"name": "id.json", "subject": "id.json", "version": 1}]
    body = {"schema": '{"$ref":"id.json"}', "schemaType": "JSON", "references": references}
    server.answer("POST", "/subjects/s/versions", {}, body)
    codec = values(JsonSchema(Order, Confluent(registry, "s"), validate="writer"))
    reason = refused(codec, b'\x00\x00\x00\x00\x02{"id":"abc"}')
    assert reason.startswith("schema id 2: not a JSON Schema: ")


def test_a_writer_s_record_that_is_no_json_where_the_type_does_not_look_is_poison(
    registry: HttpRegistry,
) -> None:
    written = values(JsonSchema(SCHEMA, Confluent(registry, "s"))).encode({"id": "a"})[:5]
    codec = values(JsonSchema(Order, Confluent(registry, "s"), validate="writer"))
    assert "not valid UTF-8" in refused(codec, written + b'{"id":"a","more":"\xff"}')


def test_keys_of_json_are_checked_as_those_of_typed(registry: HttpRegistry) -> None:
    keys = Stream("s", JsonSchema(Order, Confluent(registry)), String()).key
    assert keys.decode(keys.encode(Order("a"))) == Order("a")
    with pytest.raises(ConfigurationError, match="cannot be the codec of a key"):
        Stream("s", JsonSchema(dict[str, float], Confluent(registry)), String())


# ---- framings, subjects, access -----------------------------------------------------------------------------------------


def test_prefixes_of_apicurio_and_glue_name_ids_of_their_own_sizes(tmp_path: Path) -> None:
    path = tmp_path / "schemas.json"
    order = {"schemaType": "JSON", "schema": JsonSchema(Order).definition.text}
    subjects = {"a": 1 << 40, "g": UUID}
    path.write_text(json.dumps({"schemas": {str(1 << 40): "long", UUID: order}, "subjects": subjects}))
    registry = FileRegistry(path)
    apicurio = Avro("long", Apicurio(registry, "a"))
    assert apicurio.encode(5) == b"\x00" + (1 << 40).to_bytes(8, "big") + b"\x0a"
    assert apicurio.decode(apicurio.encode(5)) == 5
    glue = JsonSchema(Order, Glue(registry, "g"))
    data = glue.encode(Order("a"))
    assert data[:18].hex() == "0300" + UUID.replace("-", "")
    assert glue.decode(data) == Order("a")
    assert refused(glue, b"\x03\x05" + data[2:]).startswith("AWS Glue's format with compression 5")
    assert refused(glue, b"\x04" + data[1:]).startswith("not AWS Glue's format: begins with 04")
    assert refused(Avro("long", Glue(registry)), data) == f"schema id {UUID}: a schema of type JSON, not Avro"


@pytest.mark.parametrize(
    ("subjects", "subject"),
    [
        (None, "orders-value"),
        (TopicName(), "orders-value"),
        (RecordName(), "shop.Order"),
        (TopicRecordName(), "orders-shop.Order"),
    ],
)
def test_a_schema_is_registered_under_the_subject_that_the_rule_names(
    server: StandIn, subjects: Any, subject: str
) -> None:
    registry = HttpRegistry(server.url, register="missing", subjects=subjects)
    values(Protobuf(shop("Order"), Confluent(registry))).encode(shop("Order")())
    assert subject in server.subjects
    registry.close()


def test_a_codec_of_two_topics_has_a_subject_in_each_and_is_the_same_for_the_same_topic(
    server: StandIn, registry: HttpRegistry
) -> None:
    codec = JsonSchema(Order, Confluent(registry))
    one, other = Stream("one", String(), codec), Table("other", codec, codec)
    one.value.encode(Order("a"))
    other.value.encode(Order("a"))
    other.key.encode(Order("a"))
    assert sorted(server.subjects) == ["one-value", "other-key", "other-value"]
    assert Stream("one", String(), Avro("long", Confluent(registry, "s"))).value.framing.subject == "s"  # type: ignore[attr-defined]
    assert Stream("one", String(), codec).value is one.value
    with pytest.raises(ConfigurationError, match="to write Order, name the subject"):
        codec.encode(Order("a"))


def test_a_schema_that_is_not_registered_is_refused_unless_it_is_to_be_registered(server: StandIn) -> None:
    registry = HttpRegistry(server.url)
    assert (
        registry.compatible("orders-value", Protobuf(shop("Order")).definition) == ""
    )  # with its imports missing
    with pytest.raises(
        ConfigurationError, match=r"Order is not registered under 'orders-value'.*schemas apply"
    ):
        values(JsonSchema(Order, Confluent(registry))).encode(Order("a"))
    registry.close()


def test_an_id_that_was_unknown_is_known_once_we_write_with_it(registry: HttpRegistry) -> None:
    codec = values(JsonSchema(Order, Confluent(registry)))
    assert "does not know it" in refused(codec, b"\x00\x00\x00\x00\x01{}")
    assert codec.decode(codec.encode(Order("a"))) == Order("a")


def test_an_incompatible_schema_is_refused_by_the_registry(server: StandIn, registry: HttpRegistry) -> None:
    values(JsonSchema(Order, Confluent(registry, "s"))).encode(Order("a"))
    other = msgspec.defstruct("Order", [("id", int)])
    with pytest.raises(
        ConfigurationError, match=r"incompatible: \$\.id: string was written, and integer is read"
    ):
        values(JsonSchema(other, Confluent(registry, "s"))).encode(other(5))


def test_while_the_registry_is_away_known_schemas_go_on_and_others_wait(
    server: StandIn, registry: HttpRegistry
) -> None:
    codec = values(JsonSchema(Order, Confluent(registry)))
    data = codec.encode(Order("a"))
    codec.decode(data)
    server.away = True
    assert codec.decode(data) == Order("a")
    assert codec.encode(Order("b"))[5:] == b'{"id":"b","cents":0}'
    with pytest.raises(RetryLater, match="status 503"):
        codec.decode(b"\x00\x00\x00\x00\x63{}")
    before = len(server.requests)
    codec.decode_many([data] * 100)
    assert len(server.requests) == before


@pytest.mark.parametrize(
    ("auth", "header"),
    [(Basic("u", "p"), "Basic dTpw"), (Bearer("t"), "Bearer t"), (Bearer(lambda: "made"), "Bearer made")],
)
def test_requests_carry_the_user_or_the_token(server: StandIn, auth: Any, header: str) -> None:
    registry = HttpRegistry(server.url, auth=auth)
    assert registry.registered("s", _long()) is None
    assert server.headers == [header]
    assert "p" not in repr(auth).replace("Bearer", "").removeprefix("Basic")
    registry.close()


def test_a_registry_over_tls_is_trusted_by_its_authority_and_knows_its_client(tmp_path: Path) -> None:
    authority = Authority("registry")
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    for name in ("server", "client"):
        authority.issue(name).write_together(tmp_path / f"{name}.pem")
    settings = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    settings.load_cert_chain(tmp_path / "server.pem")
    settings.verify_mode = ssl.CERT_REQUIRED
    with serving(settings) as server:
        known = HttpRegistry(server.url, tls=Tls(tmp_path / "ca.pem", tmp_path / "client.pem"))
        assert known.registered("s", _long()) is None
        for tls in (None, Tls(tmp_path / "ca.pem")):  # it is not trusted; it does not know us
            other = HttpRegistry(server.url, tls=tls, attempts=1)
            with pytest.raises(RetryLater, match="does not answer"):
                other.registered("s", _long())
            other.close()
        known.close()
    assert server.requests == ["POST /subjects/s"]


def test_a_certificate_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.pem"):
        HttpRegistry("https://localhost", tls=Tls(ca=tmp_path / "missing.pem"))
    with pytest.raises(ConfigurationError, match="register='always'"):
        HttpRegistry("https://localhost", register="always")  # type: ignore[arg-type] # it is refused


# ---- in a group ---------------------------------------------------------------------------------------------------------


def test_messages_are_events_and_rows_of_a_group_and_a_change_that_reads_other_values_is_refused(
    registry: HttpRegistry,
) -> None:
    orders = Stream("orders", String(), Protobuf(shop("Order"), Confluent(registry)))

    def group(kind: Any) -> Group[str, Any]:
        def keep(ctx: Context[str, Any], order: Any) -> None:
            ctx.set(kind(a=order.id) if isinstance(kind().a, str) else kind())

        return Group("g", Input(orders, keep), Persist(Protobuf(kind)))

    with Tester() as tester:
        first = group(shop("Head"))
        tester.run(first)
        tester.emit(orders, "a", shop("Order")(id="1"))
        tester.emit(Stream("orders", String(), Long()), "a", 5)
        assert tester.table(first) == {"a": shop("Head")(a="1")}
        assert tester.dead_letters(first)[0].reason == "schema id 0: the registry does not know it"
        tester.stop(first)
        with pytest.raises(StateMeaningChanged, match=r"\$\.1: string was written, and enum or int32"):
            tester.start(group(changed("Head")))


def test_rows_behind_ids_have_the_subject_of_the_table_s_topic_and_states_name_theirs(
    server: StandIn, registry: HttpRegistry
) -> None:
    kept = State("kept", key=String(), value=JsonSchema(Order, Confluent(registry, "kept")))

    def keep(ctx: Context[str, Any], order: Any) -> None:
        ctx.set(order)
        ctx.table(kept).put(order.id, order)

    orders = Stream("orders", String(), JsonSchema(Order, Confluent(registry)))
    group = Group("g", Input(orders, keep), Persist(JsonSchema(Order, Confluent(registry))), kept)
    with Tester() as tester:
        tester.run(group)
        tester.emit(orders, "a", Order("1"))
        assert tester.table(group) == {"a": Order("1")}
        assert tester.table(group, kept) == {"1": Order("1")}
    assert sorted(server.subjects) == ["g-table-value", "kept", "orders-value"]


@pytest.mark.parametrize("codec", [JsonSchema, Protobuf, Avro])
def test_a_group_does_not_start_before_what_it_writes_is_registered_and_the_error_says_what_to_do(
    server: StandIn, codec: Any
) -> None:
    registry = HttpRegistry(server.url, attempts=1, wait=lambda _: None)
    of, other = {
        JsonSchema: (Order, msgspec.defstruct("Order", [("id", int)])),
        Protobuf: (shop("Head"), None),
        Avro: ("long", "string"),
    }[codec]

    def group(kind: Any) -> Group[str, Any]:
        out = Stream("orders", String(), codec(kind, Confluent(registry)))
        return Group("g", Input(Stream("in", String(), Long()), lambda ctx, event: None), Output(out))

    def start(kind: Any) -> None:
        with Tester() as tester:
            tester.run(group(kind))

    with pytest.raises(ConfigurationError, match=r"is not registered under 'orders-value'.*schemas apply"):
        start(of)
    registry.register_schema("orders-value", schemas_of([group(of)])[0].definition)
    start(of)
    server.away = True
    start(of)  # an id that is known needs no registry
    server.away = False
    if other is not None:
        with pytest.raises(ConfigurationError, match=r"would be refused \(.*\): make a change of the type"):
            start(other)
    registry.close()


def test_a_group_does_not_start_before_what_it_sends_to_itself_is_registered(server: StandIn) -> None:
    registry = HttpRegistry(server.url)
    loop = Stream("g-loop", String(), JsonSchema(Order, Confluent(registry)))
    events = Stream("in", String(), Long())
    group: Group[str, Any] = Group(
        "g", Input(events, lambda ctx, event: None), Loop(loop, lambda ctx, event: None)
    )
    with Tester() as tester, pytest.raises(ConfigurationError, match="not registered under 'g-loop-value'"):
        tester.run(group)
    for each in schemas_of([group]):
        registry.register_schema(each.subject, each.definition)
    with Tester() as tester:
        tester.run(group)
    registry.close()


def test_white_space_around_the_text_of_a_schema_changes_nothing(registry: HttpRegistry) -> None:
    text = '\n{"type": "record", "name": "Click", "fields": [{"name": "user", "type": "string"}]}\n'
    codecs = [values(Avro(each, Confluent(registry, "clicks"))) for each in (text, text.strip())]
    one, other = (each.encode({"user": "ann"}) for each in codecs)
    assert one == other
