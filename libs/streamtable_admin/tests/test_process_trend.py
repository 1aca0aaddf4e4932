"""Findings between the reports of processes: episodes, their ages, and their ends."""

from typing import Any

from libs.streamtable_admin.tests.test_process_status import NOW, status

from streamtable_admin.findings import Level
from streamtable_admin.process_trend import LETTERS_QUIET_MS, QUIET_MS, STUCK_MS, ProcessTrends

STEP_MS = 10_000


def reported(*changes: dict[str, Any]) -> ProcessTrends:
    """Return the trends after reports ten seconds apart, the last of them now."""
    trends = ProcessTrends()
    for number, change in enumerate(changes):
        at = NOW - (len(changes) - 1 - number) * STEP_MS
        trends.add("a", status(**{"at": at, "committed_at": at, **change}))
    return trends


def lag(records: int, **more: Any) -> dict[str, Any]:
    return {"inputs": [{"topic": "clicks", "partition": 3, "lag": records}], **more}


def test_commits_that_are_aborted_again_and_again_are_one_finding_with_their_number_and_age() -> None:
    trends = reported(*({"aborts": number, "committed_at": NOW - 600_000} for number in (7, 9, 12, 14)))
    (found,) = trends.findings(NOW)
    assert (found.level, found.subject) == (Level.PROBLEM, "process a")
    assert found.fact == "aborted 7 commits in 30.0 s"
    assert found.since_ms == NOW - 3 * STEP_MS


def test_the_reason_of_the_latest_abort_is_in_the_finding() -> None:
    why = "records were not acknowledged in 4 s"
    trends = reported({"aborts": 0}, {"aborts": 2, "abort_reason": why})
    assert [each.fact for each in trends.findings(NOW)] == [f"aborted 2 commits in 10.0 s: {why}"]


def calls(pending: int, failed: int) -> dict[str, Any]:
    return {"calls": [{"call": "place", "pending": pending, "oldest_seconds": 12.0, "failed": failed}]}


def test_calls_that_fail_are_a_finding_until_none_is_pending() -> None:
    (found,) = reported(calls(1, 4), calls(1, 5)).call_findings(NOW)
    assert (found.level, found.subject, found.since_ms) == (Level.WARNING, "call count place", NOW - STEP_MS)
    assert found.fact == "1 attempt failed in 10.0 s, 1 call pending, the oldest for 12.0 s"
    assert list(reported(calls(1, 4), calls(0, 5)).call_findings(NOW)) == []
    assert list(reported(calls(1, 4), calls(1, 4)).call_findings(NOW)) == [], (
        "they failed before the first report"
    )


def test_aborts_after_which_a_process_has_committed_are_a_warning_and_over_after_two_minutes() -> None:
    trends = reported({"aborts": 0}, {"aborts": 2}, {"aborts": 2})
    assert [each.level for each in trends.findings(NOW)] == [Level.WARNING]
    assert list(trends.findings(NOW - STEP_MS + QUIET_MS + 1)) == []


def test_what_had_happened_before_the_first_report_is_no_news() -> None:
    assert list(reported({"aborts": 9, "dead_letters": 4}).findings(NOW)) == []


def test_counters_that_begin_again_with_the_process_are_no_news() -> None:
    again = {"started_at": NOW - 1, "aborts": 0, "dead_letters": 0}
    assert list(reported({"aborts": 9, "dead_letters": 4}, again).findings(NOW)) == []


def test_a_process_that_has_stopped_has_no_findings() -> None:
    trends = reported({"aborts": 0}, {"aborts": 2})
    trends.add("a", None)
    assert list(trends.findings(NOW)) == []


def test_dead_letters_are_a_finding_for_ten_minutes() -> None:
    trends = reported({"dead_letters": 4}, {"dead_letters": 5})
    (found,) = trends.findings(NOW)
    assert found.fact == "could not process 1 record in 10.0 s: dead letters"
    assert list(trends.findings(NOW + LETTERS_QUIET_MS + 1)) == []


def test_a_lag_that_grows_is_named_with_its_growth_and_one_that_falls_is_not() -> None:
    (found,) = reported(*(lag(records) for records in (5, 300, 800, 1500, 2000))).lag_findings(NOW)
    assert (found.level, found.fact) == (Level.WARNING, "lag grows, 5 to 2000 in 40.0 s")
    assert list(reported(*(lag(records) for records in (2000, 1500, 800, 300, 5))).lag_findings(NOW)) == []
    assert list(reported(*(lag(records) for records in (0, 5000, 2000, 2100, 2000))).lag_findings(NOW)) == []


def test_a_process_with_records_to_do_that_commits_nothing_is_a_problem() -> None:
    stands = lag(12, committed_at=NOW - 2 * STUCK_MS)
    trends = reported(*[stands] * 5)
    (found,) = trends.lag_findings(NOW)
    assert (found.level, found.since_ms) == (Level.PROBLEM, NOW - 4 * STEP_MS)
    assert found.fact == "12 records to do, and nothing committed for 40.0 s"


def test_a_process_that_was_idle_for_long_has_time_for_its_first_commit() -> None:
    idle = {"committed_at": NOW - 3_600_000}
    assert list(reported(lag(0, **idle), lag(12, **idle)).lag_findings(NOW)) == []


def test_a_process_that_recovers_is_not_stuck() -> None:
    stands = lag(12, committed_at=NOW - 2 * STUCK_MS, state="recovering")
    assert list(reported(*[stands] * 5).lag_findings(NOW)) == []
