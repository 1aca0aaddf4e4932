import pytest

from click_count.settings import ServiceSettings
from streamtable.errors import ConfigurationError

SECRET = "0123456789abcdef"


def test_without_variables_the_defaults_hold() -> None:
    settings = ServiceSettings.from_environment({"PATH": "/bin", "STREAMTABLE_X": "1"})
    assert settings == ServiceSettings("click-count", None, docs=False, reflection=False)


def test_variables_are_read() -> None:
    environment = {
        "CLICK_COUNT_GROUP": "click-count-v2",
        "CLICK_COUNT_CURSOR_SECRET": SECRET,
        "CLICK_COUNT_DOCS": "true",
        "CLICK_COUNT_REFLECTION": "true",
    }
    expected = ServiceSettings("click-count-v2", SECRET, docs=True, reflection=True)
    assert ServiceSettings.from_environment(environment) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [("GROPU", "a"), ("DOCS", "yes"), ("DOCS", ""), ("REFLECTION", "True"), ("CURSOR_SECRET", "too short")],
)
def test_what_is_wrong_is_told_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"CLICK_COUNT_{name}"):
        ServiceSettings.from_environment({f"CLICK_COUNT_{name}": value})


def test_the_secret_does_not_show() -> None:
    assert SECRET not in repr(ServiceSettings(cursor_secret=SECRET))
    with pytest.raises(ConfigurationError) as caught:
        ServiceSettings.from_environment({"CLICK_COUNT_CURSOR_SECRET": "too short"})
    assert "too short" not in str(caught.value)
