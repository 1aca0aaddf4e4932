"""The same bytes as confluent-kafka's serializers, and its deserializers read ours: Avro, JSON Schema and Protobuf."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from libs.streamtable_codecs.tests.messages import shop
from libs.streamtable_codecs.tests.stand_in import StandIn, serving

from streamtable import Avro, Plain, Stream, String
from streamtable_codecs import Confluent, HttpRegistry, JsonSchema, Protobuf

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "weight", "type": "double"},
        {"name": "paid", "type": ["null", "boolean"]},
        {"name": "blob", "type": "bytes"},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
                },
            },
        },
        {"name": "counts", "type": {"type": "map", "values": "long"}},
    ],
}


class Line(msgspec.Struct):
    sku: str
    count: int


class Order(msgspec.Struct):
    id: str
    at: int
    weight: float
    paid: bool | None
    lines: list[Line]
    counts: dict[str, int]


longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
# Beyond, orjson writes 1e+16 and msgspec 1e16, the same number.
floats = st.floats(-1e15, 1e15, allow_subnormal=False).filter(lambda each: each == 0 or abs(each) > 1e-4)
lines = st.fixed_dictionaries({"sku": texts, "count": ints})


def by_key(counts: dict[str, int]) -> dict[str, int]:
    """Return a map in the order in which our Avro writes it: equal maps have equal bytes. Others keep a dict's order."""
    return dict(sorted(counts.items(), key=lambda item: Avro("string", Plain()).encode(item[0])))


json_orders = st.fixed_dictionaries(
    {
        "id": texts,
        "at": longs,
        "weight": floats,
        "paid": st.none() | st.booleans(),
        "lines": st.lists(lines, max_size=3),
        "counts": st.dictionaries(texts, longs, max_size=3).map(by_key),
    }
)
avro_orders = st.builds(lambda order, blob: {**order, "blob": blob}, json_orders, st.binary(max_size=20))
LONG = "10,000 values of each kind"


@pytest.fixture(scope="module")
def registry() -> Iterator[StandIn]:
    with serving() as registry:
        yield registry


@pytest.fixture(scope="module")
def client(registry: StandIn) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture(scope="module")
def ours(registry: StandIn) -> Iterator[HttpRegistry]:
    made = HttpRegistry(registry.url)
    yield made
    made.close()


class Pair:
    """A codec of ours and the serializers of confluent-kafka, for the values of one topic."""

    def __init__(self, topic: str, codec: Any, serialize: Any, deserialize: Any) -> None:
        self.codec = Stream(topic, String(), codec).value
        self.context = SerializationContext(topic, MessageField.VALUE)
        self.serialize, self.deserialize = serialize, deserialize

    def check(self, value: Any) -> None:
        theirs = self.serialize(value, self.context)
        assert self.codec.encode(value) == theirs
        assert self.codec.decode(theirs) == value
        assert self.deserialize(theirs, self.context) == value


@pytest.fixture(scope="module")
def avro(client: SchemaRegistryClient, ours: HttpRegistry) -> Pair:
    return Pair(
        "avro",
        Avro(AVRO, Confluent(ours)),
        AvroSerializer(client, json.dumps(AVRO)),
        AvroDeserializer(client),
    )


@pytest.fixture(scope="module")
def jsons(client: SchemaRegistryClient, ours: HttpRegistry) -> Pair:
    codec = JsonSchema(Order, Confluent(ours))
    text = codec.definition.text
    serialize = JSONSerializer(text, client, to_dict=lambda order, _: msgspec.to_builtins(order))
    deserialize = JSONDeserializer(text, from_dict=lambda found, _: msgspec.convert(found, Order))
    return Pair("json", codec, serialize, deserialize)


@pytest.fixture(scope="module")
def proto(client: SchemaRegistryClient, ours: HttpRegistry) -> Pair:
    kind, conf = shop("Order"), {"use.deprecated.format": False}
    serialize = ProtobufSerializer(kind, client, conf)
    return Pair("proto", Protobuf(kind, Confluent(ours)), serialize, ProtobufDeserializer(kind, conf, client))


