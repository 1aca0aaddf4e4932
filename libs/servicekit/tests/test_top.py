from collections.abc import Iterator
from typing import Any

import pytest

from localkafka.waiting import wait_until
from servicekit.testing import MemoryTable
from servicekit.top import TopList
from streamtable.errors import NotReady


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


def test_it_answers_after_reading_the_table(top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    assert top.top(2).rows == [("user-49", 49), ("user-48", 48)]


def test_it_follows_changes_without_reading_the_table_again(counts: Any, top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    counts.put("user-00", 100)
    wait_until(lambda: first(top) == ("user-00", 100))
    counts.put("user-00", None)
    wait_until(lambda: first(top) == ("user-49", 49))
    assert counts.scans == 1


def test_it_reads_the_table_again_when_too_many_have_fallen(counts: Any, top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    for n in range(10, 50):
        counts.put(f"user-{n}", None)
    wait_until(lambda: first(top) == ("user-09", 9))
    assert counts.scans > 1


def test_it_reads_the_table_again_when_changes_were_missed(counts: Any, top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    counts.rows["user-00"] = 100
    counts.overrun()
    wait_until(lambda: first(top) == ("user-00", 100))


def test_it_waits_for_a_table_that_is_not_ready(counts: Any) -> None:
    counts.ready = False
    top = TopList(counts, int, size=5)
    top.start()
    with pytest.raises(NotReady):
        top.top(1)
    counts.put("alice", 3)
    counts.ready = True
    wait_until(lambda: first(top) == ("alice", 3))
    top.close()


def test_what_ends_its_thread_is_raised_by_the_check(counts: Any) -> None:
    counts.rows = {b"not a text": 1}
    top = TopList(counts, int)
    top.check()
    top.start()
    wait_until(lambda: top._failure is not None)
    with pytest.raises(AttributeError):
        top.check()
    top.close()


def test_it_says_how_far_it_is_behind(counts: Any, top: TopList[int]) -> None:
    wait_until(lambda: answers(top))
    assert 0 <= top.top(1).behind_seconds < 5
