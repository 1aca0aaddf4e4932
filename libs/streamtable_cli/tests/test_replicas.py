"""The findings of `doctor` for topics that can lose records."""

from pathlib import Path

import pytest
from libs.streamtable_cli.tests.bench import Cli, World

from streamtable.base.ports import TopicDescription
from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable.tables.position import TablePosition
from streamtable_admin.findings import Level
from streamtable_admin.replicas import judged

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_a_changelog_that_is_not_compacted_and_a_topic_that_cannot_be_written_are_problems(
    cli: Cli, world: World
) -> None:
    table = world.create("lost-table", partitions=1, config={"cleanup.policy": "delete"})
    stuck = world.create("lost-retry", partitions=1, config={"min.insync.replicas": "2"})
    ran = cli("doctor", "--group", table.removesuffix("-table"), "--over", "0", "--json")
    assert ran.code == 1
    found = {each["subject"]: each for each in ran.json if each["level"] == "problem"}
    assert "not compacted" in found[f"topic {table}"]["fact"]
    assert found[f"topic {stuck}"]["fact"] == "1 replica, min.insync.replicas 2: nothing can be written to it"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("compact", None), ("compact,delete", "deleted by age, after 168 h"), ("delete", "not compacted")],
)
def test_a_changelog_is_compacted_and_never_deleted_by_age(policy: str, expected: str | None) -> None:
    topic = TopicDescription("g-table", 4, 1, {"cleanup.policy": policy, "retention.ms": "604800000"})
    found = list(judged(topic, True, 1))
    assert len(found) == (expected is not None)
    assert all(expected is not None and expected in each.fact for each in found)
    assert list(judged(topic, False, 1)) == []


@pytest.mark.parametrize(
    ("replicas", "least", "level"),
    [
        (1, "1", None),
        (3, "2", None),
        (3, "1", Level.WARNING),
        (2, "2", Level.WARNING),
        (3, "3", Level.WARNING),
        (1, "2", Level.PROBLEM),
        (2, "3", Level.PROBLEM),
    ],
)
def test_min_insync_replicas_is_compared_with_the_replicas(
    replicas: int, least: str, level: Level | None
) -> None:
    topic = TopicDescription("in", 4, replicas, {"min.insync.replicas": least})
    assert [each.level for each in judged(topic, False, 1)] == ([] if level is None else [level])


@pytest.mark.parametrize(
    ("replicas", "brokers", "level"),
    [
        (1, 1, None),
        (2, 2, None),
        (1, 2, Level.WARNING),
        (2, 3, Level.WARNING),
        (1, 5, Level.WARNING),
        (3, 5, None),
    ],
)
def test_a_topic_has_three_replicas_where_there_are_brokers_for_them(
    replicas: int, brokers: int, level: Level | None
) -> None:
    topic = TopicDescription("in", 4, replicas, {"min.insync.replicas": "2" if replicas == 3 else "1"})
    found = [each.level for each in judged(topic, False, brokers)]
    assert found == ([] if level is None else [level])


@pytest.mark.parametrize("declared", [False, True])
def test_a_state_table_whose_rows_are_deleted_by_age_is_a_problem(
    cli: Cli,
    world: World,
    tmp_path: Path,
    declared: bool,  # noqa: FBT001
) -> None:
    state = world.create("g-sessions", partitions=1, config={"cleanup.policy": "compact,delete"})
    group, source = state.removesuffix("-sessions"), world.create("in", partitions=1)
    options = ["--group", group]
    if declared:
        file = tmp_path / "topics.yaml"
        file.write_text(
            f"topics: {{{source}: }}\ngroups: {{{group}: {{inputs: [{source}], states: [sessions]}}}}\n"
        )
        options = ["--file", str(file)]
    else:
        metadata = TablePosition(0, exact=True, tables={"sessions": 1}).encode()
        place = TopicPartition(source, 0)
        world.kafka.admin().set_offsets(group, {place: Committed(NextOffset(0), metadata)})
    ran = cli("doctor", *options, "--over", "0", "--json")
    found = {each["subject"]: each["fact"] for each in ran.json if each["level"] == "problem"}
    assert "deleted by age" in found[f"topic {state}"]
