from typing import Any

import pytest

from streamtable.base.topics import Stream
from streamtable.base.types import Committed, NextOffset, TopicPartition, Watermarks
from streamtable.codec.plain import Long, String
from streamtable.engine.purge import Purger
from streamtable.errors import AuthorizationError, RetryLater
from streamtable.graph.group import Group, Input, Persist

WORDS, BY, ALSO = (Stream(name, String(), String()) for name in ("words", "f-by", "f-also"))
GROUP: Group[str, int] = Group(
    "g",
    Input(BY, lambda ctx, event: None, purge=True),
    Input(WORDS, lambda ctx, event: None),
    Input(ALSO, lambda ctx, event: None, purge=True),
    Persist(Long()),
)


@pytest.fixture
def cluster(make_cluster: Any, topic_infos: Any) -> Any:
    made = make_cluster(topic_infos(GROUP, partitions=2))
    for topic in ("words", "f-by", "f-also", "g-retry"):
        for number in (0, 1):
            made.marks[TopicPartition(topic, number)] = Watermarks(10, 100)
            made.committed[TopicPartition(topic, number)] = Committed(NextOffset(60), "")
    return made


def test_committed_records_between_groups_are_deleted_in_the_partitions_that_the_process_works_on(
    cluster: Any,
) -> None:
    Purger(GROUP, cluster, enabled=True).purge([1])
    assert cluster.deleted == {TopicPartition(topic, 1): 60 for topic in ("f-by", "f-also")}


def test_nothing_is_deleted_that_is_not_committed_or_gone_already(cluster: Any) -> None:
    cluster.committed[TopicPartition("f-by", 0)] = None
    cluster.committed[TopicPartition("f-also", 0)] = Committed(NextOffset(10), "")  # at the log's start
    Purger(GROUP, cluster, enabled=True).purge([0])
    assert cluster.deleted == {}
    cluster.committed[TopicPartition("f-by", 0)] = Committed(NextOffset(101), "")  # of an earlier topic
    Purger(GROUP, cluster, enabled=True).purge([0])
    assert cluster.deleted == {}


def test_a_setting_turns_it_off(cluster: Any) -> None:
    Purger(GROUP, cluster, enabled=False).purge([0, 1])
    assert cluster.asked == []


def test_a_missing_right_is_said_once_for_each_topic_and_stops_nothing(cluster: Any, logged: Any) -> None:
    cluster.delete_error = AuthorizationError(
        user="u", operation="DELETE", resource="topic", name="f-by", reason="denied"
    )
    purger = Purger(GROUP, cluster, enabled=True)
    for _ in range(3):
        purger.purge([0])
    assert [(line["log_level"], line["topic"]) for line in logged] == [
        ("warning", topic) for topic in ("f-by", "f-also")
    ]
    assert all("DELETE" in line["reason"] and "STREAMTABLE_PURGE" in line["advice"] for line in logged)


def test_an_unanswered_request_is_made_again_later(cluster: Any) -> None:
    cluster.errors = [RetryLater("a transaction is pending")]
    purger = Purger(GROUP, cluster, enabled=True)
    purger.purge([0])
    assert cluster.deleted == {}
    purger.purge([0])
    assert TopicPartition("f-by", 0) in cluster.deleted
