"""The columns of JSON: what a table, a file or Spark sees of values that fit a type."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from exactavro import Schema, make_reader, make_writer
from exactjson import checked, columns, shaped


class Item(msgspec.Struct):
    sku: str
    price: float = 0.0


class Order(msgspec.Struct):
    id: str
    at: int
    items: list[Item]
    counts: dict[str, int]
    state: Literal["new", "paid"]
    note: str | None = None
    either: int | str = 0
    any: Any = None


class Tree(msgspec.Struct):
    name: str
    children: "list[Tree]" = []


@dataclass
class Point:
    x: int
    y: float | None = None


class Model(BaseModel):
    a: int
    b: list[Point] = []


ITEM = {
    "type": "record",
    "name": "Record1",
    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": ["null", "double"]}],
}
JSON = {"type": "string", "json": True}


def columns_of(kind: Any) -> Any:
    return columns(checked(kind).schema)


def test_each_field_has_the_type_of_its_json_and_what_has_none_is_json_in_a_text() -> None:
    assert {each["name"]: each["type"] for each in columns_of(Order)["fields"]} == {
        "id": "string",
        "at": "long",
        "items": {"type": "array", "items": ITEM},
        "counts": {"type": "map", "values": "long"},
        "state": "string",
        "note": ["null", "string"],
        "either": ["null", JSON],
        "any": ["null", JSON],
    }
    children = {each["name"]: each["type"] for each in columns_of(Tree)["fields"]}["children"]
    assert children == ["null", {"type": "array", "items": JSON}], "nested without end"


@pytest.mark.parametrize(
    ("kind", "found"), [(int, "long"), (dict[str, float], {"type": "map", "values": "double"}), (bool | None, ["null", "boolean"])]
)  # fmt: skip
def test_a_value_that_is_no_object_is_one_column(kind: Any, found: Any) -> None:
    assert columns_of(kind) == found


@given(
    st.builds(
        Order,
        st.text(st.characters(codec="utf-8")), st.integers(-(2**63), 2**63 - 1),
        st.lists(st.builds(Item, st.text(st.characters(codec="utf-8")), st.floats(allow_nan=False, allow_infinity=False))),
        st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers(0, 9)), st.sampled_from(["new", "paid"]),
        st.none() | st.text(st.characters(codec="utf-8")), st.integers(0, 9) | st.sampled_from(["a", "b"]),
    )
)  # fmt: skip
def test_a_shaped_value_is_one_that_avro_writes_by_the_columns_and_reads_again(order: Order) -> None:
    schema = Schema.load(columns_of(Order))
    row = shaped(checked(Order).plain(order), columns_of(Order))
    data = make_writer(schema, b"")(row)
    assert make_reader(schema, schema)(data, 0) == (row, len(data))
    assert row["items"] == [{"sku": each.sku, "price": each.price} for each in order.items]


def test_fields_that_a_value_lacks_are_null_and_models_and_classes_have_columns_too() -> None:
    assert shaped({"sku": "a"}, columns_of(Item)) == {"sku": "a", "price": None}
    model = checked(Model)
    assert shaped(model.plain(Model(a=1, b=[Point(1)])), columns_of(Model)) == {
        "a": 1,
        "b": [{"x": 1, "y": None}],
    }


class State(Enum):
    NEW = "new"


class Payment(BaseModel):
    at: datetime
    state: State
    amount: Decimal
    order_id: str = Field(alias="orderId")


def test_a_row_of_a_model_has_the_names_and_values_of_its_json() -> None:
    payment = Payment(
        at=datetime(2026, 1, 2, tzinfo=UTC), state=State.NEW, amount=Decimal("1.50"), orderId="o1"
    )
    codec = checked(Payment)
    assert shaped(codec.plain(payment), columns_of(Payment)) == json.loads(codec.write(payment))
    assert codec.plain(payment) == {
        "at": "2026-01-02T00:00:00Z", "state": "new", "amount": "1.50", "orderId": "o1",
    }  # fmt: skip


class Brief(msgspec.Struct, omit_defaults=True):
    sku: str
    price: float = 1.5
    tags: list[str] = []
    seal: bytes = b"s"
    inner: "Brief | None" = None
    any: Any = 7


class Around(msgspec.Struct):
    all: list[Brief]


def test_fields_that_are_left_out_as_they_have_their_default_have_it_in_a_row() -> None:
    codec = checked(Around)
    tree = columns(codec.schema, omits=codec.omits)
    assert codec.omits
    assert not checked(Item).omits
    row = shaped(codec.plain(Around([Brief("a"), Brief("b", 2.0)])), tree)
    first = {"sku": "a", "price": 1.5, "tags": [], "seal": "cw==", "inner": None, "any": "7"}
    assert row == {"all": [first, {**first, "sku": "b", "price": 2.0}]}
    assert row["all"][0]["tags"] is not row["all"][1]["tags"]
    schema = Schema.load(tree)
    assert make_reader(schema, schema)(make_writer(schema, b"")(row), 0)[0] == row


def test_a_default_in_a_schema_that_is_not_made_of_a_type_is_a_note() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "default": 5}}}
    assert shaped({}, columns(schema)) == {"n": None}


SHIP = {"type": "object", "properties": {"city": {"type": "string"}}}
ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "ship": SHIP},
    "required": ["id", "ship"],
}


@pytest.mark.parametrize(
    ("schema", "document", "is_open"),
    [
        (ORDER, True, True),
        (ORDER, False, False),
        ({**ORDER, "additionalProperties": False}, True, False),
        ({**ORDER, "additionalProperties": True}, False, True),
        ({**ORDER, "additionalProperties": {"type": "string"}}, False, True),
        ({**ORDER, "additionalProperties": {}}, False, True),
        ({**ORDER, "additionalProperties": False, "patternProperties": {"^s": {}}}, True, True),
    ],
)
def test_the_record_of_an_object_that_may_have_other_fields_is_open(
    schema: Any, *, document: bool, is_open: bool
) -> None:
    assert columns(schema, document=document).get("open", False) is is_open


def test_a_map_whose_values_have_types_by_their_names_is_json() -> None:
    schema = {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "patternProperties": {"^s": {"type": "string"}},
    }
    assert columns(schema, document=True) == JSON


def test_an_object_that_extends_a_definition_has_the_columns_of_both() -> None:
    base = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    extended = {"$ref": "#/$defs/Base", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    tree = columns({"$defs": {"Base": base}, **extended})
    assert [(each["name"], each["type"]) for each in tree["fields"]] == [("id", "long"), ("x", "string")]


@pytest.mark.parametrize("kind", ["long", "double"])
def test_a_number_is_a_column_as_it_is(kind: str) -> None:
    assert repr(shaped(-0.0, "double")) == "-0.0"
    assert shaped(None, kind) == shaped(0, kind) == 0


def test_a_whole_number_that_a_column_of_floats_would_round_is_refused() -> None:
    with pytest.raises(ValueError, match="9007199254740993 would be rounded to 9007199254740992"):
        shaped(
            {"n": 2**53 + 1},
            columns({"type": "object", "properties": {"n": {"type": ["integer", "number"]}}}),
        )
