"""The command `streamtable-spark`: runs a job by its name, once or repeatedly.

    streamtable-spark etl --lake lake
    streamtable-spark every 600 etl --lake lake

With `every` each run is a process of its own, so that Spark's memory is free between them. Where STREAMTABLE_METRICS_ADDRESS
is set, it serves the metrics of all jobs that keep theirs in SPARK_JOB_METRICS_DIR, and is healthy as long as it answers.
"""

import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from streamtable import Settings, errors
from streamtable.observe import serve_metrics
from streamtable_spark.errors import ConfigurationError, SparkJobError
from streamtable_spark.jobs.metrics import MetricsFolder
from streamtable_spark.jobs.run_report import METRICS_VARIABLE

JOBS: Final = ("etl", "maintain", "backfill", "rebuild", "reconcile", "reach", "structured")
ADDRESS_VARIABLE: Final = "STREAMTABLE_METRICS_ADDRESS"
HOSTS_VARIABLE: Final = "SERVICEKIT_HOSTS"
USAGE: Final = f"""usage: streamtable-spark JOB ...
       streamtable-spark every SECONDS JOB ...

JOB is one of {", ".join(JOBS)}; `streamtable-spark JOB --help` tells its arguments.
`every` runs it again and again: SECONDS from start to start, or at once where a run took longer."""
STOP_S: Final = 30.0
_LOOK_S: Final = 0.1


def main() -> None:
    """Run the job that the command line names."""
    match sys.argv[1:]:
        case [("-h" | "--help"), *_]:
            print(USAGE)  # noqa: T201 - a command line
        case ["every", seconds, job, *rest] if job in JOBS:
            sys.exit(_every(seconds, job, rest))
        case [job, *rest] if job in JOBS:
            # The first process of a container is not ended by a signal that it does not know.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            sys.argv = [job, *rest]
            runpy.run_module(_module(job), run_name="__main__", alter_sys=True)
        case _:
            print(USAGE, file=sys.stderr)  # noqa: T201 - a command line
            sys.exit(ConfigurationError.status)


def _every(text: str, job: str, rest: Sequence[str]) -> int:
    # Not an Event: a handler that runs while the main thread holds an Event's lock would wait for itself.
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: received.append(number))
    try:
        seconds = seconds_of(text)
        with served(os.environ):
            command = [sys.executable, "-m", _module(job), *rest]
            repeat(command, seconds, lambda: bool(received))
    except SparkJobError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command line
        return error.status
    return 0


def seconds_of(text: str) -> float:
    """Parse the interval of `every`, in seconds. Raises `ConfigurationError` unless it is a whole number >= 1."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"every {text!r}: whole seconds are needed, at least 1")
    return float(text)


def repeat(command: Sequence[str], seconds: float, stopping: Callable[[], bool]) -> None:
    """Run a command repeatedly until `stopping` is true; it is then interrupted, and killed if that does not end it.

    Args:
        command: The command to run; its exit status is ignored.
        seconds: The interval from start to start.
        stopping: Called ten times a second; true ends the repetition.
    """
    while not stopping():
        began = time.monotonic()
        # Signals of a terminal go to this process alone, which passes them on.
        with subprocess.Popen(command, start_new_session=True) as run:  # noqa: S603 - a job of ours
            while run.poll() is None and not stopping():
                time.sleep(_LOOK_S)
            if run.poll() is None:
                run.send_signal(signal.SIGINT)
                try:
                    run.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    run.kill()
        while not stopping() and (left := began + seconds - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_S))


@contextmanager
def served(environ: Mapping[str, str]) -> Iterator[None]:
    """Serve the jobs' metrics within the block, if the environment sets an address.

    Raises:
        ConfigurationError: The address is invalid or in use, or no folder is named.
    """
    if ADDRESS_VARIABLE not in environ:
        yield
        return
    if METRICS_VARIABLE not in environ:
        raise ConfigurationError(
            f"{ADDRESS_VARIABLE} is set: name the folder of the metrics by {METRICS_VARIABLE}"
        )
    registry = CollectorRegistry()
    registry.register(MetricsFolder(Path(environ[METRICS_VARIABLE])))
    hosts = environ.get(HOSTS_VARIABLE, "").replace(" ", "").lower().split(",")
    with ExitStack() as stack:
        try:
            settings = Settings.from_environment({ADDRESS_VARIABLE: environ[ADDRESS_VARIABLE]})
            assert settings.metrics_address is not None, "it was given"
            stack.enter_context(serve_metrics(registry, settings.metrics_address, hosts))
        except (errors.ConfigurationError, OSError) as error:
            raise ConfigurationError(f"the metrics cannot be served: {error}") from error
        yield


def _module(job: str) -> str:
    return f"streamtable_spark.jobs.{job}"


if __name__ == "__main__":
    main()
