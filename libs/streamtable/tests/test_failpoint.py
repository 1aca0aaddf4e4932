import os
import signal
import subprocess
import sys

import pytest

from streamtable.base.failpoint import ALL_STEPS, failpoint_at, no_failpoint

SCRIPT = """
from streamtable.base.failpoint import failpoint_at
hit = failpoint_at({spec!r})
for name in ("begun", "flushed", "begun", "flushed"):
    print(name, flush=True)
    hit(name)
"""


def run(spec: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(spec=spec)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(("spec", "lines"), [("flushed", 2), ("begun:2", 3), ("flushed:2", 4)])
def test_the_process_is_killed_when_the_place_is_reached_for_the_nth_time(spec: str, lines: int) -> None:
    child = run(spec)
    output, _ = child.communicate(timeout=120)
    assert child.returncode == -signal.SIGKILL
    assert len(output.splitlines()) == lines


def test_a_failpoint_that_is_not_reached_so_often_kills_no_process() -> None:
    child = run("begun:3")
    output, _ = child.communicate(timeout=120)
    assert (child.returncode, len(output.splitlines())) == (0, 4)


def test_a_process_can_be_frozen_and_goes_on_after_sigcont() -> None:
    child = run("stop@flushed")
    state = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert state is not None
    assert state.si_status == signal.SIGSTOP
    child.send_signal(signal.SIGCONT)
    output, _ = child.communicate(timeout=120)
    assert (child.returncode, len(output.splitlines())) == (0, 4)


@pytest.mark.parametrize("spec", ["nowhere", "", "begun:x", "begun:0", "begun:-1", "@begun", "go@begun"])
def test_a_failpoint_that_could_never_be_reached_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="failpoint"):
        failpoint_at(spec)


def test_every_step_has_a_name_of_its_own_and_without_a_failpoint_nothing_happens() -> None:
    assert len(set(ALL_STEPS)) == len(ALL_STEPS)
    for name in ALL_STEPS:
        no_failpoint(name)
