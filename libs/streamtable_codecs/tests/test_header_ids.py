"""Ids in headers, as confluent-kafka's newer serializers write them: a schema's GUID stands in a header, and the body alone is the value."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from libs.streamtable_codecs.tests.messages import shop
from libs.streamtable_codecs.tests.stand_in import StandIn, serving
from tests.system.bench import Bench, until

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable import (
    App,
    Avro,
    Bytes,
    Context,
    Group,
    Input,
    Join,
    Lookup,
    Persist,
    Stream,
    String,
    Table,
    Typed,
)
from streamtable.errors import DeserializationError
from streamtable.flow import Flow
from streamtable_codecs import Confluent, HttpRegistry, JsonSchema, Protobuf
from streamtable_testing import Tester

HEADER = "__value_schema_id"
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
SCHEMA = {"title": "Order", "type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
IN_HEADER = {"schema.id.serializer": header_schema_id_serializer}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving() as server:
        yield server


@pytest.fixture
def client(server: StandIn) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.url}) as client:
        yield client


@pytest.fixture
def registry(server: StandIn) -> Iterator[HttpRegistry]:
    made = HttpRegistry(server.url, register="missing", attempts=1)
    yield made
    made.close()


def written(serialize: Any, topic: str, value: Any) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return the value and the headers of a record of confluent-kafka's."""
    headers: Any = [("other", b"x")]
    data = serialize(value, SerializationContext(topic, MessageField.VALUE, headers))
    assert [name for name, _ in headers] == ["other", HEADER]
    assert len(data) > 0
    return data, headers


def keep(ctx: Context[str, Any], event: Any) -> None:
    ctx.set(event if isinstance(event, dict) else {"id": event.id})


def test_each_codec_reads_values_whose_id_is_in_a_header(
    client: SchemaRegistryClient, registry: HttpRegistry
) -> None:
    protobuf = {**IN_HEADER, "use.deprecated.format": False}
    for topic, codec, serialize, value in (
        ("avro", Avro(AVRO, Confluent(registry)), AvroSerializer(client, json.dumps(AVRO), conf=IN_HEADER), {"id": "a"}),
        ("json", JsonSchema(SCHEMA, Confluent(registry)), JSONSerializer(json.dumps(SCHEMA), client, conf=IN_HEADER), {"id": "a"}),
        ("proto", Protobuf(shop("Order"), Confluent(registry)), ProtobufSerializer(shop("Order"), client, protobuf), shop("Order")(id="a")),
    ):  # fmt: skip
        events: Stream[str, Any] = Stream(topic, String(), codec)
        group = Group(f"group-{topic}", Input(events, keep), Persist(Typed(dict[str, str])))
        data, headers = written(serialize, topic, value)
        with Tester() as tester:
            tester.run(group)
            tester.emit_raw(topic, b"in-header", data, headers=headers)
            tester.emit(events, "in-front", value)
            assert dict(tester.table(group)) == {"in-header": {"id": "a"}, "in-front": {"id": "a"}}
            assert tester.dead_letters(group) == []


def test_a_guid_that_the_registry_does_not_know_is_poison_and_its_dead_letter_has_the_guid_in_front(
    server: StandIn, client: SchemaRegistryClient, registry: HttpRegistry
) -> None:
    events = Stream("avro", String(), Avro(AVRO, Confluent(registry, "s")))
    group = Group("g", Input(events, keep), Persist(Typed(dict[str, str])))
    data, headers = written(AvroSerializer(client, json.dumps(AVRO), conf=IN_HEADER), "avro", {"id": "a"})
    guid = headers[1][1]
    schemas, server.schemas = server.schemas, []
    with Tester() as tester:
        tester.run(group)
        tester.emit_raw("avro", b"k", data, headers=headers)
        (letter,) = tester.dead_letters(group)
        assert letter.reason.endswith("the registry does not know it")
        assert (letter.key, letter.value) == (b"k", guid + data)
        assert [name for name, _ in letter.headers if not name.startswith("streamtable-")] == ["other"]
        assert AvroDeserializer(client)(letter.value, SerializationContext("avro", MessageField.VALUE)) == {
            "id": "a"
        }
        server.schemas = schemas
        registry._unknown.clear()
        tester.retry(group, letter)
        assert dict(tester.table(group)) == {"k": {"id": "a"}}
    for bad in (guid[:9], b"\x07" + guid[1:]):
        with pytest.raises(DeserializationError, match="not Confluent's format: begins with"):
            events.value.decode(bad + data[:2])


