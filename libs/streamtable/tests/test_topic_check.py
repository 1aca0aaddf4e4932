from collections.abc import Callable
from typing import Any, get_args

import pytest

from streamtable.base.partitioner import Partitioner
from streamtable.base.ports import TopicInfo
from streamtable.base.topics import Stream, Table
from streamtable.codec.plain import Long, String
from streamtable.errors import InputLost, StateLost, TopicMismatch
from streamtable.flow import WindowedKey
from streamtable.graph.group import Changes, Group, Input, Join, Lookup, Output, Persist
from streamtable.graph.topic_check import check_topics, check_unchanged, partition_counts, required_topics

GROUP: Group[str, int] = Group(
    "g",
    Input(Stream("clicks", String(), String()), lambda ctx, event: None),
    Output(Stream("out", String(), Long())),
    Persist(Long()),
)
Info = Callable[..., TopicInfo]


@pytest.fixture
def cluster(make_cluster: Any, topic_infos: Callable[..., dict[str, TopicInfo]]) -> Any:
    return make_cluster(topic_infos(GROUP, partitions=4))


def test_a_group_wants_its_inputs_outputs_and_own_topics() -> None:
    assert set(required_topics(GROUP)) == {"clicks", "g-retry", "g-dead-letters", "out", "g-table"}


def test_topics_that_fit_are_returned_by_name(cluster: Any) -> None:
    assert set(check_topics(GROUP, cluster)) == set(required_topics(GROUP))


def test_all_missing_topics_are_named(cluster: Any) -> None:
    del cluster.infos["g-retry"], cluster.infos["out"]
    with pytest.raises(TopicMismatch, match="g-retry, out"):
        check_topics(GROUP, cluster)


@pytest.mark.parametrize("name", ["g-retry", "g-dead-letters", "g-table"])
def test_another_number_of_partitions_is_refused_with_both_numbers(
    name: str, cluster: Any, topic_info: Info
) -> None:
    cluster.infos[name] = topic_info(name, partitions=5)
    with pytest.raises(TopicMismatch, match=f"'{name}'.*: it has 5, the input 4"):
        check_topics(GROUP, cluster)


@pytest.mark.parametrize("name", ["g-retry", "g-dead-letters"])
def test_a_group_without_tables_is_asked_to_add_partitions_to_its_own_topics(
    name: str, make_cluster: Any, topic_infos: Any, topic_info: Info
) -> None:
    group: Group[str, int] = Group("g", *GROUP.inputs)
    cluster = make_cluster(topic_infos(group, partitions=4))
    cluster.infos[name] = topic_info(name, partitions=2)
    with pytest.raises(TopicMismatch, match=f"--alter --topic {name} --partitions 4"):
        check_topics(group, cluster)


USERS = Table("users", String(), Long())


@pytest.mark.parametrize(
    "edge", [Join(USERS), Changes(USERS, lambda ctx, change: None)], ids=["join", "changes"]
)
@pytest.mark.parametrize("partitions", [1, 5])
def test_a_joined_table_of_another_number_of_partitions_is_refused_with_both_numbers(
    edge: Any, partitions: int, make_cluster: Any, topic_infos: Any, topic_info: Info
) -> None:
    group: Group[str, int] = Group("g", *GROUP.inputs, edge)
    cluster = make_cluster(topic_infos(group, partitions=4))
    cluster.infos["users"] = topic_info("users", partitions=partitions)
    with pytest.raises(TopicMismatch, match=f"'users'.*: it has {partitions}, the input 4"):
        check_topics(group, cluster)


def test_a_looked_up_table_may_have_any_number_of_partitions(
    make_cluster: Any, topic_infos: Any, topic_info: Info
) -> None:
    group: Group[str, int] = Group("g", *GROUP.inputs, Lookup(USERS))
    cluster = make_cluster(topic_infos(group, partitions=4))
    cluster.infos["users"] = topic_info("users", partitions=1)
    check_topics(group, cluster)


