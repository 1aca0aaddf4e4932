import os
from pathlib import Path

import pytest

from localkafka.waiting import SLOWEST, Deadline, pause_after, slowdown, stalled_seconds, wait_until


class Machine:
    """A machine with a clock that tests set."""

    def __init__(self) -> None:
        self.now = 100.0
        self.stalled = 7.0

    def deadline(self, seconds: float) -> Deadline:
        return Deadline(seconds, lambda: self.now, lambda: self.stalled)


def test_on_an_idle_machine_a_deadline_passes_after_its_seconds() -> None:
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


def test_an_overloaded_machine_extends_a_deadline_at_most_tenfold() -> None:
    machine = Machine()
    deadline = machine.deadline(10)
    machine.now += 10 * SLOWEST + 0.1
    machine.stalled += 1_000  # more than the clock, as stalls of several processors add up
    assert deadline.passed()


def test_cpu_pressure_io_pressure_and_steal_time_are_stalls(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    for name, total in (("cpu", 1_500_000), ("io", 250_000)):
        text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 total=9\n"
        (tmp_path / "pressure" / name).write_text(text)
    stolen = 4 * os.sysconf("SC_CLK_TCK")
    each = f"9 9 9 9 9 9 9 {stolen // 2} 9 9"
    (tmp_path / "stat").write_text(f"cpu  9 9 9 9 9 9 9 {stolen} 9 9\ncpu0 {each}\ncpu1 {each}\nintr 5\n")
    assert stalled_seconds(tmp_path) == 1.5 + 0.25 + 2.0
    assert stalled_seconds(tmp_path / "none") == 0.0


def test_stalled_seconds_only_grow_and_the_slowdown_is_at_least_1() -> None:
    assert 0.0 <= stalled_seconds() <= stalled_seconds()
    assert 1.0 <= slowdown() <= SLOWEST


def test_a_wait_returns_the_value_of_the_condition() -> None:
    answers = iter(["", "", "there"])
    assert wait_until(lambda: next(answers), every=0) == "there"


def test_the_error_of_a_wait_that_timed_out_names_the_condition() -> None:
    with pytest.raises(AssertionError, match=r"^the leader did not become true within 0 s$"):
        wait_until(lambda: None, 0, "the leader", every=0.001)


def test_the_longer_a_wait_has_taken_the_longer_it_pauses_up_to_a_limit() -> None:
    assert pause_after(0.1, 0.02) == 0.02
    assert pause_after(1.0, 0.02) == 0.05
    assert pause_after(60.0, 0.02) == pause_after(2.0, 0.02) == 0.1
    assert pause_after(60.0, 0.002) == 0.01  # a condition that is asked often may drive what it waits for
    assert pause_after(60.0, 0.5) == 0.5
