from datetime import timedelta

import pytest

from click_count.settings import ClickSettings
from streamtable import EventTime
from streamtable.errors import ConfigurationError


def test_without_variables_the_defaults_apply() -> None:
    settings = ClickSettings.from_environment({"PATH": "/bin", "USER_STATUS_GROUP": "other"})
    assert settings == ClickSettings(group="click-count", docs=False, reflection=False)


def test_variables_are_read() -> None:
    settings = ClickSettings.from_environment({"CLICK_COUNT_GROUP": "click-count-v2"})
    assert settings == ClickSettings(group="click-count-v2")


def test_an_invalid_setting_is_reported_by_name() -> None:
    with pytest.raises(ConfigurationError, match="CLICK_COUNT_GROPU: there is no such setting"):
        ClickSettings.from_environment({"CLICK_COUNT_GROPU": "a"})


def test_events_may_be_ahead_by_an_hour_at_most_as_in_flows() -> None:
    settings = ClickSettings.from_environment({"CLICK_COUNT_MAX_AHEAD_SECONDS": "3600"})
    assert timedelta(seconds=settings.max_ahead_seconds) == EventTime().max_ahead
    with pytest.raises(ConfigurationError, match=r"CLICK_COUNT_MAX_AHEAD_SECONDS=.3601.: expected"):
        ClickSettings.from_environment({"CLICK_COUNT_MAX_AHEAD_SECONDS": "3601"})
