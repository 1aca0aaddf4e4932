"""Declared topics: what a file implies, what it may not say, and the plan."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable import Group, Input, Persist, Stream, String, Typed
from streamtable.base.ports import TopicDescription
from streamtable.errors import ConfigurationError
from streamtable_admin.declaration import declaration_of, yaml_of
from streamtable_admin.declared import Declared, Defaults, load
from streamtable_admin.topic_plan import plan_topics

ROOT = Path(__file__).parents[3]


def declared(text: str, folder: Path) -> Declared:
    file = folder / "topics.yaml"
    file.write_text(text)
    return load(file)


def test_the_reference_topics_are_the_contract() -> None:
    topics = load(ROOT / "infra" / "topics.yaml").descriptions()
    names = {"user-clicks", "click-count-table", "click-count-dead-letters", "click-count-retry"}
    assert names <= topics.keys()
    assert {topics[name].partitions for name in names} == {12}
    table = topics["click-count-table"].config
    assert table["cleanup.policy"] == "compact"
    assert int(table["min.compaction.lag.ms"]) >= 3_600_000


def test_a_group_may_read_the_table_of_another_one_as_a_sink_does(tmp_path: Path) -> None:
    text = """
topics: {in: {partitions: 5}}
groups: {g: {inputs: [in], states: [s]}, out: {inputs: [g-s], table: false}, all: {inputs: [g-table], table: false}}
"""
    topics = declared(text, tmp_path).descriptions()
    assert {topics[f"{name}-retry"].partitions for name in ("out", "all")} == {5}
    with pytest.raises(ConfigurationError, match="group 'out' reads g-t, which is not declared"):
        declared(text.replace("[g-s]", "[g-t]"), tmp_path).descriptions()


def test_a_group_implies_its_topics_with_the_partitions_of_its_inputs(tmp_path: Path) -> None:
    text = "topics: {in: {partitions: 5}}\ngroups: {g: {inputs: [in], table_config: {segment.ms: 1000}}}"
    topics = declared(text, tmp_path).descriptions()
    assert {name: topic.partitions for name, topic in topics.items()} == {
        "in": 5,
        "g-table": 5,
        "g-dead-letters": 5,
        "g-retry": 5,
    }
    assert topics["g-table"].config["segment.ms"] == "1000"
    assert topics["g-table"].config["cleanup.policy"] == "compact"


def test_a_group_without_a_table_has_none(tmp_path: Path) -> None:
    topics = declared("topics: {in: }\ngroups: {g: {inputs: [in], table: false}}", tmp_path).descriptions()
    assert sorted(topics) == ["g-dead-letters", "g-retry", "in"]


def test_loops_and_visits_are_topics_of_the_group(tmp_path: Path) -> None:
    text = "topics: {in: {partitions: 5}}\ngroups: {g: {inputs: [in], loop: true, visits: true}}"
    topics = declared(text, tmp_path).descriptions()
    assert topics["g-loop"].partitions == topics["g-visits"].partitions == 5
    assert "compact" not in topics["g-loop"].config.get("cleanup.policy", "")


def test_a_group_joins_tables_of_other_groups_and_plain_ones(tmp_path: Path) -> None:
    text = """
topics: {in: {partitions: 5}, users: {partitions: 5, config: {cleanup.policy: compact}}}
groups:
  late: {joins: [early-table]}
  early: {inputs: [in], joins: [users, late-table]}
  alone: {loop: true}
