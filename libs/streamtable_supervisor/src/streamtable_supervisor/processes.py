"""One program in several processes of this machine, for `App.run(processes=)` and `streamtable run --processes`.

The other modules of this package know nothing of the library; this one stands on it, and `App.run` loads it when it is needed.
"""

import importlib
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from multiprocessing import current_process, spawn
from pathlib import Path
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry, generate_latest

from streamtable import App, Group
from streamtable.app import ProcessorOptions
from streamtable.base.hosts import OwnHosts
from streamtable.base.settings import PREFIX, Address, address_in
from streamtable.errors import ConfigurationError, RetryLater, StreamtableError
from streamtable.graph.group import Topology, groups_in
from streamtable.observe import Metrics
from streamtable_supervisor.children import (
    CONFIGURATION,
    Children,
    Supervised,
    inherited,
    stop_with_supervisor,
)
from streamtable_supervisor.pages import listening, serving

PROCESSES_MAX: Final = 1_000
STOP_SECONDS: Final = 35.0
"""From SIGTERM to SIGKILL: somewhat more than the last commit and leaving the group may take."""
_NAME: Final = "streamtable-process"
_CHILD: Final = "from streamtable_supervisor.processes import child; child()"
Processes = int | Literal["auto"]


def number_of_processes(asked: Processes, partitions: Callable[[], int], say: Callable[[str], object]) -> int:
    """Return the number of processes: at most one for each partition of the inputs, and say if fewer were asked for.

    While Kafka is away the partitions are not known: then as many as were asked for, which wait for it.

    Args:
        asked: The number; `auto`: one for each core that this process may use.
        partitions: Returns the number of partitions; asked for only if there is more than one process.
        say: Shows a line.

    Raises:
        ConfigurationError: It is not a number from 1 to 1000.
    """
    if asked != "auto" and not (type(asked) is int and 1 <= asked <= PROCESSES_MAX):
        raise ConfigurationError(
            f"processes={asked!r}: expected a number from 1 to {PROCESSES_MAX}, or 'auto'"
        )
    number = _cores() if asked == "auto" else asked
    try:
        most = max(partitions(), 1) if number > 1 else 1
    except RetryLater as error:
        say(f"{number} processes are started, also if the inputs have fewer partitions: {error}")
        return number
    if asked != "auto" and most < number:
        say(f"{most} processes are started instead of {number}: the inputs have {most} partitions")
    return min(number, most)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@dataclass(frozen=True)
class Fleet:
    """Several processes of one program, with the settings that they share and the numbers that tell them apart.

    Attributes:
        command: The program and its arguments; the descriptor of a listening socket is added.
        instance_id: The instance id, to which each process adds its number.
        state_dir: The folder in which each process has one, named after its number.
        address: The address of the pages for all: `/metrics` with the label `process`, `/livez`, `/readyz`.
        environment: Further variables.
        stop_seconds: The time from SIGTERM to SIGKILL.
        sends: What each process reads first from its standard input.
    """

    command: Sequence[str]
    instance_id: str
    state_dir: Path
    address: Address | None
    environment: Mapping[str, str]
    stop_seconds: float = STOP_SECONDS
    sends: bytes = b""

    def run(
        self, number: int, say: Callable[[str], object], changed: Callable[[], bool] | None = None
    ) -> int:
        """Run until a signal stops all in order, or all have finished. Returns the exit code: 0, 1 or 2.

        Args:
            number: The number of processes.
            say: Shows a line of their logs, or about them.
            changed: Whether the program has changed since the last call, so that all are started again.

        Raises:
            ConfigurationError: The address cannot be used, or the system is Windows.
        """
        if sys.platform == "win32":
            raise ConfigurationError(
                "several processes of one program need Linux or macOS: start each by itself"
            )
        with ExitStack() as stack:
            own = pages_at(self.address) if self.address else None
            children = [
                Supervised(each, self.command, self._environment(each), say, self.sends)
                for each in range(1, number + 1)
            ]
            all_of_them = Children(children, self.stop_seconds, say, changed)
            if own is not None:
                stack.enter_context(served(own, all_of_them.metrics, all_of_them.not_ready))
            return all_of_them.run()

    def _environment(self, number: int) -> dict[str, str]:
        without = {name: text for name, text in os.environ.items() if name != f"{PREFIX}METRICS_ADDRESS"}
        own = {"INSTANCE_ID": f"{self.instance_id}-{number}", "STATE_DIR": str(self.state_dir / str(number))}
        chosen = {f"{PREFIX}{name}": text for name, text in own.items()}
        return {**without, **self.environment, **chosen, "PYTHONUNBUFFERED": "1"}


def pages_at(address: Address) -> socket.socket:
    """Return a listening socket. Raises `ConfigurationError` if the address cannot be used."""
    try:
        return listening(*address)
    except OSError as error:
        raise ConfigurationError(
            f"{PREFIX}METRICS_ADDRESS: {address} cannot be used: {error.strerror}"
        ) from error


