from typing import Any

import pytest
from services.console.tests.world import status_with

from console.fleet import instances_of
from console.history import EVENTS_MAX, KEPT_MS, POINTS_MAX, History

NOW = 1_011_000


def told(**changes: Any) -> list[dict[str, Any]]:
    return instances_of({"a": status_with(**changes)}, NOW)


def happened(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[tuple[str, str]]:
    history = History()
    history.look(before, NOW)
    history.look(after, NOW + 1000)
    return [(each["kind"], each["text"]) for each in history.events()]


def test_what_is_there_at_the_first_look_has_not_happened() -> None:
    assert happened(told(), told()) == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], told(), ("started", "started, process 7")),
        (told(), [], ("stopped", "stopped in order, or has been silent for a day")),
        (
            told(),
            told(started_at=1_005_000, pid=8),
            ("started", "started again, process 8, without a stop"),
        ),
        (told(), told(state="failed", error="Fenced"), ("failed", "ended by Fenced")),
        (told(), told(at=900_000), ("silent", "has told nothing for 15 seconds")),
        (told(at=900_000), told(), ("back", "tells again: ready")),
        (told(state="recovering"), told(), ("recovered", "all partitions are at work")),
        (told(dead_letters=2), told(dead_letters=5), ("dead letters", "3 more, 5 since its start")),
        (told(aborts=0), told(aborts=1), ("aborts", "1 more, 1 since its start")),
    ],
)
def test_what_has_happened_is_told(
    before: list[dict[str, Any]], after: list[dict[str, Any]], expected: tuple[str, str]
) -> None:
    assert happened(before, after) == [expected]


def partitions(*numbers: int) -> list[dict[str, Any]]:
    return [{"partition": number, "state": "working", "remaining": 0, "total": 0} for number in numbers]


def test_a_rebalance_names_what_came_and_what_went() -> None:
    before, after = told(partitions=partitions(0, 1, 2)), told(partitions=partitions(2, 3))
    assert happened(before, after) == [("rebalance", "got 3, gave 0, 1; has 2")]


def test_the_latest_events_are_kept_and_all_are_counted() -> None:
    history = History()
    for number in range(EVENTS_MAX + 10):
        history.look(told(aborts=number), NOW)
    assert len(history.events()) == EVENTS_MAX
    assert history.count == EVENTS_MAX + 9
    assert history.events()[0]["text"] == f"1 more, {EVENTS_MAX + 9} since its start"


def lagging(lag: int, **changes: Any) -> list[dict[str, Any]]:
    inputs = [{"topic": "clicks", "partition": 3, "lag": lag, "records": 0}]
    return told(group="count", inputs=inputs, **changes)


def test_lags_are_kept_over_time() -> None:
    history = History()
    for second in range(POINTS_MAX + 5):
        history.measure(lagging(second), NOW + second)
    (series,) = history.lags()
    assert (series["group"], series["topic"], series["partition"]) == ("count", "clicks", 3)
    assert series["points"][-1] == [NOW + POINTS_MAX + 4, POINTS_MAX + 4]
    assert len(series["points"]) == POINTS_MAX


def test_the_series_of_a_partition_that_nobody_has_any_more_is_dropped_after_a_minute() -> None:
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
