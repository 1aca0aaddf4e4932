import pytest

from streamtable.errors import ConfigurationError
from tweet_reach.settings import ReachSettings


def test_without_variables_the_defaults_apply() -> None:
    settings = ReachSettings.from_environment({"PATH": "/bin", "CLICK_COUNT_GROUP": "other"})
    assert settings == ReachSettings(group="tweet-reach", batch_seconds=5.0)


def test_variables_are_read() -> None:
    given = {"TWEET_REACH_GROUP": "tweet-reach-v2", "TWEET_REACH_BATCH_SECONDS": "0.5"}
    settings = ReachSettings.from_environment(given)
    assert settings == ReachSettings(group="tweet-reach-v2", batch_seconds=0.5)


def test_an_invalid_setting_is_reported_by_name() -> None:
    with pytest.raises(ConfigurationError, match="TWEET_REACH_BATCH_SECONDS='soon': expected seconds"):
        ReachSettings.from_environment({"TWEET_REACH_BATCH_SECONDS": "soon"})
