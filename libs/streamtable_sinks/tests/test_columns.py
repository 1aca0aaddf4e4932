"""Tables and files have the columns of typed JSON and of Protobuf as of Avro."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pydantic import BaseModel, ConfigDict
from pyiceberg.catalog.sql import SqlCatalog

from streamtable import Avro, Codec, Plain, Stream, String, Table, Typed
from streamtable.errors import ConfigurationError
from streamtable_capture import ConnectKey
from streamtable_codecs import JsonSchema, Protobuf
from streamtable_sinks import Sink, SinkChange, SinkPartition, SinkSource
from streamtable_sinks.columns import row_maker
from streamtable_sinks.iceberg import Iceberg
from streamtable_sinks.parquet import Parquet, read_rows
from streamtable_sinks.postgres import Postgres
from streamtable_testing import Tester


class Line(msgspec.Struct, frozen=True):
    sku: str
    seal: bytes = b""


class Order(msgspec.Struct, frozen=True):
    id: str
    cents: int
    paid: bool
    weight: float
    lines: list[Line]
    note: str | None = None
    source: dict[str, Any] | str = ""


class Place(msgspec.Struct, frozen=True):
    shop: str
    shelf: int


@cache
def message_class() -> Any:
    """Return the class of a message with the fields of `Order`."""
    kinds = FieldDescriptorProto
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    line = DescriptorProto(name="Line")
    line.field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    line.field.add(name="seal", number=2, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    order.nested_type.append(line)
    order.oneof_decl.add(name="_note")
    for number, (name, kind) in enumerate(
        [("id", kinds.TYPE_STRING), ("cents", kinds.TYPE_INT64), ("paid", kinds.TYPE_BOOL), ("weight", kinds.TYPE_DOUBLE)]
    ):  # fmt: skip
        order.field.add(name=name, number=number + 1, type=kind, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="lines", number=5, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.Line", label=kinds.LABEL_REPEATED
    )  # fmt: skip
    order.field.add(
        name="note", number=6, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL, oneof_index=0, proto3_optional=True
    )  # fmt: skip
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def structs(codec: Codec[Any]) -> tuple[Codec[Any], Any, Any]:
    full = Order("o1", 150, True, 0.5, [Line("nut", b"\xff")], "fragile", {"app": 1})
    return codec, full, Order("o2", 0, False, 0.0, [])


def protobuf() -> tuple[Codec[Any], Any, Any]:
    made = message_class()
    lines = [made.Line(sku="nut", seal=b"\xff")]
    full = made(id="o1", cents=150, paid=True, weight=0.5, lines=lines, note="fragile")
    return Protobuf(made, Plain()), full, made(id="o2")


CODECS: dict[str, Callable[[], tuple[Codec[Any], Any, Any]]] = {
    "typed": lambda: structs(Typed(Order)),
    "json-schema": lambda: structs(JsonSchema(Order, Plain())),
    "protobuf": protobuf,
}
COLUMNS = ("id", "cents", "paid", "weight", "note")
ROWS = [("o1", 150, True, 0.5, "fragile"), ("o2", 0, False, 0.0, None)]


@pytest.fixture(params=CODECS)
def orders(request: pytest.FixtureRequest) -> tuple[Stream[str, Any], Any, Any]:
    """A stream of each codec, a value with all fields, and a value without those that it may lack."""
    codec, full, empty = CODECS[request.param]()
    return Stream("orders", String(), codec), full, empty


def written(tester: Tester, orders: tuple[Stream[str, Any], Any, Any], target: Any) -> None:
    stream, *values = orders
    tester.run(Sink("out", stream, target, max_wait=0.0), partitions=1)
    tester.emit_many(stream, [("a", value) for value in values])
    tester.advance(2)


def test_a_table_is_created_with_typed_columns_and_filled(
    tester: Tester, database: str, postgres: type[Postgres], orders: tuple[Stream[str, Any], Any, Any]
) -> None:
    written(tester, orders, postgres(database, "orders", create=True))
    with psycopg.connect(database) as session:
        found = session.execute(f"SELECT {', '.join(COLUMNS)} FROM orders ORDER BY id").fetchall()
        lines = session.execute("SELECT lines FROM orders ORDER BY id").fetchall()
        types = session.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
            "WHERE attrelid = 'orders'::regclass AND attnum > 0 AND attname <> 'source' ORDER BY attname"
        ).fetchall()
    assert found == ROWS
    assert [[line["sku"] for line in each] for (each,) in lines] == [["nut"], []]
    assert lines[0][0][0]["seal"] == "/w=="
    assert {(name, kind) for name, kind, _ in types} == {
        ("cents", "bigint"), ("id", "text"), ("lines", "jsonb"), ("note", "text"), ("paid", "boolean"),
        ("weight", "double precision"),
    }  # fmt: skip
    assert ("note", "text", False) in types
    assert ("cents", "bigint", True) in types


def test_a_table_of_kafka_is_written_by_the_parts_of_its_typed_key(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    stock = Table("stock", Typed(Place), Typed(Line))
    records: Stream[Place, Any] = Stream(stock.name, stock.key, stock.value)
    tester.create(records)
    columns = {"shop": "text", "shelf": "bigint", "sku": "text", "seal": "text"}
    target = postgres(database, "stock", key=("shop", "shelf"), types=columns, create=True)
    tester.run(Sink("out", stock, target, max_wait=0.0))
    tester.emit_many(records, [(Place("a", 1), Line("nut")), (Place("a", 2), Line("bolt"))])
    tester.advance(2)
    tester.emit_many(records, [(Place("a", 1), Line("screw")), (Place("a", 2), None)])
    tester.advance(2)
    with psycopg.connect(database) as session:
        assert session.execute("SELECT shop, shelf, sku FROM stock").fetchall() == [("a", 1, "screw")]


class Loose(msgspec.Struct, frozen=True):
    id: str
    tags: dict[str, Any]
    items: list[dict[str, Any] | str | int]
    either: Any = None


class Anything(msgspec.Struct, frozen=True):
    extra: Any


LOOSE = Loose("o1", {"n": 1, "deep": {"on": True}, "text": "1"}, [{"a": 1}, "b", 7], {"x": 2})


def test_objects_of_any_kind_keep_their_types_in_columns_of_objects(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    stream: Stream[str, Loose] = Stream("loose", String(), Typed(Loose))
    types = {"id": "text", "tags": "jsonb", "items": "jsonb", "either": "jsonb"}
    derived = postgres(database, "derived", create=True)
    given = postgres(database, "given", types=types, create=True)
    for name, target in (("a", derived), ("b", given)):
        tester.run(Sink(name, stream, target, max_wait=0.0), partitions=1)
    tester.emit(stream, "a", LOOSE)
    tester.advance(2)
    with psycopg.connect(database) as session:
        found = session.execute("SELECT tags, items, either FROM derived").fetchall()
        assert found == [(json.dumps(LOOSE.tags), LOOSE.items, '{"x": 2}')]
        found = session.execute("SELECT tags, items, either FROM given").fetchall()
        assert found == [(LOOSE.tags, LOOSE.items, {"x": 2})]


class Omitting(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    size: int = 5
    tags: dict[str, Any] = {}
    either: Any = None
    parts: tuple[int, ...] | str = "none"


@pytest.mark.parametrize(
    "make", [Typed, lambda kind: JsonSchema(kind, Plain())], ids=["typed", "json-schema"]
)
def test_fields_that_are_left_out_as_they_have_their_default_are_written(
    make: Callable[[Any], Codec[Any]],
) -> None:
    """A reader of the topic sees the defaults, and null would be another value."""
    codec = make(Omitting)
    as_it_is = row_maker(codec)
    assert as_it_is is not None
    first, second = as_it_is(Omitting("a")), as_it_is(codec.decode(codec.encode(Omitting("b", 6))))
    assert first == {"id": "a", "size": 5, "tags": {}, "either": None, "parts": "none"}
    assert second == {**first, "id": "b", "size": 6}
    assert first["tags"] is not second["tags"]
    in_texts = row_maker(codec, objects=())
    assert in_texts is not None
    assert in_texts(Omitting("a"))["parts"] == "none"


class Extensible(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: int


SHIP = {"type": "object", "properties": {"city": {"type": "string"}}}
SHIPPED = JsonSchema({"type": "object", "properties": {"id": {"type": "integer"}, "ship": SHIP}})


def test_fields_that_a_schema_does_not_name_are_in_documents_and_in_columns_of_their_name() -> None:
    value = {"id": 1, "ship": {"city": "Ulm", "zip": "89073"}, "note": "x", "other": 2}
    document, row = row_maker(SHIPPED), row_maker(SHIPPED, ["id", "ship", "note"], ["ship"])
    flat = row_maker(SHIPPED, ["id", "ship"], ())
    assert document is not None
    assert row is not None
    assert flat is not None
    assert document(value) == value
    assert row(value) == {"id": 1, "ship": value["ship"], "note": "x"}
    assert flat(value) == {"id": 1, "ship": {"city": "Ulm"}}
    of_model = row_maker(Typed(Extensible))
    assert of_model is not None
    assert of_model(Extensible(id=1, note=[2])) == {"id": 1, "note": [2]}  # type: ignore[call-arg] # an extra field


def test_functions_of_keys_and_values_get_them_as_their_codecs_decode_them(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    stream: Stream[Place, Line] = Stream("lines", Typed(Place), Typed(Line))
    target = postgres(
        database,
        "lines",
        key={"at": lambda key: f"{key.shop}/{key.shelf}"},
        columns=lambda key, value: {"sku": value.sku, "shelf": key.shelf},
        types={"at": "text", "sku": "text", "shelf": "bigint"},
        create=True,
    )
    tester.run(Sink("out", stream, target, max_wait=0.0))
    tester.emit(stream, Place("a", 1), Line("nut"))
    tester.advance(2)
    with psycopg.connect(database) as session:
        assert session.execute("SELECT at, sku, shelf FROM lines").fetchall() == [("a/1", "nut", 1)]


def test_parquet_files_have_typed_columns(
    tester: Tester, tmp_path: Path, orders: tuple[Stream[str, Any], Any, Any]
) -> None:
    written(tester, orders, Parquet(tmp_path))
    found = read_rows(tmp_path)
    assert [tuple(row[name] for name in COLUMNS) for row in found.to_pylist()] == ROWS
    assert [[line["sku"] for line in row["lines"]] for row in found.to_pylist()] == [["nut"], []]
    types = ["string", "int64", "bool", "double", "string"]
    assert [str(found.schema.field(name).type) for name in COLUMNS] == types


def test_a_schema_that_is_given_says_the_types_of_objects_of_any_kind(tester: Tester, tmp_path: Path) -> None:
    stream: Stream[str, Any] = Stream("anything", String(), Typed(Anything))
    extra = pa.schema({"extra": pa.struct({"n": pa.int64()})})
    tester.run(Sink("out", stream, Parquet(tmp_path, schema=extra), max_wait=0.0), partitions=1)
    tester.emit(stream, "k", Anything({"n": 1}))
    tester.advance(2)
    assert read_rows(tmp_path).to_pylist()[0]["extra"] == {"n": 1}


@pytest.mark.parametrize(
    ("schema", "column", "expected"),
    [
        (None, "value", [("n", 1)]),
        (pa.schema({"value": pa.map_(pa.string(), pa.int64())}), "value", [("n", 1)]),
        (pa.schema({"n": pa.int64()}), "n", 1),
    ],
    ids=["derived", "one-column", "fields"],
)
def test_a_value_without_known_fields_is_one_column_unless_the_schema_has_its_fields(
    tester: Tester, tmp_path: Path, schema: pa.Schema | None, column: str, expected: Any
) -> None:
    stream: Stream[str, Any] = Stream("counts", String(), Typed(dict[str, int]))
    tester.run(Sink("out", stream, Parquet(tmp_path, schema=schema), max_wait=0.0), partitions=1)
    tester.emit(stream, "k", {"n": 1})
    tester.advance(2)
    assert read_rows(tmp_path).to_pylist()[0][column] == expected


MAYBE_LINE = ["null", {"type": "record", "name": "MaybeLine", "fields": [{"name": "n", "type": "long"}]}]


@pytest.mark.parametrize(
    ("schema", "in_files"),
    [({"type": "map", "values": "long"}, [("n", 1)]), (MAYBE_LINE, {"n": 1})],
    ids=["map", "union"],
)
def test_a_value_of_avro_that_is_no_record_is_one_column_also_if_it_is_an_object(
    tester: Tester, database: str, postgres: type[Postgres], tmp_path: Path, schema: Any, in_files: Any
) -> None:
    stream: Stream[str, Any] = Stream("counts", String(), Avro(schema))
    tester.run(Sink("rows", stream, postgres(database, "counts", create=True), max_wait=0.0), partitions=1)
    tester.run(Sink("files", stream, Parquet(tmp_path), max_wait=0.0))
    tester.emit(stream, "k", {"n": 1})
    tester.advance(2)
    with psycopg.connect(database) as session:
        assert session.execute("SELECT value FROM counts").fetchall() == [({"n": 1},)]
    assert read_rows(tmp_path)["value"].to_pylist() == [in_files]


def test_changes_of_a_table_have_the_columns_of_a_typed_key_in_parquet(
    tester: Tester, tmp_path: Path
) -> None:
    stock = Table("stock", Typed(int), Typed(Line))
    records: Stream[int, Any] = Stream(stock.name, stock.key, stock.value)
    tester.create(records)
    tester.run(Sink("out", stock, Parquet(tmp_path, key=("shelf",)), max_wait=0.0), partitions=1)
    tester.emit_many(records, [(1, Line("nut")), (2, None)])
    tester.advance(2)
    found = [(row["shelf"], row["sku"], row["_deleted"]) for row in read_rows(tmp_path).to_pylist()]
    assert found == [(1, "nut", False), (2, None, True)]


LABEL = Avro(
    {
        "type": "record",
        "name": "Label",
        "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "v", "type": "string"}],
    }
)


def test_a_column_of_the_key_has_the_key_also_if_a_field_of_the_value_has_its_name(
    tester: Tester, tmp_path: Path
) -> None:
    labels: Table[str, Any] = Table("labels", String(), LABEL)
    records: Stream[str, Any] = Stream(labels.name, labels.key, labels.value)
    tester.create(records)
    tester.run(Sink("out", labels, Parquet(tmp_path, key=("id",)), max_wait=0.0), partitions=1)
    for value in ({"id": None, "v": "a"}, {"id": 7, "v": "b"}, None):
        tester.emit(records, "k1", value)
        tester.advance(2)
    found = [(row["id"], row["v"], row["_deleted"]) for row in read_rows(tmp_path).to_pylist()]
    assert found == [("k1", "a", False), ("k1", "b", False), ("k1", None, True)]


def test_only_the_parts_of_a_typed_key_that_are_named_are_columns(tester: Tester, tmp_path: Path) -> None:
    stock = Table("stock", Typed(Place), Typed(Line))
    records: Stream[Place, Any] = Stream(stock.name, stock.key, stock.value)
    tester.create(records)
    tester.run(Sink("out", stock, Parquet(tmp_path, key=("shelf", "shop")), max_wait=0.0), partitions=1)
    tester.emit(records, Place("a", 1), Line("nut"))
    tester.advance(2)
    (row,) = read_rows(tmp_path).to_pylist()
    assert {name: row[name] for name in row if name[0] != "_"} == {
        "shop": "a", "shelf": 1, "sku": "nut", "seal": row["seal"],
    }  # fmt: skip


LINES: Table[Any, Any] = Table("lines", ConnectKey(order_id=int, line=int), Typed(Line))
KEY_COLUMNS = {"order_id": "bigint", "line": "bigint", "sku": "text", "seal": "text"}
KEY_SCHEMA = pa.schema(
    [("order_id", pa.int64()), ("line", pa.int64()), ("sku", pa.string()), ("seal", pa.string())]
)


def play_lines(tester: Tester, target: Any) -> list[str]:
    """Write two lines of one order. Returns the reasons of the dead letters."""
    records: Stream[Any, Any] = Stream(LINES.name, LINES.key, LINES.value)
    tester.create(records)
    out = Sink("out", LINES, target, max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit_many(records, [((1, 20), Line("nut")), ((1, 21), Line("bolt"))])
    tester.advance(2)
    return [letter.reason for letter in tester.dead_letters(out)]


def test_the_parts_of_a_key_of_connect_are_in_the_columns_of_their_names_in_any_order(
    tester: Tester, database: str, postgres: type[Postgres], tmp_path: Path
) -> None:
    names = ("line", "order_id")
    assert play_lines(tester, postgres(database, "lines", key=names, types=KEY_COLUMNS, create=True)) == []
    with psycopg.connect(database) as session:
        found = session.execute("SELECT order_id, line, sku FROM lines ORDER BY line").fetchall()
    assert found == [(1, 20, "nut"), (1, 21, "bolt")]
    with Tester() as other:
        assert play_lines(other, Parquet(tmp_path, key=names, schema=KEY_SCHEMA)) == []
    rows = read_rows(tmp_path).to_pylist()
    assert [(row["order_id"], row["line"], row["sku"]) for row in rows] == found


def test_a_key_of_more_parts_than_columns_is_a_dead_letter_and_not_the_row_of_its_first_part(
    tester: Tester, database: str, postgres: type[Postgres], tmp_path: Path
) -> None:
    types = {name: kind for name, kind in KEY_COLUMNS.items() if name != "line"}
    reasons = play_lines(tester, postgres(database, "lines", key=("order_id",), types=types, create=True))
    with Tester() as other:
        reasons += play_lines(other, Parquet(tmp_path, key=("order_id",), schema=KEY_SCHEMA))
    assert ["2 parts" in reason for reason in reasons] == [True] * 4


def test_a_table_of_iceberg_is_created_with_typed_columns(
    tester: Tester, tmp_path: Path, orders: tuple[Stream[str, Any], Any, Any]
) -> None:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    written(tester, orders, Iceberg(catalog, "lake.orders", create=True))
    found = catalog.load_table("lake.orders").scan().to_arrow().sort_by("_offset")
    catalog.close()
    assert [tuple(row[name] for name in COLUMNS) for row in found.to_pylist()] == ROWS


FIELDS = [
    {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
]
PART = {"type": "record", "name": "Part", "fields": FIELDS}
NESTED: Stream[Any, Any] = Stream(
    "nested",
    Avro({"type": "string", "logicalType": "uuid"}),
    Avro({"type": "record", "name": "Nested", "fields": [*FIELDS, {"name": "parts", "type": {"type": "array", "items": PART}},
        {"name": "by_name", "type": {"type": "map", "values": "Part"}}]}),
)  # fmt: skip
PARTS = {
    "id": UUID(int=7),
    "day": date(2026, 1, 2),
    "time": time(3, 4, 5, 6000),
    "at": datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
    "price": Decimal("1.50"),
}
IN_FILES = {**PARTS, "id": str(PARTS["id"])}


def write_nested(tester: Tester, target: Any) -> None:
    tester.create(NESTED, partitions=1)
    out = Sink("out", Table(NESTED.name, NESTED.key, NESTED.value), target, max_wait=0.0)
    tester.run(out)
    tester.emit(NESTED, UUID(int=8), {**PARTS, "parts": [PARTS], "by_name": {"a": PARTS}})
    tester.advance(2)
    assert tester.dead_letters(out) == []


def test_parquet_files_have_the_logical_types_of_avro_in_each_place(tester: Tester, tmp_path: Path) -> None:
    write_nested(tester, Parquet(tmp_path, key=("shop",)))
    (row,) = read_rows(tmp_path).to_pylist()
    assert {name: row[name] for name in PARTS} == IN_FILES
    assert (row["parts"], row["by_name"], row["shop"]) == ([IN_FILES], [("a", IN_FILES)], str(UUID(int=8)))


def test_a_table_of_iceberg_has_the_logical_types_of_avro_in_each_place(
    tester: Tester, tmp_path: Path
) -> None:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    write_nested(tester, Iceberg(catalog, "lake.nested", key=("shop",), create=True))
    (row,) = catalog.load_table("lake.nested").scan().to_arrow().to_pylist()
    catalog.close()
    assert {name: row[name] for name in PARTS} == IN_FILES
    assert (row["parts"], row["by_name"]) == ([IN_FILES], [("a", IN_FILES)])


def test_a_type_that_iceberg_does_not_have_is_refused_at_the_start(tester: Tester, tmp_path: Path) -> None:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    large = {"type": "bytes", "logicalType": "decimal", "precision": 50}
    stream: Stream[str, Any] = Stream("large", String(), Avro(large))
    with pytest.raises(ConfigurationError, match="'value' has an unsupported type: decimal256"):
        tester.run(Sink("out", stream, Iceberg(catalog, "lake.large", create=True)))
    catalog.close()


def test_objects_of_postgresql_have_the_logical_types_of_avro_as_texts(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    write_nested(tester, postgres(database, "nested", key=("shop",), create=True))
    with psycopg.connect(database) as session:
        ((parts, by_name),) = session.execute("SELECT parts, by_name FROM nested").fetchall()
    texts = {
        "id": str(PARTS["id"]), "day": "2026-01-02", "time": "03:04:05.006000", "at": "2026-01-02T03:04:05.006000+00:00",
        "price": "1.50",
    }  # fmt: skip
    assert (parts, by_name) == ([texts], {"a": texts})


def test_a_record_whose_time_is_not_known_has_none(tmp_path: Path) -> None:
    target = Parquet(tmp_path)
    target.open(SinkSource("out", "lines", is_table=False, key=String(), value=String()))
    place = SinkPartition("out", "lines", "id", 0)
    target.write(
        place,
        target.take(place, "me").epoch,
        None,
        2,
        [SinkChange("a", "b", 0, -1), SinkChange("a", "b", 1, 0)],
    )
    assert [row["_timestamp"] for row in read_rows(tmp_path).to_pylist()] == [
        None,
        datetime(1970, 1, 1, tzinfo=UTC),
    ]
