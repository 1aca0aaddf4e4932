import pytest

from messaging.settings import MessagingSettings
from streamtable.errors import ConfigurationError


def test_without_variables_the_defaults_apply() -> None:
    settings = MessagingSettings.from_environment({"PATH": "/bin", "CLICK_COUNT_GROUP": "other"})
    assert settings == MessagingSettings(group="collector")


def test_an_invalid_setting_is_reported_by_name() -> None:
    with pytest.raises(ConfigurationError, match="MESSAGING_GROPU: there is no such setting"):
        MessagingSettings.from_environment({"MESSAGING_GROPU": "a"})
