"""The codec of typed JSON."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from streamtable import Stream, String, Typed
from streamtable.base.evolution import evolved, has_schema, without_schemas
from streamtable.base.ports import Fields
from streamtable.errors import ConfigurationError, DeserializationError, SerializationError


class Item(msgspec.Struct, frozen=True):
    price: float


class Order(msgspec.Struct, frozen=True):
    id: str
    items: list[Item]


@dataclass(frozen=True)
class Place:
    shop: str
    shelf: int = 0


class Click(TypedDict):
    url: str


class Visit(typing_extensions.TypedDict):
    page: str


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int
    b: str = ""


class Loose(msgspec.Struct):
    a: int


class Listed(msgspec.Struct, frozen=True):
    a: tuple[int, Loose]


ORDER = b'{"id":"a","items":[{"price":1.5}]}'
BAD = b'{"id":"a","items":[{"price":1},{"price":2},{"price":"x"}]}'


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (Order, Order("a", [Item(1.5)]), ORDER),
        (Place, Place("x", 2), b'{"shop":"x","shelf":2}'),
        (Click, {"url": "/"}, b'{"url":"/"}'),
        (Model, Model(a=1), b'{"a":1,"b":""}'),
        (list[Item], [Item(1.0)], b'[{"price":1.0}]'),
    ],
)
def test_a_value_is_json_and_comes_back_as_its_type(kind: Any, value: Any, data: bytes) -> None:
    codec: Typed[Any] = Typed(kind)
    assert codec.encode(value) == data
    assert codec.decode(data) == value
    assert type(codec.decode(data)) is type(value)


def test_a_typed_dict_of_typing_extensions_is_one_too() -> None:
    assert Typed(Visit).encode({"page": "/"}) == b'{"page":"/"}'


def test_what_does_not_fit_is_poison_that_names_its_place() -> None:
    with pytest.raises(
        DeserializationError, match=r"^Order: \$\.items\[2\]\.price: expected float, got str$"
    ):
        Typed(Order).decode(BAD)


def test_a_value_of_another_type_is_not_written() -> None:
    with pytest.raises(SerializationError, match=r"^Order: expected Order, got dict$"):
        Typed(Order).encode({"id": "a", "items": []})  # type: ignore[arg-type] # it is refused
    with pytest.raises(SerializationError, match=r"^Order: \$\.id: expected str, got int$"):
        Typed(Order).encode(Order(5, []))  # type: ignore[arg-type] # it is refused


def test_unknown_fields_are_ignored_and_refused_if_the_codec_is_strict() -> None:
    data = b'{"id":"a","items":[],"more":1}'
    assert Typed(Order).decode(data) == Order("a", [])
    with pytest.raises(DeserializationError, match=r"^Order: \$\.more: unknown field$"):
        Typed(Order, strict=True).decode(data)


@given(st.lists(st.sampled_from([ORDER, BAD, b"", b"{", None, b'{"id":"' + b"x" * 100 + b'","items":[]}'])))
def test_a_batch_is_decoded_as_its_records_are_one_by_one(data: Sequence[bytes | None]) -> None:
    codec = Typed(Order, max_bytes=100)
    found = codec.decode_many(data)
    for index, item in enumerate(data):
        if item is None:
            assert found.values[index] is None
            continue
        if index in found.poison:
            assert found.values[index] is None
            with pytest.raises(DeserializationError, match=re.escape(found.poison[index].message)):
                codec.decode(item)
        else:
            assert found.values[index] == codec.decode(item)


def test_a_large_message_is_poison() -> None:
    with pytest.raises(DeserializationError, match="Order: 34 bytes, at most 33"):
        Typed(Order, max_bytes=33).decode(ORDER)


def test_fields_of_a_batch_are_read_by_their_names() -> None:
    for codec, data in ((Typed(Place), b'{"shop":"x"}'), (Typed(dict[str, str]), b'{"shop":"x"}')):
        values = codec.decode_many([data, data]).values
        assert isinstance(values, Fields)
        assert values.field("shop") == ["x", "x"]
    with pytest.raises(AttributeError):
        Typed(Place).decode_many([b'{"shop":"x"}']).values.field("aisle")  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [object, 7, list[object]])
def test_a_type_that_json_cannot_be_checked_against_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^Typed: JSON cannot be checked against"):
        Typed(kind)


# ---- keys ---------------------------------------------------------------------------------------------------------------


def test_equal_keys_have_equal_bytes() -> None:
    class Wide(msgspec.Struct, frozen=True, omit_defaults=True):
        shop: str
        shelf: int = 0

    keys = Stream("s", Typed(Wide), String()).key
    assert keys.encode(Wide("x", 0)) == keys.encode(Wide("x")) == b'{"shop":"x"}'
    records = Stream("s", Typed(Click), String()).key
    assert records.encode({"url": "/"}) == b'{"url":"/"}'


def test_the_fields_of_a_key_that_is_a_dict_are_sorted_and_rows_keep_their_order() -> None:
    class Pair(TypedDict):
        a: int
        b: int

    assert Stream("s", Typed(Pair), String()).key.encode({"b": 1, "a": 2}) == b'{"a":2,"b":1}'
    assert Typed(Pair).encode({"b": 1, "a": 2}) == b'{"b":1,"a":2}'


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Item, r"equal values of \$\.price \(number\) may have different bytes"),
        (Order, r"\$\.items \(array\) has no fixed form"),
        (Loose, "its values cannot be hashed: freeze the class"),
        (dict[str, int], r"\$ \(object\) has no fixed form"),
    ],
)
def test_a_type_that_is_no_key_is_refused_with_the_reason(kind: Any, reason: str) -> None:
    codec: Typed[Any] = Typed(kind)
    with pytest.raises(ConfigurationError, match=f"cannot be the codec of a key: {reason}"):
        Stream("s", codec, String())


def test_a_key_with_a_part_that_cannot_be_hashed_is_poison() -> None:
    keys = Stream("s", Typed(Listed), String()).key
    with pytest.raises(DeserializationError, match="unhashable type: 'Loose'"):
        keys.decode(b'{"a":[1,{"a":1}]}')


def test_keys_of_a_frozen_model_or_dataclass_can_be_used() -> None:
    assert Stream("s", Typed(Model), String()).key.decode(b'{"a":1}') == Model(a=1)
    assert Stream("s", Typed(Place), String()).key.decode(b'{"shop":"x"}') == Place("x")


# ---- evolution ----------------------------------------------------------------------------------------------------------


def recorded(kind: Any, around: str = "Long() to {}; in bytes") -> str:
    codec: Typed[Any] = Typed(kind)
    return around.format(codec.recorded)


class OrderOfShop(msgspec.Struct):
    id: str
    items: list[Item]
    shop: str = ""


class OrderByNumber(msgspec.Struct):
    id: int
    items: list[Item]


class OrderOfUnknown(msgspec.Struct):
    id: str
    items: list[Item]
    shop: int = 0


def test_the_name_of_a_type_is_not_recorded_and_its_schema_is() -> None:
    text = recorded(Order)
    assert has_schema(text)
    assert without_schemas(text) == "Long() to Typed; in bytes"
    assert text.isascii() is False
    assert (
        recorded(msgspec.defstruct("Renamed", [("id", str), ("items", list[Item])])).replace(
            "Renamed", "Order"
        )
        == text
    )


def test_a_type_that_accepts_all_that_was_written_is_recorded_beside_the_older_one() -> None:
    now, reason = evolved(recorded(Order), recorded(OrderOfShop))
    assert reason == ""
    again, reason = evolved(now, recorded(OrderOfShop))
    assert (again, reason) == (now, "")


def test_a_type_that_does_not_accept_what_was_written_is_refused_with_the_place() -> None:
    before = recorded(Order)
    assert evolved(before, recorded(OrderByNumber)) == (
        before,
        "$.id: string was written, and integer is read",
    )


def test_a_type_must_accept_what_any_older_type_has_written() -> None:
    both, _ = evolved(recorded(OrderOfShop), recorded(Order))
    assert evolved(recorded(Order), recorded(OrderOfUnknown))[1] == ""
    assert evolved(both, recorded(OrderOfUnknown))[1] == "$.shop: string was written, and integer is read"


def test_the_type_that_was_recorded_last_is_accepted_as_it_was_before() -> None:
    """Rules of a later version of the library may refuse it; its rows are there, and all of them are read by it."""
    before, now = recorded(Order), recorded(OrderByNumber)
    assert evolved(before, now)[1]
    schemas = ", ".join(text[text.index("\u27e8") + 1 : text.index("\u27e9")] for text in (before, now))
    both = f"{now[: now.index(chr(0x27E8)) + 1]}[{schemas}]{now[now.index(chr(0x27E9)) :]}"
    assert evolved(both, now)[1] == ""


def test_all_else_that_is_recorded_must_stay_as_it_was() -> None:
    assert (
        evolved(recorded(Order), recorded(Order, "Long() to {}; in words"))[1]
        == "its codecs or its rules have changed"
    )
    pair = "{0} and {0}"
    assert evolved(recorded(Order, pair), recorded(OrderOfShop, pair))[1] == ""
    assert evolved(recorded(Order, pair), recorded(OrderByNumber, pair))[1].startswith("$.id: string")


def test_the_schema_of_a_key_must_stay_as_it_was() -> None:
    text = Stream("s", Typed(Place), String()).key.recorded  # type: ignore[attr-defined]
    assert not has_schema(text)
    assert '"shelf"' in text
