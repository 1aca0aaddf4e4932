from typing import Any

import pytest
from services.console.tests.world import status_with

from console.fleet import instances_of
from console.history import EVENTS_MAX, HOUR_MS, KEPT_MS, MEASURE_MS, POINTS_MAX, History, StatusReport
from streamtable_admin.process_status import FORGOTTEN_MS

NOW = 1_011_000


def report(**changes: Any) -> list[dict[str, Any]]:
    return instances_of({"a": status_with(**changes)}, NOW)


def happened(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the events that the second poll found."""
    history = History()
    history.look(before, NOW)
    known = history.events()
    history.look(after, NOW + 1000)
    return [(each["kind"], each["text"]) for each in history.events() if each not in known]


def test_who_is_there_at_the_first_look_has_started() -> None:
    history = History()
    for second in range(2):
        history.look(report(), NOW + second)
    (event,) = history.events()
    assert (event["at"], event["kind"]) == (1_000_000, "started")


def test_a_process_that_had_failed_before_the_first_look_is_reported_with_its_error() -> None:
    history = History()
    history.look(report(state="failed", error="Fenced clicks 3"), NOW)
    assert [(each["at"], each["text"]) for each in history.events()] == [
        (1_010_000, "ended by Fenced clicks 3"),
        (1_000_000, "started, process 7"),
    ]


def recalled(*records: StatusReport, now: int = NOW) -> list[tuple[int, str, str]]:
    history = History()
    history.recall(records, now)
    return [(each["at"], each["kind"], each["text"]) for each in reversed(history.events())]


def report_at(at: int, **changes: Any) -> StatusReport:
    return StatusReport("a", status_with(at=at, **changes), at)


def test_what_had_happened_is_found_in_the_reports_of_processes() -> None:
    assert recalled(
        report_at(1_001_000),
        report_at(1_002_000, partitions=partitions(0, 1)),
        report_at(1_003_000, partitions=partitions(1), aborts=2),
        StatusReport("a", None, 1_004_000),
    ) == [
        (1_000_000, "started", "started, process 7"),
        (1_002_000, "rebalance", "got 0, 1; has 2"),
        (1_003_000, "rebalance", "gave 0; has 1"),
        (1_003_000, "aborts", "2 more, 2 since its start"),
        (1_004_000, "stopped", "stopped in order, or has been silent for a day"),
    ]


def test_a_silence_before_the_first_look_is_reported_with_its_time_whether_it_ended_or_not() -> None:
    assert recalled(report_at(1_001_000), report_at(1_101_000), now=1_201_000) == [
        (1_000_000, "started", "started, process 7"),
        (1_016_000, "silent", "has not reported for 15 seconds"),
        (1_101_000, "back", "reports again: ready"),
        (1_116_000, "silent", "has not reported for 15 seconds"),
    ]


def test_a_process_that_had_been_silent_for_a_day_has_stopped_then() -> None:
    events = recalled(report_at(1_001_000), now=1_001_000 + 3 * FORGOTTEN_MS)
    assert events[-1] == (
        1_001_000 + FORGOTTEN_MS,
        "stopped",
        "stopped in order, or has been silent for a day",
    )


def test_what_was_recalled_does_not_happen_again_at_the_first_look() -> None:
    history = History()
    history.recall([report_at(1_010_000)], NOW)
    history.look(report(), NOW)
    assert [each["kind"] for each in history.events()] == ["started"]
    history.look([], NOW + 1000)
    assert history.events()[0]["kind"] == "stopped"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], report(), ("started", "started, process 7")),
        (report(), [], ("stopped", "stopped in order, or has been silent for a day")),
        (
            report(),
            report(started_at=1_005_000, pid=8),
            ("started", "started again, process 8, without a stop"),
        ),
        (report(), report(state="failed", error="Fenced"), ("failed", "ended by Fenced")),
        (report(), report(at=900_000), ("silent", "has not reported for 15 seconds")),
        (report(at=900_000), report(), ("back", "reports again: ready")),
        (report(state="recovering"), report(), ("recovered", "all partitions are recovered")),
        (report(dead_letters=2), report(dead_letters=5), ("dead letters", "3 more, 5 since its start")),
        (report(aborts=0), report(aborts=1), ("aborts", "1 more, 1 since its start")),
        (
            report(aborts=0),
            report(aborts=1, abort_reason="a broker is away"),
            ("aborts", "1 more, 1 since its start: a broker is away"),
        ),
    ],
)
def test_what_has_happened_is_reported(
    before: list[dict[str, Any]], after: list[dict[str, Any]], expected: tuple[str, str]
) -> None:
    assert happened(before, after) == [expected]


def partitions(*numbers: int) -> list[dict[str, Any]]:
    return [{"partition": number, "state": "working", "remaining": 0, "total": 0} for number in numbers]


def test_a_rebalance_names_what_came_and_what_went() -> None:
    before, after = report(partitions=partitions(0, 1, 2)), report(partitions=partitions(2, 3))
    assert happened(before, after) == [("rebalance", "got 3, gave 0, 1; has 2")]


def test_the_latest_events_are_kept_and_all_are_counted() -> None:
    history = History()
    for number in range(EVENTS_MAX + 10):
        history.look(report(aborts=number), NOW)
    assert len(history.events()) == EVENTS_MAX
    assert history.count == EVENTS_MAX + 10
    assert history.events()[0]["text"] == f"1 more, {EVENTS_MAX + 9} since its start"


def test_a_group_is_measured_every_twenty_seconds_for_an_hour() -> None:
    history = History()
    flows = [{"topic": "clicks", "direction": way, "records": 0, "rate": 4.4} for way in ("in", "out")]
    for second in range(0, 2 * HOUR_MS // 1000, 10):
        history.measure(lagging(second, flows=flows, commit_ms=18.0), NOW + second * 1000)
    (group,) = history.measures()
    assert group["group"] == "count"
    assert len(group["points"]) == HOUR_MS // MEASURE_MS
    assert group["points"][-1] == [NOW + 7_180_000, 4, 7180, 18]


def lagging(lag: int, **changes: Any) -> list[dict[str, Any]]:
    inputs = [{"topic": "clicks", "partition": 3, "lag": lag, "records": 0}]
    return report(group="count", inputs=inputs, **changes)


def test_lags_are_kept_over_time() -> None:
    history = History()
    for second in range(POINTS_MAX + 5):
        history.measure(lagging(second), NOW + second)
    (series,) = history.lags()
    assert (series["group"], series["topic"], series["partition"]) == ("count", "clicks", 3)
    assert series["points"][-1] == [NOW + POINTS_MAX + 4, POINTS_MAX + 4]
    assert len(series["points"]) == POINTS_MAX


def test_the_series_of_a_partition_without_an_owner_is_dropped_after_a_minute() -> None:
    history = History()
    history.measure(lagging(1), NOW)
    history.measure([], NOW + KEPT_MS)
    assert len(history.lags()) == 1
    history.measure([], NOW + KEPT_MS + 1)
    assert history.lags() == []


def test_a_lag_that_is_not_known_or_not_current_is_no_point() -> None:
    history = History()
    history.measure(lagging(-1), NOW)
    history.measure(lagging(5, at=900_000), NOW)
    assert history.lags() == []
