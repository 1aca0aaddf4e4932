"""Jobs as processes of their own, to be killed with all their children, without any cleanup."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DYING = Path(__file__).with_name("dying.py")
# They live for seconds: only Java's first compiler works.
ENVIRONMENT = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
Lines = list[str]


@contextmanager
def started(*command: str | Path) -> Iterator[tuple["subprocess.Popen[str]", Lines]]:
    """A program in a process group of its own, and the lines that it writes to standard error."""
    lines: Lines = []
    with subprocess.Popen(
        [sys.executable, *map(str, command)],
        env={**os.environ, **ENVIRONMENT}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stderr is not None
        reader = threading.Thread(target=lines.extend, args=(child.stderr,))
        reader.start()
        try:
            yield child, lines
        finally:
            kill(child)
            reader.join(60)


def kill(child: "subprocess.Popen[str]") -> None:
    """Kill a program and its Java, which is in the same process group."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(60)


def dies(job: str, at: str, *arguments: str | Path) -> None:
    """Run a job until it dies at a step, `STEP:N`."""
    with started(DYING, job, at, *arguments) as (child, lines):
        assert child.wait(300) == -signal.SIGKILL, lines
