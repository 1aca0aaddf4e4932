from typing import Any

import pytest

from streamtable.base.topics import Stream
from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable.codec.plain import Long, String
from streamtable.errors import AuthorizationError, GraphError, TopicShared, TransactionPending
from streamtable.flow import Flow
from streamtable.graph.group import Group, Input, Loop, Output, Persist, Visit
from streamtable.graph.state import State
from streamtable.graph.topic_owners import (
    refuse_shared_topics,
    refuse_topics_of_others,
    shared_topics,
    topics_of,
)
from streamtable.tables.kept import KeptRecord, Seen
from streamtable.tables.position import TablePosition

EVENTS: Stream[str, str] = Stream("events", String(), String())


def ignore(ctx: Any, event: Any) -> None:
    """Does nothing."""


def group(name: str, *edges: Any) -> Group[str, Any]:
    return Group(name, Input(EVENTS, ignore), *edges)


def state(name: str) -> State[str, int]:
    return State(name, key=String(), value=Long())


SHOP, TOTALS = group("shop", state("totals-day")), group("shop-totals", state("day"))


@pytest.mark.parametrize(
    ("one", "other", "topic"),
    [
        (SHOP, TOTALS, "shop-totals-day"),
        (group("shop", state("totals-table")), group("shop-totals", Persist(Long())), "shop-totals-table"),
        (group("shop", state("totals-retry")), TOTALS, "shop-totals-retry"),
        (group("shop", state("totals-dead-letters")), TOTALS, "shop-totals-dead-letters"),
        (group("shop", state("b-loop")), group("shop-b", Loop(Stream("shop-b-loop", String(), String()), ignore)), "shop-b-loop"),
        (group("shop", state("b-visits")), group("shop-b", Persist(Long()), Visit("v", ignore)), "shop-b-visits"),
        (group("a.b", state("c")), group("a_b", state("c")), "a_b-c"),
        (TOTALS, group("writer", Output(Stream("shop-totals-day", String(), Long()))), "shop-totals-day"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_two_groups_that_would_share_a_topic_are_refused_with_both_names(
    one: Group[str, Any], other: Group[str, Any], topic: str
) -> None:
    for groups in ([one, other], [other, one]):
        with pytest.raises(GraphError) as refused:
            refuse_shared_topics(groups)
        for name in (one.name, other.name):
            assert repr(name) in str(refused.value)
    assert repr(topic) in str(refused.value) or "." in one.name


def test_the_topic_between_groups_of_a_flow_cannot_be_the_table_of_another_group() -> None:
    flow = Flow("shop")
    flow.stream(EVENTS).group_by("totals-day", str, key=String()).count("n")
    with pytest.raises(GraphError, match="shop-totals"):
        refuse_shared_topics([*flow.groups, TOTALS])


def test_groups_with_names_that_begin_alike_share_nothing() -> None:
    refuse_shared_topics([SHOP, SHOP, group("shop-totals", state("month")), group("shop-totals-day")])


def committed(name: str, *, tables: Any = (), left: Any = (), changelog: int = 0, topics: Any = ()) -> Any:
    """The committed offsets of a group."""
    position = TablePosition(
        changelog,
        exact=True,
        tables=dict.fromkeys(tables, 0),
        record=KeptRecord(left=dict.fromkeys(left, Seen(0))),
    )
    ends = ("retry", *topics)
    return {TopicPartition(f"{name}-{end}", 0): Committed(NextOffset(0), position.encode()) for end in ends}


@pytest.fixture
def cluster(make_cluster: Any, topic_infos: Any) -> Any:
    return make_cluster(topic_infos(SHOP))


@pytest.mark.parametrize(
    ("mine", "other", "offsets", "topic"),
    [
        (SHOP, "shop-totals", {"tables": ["day"]}, "shop-totals-day"),
        (TOTALS, "shop", {"tables": ["totals-day"]}, "shop-totals-day"),
        (TOTALS, "shop", {"left": ["totals-day"]}, "shop-totals-day"),
        (group("shop", state("b-retry")), "shop-b", {}, "shop-b-retry"),
        (group("shop", state("b-table")), "shop-b", {"changelog": 7}, "shop-b-table"),
        (group("shop", state("b-loop")), "shop-b", {"topics": ["loop"]}, "shop-b-loop"),
        (group("writer", Output(Stream("shop-day", String(), Long()))), "shop", {"tables": ["day"]}, "shop-day"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_a_group_does_not_start_with_a_topic_that_another_one_has_committed_as_its_own(
    mine: Group[str, Any], other: str, offsets: dict[str, Any], topic: str, cluster: Any
) -> None:
    cluster.offsets_of_groups = {other: committed(other, **offsets), "not-asked-about": {}}
    with pytest.raises(TopicShared) as refused:
        refuse_topics_of_others(mine, cluster)
    assert refused.value.topic == topic
    assert repr(mine.name) in str(refused.value)
    assert repr(other) in str(refused.value)


def test_groups_whose_tables_are_others_are_no_obstacle(cluster: Any) -> None:
    cluster.offsets_of_groups = {"shop-totals": committed("shop-totals", tables=["month"]), "shop": {}}
    refuse_topics_of_others(SHOP, cluster)
    replaying = group("replayer", Output(Stream("shop-totals-retry", String(), String())))
    refuse_topics_of_others(replaying, cluster)


def test_a_transaction_of_another_group_holds_up_no_start_and_hides_no_owner(cluster: Any) -> None:
    cluster.offsets_of_groups = {"shop-totals": {}}
    cluster.errors = [TransactionPending("it has not ended", committed("shop-totals", tables=["month"]))]
    refuse_topics_of_others(SHOP, cluster)
    cluster.errors = [TransactionPending("it has not ended", committed("shop-totals", tables=["day"]))]
    with pytest.raises(TopicShared, match="shop-totals"):
        refuse_topics_of_others(SHOP, cluster)
    cluster.errors = [TransactionPending("it has not ended")]
    with pytest.raises(TransactionPending):
        refuse_topics_of_others(SHOP, cluster)


def test_a_group_about_which_the_user_may_not_ask_is_no_obstacle(cluster: Any) -> None:
    cluster.offsets_of_groups = {"shop-totals": {}}
    cluster.errors = [
        AuthorizationError(user="u", operation="DESCRIBE", resource="group", name="g", reason="no")
    ]
    refuse_topics_of_others(SHOP, cluster)
    assert not cluster.errors


def test_the_topics_that_two_groups_have_committed_are_named_with_both() -> None:
    offsets = {
        "shop": committed("shop", tables=["totals-day"]),
        "shop-totals": committed("shop-totals", tables=["day"]),
    }
    assert topics_of("shop", offsets["shop"]) == {"shop-retry", "shop-dead-letters", "shop-totals-day"}
    assert list(shared_topics(offsets)) == [("shop-totals-day", "shop", "shop-totals")]
