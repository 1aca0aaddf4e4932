"""Whether a schema accepts what another one accepts: never said of one that does not."""

import re
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from itertools import count
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType
from pydantic import BaseModel, Field

from exactjson import UNFILLED, checked, unreadable


class Item(msgspec.Struct):
    price: float


class WholeItem(msgspec.Struct):
    price: int


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Tree(msgspec.Struct):
    name: str
    parts: list["Tree"] = []


class CountedTree(msgspec.Struct):
    name: str
    parts: list["CountedTree"] = []
    size: int = 0


class StrictTree(msgspec.Struct):
    name: int
    parts: list["StrictTree"] = []


class Model(BaseModel):
    a: int
    b: str | None = None


class OlderModel(BaseModel):
    a: int


class Created(msgspec.Struct, tag=True):
    id: str


class Deleted(msgspec.Struct, tag=True):
    id: str


class Fields(TypedDict):
    a: int


@dataclass
class Event:
    at: str
    other: "Created | Deleted | None" = None


@dataclass
class LaterEvent:
    at: datetime
    other: "Created | Deleted | None" = None


class Pair(NamedTuple):
    low: int
    high: int


class Swapped(NamedTuple):
    high: int
    low: int


class Listed(msgspec.Struct, array_like=True):
    a: int
    b: int = 0
    c: int = 0


class WithoutMiddle(msgspec.Struct, array_like=True):
    a: int
    c: int = 0


class WithoutLast(msgspec.Struct, array_like=True):
    a: int
    b: int = 0


class OtherDefault(msgspec.Struct, array_like=True):
    a: int
    b: int = 1


class MadeDefault(msgspec.Struct, array_like=True):
    a: int
    b: int = msgspec.field(default_factory=lambda: 1)


class Modelled(BaseModel):
    a: int = 5


class ModelledByFunction(BaseModel):
    a: int = Field(default_factory=lambda: 6)


class Numbered(BaseModel):
    a: Literal[1]


class Texts(BaseModel):
    a: str


class Wholes(BaseModel):
    a: int


class Decimals(BaseModel):
    a: Decimal


class StrictlyTrue(BaseModel):
    a: Literal[True]


class Truthful(BaseModel):
    a: Literal[True, 1]


class WithRequired(msgspec.Struct, array_like=True):
    a: int
    b: int


class Triple(NamedTuple):
    low: int
    high: int
    unit: str = ""


class Renamed(msgspec.Struct, array_like=True):
    a: int
    other: int = 0
    c: int = 0


NUMBERS = count()


def fault(old: Any, new: Any) -> str:
    return unreadable(checked(old).schema, checked(new).schema)


def made_by(value: Any) -> Any:
    """A default that a function makes."""
    return msgspec.field(default_factory=lambda: value)


