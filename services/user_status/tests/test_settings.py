import pytest

from streamtable.errors import ConfigurationError
from user_status.settings import StatusSettings


def test_without_variables_the_defaults_apply() -> None:
    settings = StatusSettings.from_environment({"PATH": "/bin", "CLICK_COUNT_GROUP": "other"})
    assert settings == StatusSettings(group="user-status", clicks_group="click-count", wait_seconds=5.0)


def test_variables_are_read() -> None:
    settings = StatusSettings.from_environment(
        {"USER_STATUS_GROUP": "user-status-v2", "USER_STATUS_CLICKS_GROUP": "click-count-v2"}
    )
    assert settings == StatusSettings(group="user-status-v2", clicks_group="click-count-v2")


def test_an_invalid_setting_is_reported_by_name() -> None:
    with pytest.raises(ConfigurationError, match="USER_STATUS_GROPU: there is no such setting"):
        StatusSettings.from_environment({"USER_STATUS_GROPU": "a"})
