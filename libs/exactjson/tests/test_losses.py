"""No value is written that would be read as another one."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, NotRequired, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializeAsAny,
    field_serializer,
    field_validator,
    model_serializer,
)

from exactjson import checked

T = TypeVar("T")
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
            r"\$\.value: str would be read as datetime",
        ),
        (Either(value=Color.RED), Either, r"\$\.value: Color would be read as str"),
        (Keeper(animal=Cat(name="a")), Keeper, r"\$\.animal: Cat would be read as Pet"),
        (InBase64(data=b"\xff\xfe\xfd"), InBase64, r"\$\.data: the bytes that is read again is another one"),
    ],
)
def test_a_value_that_would_be_read_as_another_one_is_refused(value: Any, kind: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        checked(kind).write_checked(value)


class Base(msgspec.Struct):
    a: int


class Derived(Base):
    b: int = 0


class Bases(msgspec.Struct):
    all: dict[str, tuple[Base, ...]]


class Line(TypedDict):
    sku: str
    note: NotRequired[str]


class Shift(TypedDict):
    at: datetime


class Box(msgspec.Struct, Generic[T]):
    inside: T


class Row(msgspec.Struct):
    meta: Any = None
    more: dict = {}  # type: ignore[type-arg] # of any values


class Priced(BaseModel):
    cents: int

    @field_validator("cents")
    @classmethod
    def in_cents(cls, price: int) -> int:
        return price * 100


class Loose(BaseModel):
    meta: dict[str, Any] = {}
    more: list = []  # type: ignore[type-arg] # of any values


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (Derived(1, 2), Base, r"\$: Derived would be read as Base"),
        (Bases({"x": (Base(1), Derived(1))}), Bases, r"\$\.all\.x\[1\]: Derived would be read as Base"),
        (PointInSpace(1, 2), Point, r"\$: PointInSpace would be read as Point"),
        ({"sku": "a", "notes": "x"}, Line, r"\$\.notes would not be read again"),
        ([{"sku": "a", "notes": "x"}], list[Line], r"\$\[0\]\.notes would not be read again"),
        (Row({"at": NOON}), Row, r"\$\.meta\.at: datetime would be read as str"),
        (Row(Decimal("1.0")), Row, r"\$\.meta: Decimal would be read as str"),
        (Row(b"a"), Row, r"\$\.meta: bytes would be read as str"),
        (Box(Derived(1)), Box[Base], r"\$\.inside: Derived would be read as Base"),
        (Row(Base(1)), Row, r"\$\.meta: Base would be read as dict"),
        (Row(more={1: "a"}), Row, r"\$\.more\.1 would not be read again"),
        ({"x": {1, 2}}, dict[str, Any], r"\$\.x: set would be read as list"),
        (Priced(cents=1), Priced, r"\$\.cents: the int that is read again is another one"),
        (Loose(meta={"at": NOON}), Loose, r"\$\.meta\.at: datetime would be read as str"),
        (Loose(more=[{1}]), Loose, r"\$\.more\[0\]: set would be read as list"),
    ],
)
def test_a_value_of_no_type_or_of_more_than_its_type_is_refused(value: Any, kind: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        checked(kind).write_checked(value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Box(Base(1)), Box[Base]),
        (Row((1, 2.5, None), {"a": ("x", {"y": True})}), Row),
        (Bases({"x": (Base(1),)}), Bases),
        ({"sku": "a", "note": "x"}, Line),
        (Loose(meta={"a": [1, {"b": None}]}, more=[1]), Loose),
        ({"at": datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))}, Shift),
        (Row(), Row),
    ],
)
def test_what_json_holds_is_written_whatever_its_type(value: Any, kind: Any) -> None:
    class Later(Base):
        """A subclass elsewhere makes nothing else refused."""

    assert Later(1).a == 1
    assert checked(kind).write_checked(value)


BERLIN = ZoneInfo("Europe/Berlin")


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


class Event(msgspec.Struct):
    at: datetime | None = None
    id: str = ""
    amount: float = 0.0
    by: dict[str | int, int] = {}
    tags: list[str] = []


class Message(BaseModel):
    at: datetime | None = None
    id: str = ""
    tags: list[str] = []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Event(id=UUID(int=1)), r"\$\.id: UUID would be read as str"),  # type: ignore[arg-type] # a wrong program
        (Event(amount=2**53 + 1), r"\$\.amount: int would be read as float"),
        (Event(by={"1": 1, 1: 2}), r"\$\.by\.1 would not be read again"),
        (
            Event(at=datetime(1890, 1, 1, tzinfo=BERLIN)),
            r"\$\.at: the datetime that is read again is another one",
        ),
        (Message.model_construct(id=UUID(int=1)), r"\$\.id: UUID would be read as str"),
    ],
    ids=repr,
)
def test_a_value_of_another_type_than_its_field_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        checked(type(value)).write_checked(value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            Event(at=datetime(2026, 7, 1, tzinfo=BERLIN)),
            r"2026-07-01 00:00:00\+02:00 of Europe/Berlin .* write \.astimezone",
        ),
        (
            [{"x": Event(at=datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/London")))}],
            "of Europe/London would be read",
        ),
        (
            Message(at=datetime(2026, 7, 1, tzinfo=BERLIN)),
            "of Europe/Berlin would be read with a fixed offset",
        ),
        (Event(tags=("a",)), r"\$\.tags: tuple would be read as list: write list\(\.\.\.\)"),  # type: ignore[arg-type] # as above
        (Message.model_construct(tags=("a",)), r"\$\.tags: tuple would be read as list"),
    ],
    ids=repr,
)
def test_a_row_is_refused_that_lists_and_offsets_cannot_hold(value: Any, reason: str) -> None:
    json = checked(list[dict[str, Event]] if isinstance(value, list) else type(value))
    assert json.write_checked(value)
    with pytest.raises(ValueError, match=reason):
        json.write_checked(value, row=True)


@pytest.mark.parametrize("kind", [Event, Message])
@pytest.mark.parametrize("zone", [None, UTC, ZoneInfo("UTC"), timezone(timedelta(hours=2))], ids=str)
def test_a_row_keeps_times_with_a_fixed_offset(kind: Any, zone: Any) -> None:
    row = kind(at=datetime(2026, 7, 1, tzinfo=zone), tags=["a"])
    json = checked(kind)
    assert json.read(json.write_checked(row, row=True)) == row
