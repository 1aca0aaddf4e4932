"""The cost of a test run, compared with its budget: CPU seconds of each folder, and slow tests.

CPU seconds, because they are comparable on a shared machine; they include all started processes. A test's own time is
wall-clock time without the seconds in which work waited for a processor.

The wall-clock seconds of files are stored with the budgets: the longest files are given to the workers first. So are
slow tests without a server, which the fast form leaves out; see tests/fast.py.
"""

import json
import os
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any, Final

import pytest

from localkafka.waiting import stalled_seconds

LONG_SECONDS: Final = 20.0
"""A test above this wall-clock time is reported. It fails the run only above this many CPU seconds, as wall-clock times
of shared machines differ."""
LISTED_SECONDS: Final = 3.0
"""A file that takes longer is listed in `BUDGETS`."""
FAILS_FROM: Final = 2.0
"""A folder above its budget is reported. It fails the run above this multiple of its budget, on a slower machine above more."""
ROOM: Final = 1.25
"""The factor of written budgets over the used CPU time."""
WORKERS: Final = 5
"""The workers of `-n auto`: more than two processors need, since tests with servers wait half of their time."""
WORKERS_LEAST: Final = 3
"""The workers of `-n auto` on a slow machine, where tests wait less and servers would answer too late."""
REFERENCE_SECONDS: Final = 0.11
"""The CPU seconds of the program of `slowness` on the machine that the budgets are for."""
IMPORTS: Final = (
    "import asyncio, concurrent.futures, decimal, email.message, http.server, logging.config, multiprocessing.pool, pydoc, "
    "sqlite3, unittest.mock, xml.dom.minidom"
)
EXPENSIVE_SECONDS: Final = 0.2
"""A test that takes longer is listed in `BUDGETS`, in CPU time or, if it waits, in wall-clock time."""
BUDGETS: Final = Path(__file__).with_name("budgets.toml")
_PROCESSES: Final = Path("/proc")
_EXEMPT: Final = ("slow", "faults", "faults_long", "stack")
ELSEWHERE: Final = ("broker", "server", *_EXEMPT)
"""The markers of tests that `make test-fast` leaves out."""


def folder_of(nodeid: str) -> str:
    """Return the first two folders of a test, which have a budget."""
    return "/".join(PurePosixPath(nodeid.partition("::")[0]).parts[:-1][:2])


def slowness() -> float:
    """Return how many times slower than the machine of the budgets this one is, at least 1: CPU seconds differ as much.

    It starts Python with some of its own modules three times. A loop alone would miss what a virtual machine's memory costs.
    """
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-I", "-S", "-c", IMPORTS], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return max(1.0, median(spent) / REFERENCE_SECONDS)


@pytest.hookimpl(optionalhook=True)  # of xdist, which may be switched off
def pytest_xdist_auto_num_workers() -> int:
    """Return fewer workers on a slower machine: each has servers, and all of them share the processors."""
    return max(WORKERS_LEAST, round(WORKERS / slowness()))