def struct(**fields: Any) -> Any:
    """A struct of fields; a pair is a type and its default."""
    made = [(name, *each) if isinstance(each, tuple) else (name, each) for name, each in fields.items()]
    return msgspec.defstruct(f"Row{next(NUMBERS)}", made, kw_only=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (struct(a=int), struct(a=int)),
        (struct(a=int), struct(a=float)),
        (struct(a=int), struct(a=int | None)),
        (struct(a=int), struct(a=Any)),
        (struct(a=int, b=str), struct(a=int)),
        (struct(a=int), struct(a=int, b=(str, ""))),
        (struct(a=int), struct(a=(int, 0))),
        (struct(a=Literal["x"]), struct(a=str)),
        (struct(a=Literal["x"]), struct(a=Literal["x", "y"])),
        (struct(a=WholeItem), struct(a=Item)),
        (list[WholeItem], list[Item]),
        (dict[str, int], dict[str, float]),
        (tuple[int, int], tuple[float, float]),
        (tuple[int, int], list[int]),
        (Annotated[int, msgspec.Meta(ge=5, le=6)], Annotated[int, msgspec.Meta(ge=4, le=6)]),
        (Created, Created | Deleted),
        (Tree, CountedTree),
        (OlderModel, Model),
        (Fields, dict[str, int]),
        (datetime, str),
        (list[Annotated[datetime, msgspec.Meta(tz=True)]], list[datetime]),
        (dict[int, str], dict[str, str]),
        (Listed, WithoutLast),
        (WithoutLast, Listed),
        (WithRequired, Listed),
        (Pair, Triple),
        (Listed, Renamed),
        (struct(a=bytes), struct(a=bytes | None)),
        (struct(a=int), struct(a=(int, made_by(5)))),
        (struct(a=(int, made_by(5))), struct(b=(int, 5))),
        (WithRequired, MadeDefault),
        (Literal[True, 1], Literal[1, True]),
        (Numbered, Truthful),
    ],
)
def test_a_type_reads_what_a_narrower_one_has_written(old: Any, new: Any) -> None:
    assert fault(old, new) == ""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (struct(a=str), struct(a=int), r"\$\.a: string was written, and integer is read"),
        (struct(a=float), struct(a=int), r"\$\.a: number was written, and integer is read"),
        (struct(a=int | None), struct(a=int), r"\$\.a: null was written, and integer is read"),
        (struct(a=Any), struct(a=int), r"\$\.a: any value was written, and integer is read"),
        (struct(a=int), struct(a=int, b=str), r"\$\.b: the field is required, and there are rows without it"),
        (struct(a=(int, 0)), struct(a=int), r"\$\.a: the field is required"),
        (struct(a=(int, 0)), struct(a=(int, 1)), r"\$\.a: its default was 0 and is 1"),
        (
            struct(a=(int, 5)),
            struct(a=(int, made_by(6))),
            r"\$\.a: its default was 5 and is none, or made by",
        ),
        (
            struct(a=(int, made_by(6))),
            struct(a=(int, 5)),
            r"\$\.a: its default was none, or made by .* and is 5",
        ),
        (struct(a=(list[int], [])), struct(a=(list[int], made_by([1]))), r"its default was \[\] and is none"),
        (struct(a=(int | UnsetType, UNSET)), struct(a=(int, 5)), r"its default was none, or .* and is 5"),
        (struct(a=(Any, 1)), struct(a=(Any, True)), r"\$\.a: its default was 1 and is True"),
        (Modelled, ModelledByFunction, r"\$\.a: its default was 5 and is none, or made by a function"),
        (struct(a=str), struct(a=Literal["x"]), r"\$\.a: string was written, and only \['x'\] is read"),
        (Literal["x", "z"], Literal["x", "y"], r"\$: 'z' is not among \['x', 'y'\]"),
        (list[Item], list[WholeItem], r"\$\[\]\.price: number was written, and integer is read"),
        (dict[str, float], dict[str, int], r"\$\[\]: number was written"),
        (list[int], tuple[int, int], r"\$\[0\]|minItems"),
        (tuple[int, str], tuple[int, int], r"\$\[1\]: string was written, and integer is read"),
        (int, Annotated[int, msgspec.Meta(ge=4)], r"\$: minimum 4 is new"),
        (Annotated[int, msgspec.Meta(ge=3)], Annotated[int, msgspec.Meta(ge=4)], r"\$: minimum 4 is new"),
        (str, Annotated[str, msgspec.Meta(pattern="^a")], r"\$: pattern '\^a' is new"),
        (Created | Deleted, Created, r"\$\.type: 'Deleted' is not among \['Created'\]"),
        (int | str, int | None, r"\$: string is none of the types that are read"),
        (Tree, StrictTree, r"\$\.name: string was written, and integer is read"),
        (Model, OlderModel, None),
        (dict[str, str], Fields, r"\$\.a: the field is required"),
        (struct(a=str), struct(a=datetime), r"\$\.a: format 'any-date-time' is new"),
        (struct(a=str | None), struct(a=datetime | None), r"\$\.a: string is none of the types"),
        (tuple[Item, str], tuple[Item, time], r"\$\[1\]: format 'any-time' is new"),
        (dict[str, str], dict[int, str], r"\$: propertyNames .* is new"),
        (dict[str, Model], dict[int, Model], r"\$: propertyNames .* is new"),
        (Event, LaterEvent, r"\$\.at: format 'any-date-time' is new"),
        (Pair, Swapped, r"\$\[0\]: the field 'high' was written at the place 1"),
        (list[Pair], list[Swapped], r"\$\[\]\[0\]: the field 'high' was written at the place 1"),
        (Listed, WithoutMiddle, r"\$\[1\]: the field 'c' was written at the place 2"),
        (WithoutLast, OtherDefault, r"\$\[1\]: its default was 0 and is 1"),
        (WithoutLast, MadeDefault, r"\$\[1\]: its default was 0 and is none, or made by a function"),
        (Numbered, StrictlyTrue, r"\$\.a: 1 is not among \[True\]"),
        (StrictlyTrue, Numbered, r"\$\.a: True is not among \[1\]"),
        (WithoutLast, WithRequired, r"\$: minItems 2 is new"),
        (struct(a=bytes), struct(a=str), r"\$\.a: bytes in base64 were written, and string is read"),
        (Texts, Decimals, r"\$\.a: string is none of the types that are read"),
        (Decimals, Decimals, None),
        (Wholes, Decimals, None),
        (str, Colour, r"\$: string was written, and only \['blue', 'red'\] is read"),
    ],
)
def test_a_fault_is_named_with_its_place(old: Any, new: Any, reason: str | None) -> None:
    found = fault(old, new)
    assert found == "" if reason is None else re.search(reason, found), found


