"""Fixtures of the fault tests: a broker with a short session timeout, temporary folders, and a summary of the tests."""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.costs import slowness
from tests.faults.arena import BROKER_SETTINGS, Arena
from tests.faults.aside import ArenaMaker, Body, body_of, needs_of

from localkafka.broker import Broker
from localkafka.fixtures import PATIENT
from localkafka.wire import WireProxy

SEED = int(os.environ.get("FAULTS_SEED", "20260"))
AT_ONCE = 8
"""The number of tests that run side by side, on a machine as fast as the one that the budgets are for."""
_SUMMARY = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of all random choices, which FAULTS_SEED overrides."""
    return SEED


@pytest.fixture(scope="session")
def fault_wire() -> Iterator[WireProxy]:
    """A proxy in front of the common broker that can lose, delay and cut requests."""
    with WireProxy() as wire:
        yield wire


@pytest.fixture(scope="session")
def fault_broker(fault_wire: WireProxy) -> Iterator[Broker]:
    """The common broker of fault tests that do not break the broker itself."""
    with tempfile.TemporaryDirectory(prefix="streamtable-faults-") as folder:
        settings = BROKER_SETTINGS | PATIENT  # eight tests at a time keep the machine busy
        broker = Broker(Path(folder), overrides=settings, brief=True, listeners=[fault_wire.listener])
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()
            broker.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="streamtable-faults-") as path:
        yield Path(path)


@contextmanager
def arenas(broker: Broker, folder: Path, seed: int) -> Iterator[ArenaMaker]:
    """Yield a function that makes an arena on the broker; arenas are removed at the end."""
    with ExitStack() as stack:

        def make(kind_of: Callable[..., Arena] = Arena, **settings: Any) -> Arena:
            settings = {"bootstrap_servers": broker.bootstrap_servers, "seed": seed, **settings}
            return stack.enter_context(kind_of(folder=folder, **settings))

        yield make


@pytest.fixture
def arena(fault_broker: Broker, folder: Path, seed: int) -> Iterator[ArenaMaker]:
    """A function that makes an arena on the common broker."""
    with arenas(fault_broker, folder, seed) as make:
        yield make


class Outcomes:
    """The results of the selected tests that run side by side, by node id; see `aside`."""

    def __init__(self, bodies: Mapping[str, Callable[[], str | None]], pool: ThreadPoolExecutor) -> None:
        self._running = {node: pool.submit(body) for node, body in bodies.items()}

    def result(self, node: str) -> str | None:
        """Wait for the test's run, and return or raise its outcome."""
        return self._running[node].result()

    def wait(self) -> None:
        wait(self._running.values())


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, fault_broker: Broker, fault_wire: WireProxy, seed: int
) -> Iterator[Outcomes]:
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    # The longest ones start first, so that none runs alone at the end.
    items.sort(key=_limit, reverse=True)

    one_at_a_time = threading.Lock()

    def run(body: Body, params: Mapping[str, object]) -> str | None:
        needs = needs_of(body)
        with ExitStack() as stack:
            if "wire" in needs:
                stack.enter_context(one_at_a_time)
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamtable-faults-")))
            make = stack.enter_context(arenas(fault_broker, path, seed))
            given = {"make": make, "folder": path, "seed": seed, "broker": fault_broker, "wire": fault_wire}
            return body(**{name: given[name] for name in needs}, **params)

    # On a slower machine fewer: the broker could not answer all of them within their limits.
    with ThreadPoolExecutor(max(2, round(AT_ONCE / slowness()))) as pool:
        bodies = {
            item.nodeid: partial(run, body, item.callspec.params if hasattr(item, "callspec") else {})
            for item in items
            if (body := body_of(item.function)) is not None
        }
        yield Outcomes(bodies, pool)
        pool.shutdown(cancel_futures=True)


def _limit(item: pytest.Function) -> float:
    """The timeout of a test in seconds; 0 if it has none of its own."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None else 0.0


@pytest.fixture
def quiet(outcomes: Outcomes) -> None:
    """Wait until no other test runs, for tests that measure time."""
    outcomes.wait()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that adds a line to the summary at the end of the session."""
    lines = request.config.stash.setdefault(_SUMMARY, [])
    return lambda line: lines.append(f"{request.node.name}: {line}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_mount: mounts a small file system, which only root may")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need root if we are not root, and report them."""
    unable = [item for item in items if os.geteuid() != 0 and item.get_closest_marker("needs_mount")]
    if unable:
        items[:] = [item for item in items if item not in unable]
        config.hook.pytest_deselected(items=unable)
        lines = config.stash.setdefault(_SUMMARY, [])
        lines += [f"{item.name}: left out, because only root can mount a small disk" for item in unable]


def pytest_report_header() -> str:
    return f"fault tests: FAULTS_SEED={SEED}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    lines = config.stash.get(_SUMMARY, [])
    if lines:
        terminalreporter.section(f"faults, seed {SEED}")
        for line in lines:
            terminalreporter.write_line(line)
