"""JSON of types: what does not fit is named with its place, and nothing is written that would not be read."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, field_validator

from exactjson import Unsuitable, checked, fault, key_fault


class Item(msgspec.Struct, frozen=True):
    price: float
    count: int = 1


class Order(msgspec.Struct, frozen=True):
    id: str
    items: list[Item] = []
    prices: dict[str, Item] = {}


@dataclass(frozen=True)
class Point:
    x: int
    y: int | None = None


class Fields(TypedDict):
    a: int


class Model(BaseModel):
    a: int
    b: list[float] = []
    long_name: str = Field("", alias="longName")

    @field_validator("a")
    @classmethod
    def _check(cls, a: int) -> int:
        if a == 13:
            raise ValueError("unlucky")
        return a


class Created(msgspec.Struct, tag=True, frozen=True):
    id: str


class Deleted(msgspec.Struct, tag=True, frozen=True):
    at: int


class Strange(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        raise KeyError(self.a)


def fault_of(kind: Any, data: bytes, *, strict: bool = False) -> str:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - any, as the interface says
        checked(kind, strict=strict).read(data)
    return fault(refused.value)


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (
            Order,
            b'{"id":"a","items":[{"price":1},{"price":2},{"price":"x"}]}',
            "$.items[2].price: expected float, got str",
        ),
        (Order, b'{"id":"a","items":[{}]}', "$.items[0]: object missing required field price"),
        (Order, b'{"id":"a","prices":{"k":{"price":null}}}', "$.prices[...].price: expected float, got null"),
        (Order, b"{}", "$: object missing required field id"),
        (Order, b"[]", "$: expected object, got array"),
        (Order, b'{"id":"a"', "Input data was truncated"),
        (Order, b'{"id":"a"} x', "JSON is malformed: trailing characters (byte 12)"),
        (Order, b'{"id":NaN}', "JSON is malformed: invalid character (byte 6)"),
        (dict[int, str], b'{"x":"y"}', "$: a key: expected int, got str"),
        (Point, b'{"x":1.5}', "$.x: expected int, got float"),
        (Point, b'{"x":true}', "$.x: expected int, got bool"),
        (Fields, b'{"b":1}', "$: object missing required field a"),
        (Model, b'{"a":"x"}', "$.a: input should be a valid integer, unable to parse string as an integer"),
        (Model, b'{"b":[1,"x"]}', "$.a: field required (and 1 more)"),
        (Model, b'{"a":13}', "$.a: value error, unlucky"),
        (list[Model], b'[{"a":1},{}]', "$[1].a: field required"),
        (Created | Deleted, b'{"type":"Other"}', "$.type: invalid value 'Other'"),
        (Any, b"[" * 100_000, "nested too deep"),
        (Strange, b'{"a":5}', "5"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(kind: Any, data: bytes, message: str) -> None:
    assert fault_of(kind, data) == message


def test_text_that_is_no_utf8_is_refused() -> None:
    assert "can't decode byte 0xff" in fault_of(Order, b'{"id":"\xff"}')


@pytest.mark.parametrize(
    ("kind", "data", "place"),
    [
        (Order, b'{"id":"a","more":1}', "$.more"),
        (Order, b'{"id":"a","items":[{"price":1.0},{"price":1.0,"z":0}]}', "$.items[1].z"),
        (Order, b'{"id":"a","prices":{"k":{"price":1.0,"z":0}}}', "$.prices.k.z"),
        (Point, b'{"x":1,"z":0}', "$.z"),
        (Fields, b'{"a":1,"b":2}', "$.b"),
        (Model, b'{"a":1,"c":2}', "$.c"),
        (Model, b'{"a":1,"long_name":""}', "$.long_name"),
        (Created | Deleted, b'{"type":"Created","id":"a","at":1}', "$.at"),
        (list[Item | None], b'[null,{"price":1.0,"z":[]}]', "$[1].z"),
        (tuple[int, Item], b'[1,{"price":1.0,"z":[]}]', "$[1].z"),
    ],
)
def test_unknown_fields_are_ignored_unless_they_are_to_be_refused(kind: Any, data: bytes, place: str) -> None:
    checked(kind).read(data)
    assert fault_of(kind, data, strict=True) == f"{place}: unknown field"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order, Order("a", [Item(1.5)], {"k": Item(2.0, 3)})),
        (Point, Point(1)),
        (Fields, {"a": 1}),
        (Model, Model(a=1, b=[0.5], longName="x")),
        (Created | Deleted, Deleted(5)),
        (dict[str, Any], {"x": [1, {"y": None}]}),
    ],
)
def test_a_value_comes_back_as_it_was_also_where_unknown_fields_are_refused(kind: Any, value: Any) -> None:
    for strict in (False, True):
        made = checked(kind, strict=strict)
        assert made.read(made.write_checked(value)) == value


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Order, Order(5), "$.id: expected str, got int"),  # type: ignore[arg-type] # it is refused
        (Order, Order("a", [Item(float("nan"))]), "$.items[0].price: expected float, got null"),
        (dict[str, Any], {"x": float("inf")}, "NaN and infinity are no JSON numbers"),
        (Item | None, {"x": 1}, "$: object missing required field price"),
        (
            Model,
            Model.model_construct(a="x"),
            "$.a: input should be a valid integer, unable to parse string as an integer",
        ),
    ],
)
def test_nothing_is_written_that_would_not_be_read(kind: Any, value: Any, message: str) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - any, as the interface says
        checked(kind).write_checked(value)
    assert fault(refused.value).startswith(message)


class Tagged(msgspec.Struct):
    tags: dict[str, set[int]] = {}


def test_sets_have_one_form_whatever_their_order() -> None:
    one, other = Tagged({"x": {0, 8}}), Tagged({"x": {8, 0}})
    assert list(one.tags["x"]) != list(other.tags["x"]), "they are in another order"
    assert checked(Tagged).write(one) == checked(Tagged).write(other) == b'{"tags":{"x":[0,8]}}'


@pytest.mark.parametrize("kind", [object, 5, "Order", type(iter([])), list[object]])
def test_a_type_that_json_cannot_be_checked_against_is_refused(kind: Any) -> None:
    with pytest.raises(Unsuitable, match="JSON cannot be checked against"):
        checked(kind)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (str, ""),
        (Point, ""),
        (tuple[int, str], ""),
        (Created | Deleted, ""),
        (float, "equal values of $ (number) may have different bytes"),
        (Item, "equal values of $.price (number) may have different bytes"),
        (datetime, "equal values of $ (any-date-time) may have different bytes"),
        (Decimal, "equal values of $ (decimal) may have different bytes"),
        (Order, "$.items (array) has no fixed form"),
        (dict[str, int], "$ (object) has no fixed form"),
        (Any, "$ (any value) has no fixed form"),
        (bool | int, "equal values of $ (boolean and integer) may have different bytes"),
    ],
)
def test_a_type_whose_equal_values_may_have_different_bytes_is_no_key(kind: Any, reason: str) -> None:
    made = checked(kind)
    assert key_fault(made.schema, made.schema) == reason


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(json_values)
def test_json_of_another_form_never_passes(value: Any) -> None:
    data = msgspec.json.encode(value)
    for kind in (Order, Point, Model, Created | Deleted):
        made = checked(kind)
        try:
            found = made.read(data)
        except Exception:  # noqa: BLE001 - any, as the interface says
            continue
        assert made.read(made.write_checked(found)) == found


class ReadAsOther(BaseModel):
    price: int = Field(0, validation_alias="Price")


class WrittenAsOther(BaseModel):
    price: int = Field(0, serialization_alias="Price")


class Holder(BaseModel):
    parts: dict[str, list[ReadAsOther | None]] = {}


@pytest.mark.parametrize("kind", [ReadAsOther, WrittenAsOther, Holder, list[Holder]])
def test_a_model_that_would_not_read_what_it_has_written_is_refused(kind: Any) -> None:
    with pytest.raises(Unsuitable, match=r"AsOther\.price is read as '\w+' and written as '\w+'"):
        checked(kind)


class Both(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    price: int = Field(alias="Price")
    other: int = Field(validation_alias="Other")


class Several(BaseModel):
    price: int = Field(validation_alias=AliasChoices("Price", AliasPath("prices", 0), "price"))
    parent: "Several | None" = None
    kept: int = Field(0, validation_alias="Kept", exclude=True)


@pytest.mark.parametrize(
    ("kind", "given"), [(Both, {"Price": 1, "Other": 2}), (Several, {"price": 1, "parent": {"Price": 2}})]
)
def test_a_model_that_reads_what_it_has_written_by_whichever_name_is_taken(
    kind: type[BaseModel], given: Any
) -> None:
    found, value = checked(kind), kind.model_validate(given)
    assert found.read(found.write(value)) == value