@contextmanager
def served(own: socket.socket, metrics: Callable[[], bytes], not_ready: Callable[[], str]) -> Iterator[None]:
    """Serve the pages in the block, to requests that name this host."""
    hosts = OwnHosts(frozenset({str(own.getsockname()[0])}))
    with serving(own, metrics, not_ready, hosts.include):
        yield


def run_in_processes(
    app: App, program: Group[Any, Any] | Topology, asked: Processes, options: ProcessorOptions
) -> None:
    """Run a group or a flow in several processes, which import the main module and find App and program by their names.

    If one process is enough, it is this one.

    Raises:
        ConfigurationError: They have no names there, the main module lacks its guard, or the settings of a process are wrong.
        StreamtableError: A process had to be killed.
    """
    if current_process().name == _NAME:
        raise ConfigurationError(
            "app.run(processes=) is called again while one of its processes imports the program: call it below "
            'if __name__ == "__main__":'
        )
    number = number_of_processes(asked, lambda: _partitions(app, program), say)
    if number == 1:
        app.run(program, **options)
        return
    preparation = spawn.get_preparation_data(_NAME)
    for name in ("authkey", "start_method"):  # they are of multiprocessing's own processes
        preparation.pop(name)
    places = _place(app, "the App"), _place(program, "the group or flow")
    try:
        sends = pickle.dumps((preparation, places, dict(options)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"an option of app.run(processes=) cannot be sent to another process ({error}): give it to App(options=)"
        ) from error
    given = options.get("instance_id") or app.options.get("instance_id")
    instance_id = given or os.environ.get(f"{PREFIX}INSTANCE_ID") or socket.gethostname()
    fleet = Fleet([sys.executable, "-c", _CHILD], instance_id, app.state_dir, _address(), {}, sends=sends)
    code = fleet.run(number, say)
    if code == CONFIGURATION:
        raise ConfigurationError(
            "a process of app.run(processes=) has ended with exit code 2: its log says why"
        )
    if code:
        raise StreamtableError("a process of app.run(processes=) has not stopped in order: its log says why")


def _partitions(app: App, program: Group[Any, Any] | Topology) -> int:
    """Return the largest number of partitions of the inputs; without topics no limit, since each process will say so."""
    with closing(app.kafka.cluster()) as cluster:
        names = dict.fromkeys(name for group in groups_in([program]) for name in group.input_topics)
        topics = cluster.topics(names)
        return max((topic.partitions for topic in topics.values()), default=PROCESSES_MAX)


def _address() -> Address | None:
    text = os.environ.get(f"{PREFIX}METRICS_ADDRESS")
    try:
        return address_in(text) if text else None
    except ValueError as error:
        raise ConfigurationError(f"{PREFIX}METRICS_ADDRESS={text!r}: expected {error}") from error


def say(line: str) -> None:
    """Show a line on standard error."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the logs of other processes


def _place(value: object, what: str) -> tuple[str, str]:
    """Return the module and the name of an object. Raises `ConfigurationError` if it has none."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    # Another process imports neither typed lines nor the __main__.py of a package.
    unknown = not hasattr(main, "__file__") or (spec is not None and spec.name.endswith("__main__"))
    others = [module for module in list(sys.modules.values()) if module is not main]
    for module in others if unknown else [main, *others]:
        for name, found in list(getattr(module, "__dict__", {}).items()):
            if found is value:
                return str(module.__name__), name
    raise ConfigurationError(
        f"app.run(processes=): {what} has no name by which other processes could find it: assign it at the top level of a module, "
        'outside of functions and of if __name__ == "__main__":'
    )


def child() -> None:
    """Run one of the processes of `App.run(processes=)`. Exits with 2 if its settings are wrong."""
    pages = inherited(int(sys.argv[-1]))
    preparation, places, options = pickle.load(sys.stdin.buffer)  # noqa: S301 - its supervisor has written it
    stop_with_supervisor()
    try:
        spawn.prepare(preparation)
        app, program = (_at(module, name) for module, name in places)
        _run_child(app, program, options, pages)
    except ConfigurationError as error:
        say(f"error: {error}")
        sys.exit(CONFIGURATION)


def _at(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise ConfigurationError(
            f"app.run(processes=): {name!r} is not there when another process imports the program: assign it at the top level, above "
            'if __name__ == "__main__":'
        ) from error


def _run_child(
    app: App, program: Group[Any, Any] | Topology, options: ProcessorOptions, pages: socket.socket
) -> None:
    registry = CollectorRegistry()
    app.state_dir = Path(os.environ[f"{PREFIX}STATE_DIR"])
    app.metrics = Metrics.register(registry)
    options["instance_id"] = os.environ[f"{PREFIX}INSTANCE_ID"]
    processors = [app.processor(group, **options) for group in groups_in([program])]

    def not_ready() -> str:
        return "; ".join(filter(None, (each.not_ready for each in processors)))

    with served(pages, lambda: generate_latest(registry), not_ready):
        app.run_all(processors)
