"""Several processes of one command, run as one: those that die are started again, and all stop together."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from math import inf
from threading import Thread
from typing import Final

from streamtable_supervisor.pages import listening, merged
from streamtable_supervisor.signals import stop_signals_to

CONFIGURATION: Final = 2
"""The exit code of a process whose settings are wrong: it is not started again."""
PAUSE_MAX: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 2.0


class Supervised:
    """A process that is started again when it dies, after a pause that doubles from 1 to 60 s.

    Its standard input is a pipe that this process writes to: at its end, the child stops. A child that ends with exit code 0
    has finished and is not started again. One that ends with 2, since its settings are wrong, waits for the next change of the program.

    Args:
        number: Its number, which its log lines carry.
        command: The program and its arguments; the descriptor of a listening socket for its pages is added.
        environment: All of its variables.
        say: Shows a line of its log, or about it.
        sends: What it reads first from its standard input.
    """

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        say: Callable[[str], object],
        sends: bytes = b"",
    ) -> None:
        self.number = number
        self.finished = False
        self._command = command
        self._environment = environment
        self._say = say
        self._sends = sends
        self._pause = 1.0
        self._due = 0.0
        self.start()

    def start(self) -> None:
        self.finished = False
        with listening("127.0.0.1", 0) as pages:
            self._port = pages.getsockname()[1]
            # A process group of its own: Ctrl-C in a terminal would reach it besides our SIGTERM, as a second signal.
            self.process = subprocess.Popen(  # noqa: S603 - this program's own command
                [*self._command, str(pages.fileno())],
                env=dict(self._environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[pages.fileno()],
                process_group=0,
            )
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, which its exit code says
            self.process.stdin.write(self._sends)
            self.process.stdin.flush()
        self._started = time.monotonic()
        self._due = 0.0
        self._log = Thread(target=self._copy_log, args=(self.process,), daemon=True)
        self._log.start()

    def _copy_log(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout as log:
            for line in log:
                text = line.decode(errors="backslashreplace").rstrip("\n")
                is_json = text.startswith('{"')
                self._say(f'{{"process": {self.number}, {text[1:]}' if is_json else f"[{self.number}] {text}")

    def ended(self) -> int | None:
        """Return the exit code when its log has been copied; None while it runs."""
        code = self.process.poll()
        if code is not None:
            self._log.join(1.0)
            assert self.process.stdin is not None
            with suppress(BrokenPipeError):  # it has read no more
                self.process.stdin.close()
        return code

    def revive(self, code: int) -> None:
        """Start it again when its pause has passed, unless it has finished."""
        if self.finished:
            return
        if not code:
            self.finished = True
            self._say(f"process {self.number} has finished (exit code 0) and is not started again")
            return
        now = time.monotonic()
        if not self._due and code == CONFIGURATION:
            ended = f"process {self.number} has ended with {code}, its settings are wrong"
            self._say(f"{ended}, and is started again when the program changes")
            self._due = inf
        elif not self._due:
            self._pause = 1.0 if now - self._started >= PAUSE_MAX else self._pause
            self._say(
                f"process {self.number} has ended with {code} and is started again in {self._pause:g} s"
            )
            self._due = now + self._pause
            self._pause = min(2 * self._pause, PAUSE_MAX)
        elif now >= self._due:
            self.start()

    def page(self, path: str) -> tuple[int, str]:
        """Return the status and the text of one of its pages; 503 and the reason if it does not answer."""
        if self.process.poll() is not None:
            return 503, "it does not run"
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_SECONDS)) as connection:
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            except (OSError, HTTPException) as error:
                return 503, f"it does not answer ({error})"

    def end(self, at: float) -> int:
        """Wait for its end after SIGTERM, and kill it at this time. Returns the exit code, 0 if SIGTERM ended it."""
        try:
            self.process.wait(max(0.0, at - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._say(f"process {self.number} does not stop and is killed")
            self.process.kill()
            self.process.wait()
        code = self.ended() or 0
        return 0 if code == -signal.SIGTERM else code


class Children:
    """All children of this process.

    Args:
        children: The children, which run.
        stop_seconds: The time from SIGTERM to SIGKILL.
        say: Shows a line.
        changed: Whether the program has changed since the last call, so that all are started again; None: it is not watched.
    """

    def __init__(
        self,
        children: Sequence[Supervised],
        stop_seconds: float,
        say: Callable[[str], object],
        changed: Callable[[], bool] | None = None,
    ) -> None:
        self._children = children
        self._stop_seconds = stop_seconds
        self._say = say
        self._changed = changed

    def metrics(self) -> bytes:
        pages = {child.number: child.page("/metrics") for child in self._children}
        return merged({number: text for number, (status, text) in pages.items() if status == 200})  # noqa: PLR2004 - HTTP

    def not_ready(self) -> str:
        """Return the reason why not all are ready that have not finished; empty if they are."""
        pages = {child.number: child.page("/readyz") for child in self._children if not child.finished}
        found = (f"process {n}: {text.strip()}" for n, (status, text) in pages.items() if status != 200)  # noqa: PLR2004
        return "; ".join(found)

    def run(self) -> int:
        """Run until a signal, or until all have finished. Returns 0 if all have ended in order, else 1.

        The code of a child that ends with 2, whose settings are wrong, is returned when the others have stopped. Where the program
        is watched, neither of both ends the run: its next change starts all again.
        """
        asked: list[int] = []
        with stop_signals_to(asked.append):
            while not asked:
                codes = [child.ended() for child in self._children]
                if self._changed is not None and self._changed():
                    self._say("the program has changed: it is started again")
                    self.stop()
                    for child in self._children:
                        child.start()
                elif self._changed is None and CONFIGURATION in codes:
                    self.stop()
                    return CONFIGURATION
                elif self._changed is None and all(code == 0 for code in codes):
                    return 0
                else:
                    for child, code in zip(self._children, codes, strict=True):
                        if code is not None:
                            child.revive(code)
                time.sleep(_LOOK_SECONDS)
            return 1 if any(self.stop()) else 0

    def stop(self) -> list[int]:
        """Stop those that run, in order. Returns their exit codes."""
        running = [child for child in self._children if child.process.poll() is None]
        for child in running:
            child.process.terminate()
        at = time.monotonic() + self._stop_seconds
        return [child.end(at) for child in running]


def stop_with_supervisor() -> None:
    """Stop this process as by SIGTERM when standard input ends: its supervisor has died."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, name="supervisor", daemon=True).start()


def inherited(descriptor: int) -> socket.socket:
    """Return the listening socket that the supervisor has made for this process."""
    return socket.socket(fileno=descriptor)
