import os
from pathlib import Path

import pytest

from localkafka.waiting import SLOWEST, Deadline, slowdown, stalled_seconds, wait_until


class Machine:
    """A machine whose time a test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.stalled = 7.0

    def deadline(self, seconds: float) -> Deadline:
        return Deadline(seconds, lambda: self.now, lambda: self.stalled)


def test_on_an_idle_machine_a_deadline_is_as_far_away_as_it_says() -> None:
    machine = Machine()
    deadline = machine.deadline(10)
    machine.now += 10
    assert not deadline.passed()
    machine.now += 0.1
    assert deadline.passed()


def test_seconds_in_which_the_machine_was_overloaded_count_for_a_tenth() -> None:
    machine = Machine()
    deadline = machine.deadline(10)
    machine.now += 19
    machine.stalled += 10
    assert not deadline.passed()
    machine.now += 0.1
    assert deadline.passed()


def test_an_overloaded_machine_puts_a_deadline_off_ten_times_at_most() -> None:
    machine = Machine()
    deadline = machine.deadline(10)
    machine.now += 10 * SLOWEST + 0.1
    machine.stalled += 1_000  # more than have passed: several processors may count
    assert deadline.passed()


def test_waits_for_a_processor_or_a_disk_and_what_the_host_took_are_stalls(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    for name, total in (("cpu", 1_500_000), ("io", 250_000)):
        text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 total=9\n"
        (tmp_path / "pressure" / name).write_text(text)
    stolen = 4 * os.sysconf("SC_CLK_TCK")
    each = f"9 9 9 9 9 9 9 {stolen // 2} 9 9"
    (tmp_path / "stat").write_text(f"cpu  9 9 9 9 9 9 9 {stolen} 9 9\ncpu0 {each}\ncpu1 {each}\nintr 5\n")
    assert stalled_seconds(tmp_path) == 1.5 + 0.25 + 2.0
    assert stalled_seconds(tmp_path / "none") == 0.0


def test_what_this_machine_counts_only_grows_and_an_idle_one_is_not_slow() -> None:
    assert 0.0 <= stalled_seconds() <= stalled_seconds()
    assert 1.0 <= slowdown() <= SLOWEST


def test_a_wait_returns_what_the_condition_gives() -> None:
    answers = iter(["", "", "there"])
    assert wait_until(lambda: next(answers), every=0) == "there"


def test_a_wait_that_is_in_vain_names_what_did_not_come_true() -> None:
    with pytest.raises(AssertionError, match=r"^the leader did not come true within 0 s$"):
        wait_until(lambda: None, 0, "the leader", every=0.001)
