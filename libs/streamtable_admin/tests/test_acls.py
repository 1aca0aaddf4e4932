"""The minimal ACLs of users, derived from the declaration of what they do."""

from pathlib import Path

import pytest

from streamtable.errors import ConfigurationError
from streamtable_admin.acls import required_acls
from streamtable_admin.declared import Declared, load
from streamtable_admin.rights import Acl

ROOT = Path(__file__).resolve().parents[3]
WORLD = {
    "topics": {"in": None, "out": None, "table-of-others": {"config": {"cleanup.policy": "compact"}}},
    "groups": {
        "g": {
            "inputs": ["in"],
            "purges": ["in"],
            "joins": ["other-table"],
            "lookups": ["table-of-others"],
            "outputs": ["out"],
            "visits": True,
            "loop": True,
        },
        "other": {"inputs": ["in"]},
        "kept": {
            "inputs": ["in"],
            "joins": ["other-table"],
            "loop": True,
            "once": True,
            "changes": True,
            "states": ["sessions"],
            "timers": ["event"],
        },
    },
}


def of(user: dict[str, object]) -> set[str]:
    declared = Declared.model_validate({**WORLD, "users": {"u": user}})
    return {str(right) for right in required_acls(declared) if "DESCRIBE_CONFIGS" not in str(right)}


def test_who_runs_a_group_reads_and_writes_its_topics_as_the_engine_does_and_no_others() -> None:
    assert of({"runs": ["g"]}) == {
        "READ on group g",
        "DESCRIBE on group g-*",
        "WRITE on transactional id g-*",
        *(f"READ on topic {name}" for name in ("in", "other-table", "table-of-others")),
        *(f"READ on topic g-{name}" for name in ("table", "retry", "visits", "loop")),
        *(f"WRITE on topic {name}" for name in ("out", "g-table", "g-loop", "g-dead-letters")),
        "DELETE on topic in",
    }


def test_who_writes_may_not_read_and_who_reads_may_not_write() -> None:
    assert of({"writes": ["in"]}) == {"WRITE on topic in"}
    assert of({"reads": ["g-table"]}) == {"READ on topic g-table", "DESCRIBE on group views-*"}


def test_who_follows_a_group_may_look_how_far_it_has_come_in_all_that_its_members_read() -> None:
    read = ("in", "other-table", "g-retry", "g-loop", "g-visits")
    assert of({"follows": ["g"]}) == {
        "DESCRIBE on group g",
        *(f"DESCRIBE on topic {name}" for name in read),
    }
    assert of({"follows": ["other"]}) == {
        "DESCRIBE on group other",
        *(f"DESCRIBE on topic {name}" for name in ("in", "other-retry")),
    }


def test_who_reads_everything_still_writes_nothing() -> None:
    assert of({"reads": ["*"]}) == {"READ on topic *", "DESCRIBE on group *"}


def test_who_replays_writes_retries_and_marks_for_each_group() -> None:
    assert of({"replays": True}) == {
        f"WRITE on {thing}"
        for group in ("g", "other", "kept")
        for thing in (f"topic {group}-retry", f"topic {group}-dead-letters", f"transactional id {group}.*")
    }


def test_who_rebuilds_a_group_writes_its_tables_and_sets_its_offsets_and_no_others() -> None:
    tables = [f"kept-{name}" for name in ("table", "ids", "handled", "states", "sessions", "timers")]
    assert of({"rebuilds": ["kept"]}) == {
        "READ on group kept",
        *(f"WRITE on transactional id streamtable-rebuild-{table}-*" for table in tables),
        *(f"WRITE on topic {table}" for table in tables),
        *(f"READ on topic {name}" for name in (*tables, "kept-retry", "kept-loop")),
    }


def test_who_rebuilds_a_group_that_is_not_declared_writes_its_table_and_ids() -> None:
    tables = ["g-v2-table", "g-v2-ids"]
    assert of({"rebuilds": ["g-v2"]}) == {
        "READ on group g-v2",
        *(f"WRITE on transactional id streamtable-rebuild-{table}-*" for table in tables),
        *(f"WRITE on topic {table}" for table in tables),
        *(f"READ on topic {name}" for name in (*tables, "g-v2-retry")),
    }


def test_the_settings_of_each_topic_that_is_used_may_be_seen() -> None:
    found = required_acls(Declared.model_validate({**WORLD, "users": {"u": {"runs": ["g"]}}}))
    used = {right.name for right in found if right.resource == "topic"}
    assert {right.name for right in found if right.operation == "DESCRIBE_CONFIGS"} == used


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"runs": ["gone"]}, "user 'u' runs group gone, which is not declared"),
        ({"follows": ["gone"]}, "user 'u' follows group gone"),
        ({"writes": ["in", "gone"]}, "user 'u' writes gone"),
        ({"reads": ["gone-table"]}, "user 'u' reads gone-table"),
    ],
)
def test_a_right_to_something_that_is_not_declared_is_refused(user: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        of(user)


def test_a_group_that_writes_to_a_topic_that_is_not_declared_has_no_rights() -> None:
    declared = Declared.model_validate(
        {
            "topics": {"in": None},
            "groups": {"g": {"inputs": ["in"], "outputs": ["gone"]}},
            "users": {"u": {"runs": ["g"]}},
        }
    )
    with pytest.raises(ConfigurationError, match="runs group 'g', which uses gone, which is not declared"):
        required_acls(declared)


def test_no_service_of_ours_has_a_right_to_change_topics_but_to_purge_its_inner_ones() -> None:
    found = required_acls(load(ROOT / "infra" / "topics.yaml"))
    assert len({right.user for right in found}) > 10
    purging = {right for right in found if right.operation == "DELETE"}
    declared = load(ROOT / "infra" / "topics.yaml").groups
    inner = {topic for group in declared.values() for topic in group.purges}
    assert {right.name for right in purging} == inner != set()
    assert {right.operation for right in found - purging} == {"READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"}
    assert {right.user for right in found if right.name == "*"} == {"console"}


def test_a_right_has_one_text_that_tells_a_prefix_from_a_name() -> None:
    assert str(Acl("u", "group", "g", "READ")) == "READ on group g"
    assert str(Acl("u", "group", "g", "READ", prefix=True)) == "READ on group g*"
