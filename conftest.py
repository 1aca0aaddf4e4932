"""For the tests of all rooms."""

import logging
import signal
import tomllib
from collections.abc import Generator, Iterator
from functools import cache
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from httpx._transports import default as httpx_transports
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from localkafka.waiting import slowdown

# How long an example takes says something about the machine, not about the code.
settings.register_profile("streamtable", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("streamtable")

pytest_plugins = [
    "localkafka.fixtures",
    "servicekit_testing.fixtures",
    "tests.costs",
    "tests.crashes",
    "tests.fast",
]

REQUEST_SECONDS = 60.0
_ROOT = Path(__file__).parent
_WITHOUT_SPARK = find_spec("pyspark") is None
collect_ignore = ["spark/tests", "tests/stack/test_spark.py"] if _WITHOUT_SPARK else []
_WITH_SERVERS = ("services", "spark", "libs/servicekit", "tests/docs", "tests/hostile", "tests/system")
_BUDGETS = _ROOT / "tests/budgets.toml"
_TOGETHER = ("spark/", "libs/microbatch/tests/stores/", "libs/streamtable_sinks/tests/postgres/")


@pytest.fixture(autouse=True, scope="module")
def own_logging() -> Iterator[None]:
    """Take back how a command that ran in this process has set up logging: the next file's tests look at logs.

    Tracebacks are plain, as the library's are. structlog's own show local variables, and take seconds on a busy machine.
    """
    for processor in structlog.get_config()["processors"]:
        if isinstance(processor, structlog.dev.ConsoleRenderer):
            processor.exception_formatter = structlog.dev.plain_traceback
    yield
    structlog.reset_defaults()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Take back after each test the handlers that a command in this process has given to the root logger.

    They write to the stream that the command had, which is closed by then. Each line of a library's thread, such as one of a
    store's driver, would print a traceback: "I/O operation on closed file".
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return (yield)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def pytest_report_header() -> list[str]:
    """Say what is left out."""
    return (
        ["Spark's tests are left out, since PySpark is not installed; make setup SPARK=1"]
        if _WITHOUT_SPARK
        else []
    )


def pytest_configure() -> None:
    """Let Ctrl-C and hangups end the programs that tests start, also in a session in the background or under nohup.

    Such a session ignores them, and so would the programs that it starts. And let requests that name no time-out wait as long as
    other waits of tests: five seconds, which is httpx's own, says something about the machine. And let a process read the
    certificates of all authorities once: each of httpx's clients, also one for a single request without TLS, reads them again.
    """
    waits = signature(httpx.get).parameters["timeout"].default  # one for all functions and clients
    waits.connect = waits.read = waits.write = waits.pool = REQUEST_SECONDS
    httpx_transports.create_ssl_context = cache(httpx_transports.create_ssl_context)  # type: ignore[attr-defined] # its own name
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)  # a handler does not outlive exec, as SIG_IGN does


@pytest.hookimpl(trylast=True)  # when fixtures and folders have given their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let workers run files that take long first, and leave tests more time where the machine is busy when the run begins.

    With several workers, the many quick ones then fill what is left at the end, instead of all waiting for one worker
    with the last long one.
    """
    if hasattr(config, "workerinput"):
        longest_first(items)
    if (times := slowdown()) > 1 and config.pluginmanager.hasplugin("timeout"):
        usual = float(config.getoption("timeout", default=None) or config.getini("timeout"))
        for item in items:
            marker = item.get_closest_marker("timeout")
            item.add_marker(pytest.mark.timeout(times * (marker.args[0] if marker else usual)), append=False)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort the files by the seconds of the clock that tests/budgets.toml has of them; those not listed come last.

    What a worker gets as a whole counts as a whole. Among those that are not listed, tests with servers come first.
    """
    seconds: dict[str, float] = {}
    for file, took in tomllib.loads(_BUDGETS.read_text())["clock-seconds"].items():
        seconds[scope_of(file)] = seconds.get(scope_of(file), 0.0) + took
    ranks: dict[str, float] = {}
    for item in items:
        place = item.path.relative_to(_ROOT).as_posix()
        marked = item.get_closest_marker("broker") or item.get_closest_marker("faults")
        others = 0.0 if marked is not None or place.startswith(_WITH_SERVERS) else 1.0
        rank = -seconds.get(scope_of(place), 0.0) or others
        ranks[scope_of(place)] = min(rank, ranks.get(scope_of(place), rank))
    items.sort(key=lambda item: ranks[scope_of(item.path.relative_to(_ROOT).as_posix())])


def scope_of(file: str) -> str:
    """What is given to a worker as a whole: a file, or a folder with expensive servers, which each worker would start."""
    return next((folder for folder in _TOGETHER if file.startswith(folder)), file)


class Together(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Workers get what `scope_of` names."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(str(super()._split_scope(nodeid)))

    def mark_test_complete(
        self,
        node: Any,
        item_index: int,
        duration: float = 0,  # noqa: ARG002 - xdist gives it by name
    ) -> None:
        """As xdist does, but forget what is done: it counts all that a worker has ever had, after each of 7,000 tests."""
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        files = self.assigned_work[node]
        files[scope][nodeid] = True
        if all(files[scope].values()):
            del files[scope]
        self._reschedule(node)


@pytest.hookimpl(optionalhook=True)  # of xdist, which may be switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    if config.getoption("dist") != "loadfile":
        return None
    return Together(config, log)
