"""Programs of other libraries that share topics with ours. `make interop` builds them, which fetches what they need.

python -m tests.interop.shared.programs [NAME...]
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from localkafka.jars import COPY_GOAL

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[2] / "build" / "interop"
_STOP_SECONDS_MAX = 20.0


@dataclass(frozen=True)
class Program:
    """A program that is built of the folder of its name.

    Attributes:
        needs: The tools that build and run it.
        build: the commands, in that folder.
        command: The command that runs it.
        within: The folder that has its folder.
    """

    name: str
    needs: Sequence[str]
    build: Sequence[Sequence[str]]
    command: Sequence[str]
    within: Path = HERE

    @property
    def sources(self) -> Path:
        return self.within / self.name

    @property
    def missing(self) -> list[str]:
        """The programs that are missing on this machine to build and run it."""
        return [each for each in self.needs if shutil.which(each) is None]

    @property
    def unfit(self) -> str:
        """The reason why it cannot be run; "" if it can."""
        if self.missing:
            return f"{self.name} needs {' and '.join(self.missing)}, which this machine does not have"
        if not self._stamp.exists():
            return f"{self.name} is not built: run 'make interop'"
        if self._stamp.read_text() != self._version():
            return f"{self.name} has changed since it was built: run 'make interop'"
        return ""

    def make(self) -> None:
        """Build it. Raises `CalledProcessError`."""
        BUILD.mkdir(parents=True, exist_ok=True)
        for command in self.build:
            subprocess.run(command, cwd=self.sources, check=True, stdin=subprocess.DEVNULL)
        self._stamp.write_text(self._version())

    @property
    def _stamp(self) -> Path:
        return BUILD / f"{self.name}.built"

    def _version(self) -> str:
        files = sorted(path for path in self.sources.rglob("*") if path.is_file())
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


_JAVA = BUILD / "kafka_streams"
GOKA = Program(
    "goka", ("go",), [("go", "build", "-o", str(BUILD / "shared-goka"), ".")], (str(BUILD / "shared-goka"),)
)
KAFKA_STREAMS = Program(
    "kafka_streams",
    ("java", "mvn"),
    [
        (
            "mvn", "-q", "-B", f"-Dout={_JAVA}",
            "compile", COPY_GOAL, f"-DoutputDirectory={_JAVA / 'dependency'}",
        )
    ],
    (
        "java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp", f"{_JAVA / 'classes'}:{_JAVA / 'dependency'}/*", "Shared",
    ),
)  # fmt: skip

_TOPOLOGY = BUILD / "topology"
TOPOLOGY = Program(
    "topology",
    ("java", "mvn"),
    [
        (
            "mvn", "-q", "-B", f"-Dout={_TOPOLOGY}",
            "compile", COPY_GOAL, f"-DoutputDirectory={_TOPOLOGY / 'dependency'}",
        )
    ],
    (
        "java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp", f"{_TOPOLOGY / 'classes'}:{_TOPOLOGY / 'dependency'}/*", "Programs",
    ),
    within=HERE.parent / "flows",
)  # fmt: skip


class Run:
    """Run a program; it is stopped at the end of the block.

    Args:
        program: The program to run.
        arguments: The arguments of the command.
        log: The file for its output.
    """

    def __init__(self, program: Program, arguments: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [*program.command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def printed(self) -> str:
        """All so far. Raises `AssertionError` if the program has ended."""
        text = self._log.read_text("utf-8", "replace")
        assert self._process.poll() is None, f"the program has ended by itself: {text[-4_000:]}"
        return text

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if error is not None:
            error.add_note(self._log.read_text("utf-8", "replace")[-4_000:])


def main(names: Sequence[str]) -> int:
    """Build what this machine can build: all, or the programs that are named. Returns 1 if a build has failed."""
    failed = 0
    for program in (GOKA, KAFKA_STREAMS, TOPOLOGY):
        if names and program.name not in names:
            continue
        if program.missing:
            print(f"{program.unfit}: its tests will be skipped")
            continue
        try:
            program.make()
        except subprocess.CalledProcessError as error:
            print(f"{program.name} could not be built: {error}", file=sys.stderr)
            failed = 1
        else:
            print(f"{program.name} is built")
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
