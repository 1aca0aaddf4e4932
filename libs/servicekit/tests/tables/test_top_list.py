from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from localkafka.waiting import wait_until
from servicekit.tables.top_list import TopList, TopMetrics
from servicekit_testing import MemoryTable
from streamtable.errors import NotReady, StreamtableError


@pytest.fixture
def counts() -> MemoryTable[int]:
    return MemoryTable()


@pytest.fixture
def top(counts: Any) -> Iterator[TopList[int]]:
    counts.rows = {f"user-{n:02}": n for n in range(50)}
    top = TopList(counts, int, size=5)
    top.start()
    yield top
    top.close()


def answers(top: TopList[int]) -> bool:
    try:
        top.top(1)
    except NotReady:
        return False
    return True


def first(top: TopList[int]) -> tuple[str, int] | None:
    return top.top(1).rows[0] if answers(top) else None


def test_the_top_list_answers_after_reading_the_table(top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    assert top.top(2).rows == [("user-49", 49), ("user-48", 48)]


def test_the_top_list_applies_changes_without_reading_the_table_again(counts: Any, top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    counts.put("user-00", 100)
    wait_until(lambda: first(top) == ("user-00", 100))
    counts.put("user-00", None)
    wait_until(lambda: first(top) == ("user-49", 49))
    assert counts.scans == 1


def test_the_top_list_reads_the_table_again_when_too_many_members_fall(
    counts: Any, top: TopList[int]
) -> None:
    wait_until(lambda: answers(top))
    for n in range(10, 50):
        counts.put(f"user-{n}", None)
    wait_until(lambda: first(top) == ("user-09", 9))
    assert counts.scans > 1


def test_the_top_list_reads_the_table_again_when_changes_were_missed(counts: Any, top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    counts.rows["user-00"] = 100
    counts.overrun()
    wait_until(lambda: first(top) == ("user-00", 100))


def test_the_top_list_waits_for_a_table_that_is_not_ready(counts: Any) -> None:
    counts.ready = False
    top = TopList(counts, int, size=5)
    top.start()
    with pytest.raises(NotReady):
        top.top(1)
    counts.put("alice", 3)
    counts.ready = True
    wait_until(lambda: first(top) == ("alice", 3))
    top.close()


def test_the_error_that_ends_the_thread_is_raised_by_check(counts: Any) -> None:
    counts.rows = {b"not a text": 1}
    top = TopList(counts, int)
    top.check()
    top.start()
    wait_until(lambda: top._failure is not None)
    with pytest.raises(AttributeError):
        top.check()
    top.close()


def test_the_detail_reports_how_far_the_list_is_behind(counts: Any, top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    assert 0 <= top.top(1).behind_seconds < 5


def test_an_unreadable_row_is_left_out_and_counted_without_reading_the_table_again(
    counts: Any, top: TopList[int]
) -> None:
    wait_until(lambda: answers(top))
    counts.spoil("user-49")
    wait_until(lambda: first(top) == ("user-48", 48))
    assert top.top(5).unreadable == 1
    counts.put("user-49", 90)
    wait_until(lambda: first(top) == ("user-49", 90))
    assert (top.top(5).unreadable, counts.scans) == (0, 1)


def test_the_list_is_not_ready_while_it_is_made_again_after_rows_became_unreadable(
    counts: Any, top: TopList[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(lambda: answers(top))
    reading, read, iterate = Event(), Event(), counts.iterate

    def slow(**options: Any) -> Any:
        reading.set()
        assert read.wait(60)
        return iterate(**options)

    monkeypatch.setattr(counts, "iterate", slow)
    for n in range(10, 50):
        counts.spoil(f"user-{n}")
    assert reading.wait(60)
    with pytest.raises(NotReady):
        top.top(1)
    read.set()
    wait_until(lambda: first(top) == ("user-09", 9))


def test_rows_that_were_unreadable_before_are_counted(counts: Any) -> None:
    counts.put("alice", 3)
    counts.spoil("bob")
    top = TopList(counts, int)
    top.start()
    wait_until(lambda: answers(top))
    assert (top.top(5).rows, top.top(5).unreadable) == ([("alice", 3)], 1)
    assert top.detail()["unreadable"] == 1
    top.close()


def test_a_row_that_fell_and_cannot_be_read_any_more_is_left_out(counts: Any, top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    with counts._changed:  # both changes are pending before the list applies the first
        counts.put("user-49", 1)
        counts.spoil("user-49")
    wait_until(lambda: first(top) == ("user-48", 48) and top.top(1).unreadable == 1)


def test_a_list_that_cannot_be_kept_current_reports_it_and_reads_the_table_once_per_cause(
    counts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servicekit.tables.top_list._WAIT_SECONDS", 0.01)
    registry = CollectorRegistry()
    tries = 0

    def fail(**_: Any) -> Any:
        nonlocal tries
        tries += 1
        raise StreamtableError("it is broken")

    top = TopList(counts, int, metrics=TopMetrics.register(registry))
    with monkeypatch.context() as broken, capture_logs() as lines:
        broken.setattr(counts, "iterate", fail)
        top.start()
        wait_until(lambda: tries >= 4)
        assert top.detail()["error"] == "StreamtableError"
        warned = [line for line in lines if line["log_level"] == "warning"]
        assert [line["reason"] for line in warned] == ["it is broken"]
    failures = registry.get_sample_value("servicekit_top_failures_total", {"error": "StreamtableError"})
    assert failures is not None
    assert failures >= 3
    counts.put("alice", 3)
    wait_until(lambda: first(top) == ("alice", 3))
    assert top.detail()["error"] is None
    assert registry.get_sample_value("servicekit_top_rebuilds_total") == 1
    behind = registry.get_sample_value("servicekit_top_behind_seconds")
    assert behind is not None
    assert behind < 5
    top.close()


def test_missed_changes_are_a_warning_and_one_read_of_the_table(counts: Any, top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    with capture_logs() as lines:
        counts.rows["user-00"] = 100
        counts.overrun()
        wait_until(lambda: len(lines) == 2)  # the second comes after the rows
        assert first(top) == ("user-00", 100)
    assert [line["event"] for line in lines] == [
        "top list is not current, and is made again",
        "top list is current again",
    ]
    assert counts.scans == 2
