"""A measured program: a separate process, observed from outside."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from bench.programs.marks import RESULT

from localkafka.process import Child

_LOOK_SECONDS = 0.005
_LIMIT_SECONDS = 120.0
_LOG_CHARACTERS = 3_000


class RowFailed(Exception):
    """A row could not be measured, or its result is wrong."""


class Mark(NamedTuple):
    """A moment of a program: the time in seconds since 1970, and its CPU seconds so far, of all threads."""

    time: float
    cpu: float


class Program:
    """A running program. A context manager that stops it, and kills it if necessary.

    Marks are lines of its output, `<name> <time> [<cpu>]`; missing CPU seconds are read when the line is seen. The
    output is polled every 5 ms.

    Args:
        command: The command to run.
        environment: Environment variables in addition to this process's own.
        log: The file for its output.
        limit_seconds: The timeout of each wait.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        limit_seconds: float = _LIMIT_SECONDS,
    ) -> None:
        self._log = log
        log.unlink(missing_ok=True)
        self.started = time.time()
        self._end = time.monotonic() + limit_seconds
        # The log must have the whole output when the program ends.
        self._child = Child(command, log, env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"})
        self._codes: Collection[int] = (0,)
        self._read = 0
        self._cpu = 0.0
        self.pid = self._child.pid
        self.rss_mb = 0.0
        self.marks: dict[str, Mark] = {}
        self.results: list[dict[str, Any]] = []

    def mark(self, name: str) -> Mark:
        """Wait for a mark."""
        self.wait(lambda: name in self.marks, f"has not printed {name!r}")
        return self.marks[name]

    def result(self) -> dict[str, Any]:
        """Wait for its result."""
        self.wait(lambda: self.results, "has no result")
        return self.results[-1]

    def end(self) -> None:
        """Wait until it ends by itself."""
        self.wait(lambda: self._child.returncode is not None, "does not end")
        self._check_end(self._child.returncode)  # it may have ended between two polls of `wait`

    def ask_to_stop(self, codes: Collection[int] = (0,)) -> None:
        """Send SIGTERM and return at once; `codes` are the allowed exit codes."""
        self._codes = codes
        self._measure()
        if self._child.returncode is None:
            self._child.signal_stop()

    def stop(self) -> None:
        """Stop it with SIGTERM and wait for its end."""
        self.ask_to_stop()
        self.end()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._codes = (-signal.SIGKILL,)
        self._child.kill()

    def now(self) -> Mark:
        """Return the current moment; after its end, with its total CPU seconds."""
        self._measure()
        return Mark(time.time(), self._cpu)

    def wait(self, done: Callable[[], object], lacking: str) -> None:
        """Poll it until a condition is met.

        Args:
            done: Returns whether the condition is met.
            lacking: The text to report if the condition is not met.

        Raises:
            RowFailed: It has ended with an error, or before the condition was met, or the timeout has passed.
        """
        while True:
            self._measure()
            ended = self._child.returncode
            self._read_marks()
            self._check_end(ended)
            if done():
                return
            if ended is not None or time.monotonic() > self._end:
                raise RowFailed(f"the program {lacking}: {self._tail()}")
            time.sleep(_LOOK_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.stop(10)

    def _measure(self) -> None:
        try:
            # The process's CPU clock, as of clock_getcpuclockid(3): exact, whereas /proc has hundredths of a second.
            self._cpu = time.clock_gettime((~self._child.pid << 3) | 2)
            status = Path(f"/proc/{self._child.pid}/status").read_text()
        except OSError:
            return  # it has ended
        peak = status.partition("VmHWM:")[2].split(maxsplit=1)
        if peak:  # a process that is exiting has no memory
            self.rss_mb = int(peak[0]) / 1024

    def _check_end(self, code: int | None) -> None:
        """Raise `RowFailed` if it has ended with an exit code that is not expected."""
        if code is not None and code not in self._codes:
            raise RowFailed(f"the program ended with {code}: {self._tail()}")

    def _read_marks(self) -> None:
        with self._log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            name, _, rest = line.partition(" ")
            if name == RESULT:
                self.results.append(json.loads(rest))
            elif name.isidentifier() and _numbers(rest):
                at, *cpu = map(float, rest.split())
                self.marks[name] = Mark(at, cpu[0] if cpu else self._cpu)

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-_LOG_CHARACTERS:].strip() or "it said nothing"


def python(module: str, profile: Path | None = None) -> list[str]:
    """Return the command that runs a module; with a file, under the profiler, which writes to it."""
    profiler = ["-m", "cProfile", "-o", str(profile)] if profile else []
    return [sys.executable, *profiler, "-m", module]


def _numbers(text: str) -> bool:
    words = text.split()
    return 1 <= len(words) <= 2 and all(word.replace(".", "", 1).isdigit() for word in words)
