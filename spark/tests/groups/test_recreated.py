"""Inputs that were created again are recognised by the metadata that the library commits."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from streamtable.base.ports import TopicDescription
from streamtable.base.types import Committed, NextOffset
from streamtable.tables.position import TablePosition
from streamtable.tables.seen import SeenInputs
from streamtable_spark.errors import InputLost
from streamtable_spark.jobs import rebuild, reconcile
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import refuse_recreated
from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.positions import Place

IDS = {"clicks": "Xy7_first", "g-retry": "Xy7_second"}
ADVICE = "Reset the group."


def described(ids: Mapping[str, str]) -> dict[str, TopicDescription]:
    return {name: TopicDescription(name, 2, 1, topic_id=topic_id) for name, topic_id in ids.items()}


def ids_of(cluster: Cluster, topics: Sequence[str]) -> dict[str, str]:
    return {name: each.topic_id for name, each in cluster.topics(topics).items()}


def metadata() -> str:
    """The metadata in the form that the library writes."""
    seen = SeenInputs(17, SeenInputs.ids_of(IDS, dict.fromkeys(IDS, NextOffset(1))))
    return TablePosition(3, exact=True, seen=seen).encode()


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "[" * 100_000, '{"changelog":1,"exact":true}', '{"seen":[1,"abc"]}', '{"seen":[1]}'],
)
def test_metadata_of_tools_and_older_versions_name_no_topics(text: str) -> None:
    refuse_recreated(
        "g", {Place("clicks", 0): Committed(NextOffset(5), text)}, described({"clicks": "other"}), ADVICE
    )


def test_the_topics_that_were_read_are_accepted() -> None:
    committed = {Place("clicks", 0): Committed(NextOffset(5), metadata()), Place("clicks", 1): None}
    refuse_recreated("g", committed, described(IDS), ADVICE)


@pytest.mark.parametrize("forgotten", [False, True])
def test_an_input_that_was_created_again_is_refused_with_both_ids_also_if_kafka_forgot_its_offset(
    *, forgotten: bool
) -> None:
    committed = {
        Place("clicks", 0): None if forgotten else Committed(NextOffset(5), metadata()),
        Place("g-retry", 0): Committed(NextOffset(1), metadata()),
    }
    with pytest.raises(InputLost) as refused:
        refuse_recreated("g", committed, described({**IDS, "clicks": "Xy7_third"}), ADVICE)
    for said in ("clicks was deleted", "Xy7_third", "the digest", ADVICE):
        assert said in str(refused.value)


def test_an_offset_that_a_tool_has_set_since_is_of_the_new_topic() -> None:
    committed = {
        Place("clicks", 0): Committed(NextOffset(0)),
        Place("g-retry", 0): Committed(NextOffset(1), metadata()),
    }
    refuse_recreated("g", committed, described({**IDS, "clicks": "Xy7_third"}), ADVICE)


def test_a_rebuild_and_an_audit_of_a_group_whose_input_was_created_again_are_refused(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.group("v2")
    stage.group("recreated")  # of this test alone: no processor of another one may still be a member
    stage.clicks(10)
    inputs = ["user-clicks", "recreated-retry"]
    with Cluster(stage.servers) as cluster:
        before = ids_of(cluster, inputs)
        seen = SeenInputs(0, SeenInputs.ids_of(before, dict.fromkeys(inputs, NextOffset(1))))
        offsets = {
            Place(topic, 0): Committed(NextOffset(0), TablePosition(0, exact=True, seen=seen).encode())
            for topic in inputs
        }
        cluster.set_offsets("recreated", offsets)
        stage.recreate("user-clicks")
        after = ids_of(cluster, inputs)
    assert after["user-clicks"] != before["user-clicks"]
    common = ["--bootstrap-servers", stage.servers, "--group", "recreated", "--scenario", "click-count"]
    rebuilt = [*common, "--as", "v2", "--manifest", str(stage.folder / "v2.json")]
    for main, arguments in (
        (rebuild.main, rebuilt),
        (reconcile.main, [*common, "--report", str(stage.folder / "audit")]),
    ):
        assert ended(main, arguments) == InputLost.status
        last = capsys.readouterr().err.splitlines()[-1]
        assert "user-clicks was deleted and created again" in last
        assert after["user-clicks"] in last
    assert not (stage.folder / "v2.json").exists()
