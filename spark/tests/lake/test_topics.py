import pytest

from streamtable_spark.demo import LAKE
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.topics import topics_of


def test_without_arguments_all_known_topics_are_read() -> None:
    assert topics_of([], LAKE.topics) == LAKE.topics


def test_a_topic_may_have_another_name_in_kafka() -> None:
    (found,) = topics_of(["user-clicks=clicks-2"], LAKE.topics)
    assert (found.name, found.kafka) == ("user-clicks", "clicks-2")


@pytest.mark.parametrize("arguments", [["clicks"], ["user-clicks="], [""], ["user-clicks", "user-clicks=b"]])
def test_unknown_and_repeated_topics_are_refused(arguments: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="--topics"):
        topics_of(arguments, LAKE.topics)


def test_two_topics_cannot_be_one_in_kafka() -> None:
    with pytest.raises(ConfigurationError, match="more than once"):
        topics_of(["user-clicks=same,user-status-updates=same"], LAKE.topics)
