"""`streamtable run`: a group, a flow or a program of the user, in one process or several."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, generate_latest

from streamtable import App
from streamtable.base.settings import Settings
from streamtable.errors import ConfigurationError
from streamtable.observe import Metrics, configure_logging
from streamtable_cli.modules import Program, load_program
from streamtable_cli.output import note
from streamtable_cli.session import CommandSession, session_of
from streamtable_supervisor.children import inherited, stop_with_supervisor
from streamtable_supervisor.processes import PROCESSES_MAX, Fleet, number_of_processes, pages_at, served

_STOP_MORE_SECONDS = 5.0
EXIT_CODES = (
    "Exit codes: 0 stopped by a signal, or all processes have finished; 1 Kafka failed, or a process had to be killed; 2 wrong "
    "usage or settings, also of one of several processes; 75 no progress for STREAMTABLE_STALL_EXIT seconds. Of several "
    "processes, one that ends with 0 has finished and is not started again; one that ends with anything but 0 and 2 is."
)


def run(
    ctx: typer.Context,
    spec: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="A group, a flow, a list of them, or a function without arguments that runs an App.",
        ),
    ],
    *,
    processes: Annotated[
        str,
        typer.Option(
            metavar="N|auto", help="Processes; auto: one for each core, at most one for each partition."
        ),
    ] = "1",
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again when a source file changes; for development.")
    ] = False,
    pages: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a group, a flow or a program until SIGTERM or Ctrl-C, in one process or several.

    Each of several processes has its own instance id and state folder, and is started again when it dies. All share
    STREAMTABLE_METRICS_ADDRESS: /metrics with the label process, /livez, and /readyz when all are ready.

    With --reload no exit code of a process ends the command: after 0 and 2 a process waits for the next change of a source file, and
    after any other code it is started again.
    """
    signal.set_wakeup_fd(-1)  # Ctrl-C stops in order here, and not within a second
    session = session_of(ctx)
    os.environ.update(session.flags)  # a program reads its settings there, and so do children
    settings = session.settings
    if pages is not None:
        stop_with_supervisor()
    configure_logging(settings.log_format, settings.log_level, sys.stderr)
    program = load_program(spec)
    number = 1 if pages is not None else _count(session, program, processes)
    if number > 1 or reload:
        raise typer.Exit(_supervise(settings, spec, number, _changes(spec) if reload else None))
    _run_here(settings, program, pages)


def _run_here(settings: Settings, program: Program, pages: int | None) -> None:
    """Run in this process, with its pages at a socket that its supervisor made, or at the address of the settings."""
    registry = CollectorRegistry()
    processors = []
    if not callable(program):
        app = App.from_settings(settings, metrics=Metrics.register(registry))
        processors = [app.processor(group) for group in program]

    def not_ready() -> str:
        return "; ".join(filter(None, (each.not_ready for each in processors)))

    with ExitStack() as stack:
        if pages is not None or settings.metrics_address is not None:
            own = inherited(pages) if pages is not None else pages_at(settings.metrics_address)  # type: ignore[arg-type]
            stack.enter_context(served(own, lambda: generate_latest(registry), not_ready))
        if callable(program):
            program()
        else:
            App.run_all(processors)


def _supervise(settings: Settings, spec: str, number: int, changed: Callable[[], bool] | None) -> int:
    command = [sys.executable, "-m", "streamtable_cli", "run", spec, "--pages"]
    log_format = settings.log_format or ("console" if sys.stderr.isatty() else "json")
    fleet = Fleet(
        command,
        settings.instance_id,
        settings.state_dir,
        settings.metrics_address,
        {"STREAMTABLE_LOG_FORMAT": log_format},
        settings.shutdown_timeout + _STOP_MORE_SECONDS,
    )
    return fleet.run(number, note, changed)


def _count(session: CommandSession, program: Program, processes: str) -> int:
    if processes != "auto" and not (processes.isdecimal() and 1 <= int(processes) <= PROCESSES_MAX):
        raise typer.BadParameter(
            f"{processes!r}: expected a number from 1 to {PROCESSES_MAX}, or auto", param_hint="--processes"
        )
    return number_of_processes(
        "auto" if processes == "auto" else int(processes), lambda: _partitions(session, program), note
    )


def _partitions(session: CommandSession, groups: Program) -> int:
    if callable(groups):
        return PROCESSES_MAX  # it is not known what it reads
    with session.cluster() as cluster:
        topics = dict.fromkeys(topic for group in groups for topic in group.input_topics)
        return max(len(cluster.partitions(topic)) for topic in topics)


def _changes(spec: str) -> Callable[[], bool]:
    """Return a function that says whether a source file below the module's folder has changed since its last call."""
    file = getattr(sys.modules[spec.partition(":")[0]], "__file__", None)
    if file is None:
        raise ConfigurationError(f"{spec!r}: its module has no file, so --reload has nothing to watch")
    folder = Path(file).parent

    def look() -> dict[Path, int]:
        found = {}
        for path in folder.rglob("*.py"):
            try:
                found[path] = path.stat().st_mtime_ns
            except OSError:  # deleted meanwhile
                continue
        return found

    seen = look()

    def changed() -> bool:
        nonlocal seen
        before, seen = seen, look()
        return seen != before

    return changed
