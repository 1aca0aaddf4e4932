"""`make demo`: a real Kafka and the four services of click-count on this machine, clicks in, known counts out.

Everything is on 127.0.0.1 and in one temporary folder; Ctrl-C stops all of it in order. With --check it ends by
itself, with exit code 0 only if every count is right.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from localkafka.broker import Broker
from localkafka.errors import LocalKafkaError

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
KNOWN_CLICKS: Mapping[str, int] = {"alice": 5, "bob": 3, "carol": 2, "dave": 1, "erin": 1, "user-1": 8}
READY_SECONDS = 40.0
ANSWER_SECONDS = 20.0
STOP_SECONDS = 20.0
say = Console(highlight=False).print


class DemoFailed(Exception):
    """What did not work, and where to look."""


@dataclass
class Service:
    """A process of the demo: `click-count <role>`."""

    role: str
    process: subprocess.Popen[bytes]
    log: Path

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise DemoFailed(f"click-count {self.role} ended with {self.process.returncode}:\n{tail}")


def free_port(preferred: int) -> int:
    """The preferred port if nobody listens there, else any free one."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise DemoFailed("there is no free port")


@contextmanager
def service(role: str, environment: Mapping[str, str], folder: Path) -> Iterator[Service]:
    """Run a service; at the end ask it to stop, and insist if it does not."""
    log = folder / f"{role}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [BIN / "click-count", role],
            env={**os.environ, **environment, "STREAMTABLE_INSTANCE_ID": f"demo-{role}"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this program, which stops the services one after the other
        )
    try:
        yield Service(role, process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            say(f"[red]click-count {role} did not stop in {STOP_SECONDS:g} s and is killed[/]")
            process.kill()
            process.wait()


def wait_until(what: str, seconds: float, services: Sequence[Service], done: Callable[[], bool]) -> None:
    """Ask again and again; an answer that cannot come because a service died is reported at once."""
    deadline = time.monotonic() + seconds
    while not done():
        for each in services:
            each.check_alive()
        if time.monotonic() > deadline:
            logs = ", ".join(str(each.log) for each in services)
            raise DemoFailed(f"{what}: not within {seconds:g} s; see {logs}")
        time.sleep(0.1)


def answers(client: httpx.Client, url: str) -> dict[str, Any] | None:
    """The JSON of a good answer, or None."""
    try:
        response = client.get(url)
    except httpx.TransportError:
        return None
    found: dict[str, Any] | None = response.json() if response.is_success else None
    return found


def reached(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).is_success
    except httpx.TransportError:
        return False


def emit(client: httpx.Client, emitter: str) -> None:
    """Send the known clicks, in an order that mixes the users."""
    users = [user for user, count in KNOWN_CLICKS.items() for _ in range(count)]
    clicks = [
        {"user_id": user, "url": f"https://example.org/{n}"}
        for n, user in enumerate(users[::2] + users[1::2])
    ]
    response = client.post(f"{emitter}/clicks", json=clicks)
    response.raise_for_status()
    say(f"Emitted {len(clicks)} clicks by REST; every one is acknowledged by Kafka.")


def compare(client: httpx.Client, query: str, services: Sequence[Service]) -> bool:
    """Wait for the counts, print them beside the expected ones, return whether all are right."""
    found: dict[str, Any] = {}

    def counted() -> bool:
        for user in KNOWN_CLICKS:
            answer = answers(client, f"{query}/clicks/{user}")
            if answer is not None:
                found[user] = answer["count"]
        return found == KNOWN_CLICKS

    try:
        wait_until("the counts", ANSWER_SECONDS, services, counted)
    except DemoFailed as error:
        say(f"[red]{error}[/]")
    table = Table("user", "expected", "counted", "")
    for user, expected in KNOWN_CLICKS.items():
        right = found.get(user) == expected
        table.add_row(
            user, str(expected), str(found.get(user, "-")), "[green]right[/]" if right else "[red]WRONG[/]"
        )
    say(table)
    return found == KNOWN_CLICKS


def run(folder: Path, *, check: bool) -> int:
    """Start everything, show it, and stop it. Returns the exit code."""
    began = time.monotonic()
    with ExitStack() as running:
        say("Starting Kafka ...")
        broker = running.enter_context(Broker(folder / "kafka", port=free_port(9092)))
        environment = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "STREAMTABLE_STATE_DIR": str(folder / "state"),
            "STREAMTABLE_LOG_FORMAT": "console",
        }
        subprocess.run(
            [BIN / "streamtable", "topics", "apply", "--file", ROOT / "infra" / "topics.yaml"],
            env={**os.environ, **environment},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        say("Starting the four services of click-count ...")
        addresses = {role: f"127.0.0.1:{free_port(port)}" for role, port in
                     (("emitter", 8081), ("query", 8082), ("processor", 8083), ("view", 50051))}  # fmt: skip
        for_role = {
            "emitter": {"STREAMTABLE_HTTP_ADDRESS": addresses["emitter"]},
            "query": {"STREAMTABLE_HTTP_ADDRESS": addresses["query"]},
            "processor": {"STREAMTABLE_METRICS_ADDRESS": addresses["processor"]},
            "view": {"STREAMTABLE_GRPC_ADDRESS": addresses["view"], "CLICK_COUNT_REFLECTION": "true"},
        }
        # The emitter is started last and so stopped first: what it accepted is still counted.
        services = [
            running.enter_context(service(role, {**environment, **for_role[role]}, folder))
            for role in ("processor", "view", "query", "emitter")
        ]
        emitter, query = f"http://{addresses['emitter']}", f"http://{addresses['query']}"
        with httpx.Client(timeout=5) as client:
            for url in (f"{emitter}/readyz", f"{query}/readyz", f"http://{addresses['processor']}/readyz"):
                wait_until(f"{url} is ready", READY_SECONDS, services, partial(reached, client, url))
            emit(client, emitter)
            right = compare(client, query, services)
        say(f"{'Right' if right else 'Wrong'} after {time.monotonic() - began:.0f} s.")
        if check or not right:
            return 0 if right else 1
        show(emitter, query, addresses, environment)
        while True:
            time.sleep(1)
            for each in services:
                each.check_alive()


def show(emitter: str, query: str, addresses: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """What to open and what to try."""
    say(
        f"""
[bold]Open[/]
  {query}/top                      the users with the most clicks
  {query}/events                   live changes (server-sent events)
  http://{addresses["processor"]}/metrics    the processor's metrics

[bold]Try[/] in another terminal
  curl {query}/clicks/alice
  curl -X POST {emitter}/clicks -H 'content-type: application/json' \\
       -d '{{"user_id": "alice", "url": "https://example.org/"}}'
  STREAMTABLE_BOOTSTRAP_SERVERS={environment["STREAMTABLE_BOOTSTRAP_SERVERS"]} \\
       .venv/bin/click-count load --rate 2000 --keys 100 --seconds 10

gRPC is served on {addresses["view"]}. [bold]Ctrl-C[/] stops everything.
""",
        soft_wrap=True,
    )


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="end by itself; 0 only if the counts are right")
    check = parser.parse_args().check
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: stop all in order
    folder = Path(tempfile.mkdtemp(prefix="streamtable-demo-"))
    try:
        code = run(folder, check=check)
    except KeyboardInterrupt:
        say("Everything is stopped.")
        code = 0
    except (DemoFailed, LocalKafkaError, subprocess.CalledProcessError, httpx.HTTPError) as error:
        say(f"[red]The demo failed:[/] {error}\nLogs are in {folder}.", markup=True)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
