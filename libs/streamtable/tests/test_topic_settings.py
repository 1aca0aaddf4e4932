from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamtable.base.ports import TopicInfo
from streamtable.base.topics import Stream, Table
from streamtable.codec.plain import Long, String
from streamtable.errors import TopicMismatch
from streamtable.flow import Flow, Tumbling, Windowed
from streamtable.graph.group import Changes, Group, Input, Loop, Output, Persist
from streamtable.graph.topic_check import check_topics
from streamtable.graph.topic_settings import purged_topics, settings_of_topics, topic_warnings

Info = Callable[..., TopicInfo]
WORDS: Stream[str, str] = Stream("words", String(), String())
DAY_MS = 86_400_000


def minutes() -> Flow:
    """A flow with a topic between two groups, and an output."""
    flow = Flow("f")
    minute = Tumbling(timedelta(minutes=1), grace=timedelta(0))
    counts = flow.stream(WORDS).group_by("by", str, key=String()).window(minute)
    table = counts.count("n")
    out: Stream[Windowed[str], int] = Stream("minutes", table.table.key, Long())
    table.final().to(out)
    return flow


FLOW = minutes()
FIRST, SECOND = FLOW.groups


def test_the_topics_between_groups_of_a_flow_keep_event_times_and_records_whatever_the_defaults_are() -> None:
    settings = settings_of_topics(FLOW.groups)["f-by"]
    assert settings["message.timestamp.type"] == "CreateTime"
    assert settings["message.timestamp.before.max.ms"] == settings["message.timestamp.after.max.ms"]
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("-1", "delete")
    assert int(settings["segment.bytes"]) < 1 << 30  # the disk is freed by whole segments


def test_outputs_of_a_flow_keep_event_times_and_their_records() -> None:
    settings = settings_of_topics(FLOW.groups)["minutes"]
    assert (settings["message.timestamp.type"], settings["retention.ms"]) == ("CreateTime", "-1")
    assert "cleanup.policy" not in settings  # an output may be a compacted topic


def test_loop_and_retry_topics_are_neither_compacted_nor_dated_by_the_broker() -> None:
    loop: Loop[str, str, int] = Loop(Stream("g-loop", String(), String()), lambda ctx, event: None)
    group: Group[str, int] = Group("g", Input(WORDS, lambda ctx, event: None), loop, Persist(Long()))
    settings = settings_of_topics([group])
    for name in ("g-loop", "g-retry"):
        assert settings[name] == {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}
    assert "words" not in settings  # an input from outside is not ours


def test_outputs_of_handlers_have_the_defaults_of_the_cluster() -> None:
    out: Stream[str, str] = Stream("out", String(), String())
    group: Group[str, Any] = Group("g", Input(WORDS, lambda ctx, event: None), Output(out))
    assert settings_of_topics([group])["out"] == {}


@pytest.mark.parametrize("group", [FIRST, SECOND], ids=lambda group: group.name)
def test_a_group_does_not_start_where_the_broker_dates_the_records_between_groups(
    group: Group[Any, Any], make_cluster: Any, topic_infos: Any, topic_info: Info
) -> None:
    cluster = make_cluster(topic_infos(group))
    cluster.infos["f-by"] = topic_info("f-by", keeps_timestamps=False)
    with pytest.raises(TopicMismatch, match=r"'f-by'.*LogAppendTime.*CreateTime") as refused:
        check_topics(group, cluster)
    assert refused.value.topic == "f-by"


def test_a_source_that_the_broker_dates_is_an_input_like_others(
    make_cluster: Any, topic_infos: Any, topic_info: Info
) -> None:
    cluster = make_cluster(topic_infos(FIRST))
    cluster.infos["words"] = topic_info("words", keeps_timestamps=False)
    assert check_topics(FIRST, cluster)


def test_default_retention_of_results_dated_by_event_time_is_a_warning(
    topic_infos: Any, topic_info: Info
) -> None:
    topics = topic_infos(SECOND) | {"minutes": topic_info("minutes", retention_ms=7 * DAY_MS)}
    (found,) = topic_warnings(SECOND, topics)
    assert (found.topic, found.setting, found.value) == ("minutes", "retention.ms", str(7 * DAY_MS))


def test_a_retention_that_was_chosen_for_the_output_is_no_warning(topic_infos: Any, topic_info: Info) -> None:
    own = topic_info("minutes", retention_ms=7 * DAY_MS, own_settings=frozenset({"retention.ms"}))
    assert not [*topic_warnings(SECOND, topic_infos(SECOND) | {"minutes": own})]


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"keeps_timestamps": False}, "message.timestamp.type"),
        ({"timestamp_before_max_ms": DAY_MS}, "message.timestamp.before.max.ms"),
    ],
)
def test_an_output_that_dates_or_refuses_old_results_is_a_warning(
    changes: dict[str, Any], setting: str, topic_infos: Any, topic_info: Info
) -> None:
    topics = topic_infos(SECOND) | {"minutes": topic_info("minutes", **changes)}
    assert [each.setting for each in topic_warnings(SECOND, topics)] == [setting]


def test_the_topics_between_groups_are_purged_by_the_group_that_reads_them_and_no_others() -> None:
    assert purged_topics(FIRST) == ()
    assert purged_topics(SECOND) == ("f-by",)


def test_the_topics_of_a_join_by_foreign_key_are_purged() -> None:
    flow = Flow("k")
    left, right = (Table(name, String(), String()) for name in ("orders-table", "products-table"))
    flow.table(left).join(
        "joined", flow.table(right, group="right"), lambda one, other: one + other, on=lambda row: row
    )
    purged = {topic for group in flow.groups for topic in purged_topics(group)}
    assert purged == {"k-joined-subscriptions", "k-joined-answers"}


def test_loops_retries_and_joined_tables_are_not_purged_as_audits_and_rebuilds_read_them() -> None:
    loop: Loop[str, str, int] = Loop(Stream("g-loop", String(), String()), lambda ctx, event: None)
    changes: Changes[str, str, int] = Changes(
        Table("other-table", String(), String()), lambda ctx, change: None
    )
    group: Group[str, int] = Group("g", Input(WORDS, lambda ctx, event: None), loop, changes, Persist(Long()))
    assert purged_topics(group) == ()