"""
    topics = declared(text, tmp_path).descriptions()
    assert topics["late-table"].partitions == topics["late-retry"].partitions == 5
    assert topics["alone-loop"].partitions == topics["alone-table"].partitions == 12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("groups: {g: {inputs: [missing]}}", "not declared"),
        ("topics: {in: }\ngroups: {g: {inputs: [in], joins: [h-table]}}", "neither a declared topic nor"),
        ("topics: {in: }\ngroups: {g: {inputs: [in], joins: [g-table]}}", "its own table"),
        (
            "topics: {in: }\ngroups: {g: {inputs: [in], joins: [h-table]}, h: {inputs: [in], table: false}}",
            "neither a declared topic nor",
        ),
        ("topics: {in: , t: }\ngroups: {g: {inputs: [in], joins: [t]}}", "cleanup.policy: compact"),
        (
            "{topics: {a: {partitions: 2}, b: {partitions: 3}}, groups: {g: {inputs: [a], joins: [h-table]}, h: {inputs: [b]}}}",
            "'a': 2, 'h-table': 3",
        ),
        ("topics: {in: }\ngroups: {g: {inputs: [in], visits: true, table: false}}", "no rows to visit"),
        ("topics: {in: }\ngroups: {g: {inputs: [in, in]}}", "in stands twice"),
        ("topics: {in: , g-loop: }\ngroups: {g: {inputs: [in], loop: true}}", "declared twice"),
        ("groups: {g: {inputs: []}}", "at least 1"),
        ("topics: {a: {partitions: 2}, b: }\ngroups: {g: {inputs: [a, b]}}", "equally many"),
        ("topics: {g-table: , in: }\ngroups: {g: {inputs: [in]}}", "declared twice"),
        ("topics: {a.b: , a_b: }", "too close"),
        ("topics: {'a/b': }", "a/b"),
        ("topics: {a: , a: }", "twice"),
        ("topics: {a: {partition: 3}}", r"topics\.a\.partition"),
        ("topics: {a: {partitions: 0}}", r"topics\.a\.partitions"),
        ("topics: {a: {partitions: '3'}}", r"topics\.a\.partitions"),
        ("topics: [a]", "topics"),
        ("topics: {a: ", "cannot be read"),
        ("- a", "file"),
        ("!!python/object/apply:os.getcwd []", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        declared(text, tmp_path).descriptions()


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--file"):
        load(tmp_path / "none.yaml")


def topic(partitions: int = 4, replication: int = 1, **config: str) -> TopicDescription:
    return TopicDescription("t", partitions, replication, {k.replace("_", "."): v for k, v in config.items()})


def test_what_is_missing_is_created_and_what_is_as_declared_is_left() -> None:
    missing, there = TopicDescription("a", 1, 1), TopicDescription("b", 1, 1)
    made = plan_topics({"a": missing, "b": there}, {"b": there, "not declared": there})
    assert (made.create, made.same, made.alter, made.refused) == ((missing,), ("b",), (), ())


@pytest.mark.parametrize("count", [3, 5])
def test_another_number_of_partitions_is_refused_with_both_numbers_and_the_reason(count: int) -> None:
    (difference,) = plan_topics({"t": topic(count)}, {"t": topic(4)}).refused
    assert str(difference).startswith(f"t: partitions is 4, declared is {count}: ")
    assert "make a new topic and copy" in str(difference)


@pytest.mark.parametrize(
    ("found", "desired", "refused"),
    [
        (topic(retention_ms="10"), topic(retention_ms="20"), False),
        (topic(retention_ms="20"), topic(retention_ms="10"), True),
        (topic(retention_ms="-1"), topic(retention_ms="10"), True),
        (topic(retention_ms="10"), topic(retention_ms="-1"), False),
        (topic(cleanup_policy="delete"), topic(cleanup_policy="compact"), True),
        (topic(unclean_leader_election_enable="false"), topic(unclean_leader_election_enable="true"), True),
        (topic(unclean_leader_election_enable="true"), topic(unclean_leader_election_enable="false"), False),
        (topic(message_timestamp_type="CreateTime"), topic(message_timestamp_type="LogAppendTime"), True),
        (topic(message_timestamp_type="LogAppendTime"), topic(message_timestamp_type="CreateTime"), False),
        (topic(message_timestamp_before_max_ms="9"), topic(message_timestamp_before_max_ms="8"), True),
        (topic(message_timestamp_after_max_ms="9"), topic(message_timestamp_after_max_ms="8"), True),
        (topic(max_compaction_lag_ms="9"), topic(max_compaction_lag_ms="8"), True),
        (topic(max_compaction_lag_ms="8"), topic(max_compaction_lag_ms="9"), False),
        (topic(segment_ms="20"), topic(segment_ms="10"), False),
        (topic(), topic(segment_ms="10"), False),
        (topic(replication=1), topic(replication=3), True),
    ],
)
def test_settings_are_altered_unless_that_could_lose_something(
    found: TopicDescription,
    desired: TopicDescription,
    refused: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    made = plan_topics({"t": desired}, {"t": found})
    assert (len(made.refused), len(made.alter)) == ((1, 0) if refused else (0, 1))


topics = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        lambda partitions, retention: TopicDescription("", partitions, 1, {"retention.ms": retention}),
        st.integers(1, 3),
        st.sampled_from(["-1", "1", "2"]),
    ),
)


@given(topics, topics)
def test_every_declared_topic_is_in_exactly_one_part_of_the_plan_or_has_differences(
    desired: dict[str, TopicDescription], existing: dict[str, TopicDescription]
) -> None:
    desired = {name: TopicDescription(name, t.partitions, 1, t.config) for name, t in desired.items()}
    made = plan_topics(desired, existing)
    differing = {difference.topic for difference in (*made.alter, *made.refused)}
    created = {each.name for each in made.create}
    assert differing | created | set(made.same) == desired.keys()
    assert len(differing) + len(created) + len(made.same) == len(desired)


def test_a_table_whose_schema_is_recorded_has_the_topic_for_it(tmp_path: Path) -> None:
    typed: Group[str, dict[str, int]] = Group(
        "g", Input(Stream("in", String(), String()), lambda ctx, event: None), Persist(Typed(dict[str, int]))
    )
    text = yaml_of(declaration_of([typed], Defaults()))
    assert "rows_evolve: true" in text
    topics = declared(text, tmp_path).descriptions()
    assert topics.keys() >= {*typed.tables, "g-states"}
