"""Fields of pydantic's models either come back from the written form, or their type is refused with the remedy."""

import dataclasses
from typing import Annotated, Any, Literal, NotRequired

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AliasGenerator,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    computed_field,
    create_model,
    field_serializer,
)
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as model_dataclass
from typing_extensions import TypedDict

from exactjson import Unsuitable, checked


class ByNameAlone(BaseModel):
    model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
    price: int = Field(0, alias="Price")


class Generated(BaseModel):
    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=to_camel))
    long_name: int = 0


class Inside(BaseModel):
    price: int = Field(0, validation_alias=AliasPath("prices", "net"), serialization_alias="prices")


class SameName(BaseModel):
    net: int = Field(0, alias="price")
    gross: int = Field(0, alias="price")


class Robbed(BaseModel):
    net: int = Field(0, validation_alias=AliasChoices("gross", "net"))
    gross: int = 0


class NeverWritten(BaseModel):
    price: int = Field(exclude=True)


class Total(BaseModel):
    price: int = 0

    @computed_field  # type: ignore[prop-decorator] # as pydantic documents it
    @property
    def total(self) -> int:
        return 2 * self.price


class ClosedTotal(Total):
    model_config = ConfigDict(extra="forbid")


class OpenTotal(Total):
    model_config = ConfigDict(extra="allow")


class TotalAsPrice(BaseModel):
    price: int = 0

    @computed_field(alias="price")  # type: ignore[prop-decorator] # the same
    @property
    def total(self) -> int:
        return 2 * self.price


@model_dataclass
class ModelDataclass:
    price: int = Field(0, serialization_alias="Price")


@model_dataclass
class NoArgument:
    price: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Plain:
    price: Annotated[int, Field(serialization_alias="Price")] = 0


class Dict(TypedDict):
    price: NotRequired[Annotated[int, Field(serialization_alias="Price")]]


class HoldsPlain(BaseModel):
    part: Plain


class HoldsDict(BaseModel):
    parts: list[Dict | None]


class Secret(BaseModel):
    password: SecretStr


class HoldsSecret(BaseModel):
    secrets: dict[str, Secret]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (ByNameAlone, r"ByNameAlone\.price is read as 'price' and written as 'Price': give it `alias`"),
        (Generated, r"long_name is read as 'long_name' and written as 'longName': give it `alias`"),
        (Inside, r"price is read as '\['prices', 'net'\]' and written as 'prices': give it `alias`"),
        (SameName, r"SameName\.net is written as 'price', and so is another field: give each"),
        (Robbed, r"Robbed\.net is read as 'gross', 'net' and written as 'net'"),
        (NeverWritten, r"NeverWritten\.price is read and never written: give it a default"),
        (ClosedTotal, r"ClosedTotal\.total is computed: .* Ignore unknown fields"),
        (OpenTotal, r"OpenTotal\.total is computed: .* Ignore unknown fields"),
        (TotalAsPrice, r"TotalAsPrice\.price is written as 'price', and so is another field"),
        (ModelDataclass, r"ModelDataclass\.price is read as 'price' and written as 'Price'"),
        (NoArgument, r"NoArgument\.price is written and never read: remove `init=False`"),
        (HoldsPlain, r"Plain\.price is read as 'price' and written as 'Price'"),
        (HoldsDict, r"Dict\.price is read as 'price' and written as 'Price'"),
        (Secret, "a secret is written as asterisks: give its field a `field_serializer`"),
        (HoldsSecret, "a secret is written as asterisks: give its field a `field_serializer`"),
    ],
)
def test_a_field_that_would_not_come_back_is_refused_with_the_remedy(kind: Any, reason: str) -> None:
    with pytest.raises(Unsuitable, match=reason):
        checked(kind)


def test_a_computed_field_is_refused_where_unknown_fields_are() -> None:
    with pytest.raises(Unsuitable, match=r"Total\.total is computed"):
        checked(Total, strict=True)


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    long_name: int = 0


class Swapped(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    one: int = Field(0, alias="two")
    two: int = Field(0, alias="one")


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: Annotated[str, StringConstraints(pattern=r"^\d*$")] = ""


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    cents: Annotated[int, Field(ge=0)] = 0


class Payment(BaseModel):
    by: Annotated[Card | Cash, Field(discriminator="kind")]


class ShownSecret(BaseModel):
    password: SecretStr

    @field_serializer("password")
    def _shown(self, password: SecretStr) -> str:
        return password.get_secret_value()


@pytest.mark.parametrize(
    "value",
    [
        Total(price=2),
        Camel(long_name=3),
        Swapped(one=1, two=2),
        Payment(by=Cash(cents=5)),
        Payment(by=Card(number="17")),
        ShownSecret(password=SecretStr("x")),
    ],
)
def test_a_model_whose_fields_come_back_is_taken(value: BaseModel) -> None:
    made = checked(type(value))
    assert made.read(made.write_checked(value)) == value


names = st.sampled_from(["a", "b", "c"])
reading = names | st.lists(names | st.just(AliasPath("a", 0)), min_size=1, max_size=2).map(
    lambda found: AliasChoices(*found)
)
fields = st.fixed_dictionaries(
    {}, optional={"alias": names, "validation_alias": reading, "serialization_alias": names}
)
configs = st.sampled_from(
    [(True, False), (True, True), (False, True)]  # pydantic refuses models that are read by neither
)


@settings(max_examples=80, deadline=None)
@given(aliases=st.dictionaries(names, fields, min_size=1), config=configs, strict=st.booleans())
def test_a_model_with_any_aliases_comes_back_or_is_refused(
    aliases: dict[str, dict[str, Any]], config: tuple[bool, bool], *, strict: bool
) -> None:
    by_alias, by_name = config
    made_of: dict[str, Any] = {name: (int, Field(0, **given)) for name, given in aliases.items()}
    settings_of = ConfigDict(validate_by_alias=by_alias, validate_by_name=by_name)
    kind: Any = create_model("Made", __config__=settings_of, **made_of)
    try:
        made = checked(kind, strict=strict)
    except Unsuitable:
        return
    value = kind.model_construct()
    for at, name in enumerate(aliases, 1):
        setattr(value, name, at)
    assert made.read(made.write(value)) == value
