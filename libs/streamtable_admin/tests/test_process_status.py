"""The findings for processes, from the statuses that they have reported."""

from typing import Any

import pytest

from contracts.records import PROCESS_STATUS
from streamtable import Avro
from streamtable_admin.findings import Level
from streamtable_admin.process_status import FORGOTTEN_MS, SILENT_MS, judge_processes

NOW = 2_000_000_000_000
CODEC: Avro[Any] = Avro(PROCESS_STATUS)


def status(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "service": "shop",
        "role": "processor",
        "group": "count",
        "instance": "one",
        "host": "machine",
        "pid": 7,
        "started_at": NOW - 100_000,
        "at": NOW,
        "state": "ready",
    }
    return CODEC.decode(CODEC.encode(known | changes))  # type: ignore[no-any-return]  # with the schema's defaults


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"at": NOW - SILENT_MS}, None),
        ({"at": NOW - SILENT_MS - 1}, Level.PROBLEM),
        ({"at": NOW - FORGOTTEN_MS - 1}, None),
        ({"at": NOW - SILENT_MS - 1, "state": "failed", "error": "Fatal"}, Level.PROBLEM),
        ({"at": NOW + 1000}, None),
        ({"at": NOW + 60_000}, Level.WARNING),
    ],
)
def test_a_status_is_judged_by_its_age_and_state(changes: dict[str, Any], level: Level | None) -> None:
    found = [each for each in judge_processes({"a": status(**changes)}, NOW) if each.level is not Level.OK]
    assert [each.level for each in found] == ([] if level is None else [level])


def test_a_clock_that_is_ahead_is_reported_once_for_its_machine() -> None:
    statuses = {"a": status(at=NOW + 5_000), "b": status(at=NOW + 60_000), "c": status(host="other")}
    found = [each for each in judge_processes(statuses, NOW) if each.level is not Level.OK]
    assert [(each.subject, each.fact) for each in found] == [
        ("clock of machine", "is at least 1.0 min ahead of this machine's")
    ]


def test_too_many_late_records_are_a_finding_with_what_moved_the_watermark() -> None:
    due = {"topic": "count-minutes", "partition": 1, "late": 30, "moved_by": "payments"}
    few = status(due=[due | {"late_share": 0.05}])
    many = status(due=[due | {"late_share": 0.3}])
    found = [each for each in judge_processes({"a": few, "b": many}, NOW) if each.level is not Level.OK]
    (late,) = found
    assert (late.level, late.subject) == (Level.WARNING, "process b")
    assert "30% of a minute's records were late for count-minutes[1]" in late.fact
    assert "payments had moved the watermark" in late.advice


def test_a_copy_of_a_table_that_does_not_keep_up_is_a_finding() -> None:
    fresh, stale = ({"table": "count-table", "partitions": 12, "age_seconds": age} for age in (59, 61))
    statuses = {"a": status(copies=[fresh]), "b": status(copies=[stale])}
    (found,) = [each for each in judge_processes(statuses, NOW) if each.level is not Level.OK]
    assert (found.level, found.subject, found.since_ms) == (Level.WARNING, "process b", NOW - 61_000)
    assert "count-table is 1.0 min old" in found.fact
