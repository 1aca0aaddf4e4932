"""Children that end in each way, as real processes."""

import os
import sys
import time
from pathlib import Path

import pytest

from localkafka.waiting import wait_until
from streamtable_supervisor.children import Children, Supervised

ENDS = "import sys, time; sys.stdin.readline(); sys.exit({code})"


def child(number: int, program: str, said: list[str], sends: bytes = b"go\n") -> Supervised:
    return Supervised(number, [sys.executable, "-c", program], os.environ, said.append, sends)


def test_a_child_that_ends_with_0_has_finished_and_the_run_ends_when_all_have() -> None:
    children = [child(n, ENDS.format(code=0), []) for n in (1, 2)]
    assert Children(children, 5.0, lambda _: None).run() == 0
    said: list[str] = []
    one = child(1, ENDS.format(code=0), said)
    wait_until(lambda: one.ended() is not None, 20, "it ends")
    one.revive(0)
    one.revive(0)
    finished = "process 1 has finished (exit code 0) and is not started again"
    assert (one.finished, said.count(finished)) == (True, 1)


def test_a_child_that_has_finished_does_not_make_the_others_unready() -> None:
    said: list[str] = []
    one = child(1, ENDS.format(code=0), said)
    wait_until(lambda: one.ended() is not None, 20, "it ends")
    both = Children([one], 5.0, said.append)
    assert both.not_ready() == "process 1: it does not run"
    one.revive(0)
    assert both.not_ready() == ""


def test_wrong_settings_of_one_child_stop_the_others() -> None:
    said: list[str] = []
    waits = child(1, "import time; time.sleep(600)", said)
    wrong = child(2, ENDS.format(code=2), said)
    assert Children([waits, wrong], 5.0, said.append).run() == 2
    assert waits.process.returncode is not None


def test_a_child_that_dies_is_started_again_after_a_pause_that_doubles(tmp_path: Path) -> None:
    said: list[str] = []
    program = f"open({str(tmp_path / 'starts')!r}, 'a').write('x'); raise SystemExit(75)"
    dies = child(1, program, said)
    for expected in (1, 2):
        wait_until(lambda: dies.ended() == 75, 20, "it dies")
        began = time.monotonic()
        while dies.ended() is not None and dies.process.returncode == 75 and len(said) <= expected:
            dies.revive(75)
            if (tmp_path / "starts").read_text() == "x" * (expected + 1):
                break
            time.sleep(0.01)
        assert time.monotonic() - began >= expected
        assert said[expected - 1] == f"process 1 has ended with 75 and is started again in {expected} s"
    dies.end(time.monotonic() + 20)


def test_a_child_that_does_not_stop_is_killed() -> None:
    said: list[str] = []
    stubborn = child(
        1,
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)",
        said,
    )
    wait_until(lambda: "[1] ready" in said, 20, "it ignores SIGTERM")
    all_of_them = Children([stubborn], 0.2, said.append)
    assert all_of_them.stop() == [-9]
    assert "process 1 does not stop and is killed" in said


@pytest.mark.parametrize("line", ['{"event": "x"}', "plain"])
def test_each_line_of_a_log_carries_the_number_of_its_process(line: str) -> None:
    said: list[str] = []
    one = child(7, f"print({line!r})", said)
    wait_until(lambda: one.ended() is not None, 20, "it ends")
    assert said == [line.replace('{"', '{"process": 7, "') if line != "plain" else "[7] plain"]
