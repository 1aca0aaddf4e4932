from typing import ClassVar

import pytest

from servicekit.process.service_settings import ServiceSettings
from streamtable.errors import ConfigurationError

SECRET = "0123456789abcdef"


class ShopSettings(ServiceSettings):
    env_prefix: ClassVar[str] = "SHOP_"

    group: str = "shop"
    other_group: str = "stock"


def test_without_variables_the_defaults_apply() -> None:
    assert ShopSettings.from_environment({"PATH": "/bin", "STREAMTABLE_X": "1"}) == ShopSettings()


def test_variables_of_the_base_and_of_the_service_are_read() -> None:
    environment = {
        "SHOP_GROUP": "shop-v2",
        "SHOP_OTHER_GROUP": "stock-v2",
        "SHOP_CURSOR_SECRET": SECRET,
        "SHOP_DOCS": "true",
        "SHOP_REFLECTION": "false",
        "SHOP_WAIT_SECONDS": "0.5",
        "SHOP_MAX_AHEAD_SECONDS": "86400",
    }
    assert ShopSettings.from_environment(environment) == ShopSettings(
        group="shop-v2",
        other_group="stock-v2",
        cursor_secret=SECRET,
        docs=True,
        wait_seconds=0.5,
        max_ahead_seconds=86_400,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GROPU", "a"),
        ("PREFIX", "a"),
        ("DOCS", "yes"),
        ("DOCS", ""),
        ("REFLECTION", "True"),
        ("CURSOR_SECRET", "too short"),
        ("WAIT_SECONDS", "nan"),
        ("WAIT_SECONDS", "-1"),
        ("WAIT_SECONDS", "9"),
        ("WAIT_SECONDS", "soon"),
        ("MAX_AHEAD_SECONDS", "-1"),
        ("MAX_AHEAD_SECONDS", "86401"),
    ],
)
def test_an_invalid_setting_is_reported_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"SHOP_{name}"):
        ShopSettings.from_environment({f"SHOP_{name}": value})


def test_all_invalid_settings_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ShopSettings.from_environment({"SHOP_DOCS": "1", "SHOP_X": "", "SHOP_WAIT_SECONDS": "x"})
    assert len(str(caught.value).splitlines()) == 4


def test_the_secret_is_not_shown() -> None:
    assert SECRET not in repr(ShopSettings(cursor_secret=SECRET))
    with pytest.raises(ConfigurationError) as caught:
        ShopSettings.from_environment({"SHOP_CURSOR_SECRET": "too short"})
    assert "too short" not in str(caught.value)
