import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.measure import Program, RowFailed

Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def started(code: str, limit_seconds: float = 30.0) -> Program:
        return Program([sys.executable, "-c", code], {"BENCH_X": "7"}, tmp_path / "log", limit_seconds)

    return started


def test_marks_and_results_are_found_among_whatever_else_the_program_says(start: Start) -> None:
    code = """
import os
print("first words")
print("first 12.5 0.25")
print('result {"x":', os.environ["BENCH_X"] + "}")
print("a 1 2 3")
"""
    with start(code) as program:
        assert program.mark("first") == (12.5, 0.25)
        assert program.result() == {"x": 7}
        program.end()
    assert set(program.marks) == {"first"}


def test_cpu_and_the_peak_of_memory_are_measured_from_outside(start: Start) -> None:
    code = """
import time, sys
block = bytearray(220_000_000)
del block
end = time.process_time() + 0.5
while time.process_time() < end: pass
print("worked", time.time()); sys.stdin.read(); time.sleep(30)
"""
    with start(code) as program:
        assert 0.5 <= program.mark("worked").cpu < 5
        assert 200 < program.rss_mb < 300


def test_the_error_of_a_failed_program_has_its_output(start: Start) -> None:
    with (
        start('raise SystemExit("it is broken")') as program,
        pytest.raises(RowFailed, match="with 1: it is broken"),
    ):
        program.mark("first")


def test_a_program_that_ends_early_is_reported_though_it_ends_well(start: Start) -> None:
    with start("pass") as program, pytest.raises(RowFailed, match="has not printed 'first'"):
        program.mark("first")


def test_a_program_that_takes_too_long_is_reported_and_ended(start: Start) -> None:
    with (
        start("import time; time.sleep(60)", limit_seconds=0.2) as program,
        pytest.raises(RowFailed, match="first"),
    ):
        program.mark("first")
    assert not Path(f"/proc/{program.pid}").exists()


def test_a_program_that_is_asked_to_stop_may_end_by_the_signal_if_that_is_expected(start: Start) -> None:
    code = "import time; print('up 1'); time.sleep(60)"
    with start(code) as program:
        program.mark("up")
        program.ask_to_stop(codes=(-15,))
        program.end()
    with start(code) as program:
        program.mark("up")
        with pytest.raises(RowFailed, match="ended with -15"):
            program.stop()


def test_a_moment_has_the_time_and_the_cpu_up_to_then(start: Start) -> None:
    with start("import time; print('up 1'); time.sleep(60)") as program:
        program.mark("up")
        now = program.now()
    assert abs(now.time - time.time()) < 15
    assert now.cpu > 0
