"""Children that end in each way, as real processes."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

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


def run_watched(
    children: list[Supervised], said: list[str], steps: Callable[[Callable[[], None]], None]
) -> int:
    """Run children whose program is watched; `steps` are done beside it, and may say that the program has changed."""
    changes: list[None] = []

    def beside() -> None:
        try:
            steps(lambda: changes.append(None))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = Thread(target=beside)

    def changed() -> bool:
        if thread.ident is None:
            thread.start()  # not before the run has its handler of signals
        return bool(changes) and changes.pop() is None

    code = Children(children, 5.0, said.append, changed).run()
    thread.join()
    return code


def test_a_child_that_dies_while_its_program_is_watched_is_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    first = f"open({str(tmp_path / 'first')!r}, 'x')"  # fails at the second start
    program = (
        f"try:\n {first}\nexcept OSError:\n print('up again', flush=True)\nelse:\n raise SystemExit(75)\n"
    )

    def steps(_: object) -> None:
        wait_until(lambda: "[1] up again" in said, 20, "it is started again")

    run_watched([child(1, f"{program}import time; time.sleep(600)", said)], said, steps)
    assert "process 1 has ended with 75 and is started again in 1 s" in said


def test_a_child_with_wrong_settings_is_started_again_when_its_watched_program_changes() -> None:
    said: list[str] = []
    ended = (
        "process 1 has ended with 2, its settings are wrong, and is started again when the program changes"
    )
    children = [child(1, "print('up', flush=True); raise SystemExit(2)", said)]

    def steps(change: Callable[[], None]) -> None:
        wait_until(lambda: ended in said, 20, "it is said")
        assert Children(children, 5.0, said.append).not_ready() == "process 1: it does not run"
        change()
        wait_until(lambda: said.count(ended) > 1, 20, "it is started again")

    run_watched(children, said, steps)
    assert (said.count(ended), said.count("[1] up")) == (2, 2)


def test_children_that_have_finished_are_started_again_when_their_watched_program_changes() -> None:
    said: list[str] = []
    finished = "process 1 has finished (exit code 0) and is not started again"

    def steps(change: Callable[[], None]) -> None:
        wait_until(lambda: finished in said, 20, "it has finished")
        change()
        wait_until(lambda: said.count(finished) > 1, 20, "it is started again")

    assert run_watched([child(1, ENDS.format(code=0), said)], said, steps) == 0


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
