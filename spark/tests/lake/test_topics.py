import pytest

from contracts.records import USER_CLICK
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.topics import RECORDS, Topic, topics_of


def test_without_arguments_all_known_topics_are_read() -> None:
    assert [topic.name for topic in topics_of([])] == list(RECORDS)


def test_a_topic_may_have_another_name_in_kafka() -> None:
    assert topics_of(["user-clicks=clicks-2"]) == (Topic("user-clicks", "clicks-2", USER_CLICK),)


@pytest.mark.parametrize("arguments", [["clicks"], ["user-clicks="], [""], ["user-clicks", "user-clicks=b"]])
def test_unknown_and_repeated_topics_are_refused(arguments: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="--topic"):
        topics_of(arguments)


def test_two_topics_cannot_be_one_in_kafka() -> None:
    with pytest.raises(ConfigurationError, match="more than once"):
        topics_of(["user-clicks=same", "user-status-updates=same"])
