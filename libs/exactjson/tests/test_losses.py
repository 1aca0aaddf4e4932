"""No value of pydantic is written that would be read as another one."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializeAsAny,
    TypeAdapter,
    field_serializer,
    model_serializer,
)

from exactjson import checked
from exactjson.losses import comparison

NOON = datetime(2026, 1, 2, 12, 0, 30, tzinfo=UTC)


class Pet(BaseModel):
    name: str


class Dog(Pet):
    bark: str = "wuff"


class Owner(BaseModel):
    pets: list[Pet]


class Shown(BaseModel):
    pets: dict[str, SerializeAsAny[Pet]]


@dataclass
class Point:
    x: int


@dataclass
class PointInSpace(Point):
    z: int = 0


class Place(BaseModel):
    at: Point


class Rounded(BaseModel):
    price: float
    at: datetime = NOON

    @field_serializer("price")
    def rounded(self, price: float) -> float:
        return round(price, 2)


class Days(BaseModel):
    at: datetime

    @model_serializer
    def days(self) -> dict[str, str]:
        return {"at": self.at.date().isoformat()}


class Color(StrEnum):
    RED = "red"


class Either(BaseModel):
    value: datetime | str | Color


class Cat(BaseModel):
    name: str


class Keeper(BaseModel):
    animal: Pet | Cat


class InBase64(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64")
    data: bytes


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (Dog(name="a"), Pet, r"\$: Dog would be read as Pet"),
        (Owner(pets=[Pet(name="a"), Dog(name="b")]), Owner, r"\$\.pets\[1\]: Dog would be read as Pet"),
        (Shown(pets={"x": Dog(name="b")}), Shown, r"\$\.pets\.x: Dog would be read as Pet"),
        ([Dog(name="a")], list[Pet], r"\$\[0\]: Dog would be read as Pet"),
        (Place(at=PointInSpace(1, 2)), Place, r"\$\.at: PointInSpace would be read as Point"),
        (Rounded(price=1.234), Rounded, r"\$\.price: the float that is read again is another one"),
        (Days(at=NOON), Days, r"\$\.at: the datetime that is read again is another one"),
        (
            Either.model_construct(value=NOON.isoformat()),
            Either,
            r"\$\.value: the str that is read again is another one",
        ),
        (Either(value=Color.RED), Either, r"\$\.value: Color would be read as str"),
        (Keeper(animal=Cat(name="a")), Keeper, r"\$\.animal: Cat would be read as Pet"),
        (InBase64(data=b"\xff\xfe\xfd"), InBase64, r"\$\.data: the bytes that is read again is another one"),
    ],
)
def test_a_value_that_would_be_read_as_another_one_is_refused(value: Any, kind: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        checked(kind).write_checked(value)


class Tagged(BaseModel):
    kind: Literal["tagged"] = "tagged"
    name: str = ""


class Other(BaseModel):
    kind: Literal["other"] = "other"


class Many(BaseModel):
    pet: Pet | None
    either: int | str
    animal: Annotated[Tagged | Other, Field(discriminator="kind")]
    pets: dict[str, tuple[Pet, int]] = {}
    hidden: int = Field(1, exclude=True)
    _private: int = PrivateAttr(0)


def test_what_is_not_written_at_all_is_not_compared() -> None:
    value = Many(pet=Pet(name="a"), either="1", animal=Tagged(), pets={"b": (Pet(name="c"), 1)}, hidden=2)
    value._private = 5
    json = checked(Many)
    assert json.read(json.write_checked(value)).pets == value.pets


def test_a_type_whose_values_come_back_is_not_compared() -> None:
    class Alone(BaseModel):
        name: str
        tagged: Annotated[Tagged | Other, Field(discriminator="kind")] | None = None

    compare = checked(Alone).compare
    assert compare is not None, "a subclass may be defined later"
    assert compare(Alone(name="a"), Alone(name="b")) == ""

    class Later(Alone):
        more: int = 0

    assert compare(Later(name="a"), Alone(name="a")) == "$: Later would be read as Alone"


def test_unions_of_types_that_json_tells_apart_cost_nothing() -> None:
    assert comparison(TypeAdapter(dict[str, int | str | float | None]).core_schema) is None
    assert comparison(TypeAdapter(list[int | datetime | str]).core_schema) is not None
