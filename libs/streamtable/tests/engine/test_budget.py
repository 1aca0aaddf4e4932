from collections.abc import Callable

import pytest

from streamtable.engine.budget import CommitBudget
from streamtable.types import RecordBatch

Make = Callable[..., RecordBatch]


@pytest.fixture
def budget() -> CommitBudget:
    return CommitBudget("g", 16 << 20, 10_000)


def test_commits_begin_small_and_double_while_they_are_quick(budget: CommitBudget) -> None:
    sizes = []
    for _ in range(6):
        sizes.append((budget.bytes >> 20, budget.records))
        budget.committed(0.1)
    assert sizes == [(1, 1_000), (2, 2_000), (4, 4_000), (8, 8_000), (16, 10_000), (16, 10_000)]
    assert budget.records_bound is None


def test_a_commit_that_takes_its_time_is_neither_grown_nor_shrunk_and_a_slow_one_is_halved(
    budget: CommitBudget,
) -> None:
    budget.committed(1.5)
    assert (budget.bytes, budget.records) == (1 << 20, 1_000)
    budget.committed(2.5)
    assert (budget.bytes, budget.records) == (1 << 19, 500)


def test_a_commit_that_fails_after_a_long_time_makes_the_next_a_quarter_of_it_and_never_less_than_a_record(
    budget: CommitBudget,
) -> None:
    budget.failed(100_000, 4.1)
    assert (budget.bytes, budget.records, budget.records_bound) == (25_000, 250, 250)
    for _ in range(20):
        budget.failed(0, 4.1)
    assert (budget.bytes, budget.records) == (1, 1)
    for _ in range(30):
        budget.committed(0.1)
    assert (budget.bytes, budget.records, budget.records_bound) == (16 << 20, 10_000, None)


def test_a_commit_that_is_refused_at_once_says_nothing_of_its_size(budget: CommitBudget) -> None:
    budget.failed(100_000, 0.1)
    assert (budget.bytes, budget.records) == (1 << 20, 1_000)


def test_batches_are_cut_to_what_may_be_handled_at_once_at_that_moment(
    budget: CommitBudget, batch: Make
) -> None:
    records = batch("events", [(b"k", b"v")] * 1_700)
    parts = budget.parts([records, records.part(0, 3)])
    assert len(next(parts)) == 1_000
    budget.failed(0, 4.1)
    rest = list(parts)
    assert [len(part) for part in rest] == [250, 250, 200, 3]
    assert [part.first_offset for part in rest[:3]] == [1_000, 1_250, 1_500]
