"""Findings in recorded fleets, as the page shows them."""

from typing import Any

import pytest
from services.console.tests.recorded import (
    Member,
    Recording,
    aborting,
    calling,
    crashed,
    large,
    overloaded,
    shop,
)
from services.console.tests.recorded_items import BEGIN

from console.findings import Examiner
from console.fleet import instances_of
from console.history import StatusReport
from streamtable_admin.findings import ok, problem, warning


def findings(members: list[Member]) -> list[dict[str, Any]]:
    found = Recording(members).document("/api/fleet")["findings"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("members", [[], shop(), large()], ids=["empty", "a shop", "two hundred processes"])
def test_nothing_is_wrong_with_a_fleet_that_is_well(members: list[Member]) -> None:
    assert Recording(members, steps=12).document("/api/fleet")["findings"] == []


def test_groups_that_abort_their_commits_are_named_with_how_many_and_since_when() -> None:
    found = findings(aborting())
    assert {each["node"] for each in found} == {"group inventory", "group inventory-products"}
    assert {each["level"] for each in found} == {"problem"}
    reason = "records were not acknowledged in 4 s"
    assert {each["fact"] for each in found} == {f"aborted 32 commits in 7.9 min: {reason}"}
    assert all("commit aborted" in each["advice"] for each in found)


def test_a_group_that_falls_behind_is_named_with_its_lag_and_its_dead_letters() -> None:
    found = findings(overloaded())
    assert {(each["node"], each["instance"]) for each in found} == {
        ("group click-count", "worker-1"),
        ("group click-count", "worker-2"),
    }
    facts = " ".join(each["fact"] for each in found)
    assert "lag grows, 0 to 32000" in facts
    assert "could not process 3 records" in facts


def test_calls_that_fail_are_named_at_the_call_with_how_many_wait_for_it() -> None:
    found = findings(calling())
    assert {each["node"] for each in found} == {"call inventory-ordering place"}
    assert [each["level"] for each in found] == ["warning"] * 2
    text = "10 attempts failed in 4.6 min, 24 calls pending, the oldest for 5.0 min"
    assert {each["fact"] for each in found} == {text}
    assert findings(calling(failing=False)) == []


def test_a_call_that_the_check_of_groups_has_found_is_named_once_with_its_error() -> None:
    fact = "10 attempted calls pending, the oldest for 5.0 min: ConnectionError: the API is down"
    examined = [warning("call inventory-ordering place", fact, "they are attempted again", since_ms=BEGIN)]
    found = Recording(calling(), examined=lambda: examined).document("/api/fleet")["findings"]
    assert [each["fact"] for each in found] == [fact]


def test_the_worst_comes_first_and_what_has_lasted_longest() -> None:
    found = findings(crashed())
    assert [each["level"] for each in found] == ["problem"] * 6 + ["warning"]
    assert found[0]["fact"].startswith("failed 5.0 min ago with RecordTooLarge user-clicks 3 91822")
    assert found[-1]["node"] == "service click-count view"
    since = [each["since"] for each in found[:-1]]
    assert since == sorted(since)


def test_problems_of_brokers_come_first_and_warnings_about_their_settings_last() -> None:
    examined = [
        warning("brokers", "default.replication.factor is 1", "3 or more", since_ms=1),
        problem("broker 2", "advertises kafka-2:9092: nothing listens there", "start it", since_ms=BEGIN + 1),
        problem("group click-count", "empty, 0 members, lag 7", "start it", since_ms=BEGIN),
        ok("clock", "not behind the brokers'"),
    ]
    found = Recording(crashed(), examined=lambda: examined).document("/api/fleet")["findings"]
    assert found[0]["subject"] == "broker 2"
    assert found[-1]["fact"] == "default.replication.factor is 1"
    (group,) = [each for each in found if each["subject"] == "group click-count"]
    assert (group["node"], group["since"]) == ("group click-count", BEGIN)


def test_a_console_that_was_just_started_knows_the_aborts_before() -> None:
    member = Member(
        "count", "one", {"clicks": "stream"}, change=lambda step: {"aborts": step, "committed_at": BEGIN}
    )
    examiner = Examiner()
    reports = [StatusReport(member.key, member.status(step), BEGIN) for step in range(30)]
    assert list(examiner.recall(reports)) == reports
    statuses = {member.key: member.status(30)}
    now = statuses[member.key]["at"]
    (found,) = examiner.look(statuses, instances_of(statuses, now), now)
    assert found["fact"] == "aborted 30 commits in 2.5 min"
