"""Forged reports in the status topic must not fill the console's memory, and must not hide real processes."""

from typing import Any

from services.console.tests.world import status_with

from console.history import History, StatusReport
from console.statuses import ENTRIES_MAX, PROCESSES_MAX, STATUS, STATUS_BYTES_MAX, statuses_that_fit

AT = 4_000_000_000_000
EACH = 1000


def with_partitions(count: int) -> Any:
    places = [{"partition": n, "state": "working", "remaining": 0, "total": 0} for n in range(count)]
    return status_with(at=AT, started_at=AT, partitions=places)


def test_entries_of_all_processes_together_are_bounded_and_small_processes_still_shown() -> None:
    large = STATUS.encode(with_partitions(EACH))
    rows = [(f"forged/{n:03}".encode(), large) for n in range(2 * ENTRIES_MAX // EACH)]
    rows.append((b"honest", STATUS.encode(with_partitions(0))))
    warned: list[str] = []
    shown = dict(statuses_that_fit(rows, lambda key, text, reason: warned.append(text)))
    assert sum(len(status["partitions"]) for status in shown.values()) == ENTRIES_MAX
    assert "honest" in shown
    assert set(warned) == {"a status is not shown"}


def test_of_too_many_processes_the_first_are_shown_and_of_bad_ones_the_others() -> None:
    small = STATUS.encode(with_partitions(0))
    rows = [(b"a", b"nonsense"), (b"b", bytes(STATUS_BYTES_MAX + 1))]
    rows += [(f"c{n:04}".encode(), small) for n in range(PROCESSES_MAX + 1)]
    warned: list[tuple[bytes, str]] = []
    shown = dict(statuses_that_fit(rows, lambda key, text, reason: warned.append((key, text))))
    assert list(shown) == [f"c{n:04}" for n in range(PROCESSES_MAX)]
    assert warned == [
        (b"a", "a status cannot be read"),
        (b"b", "a status cannot be read"),
        (b"", "more processes report than are shown"),
    ]


def test_earlier_reports_are_kept_within_the_same_bound() -> None:
    history = History()
    large = with_partitions(EACH)
    reports = [StatusReport(f"forged/{n:03}", large, AT) for n in range(2 * ENTRIES_MAX // EACH)]
    reports += [StatusReport("forged/000", None, AT), StatusReport("late", large, AT)]
    history.recall(reports, AT)
    started = {event["who"] for event in history.events() if event["kind"] == "started"}
    assert started == {*(f"forged/{n:03}" for n in range(ENTRIES_MAX // EACH)), "late"}