def proto_order(order: dict[str, Any], blob: bytes | None, how: str | bool | None) -> Any:  # noqa: FBT001 - drawn
    made = shop("Order")(
        id=order["id"], weight=order["weight"], numbers=[order["at"]], state=int(order["paid"] or 0)
    )
    for line in order["lines"]:
        made.lines.add(
            sku=line["sku"], count=line["count"], price={"cents": order["at"], "currency": line["sku"]}
        )
    if blob is not None:
        made.blob = blob
    if how is not None:
        setattr(made, "card" if isinstance(how, str) else "cash", how)
    for name, count in list(order["counts"].items())[:1]:  # the order of more is the library's of the moment
        made.counts[name] = count
    return made


proto_orders = st.builds(
    proto_order, json_orders, st.none() | st.binary(max_size=9), st.none() | texts | st.booleans()
)
some = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))


@some
@given(avro_orders)
def test_avro_is_written_as_confluent_kafka_does_and_read_by_both(avro: Pair, order: dict[str, Any]) -> None:
    avro.check(order)


@some
@given(json_orders)
def test_json_is_written_as_confluent_kafka_does_and_read_by_both(jsons: Pair, order: dict[str, Any]) -> None:
    jsons.check(msgspec.convert(order, Order))


@some
@given(proto_orders)
def test_protobuf_is_written_as_confluent_kafka_does_and_read_by_both(proto: Pair, order: Any) -> None:
    proto.check(order)


@pytest.mark.faults_long(LONG)
@many
@given(avro_orders)
def test_ten_thousand_values_of_avro(avro: Pair, order: dict[str, Any]) -> None:
    avro.check(order)


@pytest.mark.faults_long(LONG)
@many
@given(json_orders)
def test_ten_thousand_values_of_json(jsons: Pair, order: dict[str, Any]) -> None:
    jsons.check(msgspec.convert(order, Order))


@pytest.mark.faults_long(LONG)
@many
@given(proto_orders)
def test_ten_thousand_values_of_protobuf(proto: Pair, order: Any) -> None:
    proto.check(order)


@pytest.mark.parametrize("name", ["Head", "Order", "Order.Line", "Order.Line.Deep", "Order.Note", "Key"])
def test_a_message_at_any_place_of_its_file_is_written_as_confluent_kafka_does(
    client: SchemaRegistryClient, ours: HttpRegistry, name: str
) -> None:
    kind, conf = shop(name), {"use.deprecated.format": False}
    topic = f"place-{name}"
    pair = Pair(
        topic,
        Protobuf(kind, Confluent(ours)),
        ProtobufSerializer(kind, client, conf),
        ProtobufDeserializer(kind, conf, client),
    )
    pair.check(kind())


def test_what_we_have_registered_is_found_by_confluent_kafka(
    registry: StandIn, client: SchemaRegistryClient
) -> None:
    own = HttpRegistry(registry.url, register="missing")
    values: list[tuple[str, Any, Any, Any]] = [
        ("own-avro", Avro(AVRO, Confluent(own)), AvroSerializer(client, json.dumps(AVRO), conf={"auto.register.schemas": False}),
         {"id": "a", "at": 1, "weight": 0.5, "paid": None, "blob": b"", "lines": [], "counts": {}}),
        ("own-proto", Protobuf(shop("Order"), Confluent(own)), ProtobufSerializer(shop("Order"), client, {"use.deprecated.format": False, "auto.register.schemas": False}),
         shop("Order")(id="a")),
    ]  # fmt: skip
    for topic, codec, serialize, value in values:
        data = Stream(topic, String(), codec).value.encode(value)
        assert serialize(value, SerializationContext(topic, MessageField.VALUE)) == data
    own.close()
    assert "money.proto" in registry.subjects
