"""The cost of a Spark job: at each of its steps the time, and the CPU seconds so far of the job's processes by kind of thread."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench.family import processes, together
from bench.programs.marks import tell

TICK = os.sysconf("SC_CLK_TCK")
KINDS = {
    "Executor task l": "tasks",
    "C1 CompilerThre": "compilers",
    "C2 CompilerThre": "compilers",
    "VM Thread": "collector",
}
"""The kinds of Java's threads, by the names that Linux shows. Java's serial collector works in the VM's own thread."""
REST = "rest"
"""All other threads and processes: planning and commits, Kafka's clients, Python."""


class Steps:
    """Prints a result at each step of this process's job: `step`, `time` in seconds since 1970, and `cpu`, CPU seconds by kind.

    A thread that has ended keeps what it had when it was last seen.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}

    def reached(self, step: str) -> None:
        """Print the time and the CPU seconds so far."""
        family = together(os.getpid(), processes())
        tell({"step": step, "time": time.time(), "cpu": self.by_kind(family.cpu, threads_of(os.getpid()))})

    def by_kind(self, whole: float, threads: Iterable[Path]) -> Mapping[str, float]:
        """Return the CPU seconds of each kind of thread so far.

        Args:
            whole: The CPU seconds of all of the job's processes.
            threads: The folders of the threads of its Java.
        """
        for folder in threads:
            try:
                head, _, rest = (folder / "stat").read_text().rpartition(")")
            except OSError:
                continue  # ended meanwhile
            name, words = head.partition("(")[2], rest.split()
            self._seen[folder.parent.parent.name, folder.name] = (
                name,
                (int(words[11]) + int(words[12])) / TICK,
            )
        found: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self._seen.values():
            if name in KINDS:
                found[KINDS[name]] += seconds
        return {**{kind: found[kind] for kind in KINDS.values()}, REST: whole - sum(found.values())}


def threads_of(pid: int) -> list[Path]:
    """Return the folders of the threads of this process's children: Spark's Java."""
    known = processes()
    children = [each for each, share in known.items() if share.parent == pid]
    return [thread for child in children for thread in Path(f"/proc/{child}/task").glob("*")]