def test_tombstones_joined_tables_flows_and_records_without_the_header_are_read_beside_it(
    client: SchemaRegistryClient, registry: HttpRegistry
) -> None:
    rows = Table("rows", String(), Avro(AVRO, Confluent(registry)))
    events = Stream("events", String(), Avro(AVRO, Confluent(registry)))
    group = Group(
        "joins",
        Input(
            events,
            lambda ctx, event: ctx.set({"event": event["id"], "row": (ctx.join(rows) or {"id": "-"})["id"]}),
        ),
        Join(rows),
        Persist(Typed(dict[str, str])),
    )
    flow = Flow("sides")
    one, other = flow.stream(events), flow.table(rows)
    out = Stream("out", String(), Avro(AVRO, Confluent(registry)))
    one.join_table(other, lambda event, row: {"id": event["id"] + row["id"]}).to(out)
    serialize = AvroSerializer(client, json.dumps(AVRO), conf=IN_HEADER)
    row, event = (written(serialize, topic, {"id": topic}) for topic in ("rows", "events"))
    with Tester() as tester:
        tester.run(group)
        tester.run(flow)
        tester.emit_raw("rows", b"a", row[0], headers=row[1])
        tester.emit_raw("events", b"a", event[0], headers=event[1])
        tester.emit_raw("rows", b"a", None, headers=row[1])
        tester.emit(events, "b", {"id": "plain"})
        assert dict(tester.table(group)) == {
            "a": {"event": "events", "row": "rows"},
            "b": {"event": "plain", "row": "-"},
        }
        (record,) = tester.records(out)
        assert record.value == {"id": "eventsrows"}
        assert [name for name, _ in record.headers if name == HEADER] == []


@pytest.mark.parametrize("how", ["join", "lookup"])
@pytest.mark.parametrize("begins", [True, False], ids=["begins to read headers", "reads headers no more"])
def test_a_group_whose_codec_reads_other_headers_loads_its_copies_of_a_table_again(
    how: str, begins: bool, client: SchemaRegistryClient, registry: HttpRegistry  # noqa: FBT001 - a parameter
) -> None:  # fmt: skip
    events = Stream("events", String(), String())
    seen: list[Any] = []

    def edited(codec: Any) -> Group[str, Any]:
        rows = Table("rows", String(), codec)

        def look(ctx: Context[str, Any], event: str) -> None:
            seen.append(ctx.join(rows) if how == "join" else ctx.lookup(rows, event))

        edge = Join(rows) if how == "join" else Lookup(rows)
        return Group("edited", Input(events, look), edge, Persist(Bytes()))

    with_headers = Avro(AVRO, Confluent(registry))
    groups = [edited(Bytes()), edited(with_headers)]
    serialize = AvroSerializer(client, json.dumps(AVRO), conf=IN_HEADER)
    (first, headers), (second, _) = (written(serialize, "rows", {"id": each}) for each in ("a", "b"))
    with Tester() as tester:
        tester.kafka.create_topic("rows", 1, compacted=True)
        tester.kafka.append("rows", b"a", first, headers=headers, partition=0)
        before, after = groups if begins else reversed(groups)
        tester.run(before)
        tester.emit(events, "a", "a")
        tester.advance(2)  # with a commit, which writes the joined table's position too
        tester.stop(before)
        tester.kafka.append("rows", b"b", second, headers=headers, partition=0)
        tester.start(after)
        tester.advance(2)
        tester.emit(events, "a", "a")
        tester.emit(events, "b", "b")
        assert tester.dead_letters(after) == []
    assert seen[1:] == ([{"id": "a"}, {"id": "b"}] if begins else [first, second])


@pytest.mark.broker
def test_a_group_a_view_and_a_tail_read_what_confluent_kafka_has_written_with_ids_in_headers(
    broker: Broker, topics: Topics, tmp_path: Path, client: SchemaRegistryClient, registry: HttpRegistry
) -> None:
    with closing(Bench(broker.bootstrap_servers, topics, tmp_path)) as bench:
        codec = Avro(AVRO, Confluent(registry))
        events, rows = Stream(topics.name("in"), String(), codec), Table(topics.name("rows"), String(), codec)
        group = Group(
            topics.name("g"),
            Input(
                events, lambda ctx, event: ctx.set({**event, "row": (ctx.join(rows) or {"id": "-"})["id"]})
            ),
            Join(rows),
            Persist(Typed(dict[str, str])),
        )
        bench.create(group)
        serialize = AvroSerializer(client, json.dumps(AVRO), conf=IN_HEADER)
        for topic in (events.name, rows.name):
            data, headers = written(serialize, topic, {"id": "a"})
            bench.send(topic, (b"k", data, headers), (b"poison", b"\x02", headers))
        bench.work_off(group)
        assert [json.loads(found.value or b"") for found in bench.read(group.table.name)] == [
            {"id": "a", "row": "a"}
        ]
        (letter,) = bench.letters(group)
        assert letter.value == headers[1][1] + b"\x02"
        app = App(bench.kafka, tmp_path / "views")
        with app.view(rows) as view, app.tail(events) as tail:
            until(lambda: view.ready and tail.ready, "the view and the tail are ready")
            assert view.get("k") == {"id": "a"}
            with tail.follow("k", 0, 0) as following:
                assert asyncio.run(following.next_async()).value == {"id": "a"}
