"""Follows a page of the docs as a reader would: writes the files that it shows and types what it says to type.

A fenced block with `title="name"` is a file. In a `console` block each line that begins with `$ ` is typed into one
shell, and what follows must come out, where `…` stands for anything. All else is prose.
"""

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from localkafka.java import BRIEF
from localkafka.waiting import Deadline

_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_END = "--- end of what was typed ---"
_PATIENCE_SECONDS = 40.0
BRIEF_JAVA = {"JDK_JAVA_OPTIONS": BRIEF}
"""Variables for programs whose broker is over in a minute."""
_PAUSE_SECONDS = 1.0  # as long as a command takes to start: to look more often mostly costs CPU time


@dataclass(frozen=True)
class Step:
    """A file to write (`title`), or a command with what it must print."""

    text: str
    title: str | None = None
    expected: str = ""


def steps_of(page: str) -> Iterator[Step]:
    """Yield the steps that a page asks its reader to do, in order."""
    for language, title, body in _FENCE.findall(page):
        if title:
            yield Step(body, title)
        elif language == "console":
            for typed in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, expected = typed.partition("\n")
                yield Step(command, expected=expected)


class Shell:
    """A bash with job control in a folder, as a reader has it in a terminal.

    Args:
        folder: The initial working directory.
        environment: The environment of all processes that it starts.
        patience: commands that may be typed again until they end well and print what is expected: they only look.
    """

    def __init__(self, folder: Path, environment: dict[str, str], patience: tuple[str, ...]) -> None:
        self._patience = patience
        self._folder = folder
        self._jobs = 0
        self._told = folder / "standard-error.log"  # of the last command
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder, env={**environment, **BRIEF_JAVA}, text=True, bufsize=1, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._type("set -m")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The jobs are process groups of their own; one that was asked to stop may end between the two commands.
        self._type("for job in $(jobs -p); do kill -9 -- -$job || true; done")
        assert self._bash.stdin is not None
        self._bash.communicate(timeout=60)

    def follow(self, step: Step) -> None:
        """Do what a step says; an assertion tells what came out instead of what was expected."""
        if step.title is not None:
            self._type(f"cat > '{step.title}' <<'END OF FILE'\n{step.text}END OF FILE")
            return
        if step.text.endswith(" &"):
            self._jobs += 1
            self._type(f"{step.text.removesuffix('&')}> {self._folder}/job-{self._jobs}.log 2>&1 &")
            return
        deadline = Deadline(_PATIENCE_SECONDS)
        while True:
            printed, status = self._run(step.text)
            if status == "0" and _fits(printed, step.expected):
                return
            again = step.text.startswith(self._patience) and not deadline.passed()
            assert again, (
                f"{self._story(step.text, printed)}\n--- ended with {status}, expected:\n{step.expected}"
            )
            time.sleep(_PAUSE_SECONDS)

    def _type(self, command: str) -> None:
        printed, status = self._run(command)
        assert status == "0", self._story(command, printed)

    def _run(self, command: str) -> tuple[str, str]:
        """Return what a command prints, and its exit code."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        # `jobs` forgets those that have ended, as a prompt does: so %1 is what a reader's %1 is.
        self._bash.stdin.write(
            f"{{ {command}\n}} < /dev/null 2> {self._told}\nended=$?; jobs > /dev/null\necho '{_END}' $ended\n"
        )
        printed = ""
        for line in self._bash.stdout:
            before, found, status = line.partition(_END)
            printed += before
            if found:
                return printed, status.strip()
        raise AssertionError(f"the shell ended: {printed}")

    def _story(self, command: str, printed: str) -> str:
        logs = [self._told, *sorted(self._folder.glob("job-*.log"))]
        tails = [f"--- {log.name}:\n{log.read_text()[-4_000:]}" for log in logs]
        return "\n".join([f"$ {command}", printed, *tails])


def _fits(printed: str, expected: str) -> bool:
    if not expected.strip():
        return True
    pattern = re.escape(expected.strip()).replace("…", ".*")
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
