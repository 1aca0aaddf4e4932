from typing import Annotated, ClassVar

import pytest
from pydantic import Field, ValidationError

from streamtable.base.environment import EnvironmentSettings, Flag, seconds
from streamtable.errors import ConfigurationError


class ShopSettings(EnvironmentSettings):
    env_prefix: ClassVar[str] = "SHOP_"

    name: str = "shop"
    open: Flag = False
    wait: Annotated[float, seconds(0, 8)] = 5.0
    password: Annotated[str, Field(min_length=8)] | None = Field(default=None, repr=False)


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
    with pytest.raises(ValidationError, match="frozen"):
        ShopSettings().name = "other"


def test_a_long_value_is_truncated() -> None:
    assert len(refusal({"SHOP_WAIT": "9" * 1000})) < 300
