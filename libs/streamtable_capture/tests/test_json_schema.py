"""Envelopes with a JSON Schema of a registry: the payloads of the real connector, with bytes that confluent-kafka's serializer
has written around them, as Confluent's converter does.
"""

from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from libs.streamtable_capture.tests.recorded_topics import recorded
from libs.streamtable_capture.tests.shop_rows import Customer, Typed
from libs.streamtable_codecs.tests.stand_in import StandIn

from streamtable.errors import DeserializationError
from streamtable_capture import Debezium
from streamtable_codecs import Confluent

SCHEMA = {
    "title": "shop.public.customers.Envelope",
    "type": "object",
    "properties": {"op": {"type": "string"}, "after": {"oneOf": [{"type": "null"}, {"type": "object"}]}},
}


def written(registry: StandIn, value: bytes) -> bytes:
    with SchemaRegistryClient({"url": registry.url}) as client:
        serializer = JSONSerializer(msgspec.json.encode(SCHEMA).decode(), client)
        context = SerializationContext("shop.public.customers", MessageField.VALUE)
        data = serializer(msgspec.json.decode(value), context)
    assert isinstance(data, bytes)
    assert data[:1] == b"\0"
    return data


@pytest.mark.parametrize("form", ["plain", "flat"])
@pytest.mark.parametrize(("table", "row"), [("customers", Customer), ("typed", Typed)])
def test_changes_with_a_json_schema_are_those_of_json_without_one(
    registry: StandIn, framing: Confluent, form: str, table: str, row: type[Any]
) -> None:
    flattened = form == "flat"
    plain: Debezium[Any] = Debezium(row, flattened=flattened, unavailable="keep")
    registered: Debezium[Any] = Debezium(row, schemas=framing, flattened=flattened, unavailable="keep")
    values = [each.value for each in recorded(form, table) if each.value is not None]
    found = [registered.decode(written(registry, value)) for value in values]
    expected = [plain.decode(value) for value in values]
    assert [(each.op, each.after, each.unavailable, each.known, each.source) for each in found] == [
        (each.op, each.after, each.unavailable, each.known, each.source) for each in expected
    ]


def test_what_is_not_json_behind_the_id_of_its_schema_is_poison(
    registry: StandIn, framing: Confluent
) -> None:
    data = written(registry, b'{"op":"c"}')[:5]
    with pytest.raises(DeserializationError, match="not JSON behind the id of its schema"):
        Debezium(Customer, schemas=framing).decode(data + b'{"op":')
