"""Unsafe schemas are rejected at load."""

import json
import time
from typing import Any

import pytest

from exactavro import Schema, Unusable, decode, encode, make_reader, make_writer
from exactavro.schema import kind, measure


def record(*fields: Any, name: Any = "R") -> Any:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def nested(levels: Any) -> Any:
    schema: object = "int"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def doubling(levels: Any) -> Any:
    """Each record has the previous one twice: 2**levels values of zero bytes."""
    fields: list[tuple[str, object]] = []
    for level in range(levels):
        inner: object = f"N{level - 1}" if level else "null"
        first = record(("a", inner), ("b", inner), name=f"N{level}")
        fields.append((f"f{level}", first))
    return record(*fields, name="Top")


@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        (record(("next", ["null", "R"])), "recursive"),
        (record(("all", {"type": "array", "items": "R"})), "recursive"),
        ({"type": "array", "items": "null"}, "no bytes"),
        ({"type": "map", "values": {"type": "array", "items": record()}}, "no bytes"),
        ({"type": "array", "items": record(("a", "null"), ("b", record(name="E")))}, "no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "no bytes"),
        (
            {"type": "array", "items": record(("a", "int"), *((f"n{i}", "null") for i in range(9)))},
            "no bytes",
        ),
        (nested(65), "deep"),
        (nested(5_000), "deep|nor JSON"),
        (record(*((f"f{i}", "int") for i in range(100_000))), "characters"),
        (record(*((f"f{i}", "int") for i in range(10_001))), "more than 10000"),
        (doubling(40), "more than 10000"),
        (record(*((f"f{i}", "null") for i in range(1_001))), "without bytes"),
        (record(("a", "int"), ("a", "int")), "twice"),
        (record(("a b", "int")), "not a name"),
        (record(name="R x"), "not a name"),
        (record(("a", record(name="R"))), "redefined"),
        ({"type": "enum", "name": "E", "symbols": []}, "without symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "unique"),
        ({"type": "enum", "name": "E", "symbols": ["a b"]}, "symbol"),
        ({"type": "fixed", "name": "F", "size": -1}, "size"),
        ({"type": "fixed", "name": "F", "size": True}, "size"),
        ({"type": "fixed", "name": "F", "size": 2**40}, "size"),
        ([], "branches"),
        (["int", "int"], "branches"),
        (["int", ["null", "string"]], "branches"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10**9}, "decimal"),
        ({"type": "Unknown"}, "Unknown"),
        ({"type": {"type": "array"}}, "unhashable|TypeError"),
        ({"fields": []}, "type"),
        ("{", "nor JSON"),
        ("no-type", "nor JSON"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]},
            "[Dd]efault",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": "a", "aliases": ["b"], "type": "int"},
                    {"name": "b", "aliases": ["a"], "type": "int"},
                ],
            },
            "twice",
        ),
    ],
)
def test_an_unsafe_schema_is_refused_with_the_rule(schema: Any, rule: Any) -> None:
    with pytest.raises(Unusable, match=rule):
        Schema.load(schema)


def test_a_schema_that_contains_itself_as_python_object_is_refused() -> None:
    loop: dict[str, object] = {"type": "array"}
    loop["items"] = loop
    with pytest.raises(Unusable):
        Schema.load(loop)


@pytest.mark.parametrize(
    ("schema", "fingerprint"),
    [("int", 0x7275D51A3F395C8F), ("long", 0xD054E14493F41DB7), ("string", 0x8F014872634503C7)],
)
def test_fingerprints_are_those_of_the_specification(schema: Any, fingerprint: Any) -> None:
    assert int.from_bytes(Schema.load(schema).fingerprint, "little") == fingerprint


def test_what_does_not_change_the_bytes_does_not_change_the_fingerprint() -> None:
    plain = Schema.load(record(("a", "long")))
    adorned = Schema.load(
        {"doc": "x", **record(("a", {"type": "long", "logicalType": "timestamp-millis"})), "aliases": ["Q"]}
    )
    assert plain.fingerprint == adorned.fingerprint
    assert plain.canonical == '{"name":"R","type":"record","fields":[{"name":"a","type":"long"}]}'


def test_a_name_may_be_used_again_after_its_definition() -> None:
    schema = Schema.load(record(("a", {"type": "fixed", "name": "F", "size": 2}), ("b", "F")))
    assert measure(schema.tree) == (4, 3, 0)


def test_text_parsed_json_and_names_load_alike() -> None:
    schema = record(("a", "int"))
    assert Schema.load(json.dumps(schema)).canonical == Schema.load(schema).canonical
    assert Schema.load("long").canonical == Schema.load('"long"').canonical == '"long"'
    assert Schema.load(["null", "int"]).name == kind([]) == "union"


@pytest.mark.parametrize(
    "node",
    [
        {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 127},
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": -2},
        {"type": "bytes", "logicalType": "decimal", "precision": "10"},
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5},
        {"type": "string", "logicalType": "timestamp-millis"},
        {"type": "int", "logicalType": "uuid"},
        {"type": "long", "logicalType": "date"},
        {"type": "long", "logicalType": "of tomorrow"},
        {"type": "long", "logicalType": 5},
        {"type": "long", "logicalType": ["date"]},
    ],
)
@pytest.mark.parametrize("place", ["alone", "field", "items", "union", "nested"])
def test_a_logical_type_that_its_type_cannot_carry_is_ignored(node: dict[str, Any], place: str) -> None:
    schema: Any = {
        "alone": node,
        "field": record(("a", node)),
        "items": {"type": "array", "items": node},
        "union": ["null", node],
        "nested": record(("a", {"type": "map", "values": ["null", node]})),
    }[place]
    plain = Schema.load(schema)
    assert "logicalType" not in str(plain.tree)
    make_reader(plain)
    make_writer(plain)


@pytest.mark.parametrize(
    ("name", "namespace", "field"),
    [
        ("Envelope", "connect-test.core.Orders", "id"),
        ("CreateEvent", "org.apache.hadoop.hdfs.inotify.Event$", "id"),
        ("Outer$Inner", "", "id"),
        ("Value", "core", "order-id"),
        ("Größe", "de", "höhe"),
        ("V", "9", "1st"),
    ],
)
def test_names_as_java_programs_write_them_are_read(name: str, namespace: str, field: str) -> None:
    schema = Schema.load(
        {"type": "record", "name": name, "namespace": namespace, "fields": [{"name": field, "type": "int"}]}
    )
    assert decode(make_reader(schema), b"\x02") == {field: 1}
    assert encode(make_writer(schema), {field: 1}) == b"\x02"


def test_a_schema_that_doubles_again_and_again_is_refused_in_little_time() -> None:
    types: list[Any] = [record(("a", "int"), ("b", "int"), name="R0")]
    types += [record(("a", f"R{n}"), ("b", f"R{n}"), name=f"R{n + 1}") for n in range(40)]
    began = time.process_time()
    with pytest.raises(Unusable, match="types in one another"):
        Schema.load(types)
    assert time.process_time() - began < 1


def test_a_long_chain_of_types_is_refused_as_too_deep() -> None:
    types: list[Any] = [record(("a", "int"), name="R0")]
    types += [record(("a", f"R{n}"), name=f"R{n + 1}") for n in range(2_000)]
    with pytest.raises(Unusable, match="deep"):
        Schema.load(types)
