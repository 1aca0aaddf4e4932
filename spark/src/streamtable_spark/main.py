"""The command `streamtable-spark`: a job by its name, once or again and again.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server

from streamtable.hosts import OwnHosts, host_name
from streamtable_spark.errors import ConfigurationError, SparkJobError
from streamtable_spark.jobs.metrics import MetricsFolder
from streamtable_spark.jobs.run_report import METRICS_VARIABLE

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

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
    """Run what the command line says."""
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
            repeat(command, seconds, lambda: bool(received), time.monotonic)
    except SparkJobError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command line
        return error.status
    return 0


def seconds_of(text: str) -> float:
    """From an argument. Raises `ConfigurationError`."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"every {text!r}: whole seconds are needed, at least 1")
    return float(text)


def repeat(
    command: Sequence[str], seconds: float, stopping: Callable[[], bool], clock: Callable[[], float]
) -> None:
    """Run a command repeatedly until `stopping` is true; it is then interrupted, and killed if that does not end it.

    Args:
        command: The command to run; its exit status is ignored.
        seconds: The interval from start to start.
        stopping: Asked ten times a second.
        clock: A monotonic clock in seconds.
    """
    while not stopping():
        began = clock()
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
        while not stopping() and (left := began + seconds - clock()) > 0:
            time.sleep(min(left, _LOOK_S))


@contextmanager
def served(environ: Mapping[str, str]) -> Iterator[None]:
    """Serve the jobs' metrics within the block, if the environment says where.

    Raises:
        ConfigurationError: The address is invalid or in use, or no folder is named.
    """
    address = environ.get(ADDRESS_VARIABLE)
    if address is None:
        yield
        return
    folder = environ.get(METRICS_VARIABLE)
    if folder is None:
        raise ConfigurationError(
            f"{ADDRESS_VARIABLE} is set: name the folder of the metrics by {METRICS_VARIABLE}"
        )
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(MetricsFolder(Path(folder)))
    hosts = OwnHosts(frozenset([host, *environ.get(HOSTS_VARIABLE, "").replace(" ", "").lower().split(",")]))
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
        server.set_app(_only_for(hosts, make_wsgi_app(registry)))
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigurationError(f"{ADDRESS_VARIABLE}={address!r} cannot be served: {error}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _only_for(hosts: OwnHosts, page: "WSGIApplication") -> "WSGIApplication":
    """Refuse requests under foreign names: a page of another site makes them by DNS rebinding."""

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        host = environ.get("HTTP_HOST")
        # Unlike a name, no other site can have an address resolved to this machine: each counts as its own.
        if hosts.include(host, host and host_name(host)):
            return page(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [f"The server does not answer to this host name: list it in {HOSTS_VARIABLE}.\n".encode()]

    return answer


def _module(job: str) -> str:
    return f"streamtable_spark.jobs.{job}"


if __name__ == "__main__":
    main()
