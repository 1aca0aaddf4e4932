from dataclasses import field
from typing import Annotated, ClassVar

import pytest

from streamtable.base.environment import EnvironmentSettings, Flag, seconds
from streamtable.errors import ConfigurationError


def long_enough(value: object) -> str:
    if not isinstance(value, str) or len(value) < 8:
        raise ValueError("at least 8 characters")
    return value


class ShopSettings(EnvironmentSettings):
    env_prefix: ClassVar[str] = "SHOP_"

    name: str = "shop"
    open: Flag = False
    wait: Annotated[float, seconds(0, 8)] = 5.0
    password: Annotated[str, long_enough] | None = field(default=None, repr=False)


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        ShopSettings.from_environment(environ)
    return str(refused.value)


def test_an_error_names_the_variable_its_value_and_the_valid_values() -> None:
    assert "SHOP_WAIT='soon': expected seconds, a plain decimal number from 0 to 8" in refusal(
        {"SHOP_WAIT": "soon"}
    )
    assert "SHOP_OPEN='yes': expected true or false" in refusal({"SHOP_OPEN": "yes"})


def test_a_misspelt_variable_is_rejected_with_a_suggestion() -> None:
    assert "SHOP_WIAT: there is no such setting; did you mean SHOP_WAIT?" in refusal({"SHOP_WIAT": "1"})
    assert "shop_wait: there is no such setting; did you mean SHOP_WAIT?" in refusal({"shop_wait": "1"})


@pytest.mark.parametrize("text", ["hunter2", " hunter22", ""])
def test_a_secret_is_never_shown(text: str) -> None:
    message = refusal({"SHOP_PASSWORD": text})
    assert "SHOP_PASSWORD: expected" in message
    assert "hunter2" not in message
    assert "hunter22" not in repr(ShopSettings(password="hunter22"))


def test_the_constructor_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_NAME", "other")
    assert ShopSettings().name == "shop"
    assert ShopSettings.from_environment().name == "other"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="cannot assign"):
        ShopSettings().name = "other"  # type: ignore[misc] # the same


def test_a_field_without_a_default_has_to_be_set() -> None:
    class Signed(EnvironmentSettings):
        key: str

    assert Signed.from_environment({"KEY": "x"}).key == "x"
    with pytest.raises(ConfigurationError, match="KEY: expected text"):
        Signed.from_environment({})


def test_fields_that_contradict_each_other_are_refused() -> None:
    class Span(EnvironmentSettings):
        low: Annotated[float, seconds(0, 9)] = 1.0
        high: Annotated[float, seconds(0, 9)] = 2.0

        def check_together(self) -> None:
            if self.low > self.high:
                raise ValueError("LOW is over HIGH")

    assert Span(low=2.0) == Span.from_environment({"LOW": "2"})
    with pytest.raises(ConfigurationError, match="LOW is over HIGH"):
        Span(low=3.0)
    with pytest.raises(ConfigurationError, match="LOW is over HIGH"):
        Span.from_environment({"LOW": "3"})


def test_a_field_without_a_check_is_refused_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match="has no check"):

        class Unchecked(EnvironmentSettings):
            number: int = 1


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="closed"):
        ShopSettings(closed=True)  # type: ignore[call-arg] # the same


def test_a_long_value_is_truncated() -> None:
    assert len(refusal({"SHOP_WAIT": "9" * 1000})) < 300