def processor_seconds(root: int, processes: Path = _PROCESSES) -> float:
    """Return the CPU seconds of a process, its descendants and their ended children; 0.0 if unknown."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for path in processes.glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended since
            continue
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15]))
    found, left = 0, [root]
    while left:
        pid = left.pop()
        found += used.get(pid, 0)
        left += children.get(pid, [])
    return found / os.sysconf("SC_CLK_TCK")


def over_budget(spent: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """Return a line for each folder above its budget."""
    return [
        f"{folder}: {seconds:.0f} processor seconds, and its budget is {budgets[folder]:.0f}"
        for folder, seconds in sorted(spent.items())
        if seconds > budgets.get(folder, float("inf"))
    ]


class Costs:
    """Counts the cost in each process that runs tests; with xdist, the main process adds up the workers' counts.

    Attributes:
        spent: CPU seconds by folder.
        long: Tests that took longer than `LONG_SECONDS` without a reason.
        too_long: Those of them that used this many CPU seconds, including the processes that they waited for, and how many.
        seconds: The wall-clock seconds of each file.
        expensive: The seconds of tests that took longer than `EXPENSIVE_SECONDS`.
        whole: The CPU seconds of the run with all its processes, including collection.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.spent: dict[str, float] = {}
        self.long: list[str] = []
        self.too_long: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        self.expensive: dict[str, float] = {}
        self.whole = 0.0
        self._config = config
        self._fast = bool(config.getoption("--fast", default=False))
        written = tomllib.loads(BUDGETS.read_text())
        # The fast form has one budget: those of folders are for all their tests.
        self._budgets: Mapping[str, float] = {} if self._fast else written["processor-seconds"]
        self._whole_budget = float(written["fast"]["processor-seconds"]) if self._fast else float("inf")
        self._folder = ""
        self._used = processor_seconds(os.getpid())
        self._began = time.monotonic()
        asked = config.getoption("--hold") or config.getoption("--write-budgets")
        self._holds = bool(asked) and not hasattr(config, "workerinput")
        self._slow = slowness() if self._holds else 1.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        began, stalled, used = time.monotonic(), stalled_seconds(), sum(os.times()[:4])
        try:
            return (yield)
        finally:
            own = time.monotonic() - began - (stalled_seconds() - stalled)
            used = sum(os.times()[:4]) - used
            if max(own, used) > EXPENSIVE_SECONDS and not any(map(item.get_closest_marker, ELSEWHERE)):
                self.expensive[item.nodeid] = round(max(own, used), 2)
            if own > LONG_SECONDS and not any(map(item.get_closest_marker, _EXEMPT)):
                self.long.append(f"{item.nodeid}: {own:.0f} s, {used:.0f} processor seconds")
                self.too_long |= {item.nodeid: used} if used > LONG_SECONDS else {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self.seconds[file] = self.seconds.get(file, 0.0) + report.duration

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if not hasattr(self._config, "workerinput") and self._config.getoption("numprocesses", default=None):
            return  # a worker's report
        if (folder := folder_of(nodeid)) != self._folder:
            self._count()
            self._folder = folder

    def _count(self) -> None:
        used = processor_seconds(os.getpid())
        if self._folder:
            # It may decrease when a program ends that another one had started.
            self._add({self._folder: max(0.0, used - self._used)})
        self._used = used

    def _add(self, spent: Mapping[str, float]) -> None:
        for folder, seconds in spent.items():
            self.spent[folder] = self.spent.get(folder, 0.0) + seconds

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        none: dict[str, Any] = {"spent": {}, "long": [], "too_long": {}, "expensive": {}}
        costs = getattr(node, "workeroutput", {}).get("costs", none)
        self._add(costs["spent"])
        self.expensive.update(costs["expensive"])
        self.long += costs["long"]
        self.too_long |= costs["too_long"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._count()
        if hasattr(self._config, "workeroutput"):
            costs = {
                "spent": dict(self.spent), "long": self.long, "too_long": self.too_long, "expensive": self.expensive,
            }  # fmt: skip
            self._config.workeroutput["costs"] = costs
            return
        self.whole = processor_seconds(os.getpid())
        if self._holds:
            self._slow = max(self._slow, slowness())  # it may differ from minute to minute
        self.too_long = {
            test: used for test, used in self.too_long.items() if used > LONG_SECONDS * self._slow
        }
        if self._config.getoption("--write-budgets"):
            self._write()
        times = FAILS_FROM * self._slow
        allowed = {folder: times * seconds for folder, seconds in self._budgets.items()}
        over = [*over_budget(self.spent, allowed), *self.too_long]
        over += ["the fast form"] if self.whole > times * self._whole_budget else []
        if self._config.getoption("--hold") and over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write(self) -> None:
        comments = [line for line in BUDGETS.read_text().splitlines() if line.startswith("#")]
        sections = tomllib.loads(BUDGETS.read_text())
        if self._fast:  # folders have not run all of their tests
            sections["fast"] = {"processor-seconds": round(ROOM * self.whole / self._slow)}
        else:
            asked = {folder: round(ROOM * used / self._slow + 5) for folder, used in self.spent.items()}
            sections["processor-seconds"] = dict(sorted({**self._budgets, **asked}.items()))
            longest = sorted(self.seconds.items(), key=lambda each: -each[1])
            sections["clock-seconds"] = {file: round(took) for file, took in longest if took > LISTED_SECONDS}
            others = {
                test: took
                for test, took in sections["seconds-of-tests"].items()
                if test.partition("::")[0] not in self.seconds
            }
            sections["seconds-of-tests"] = dict(sorted({**others, **self.expensive}.items()))
        for name, entries in sections.items():
            # JSON strings are valid TOML strings.
            comments += [f"[{name}]", *(f"{json.dumps(key)} = {value}" for key, value in entries.items()), ""]
        BUDGETS.write_text("\n".join(comments))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._config.getoption("--hold"):
            return
        terminalreporter.section("processor seconds")
        for folder, seconds in sorted(self.spent.items(), key=lambda each: -each[1]):
            budget = self._budgets.get(folder)
            of = f" of {budget:.0f}" if budget else ""
            terminalreporter.write_line(f"{seconds:8.1f}{of:8} {folder}")
        elapsed, budget = time.monotonic() - self._began, self._config.getoption("--hold")
        over = elapsed > budget
        terminalreporter.write_line(
            f"{sum(self.spent.values()):8.1f}         all, in {elapsed:.0f} of {budget:.0f} s of the clock"
            f"{' OVER BUDGET' if over else ''}; this machine is {self._slow:.1f} times slower than the budgets'",
            yellow=over,
        )
        if self._fast:
            of = f"{self.whole:8.1f} of {self._whole_budget:.0f} with the workers, which collect all tests"
            terminalreporter.write_line(of, red=self.whole > self._whole_budget)
        for line in over_budget(self.spent, self._budgets):
            terminalreporter.write_line(f"over budget: {line}", red=True)
        for line in self.long:
            red = line.partition(": ")[0] in self.too_long
            terminalreporter.write_line(
                f"long, and without @pytest.mark.slow('why'): {line}", red=red, yellow=not red
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-budgets",
        action="store_true",
        help="write the used CPU seconds, plus a quarter, to tests/budgets.toml",
    )
    parser.addoption(
        "--hold",
        type=float,
        metavar="SECONDS",
        help="print what folders and tests cost, and whether all took longer; fail above twice tests/budgets.toml, and for a test "
        "that takes long without a reason",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(config), "costs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Reject a marker `slow` without a reason.

    Raises:
        UsageError: The message names the test.
    """
    for item in items:
        for marker in item.iter_markers("slow"):
            if len(marker.args) != 1 or not str(marker.args[0]).strip():
                raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.slow needs its reason")