def test_an_output_may_have_any_number_of_partitions(cluster: Any, topic_info: Info) -> None:
    cluster.infos["out"] = topic_info("out", partitions=1)
    check_topics(GROUP, cluster)


def test_a_table_that_is_not_compacted_is_refused(cluster: Any, topic_info: Info) -> None:
    cluster.infos["g-table"] = topic_info("g-table", partitions=4, compacted=False)
    with pytest.raises(TopicMismatch, match="not compacted"):
        check_topics(GROUP, cluster)


@pytest.mark.parametrize(
    ("name", "error"), [("clicks", InputLost), ("g-retry", InputLost), ("g-table", StateLost)]
)
def test_a_topic_that_is_replaced_while_the_group_works_is_noticed(
    name: str, error: type[Exception], cluster: Any, topic_info: Info
) -> None:
    before = check_topics(GROUP, cluster)
    check_unchanged(GROUP, cluster, before)
    cluster.infos[name] = topic_info(name, partitions=4, topic_id="another")
    with pytest.raises(error, match="deleted and created again"):
        check_unchanged(GROUP, cluster, before)


def test_a_looked_up_table_may_be_replaced_since_its_copy_is_loaded_again(
    make_cluster: Any, topic_infos: Callable[..., dict[str, TopicInfo]], topic_info: Info
) -> None:
    group: Group[str, int] = Group("g", *GROUP.inputs, Lookup(Table("names", String(), String())))
    cluster = make_cluster(topic_infos(group, partitions=4))
    before = check_topics(group, cluster)
    cluster.infos["names"] = topic_info("names", partitions=9, topic_id="another")
    check_unchanged(group, cluster, before)


def test_an_output_that_grows_is_refused_if_the_client_cannot_follow(
    make_cluster: Any, topic_infos: Callable[..., dict[str, TopicInfo]], topic_info: Info
) -> None:
    for partitioner in get_args(Partitioner):
        output: Stream[str, int] = Stream("out", String(), Long(), partitioner)
        group: Group[str, int] = Group("g", *GROUP.inputs, Output(output))
        cluster = make_cluster(topic_infos(group, partitions=4))
        before = check_topics(group, cluster)
        cluster.infos["out"] = topic_info("out", partitions=6, topic_id=before["out"].topic_id)
        if partitioner == "murmur2":
            check_unchanged(group, cluster, before)
        else:
            with pytest.raises(TopicMismatch, match="'out' of group 'g' had 4 partitions and has 6 now"):
                check_unchanged(group, cluster, before)


def test_an_output_of_windowed_keys_that_grows_is_refused_as_windows_of_a_key_would_be_apart(
    make_cluster: Any, topic_infos: Callable[..., dict[str, TopicInfo]], topic_info: Info
) -> None:
    stream: Stream[Any, int] = Stream("out", WindowedKey(String(), 60_000), Long())
    group: Group[str, int] = Group("g", *GROUP.inputs, Output(stream))
    cluster = make_cluster(topic_infos(group, partitions=4))
    before = check_topics(group, cluster)
    cluster.infos["out"] = topic_info("out", partitions=6, topic_id=before["out"].topic_id)
    with pytest.raises(TopicMismatch, match="keys have moved away"):
        check_unchanged(group, cluster, before)


def test_a_topic_between_groups_gets_the_partitions_of_the_group_that_reads_it() -> None:
    between = Stream("between", String(), Long())
    writing: Group[Any, Any] = Group(
        "w", Input(GROUP.inputs[0].stream, lambda ctx, event: None), Output(between)
    )
    reading: Group[Any, Any] = Group(
        "r",
        Input(between, lambda ctx, event: None),
        Input(Stream("beside", String(), Long()), lambda ctx, event: None),
    )
    counts = partition_counts([writing, reading], {"clicks": 8, "beside": 4}, 2)
    assert (counts["w-dead-letters"], counts["between"], counts["r-dead-letters"]) == (8, 4, 4)
    assert set(partition_counts([writing, reading], {}, 2).values()) == {2}
    assert partition_counts([writing], {"clicks": 8}, 2)["between"] == 8, "nothing reads it here"
