from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from click_count.instances import _asking
from click_count.settings import ClickSettings
from servicekit.process.edge_settings import EdgeSettings
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


def test_processors_have_a_second_to_answer_however_short_the_wait_for_writes_is() -> None:
    def seconds(wait: float) -> object:
        service = ClickSettings(wait_seconds=wait)
        runtime: Any = SimpleNamespace(service=service, edge=EdgeSettings(), registry=CollectorRegistry())
        return _asking(runtime)["timeout"]

    assert [seconds(wait) for wait in (0.0, 0.1, 5.0)] == [1.0, 1.0, 5.0]
