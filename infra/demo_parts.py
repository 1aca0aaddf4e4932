"""The common parts of the demo's scenarios: processes, and waiting for responses."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from localkafka.waiting import Deadline

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
STOP_SECONDS = 20.0
say = Console(highlight=False).print


class DemoFailed(Exception):
    """The demo failed; the message names the failure and the logs."""


@dataclass
class Service:
    """A process of the demo: a command such as `click-count view`, or `streamtable-console` alone."""

    command: str
    process: subprocess.Popen[bytes]
    log: Path

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise DemoFailed(f"{self.command} ended with {self.process.returncode}:\n{tail}")


OTHER_PORTS = range(18_100, 32_000, 2)
"""Ports that are tried where the preferred one is taken."""
OUTGOING_PORTS = 32_768
"""From here on the system takes ports for outgoing connections: one of those may hold a port that was free a moment ago."""


def free_port(preferred: int, count: int = 1, taken: Container[int] = ()) -> int:
    """Return the first of some consecutive free ports: from the preferred one on if they are free, else others.

    Args:
        preferred: The port to try first; 0, or one of `OUTGOING_PORTS`: none is preferred.
        count: How many ports are needed, such as one for each worker of a processor.
        taken: Ports that others are going to use.
    """
    ports: Sequence[int] = [preferred, *OTHER_PORTS] if 0 < preferred < OUTGOING_PORTS else OTHER_PORTS
    for port in ports:
        if all(each not in taken and _bindable(each) for each in range(port, port + count)):
            return port
    raise DemoFailed("there is no free port")


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextmanager
def services_of(
    commands: Mapping[str, Mapping[str, str]], environment: Mapping[str, str], folder: Path
) -> Iterator[list[Service]]:
    """Run services side by side; at the end stop all of them, and kill those that do not stop.

    Args:
        commands: The commands, each with its additions to the environment.
        environment: The common environment.
        folder: The folder of their logs and state.
    """
    started: list[Service] = []
    try:
        for command, own in commands.items():
            started.append(_started(command, {**environment, **own}, folder))
        yield started
    finally:
        for each in started:
            each.process.send_signal(signal.SIGTERM)
        for each in started:
            _wait_ended(each)


def _started(command: str, environment: Mapping[str, str], folder: Path) -> Service:
    program, *role = command.split()
    name = command.replace(" ", "-")
    own = {
        "STREAMTABLE_INSTANCE_ID": "-".join(["demo", *role]),
        "STREAMTABLE_STATE_DIR": str(folder / "state" / name),
    }
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [BIN / program, *role],
            env={**os.environ, **environment, **own},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this program, which stops the services in their order
        )
    return Service(command, process, log)


def _wait_ended(one: Service) -> None:
    try:
        one.process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        say(f"[red]{one.command} did not stop in {STOP_SECONDS:g} s and is killed[/]")
        one.process.kill()
        one.process.wait()


def wait_until(what: str, seconds: float, services: Sequence[Service], done: Callable[[], bool]) -> None:
    """Poll until the condition is met; fails at once if a service has exited."""
    deadline = Deadline(seconds)
    while not done():
        for each in services:
            each.check_alive()
        if deadline.passed():
            logs = ", ".join(str(each.log) for each in services)
            raise DemoFailed(f"{what}: not within {seconds:g} s; see {logs}")
        time.sleep(0.1)


def answers(client: httpx.Client, url: str) -> dict[str, Any] | None:
    """Return the JSON of a successful response, or None."""
    try:
        response = client.get(url)
    except httpx.TransportError:
        return None
    found: dict[str, Any] | None = response.json() if response.is_success else None
    return found


def reached(client: httpx.Client, url: str, headers: Mapping[str, str] | None = None) -> bool:
    try:
        return client.get(url, headers=headers).is_success
    except httpx.TransportError:
        return False


def mark(right: bool) -> str:  # noqa: FBT001 the only argument
    return "[green]right[/]" if right else "[red]WRONG[/]"
