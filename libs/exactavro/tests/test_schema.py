"""Unsafe schemas are rejected at load."""

import json
from typing import Any

import pytest

from exactavro import Schema, Unusable
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
        (record(name="R-x"), "not a name"),
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
        ({"type": "bytes", "logicalType": "decimal"}, "decimal"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10**9}, "decimal"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, "scale"),
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
