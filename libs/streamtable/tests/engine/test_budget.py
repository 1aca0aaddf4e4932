from collections.abc import Callable

import pytest

from streamtable.base.crash_marker import InHand, Suspects
from streamtable.base.types import RecordBatch
from streamtable.engine.commit.budget import CommitBudget
from streamtable.engine.settings import ProcessorSettings

Make = Callable[..., RecordBatch]


@pytest.fixture
def budget() -> CommitBudget:
    return CommitBudget("g", ProcessorSettings("here"))


def test_commits_begin_small_and_double_while_they_are_quick(budget: CommitBudget) -> None:
    sizes = []
    for _ in range(6):
        sizes.append(budget.bytes >> 20)
        budget.committed(0.1)
    assert sizes == [1, 2, 4, 8, 16, 16]
    assert budget.records_bound is None


def test_a_commit_that_takes_its_time_is_neither_grown_nor_shrunk_and_a_slow_one_is_halved(
    budget: CommitBudget,
) -> None:
    budget.committed(1.5)
    assert (budget.bytes, budget.records) == (1 << 20, 10_000)
    budget.committed(2.5)
    assert (budget.bytes, budget.records) == (1 << 19, 5_000)


def test_a_commit_that_fails_after_a_long_time_makes_the_next_a_quarter_of_it_and_never_less_than_a_record(
    budget: CommitBudget,
) -> None:
    budget.failed(100_000, 4.1)
    assert (budget.bytes, budget.records, budget.records_bound) == (25_000, 2_500, 2_500)
    for _ in range(20):
        budget.failed(0, 4.1)
    assert (budget.bytes, budget.records) == (1, 1)
    for _ in range(30):
        budget.committed(0.1)
    assert (budget.bytes, budget.records, budget.records_bound) == (16 << 20, 10_000, None)


def test_a_commit_of_one_record_gets_more_time_until_one_is_quick_again(
    budget: CommitBudget, batch: Make
) -> None:
    records = batch("events", [(b"k", b"v")] * 200)
    steps = []
    for count in (8, 2, 1, 1, 1, 1, 1):
        list(budget.parts([records.part(0, count)], lambda: 0))
        budget.failed(3_000_000, 4.1)
        steps.append((budget.records, budget.step_seconds))
        if count == 8:
            budget.committed(1.5)  # the next failure is not the second in a row
    assert steps == [(2, 4), (1, 4), (1, 8), (1, 16), (1, 32), (1, 64), (1, 64)]
    budget.committed(9.0)
    assert budget.step_seconds == 64


def test_the_second_failure_in_a_row_gives_the_next_commit_more_time_and_not_only_less_work(
    budget: CommitBudget,
) -> None:
    budget.failed(100_000, 4.1)
    assert budget.step_seconds == 4
    budget.failed(100_000, 4.1)
    assert budget.step_seconds == 8
    budget.step_seconds_max = 8
    budget.failed(100_000, 8.1)
    assert budget.step_seconds == 8


def test_a_commit_is_given_the_time_that_commits_have_taken_lately(budget: CommitBudget) -> None:
    budget.committed(9.0)
    assert budget.step_seconds == 16
    for _ in range(5):
        budget.committed(0.1)
    assert budget.step_seconds == 8
    for _ in range(5):
        budget.committed(0.1)
    assert budget.step_seconds == 4


def test_commits_that_take_long_whatever_their_size_are_not_made_smaller(budget: CommitBudget) -> None:
    sizes = []
    for _ in range(7):
        budget.committed(9.0)
        sizes.append(budget.bytes >> 10)
    assert sizes == [512, 1024, 2048, 4096, 8192, 16384, 16384]


def test_a_commit_that_is_refused_at_once_says_nothing_of_its_size(budget: CommitBudget) -> None:
    budget.failed(100_000, 0.1)
    assert (budget.bytes, budget.records) == (1 << 20, 10_000)


def test_batches_are_cut_into_parts_that_grow_until_they_hold_half_a_commit(
    budget: CommitBudget, batch: Make
) -> None:
    made: list[int] = []
    sizes = []
    records = batch("events", [(b"k", b"v")] * 1_500)
    for part in budget.parts([records, records.part(0, 3)], lambda: sum(made)):
        made.append(2_000 * len(part))
        sizes.append((part.first_offset, len(part)))
    most = (1 << 20) // 4_000
    assert sizes == [
        (0, 100),
        (100, 200),
        *((300 + n * most, most) for n in range(4)),
        (300 + 4 * most, 152),
        (0, 3),
    ]


def test_records_that_make_nothing_are_handled_in_ever_larger_parts(
    budget: CommitBudget, batch: Make
) -> None:
    records = batch("events", [(b"k", b"v")] * 1_500)
    assert [len(part) for part in budget.parts([records], lambda: 0)] == [100, 200, 400, 800]


def test_after_a_commit_that_was_too_large_fewer_records_are_handled_at_once(
    budget: CommitBudget, batch: Make
) -> None:
    for _ in range(6):
        budget.failed(0, 4.1)
    records = batch("events", [(b"k", b"v")] * 5)
    assert [len(part) for part in budget.parts([records], lambda: 0)] == [2, 2, 1]


class AfterDeath(InHand):
    @property
    def left(self) -> Suspects:
        return Suspects("events", 0, 7, 9)


def test_after_a_death_commits_begin_with_one_record_and_double() -> None:
    small = CommitBudget("g", ProcessorSettings("here", in_hand=AfterDeath()))
    assert (small.bytes, small.records) == (1, 1)
    for _ in range(30):
        small.committed(0.1)
    assert (small.bytes, small.records) == (16 << 20, 10_000)
