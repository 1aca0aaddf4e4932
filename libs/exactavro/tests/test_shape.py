"""Questions about schemas have the answers that their bytes and columns need."""

import json
from typing import Any

import pytest

from exactavro import Schema, alone, can_be_null, has_one_encoding, parts, unions

CARD = {"type": "record", "name": "Card", "fields": [{"name": "no", "type": ["null", "string"]}]}
CASH = {"type": "record", "name": "Cash", "fields": []}


def record(**fields: Any) -> dict[str, Any]:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "fields": named}


def tree(raw: Any) -> Any:
    return Schema.load(json.dumps(raw)).tree


def test_the_parts_of_a_schema_have_the_paths_of_fields_and_of_branches_of_several() -> None:
    found = parts(tree(record(by={"type": "array", "items": ["null", CARD, CASH]}, at=["null", "long"])))
    paths = [path for path, part in found if isinstance(part, str) and part != "null"]
    assert paths == [".by.items.Card.no", ".at"]


def test_the_branches_of_a_union_of_several_are_named_in_their_order() -> None:
    assert unions(tree(record(by=[CARD, "null", "int", CASH], at=["null", "long"]))) == {
        ".by": ["Card", "", "Cash"]
    }


def test_a_branch_has_the_name_that_its_aliases_name_whatever_its_namespace() -> None:
    renamed = {**CARD, "name": "shop.v2.CreditCard", "aliases": ["shop.v1.Card"]}
    assert unions(tree(record(by=[renamed, CASH]))) == {".by": ["Card", "Cash"]}


@pytest.mark.parametrize(
    ("kind", "one"),
    [
        ("long", True),
        (["null", "string", "long"], True),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 4}, True),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, True),
        ({"type": "array", "items": "int"}, False),
        ({"type": "map", "values": "int"}, False),
        (["int", "long"], True),
        (["float", "null", "double"], True),
    ],
)
def test_bytes_can_be_compared_where_equal_values_have_equal_bytes(kind: Any, *, one: bool) -> None:
    assert has_one_encoding(tree(record(x=kind))) is one


def test_null_is_a_value_of_unions_with_it_alone() -> None:
    found = [can_be_null(tree(kind)) for kind in ("null", ["int", "null"], "int", CASH)]
    assert found == [True, True, False, False]


def test_a_field_alone_is_a_record_of_it() -> None:
    assert alone(record(a="int", b="long"), "b") == record(b="long")