def test_a_strict_type_does_not_read_fields_that_were_written_before() -> None:
    old, new = checked(struct(a=int, b=str)), checked(struct(a=int), strict=True)
    assert unreadable(old.schema, new.schema) == "$.b: the field was written, and unknown fields are refused"


def test_another_default_is_no_fault_of_a_schema_whose_missing_fields_are_not_filled_in() -> None:
    old = {"type": "object", "properties": {"a": {"type": "integer", "default": 5}, "b": {"type": "integer"}}}
    new = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}}}
    assert unreadable(old, {**new, UNFILLED: True}) == ""
    assert unreadable(old, new).startswith("$.a: its default was 5 and is none")


@pytest.mark.parametrize(
    ("was", "now"), [([1], [True]), ({"x": 0}, {"x": False}), ([{"x": [1]}], [{"x": [True]}])]
)
def test_a_default_that_is_equal_in_python_alone_is_another_one(was: Any, now: Any) -> None:
    old, new = ({"type": "object", "properties": {"a": {"default": each}}} for each in (was, now))
    assert unreadable(old, new).startswith("$.a: its default was")
    assert unreadable(old, old) == ""


SIMPLE = [int, float, str, bool, type(None), Literal["x"], Literal["x", "y"]]
types: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        inner.map(lambda each: list[each]),  # type: ignore[valid-type] # made at run time
        inner.map(lambda each: dict[str, each]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(tuple.__class_getitem__),
        inner.map(lambda each: each | None),
        st.dictionaries(
            st.sampled_from("abc"), inner | st.sampled_from([(int, 0), (str, ""), (int, 1)]), max_size=3
        ).map(lambda fields: struct(**fields)),
    ),
    max_leaves=5,
)


SCALARS = {
    "integer": st.integers(-9, 9),
    "number": st.floats(-9, 9) | st.integers(-9, 9),
    "string": st.sampled_from(["", "x", "y"]),
    "boolean": st.booleans(),
    "null": st.none(),
}


def values(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each kind
    """JSON values that fit a schema, without unknown fields: what a program of this type writes."""
    if "$ref" in schema:
        return values(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return st.one_of([values(each, root) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] in SCALARS:
        return SCALARS[schema["type"]]
    match schema["type"]:
        case "object" if "properties" in schema:
            parts = {name: values(each, root) for name, each in schema["properties"].items()}
            required = {name: parts.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(required, optional=parts)
        case "object":
            return st.dictionaries(
                st.sampled_from("abcd"),
                values(schema.get("additionalProperties", {"type": "null"}), root),
                max_size=2,
            )
        case "array" if "prefixItems" in schema:
            return st.tuples(*(values(each, root) for each in schema["prefixItems"])).map(list)
    return st.lists(values(schema["items"], root), max_size=2)


@settings(max_examples=300, deadline=None)
@given(types, types, st.data())
def test_whatever_is_said_to_be_readable_is_read(old: Any, new: Any, data: st.DataObject) -> None:
    before, now = checked(old), checked(new)
    schema: Any = before.schema
    if not unreadable(schema, now.schema):
        value = data.draw(values(schema, schema))
        now.read(msgspec.json.encode(value))


@settings(max_examples=100, deadline=None)
@given(types)
def test_a_type_reads_itself(kind: Any) -> None:
    assert fault(kind, kind) == ""
