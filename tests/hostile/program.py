"""A service as a process, from its listening to its end."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final

from infra.scenarios.manifest import load_all

from localkafka.broker import Broker
from localkafka.waiting import wait_until
from servicekit_testing.prefork import Forked, prefork_of

ROOT: Final = Path(__file__).resolve().parents[2]
OURS: Final = ("STREAMTABLE_", "SERVICEKIT_", *(f"{each.folder.upper()}_" for each in load_all(ROOT)))
_BROKEN_CONNECTION: Final = "Local: Broker transport failure"
"""The text in the log line of a Kafka client whose connection was lost, as on a busy machine; the client reconnects."""
_LISTENING: Final = re.compile(r"listening on (\w+)://(\S+)")


@dataclass
class Program:
    """A process that runs, and what it has written so far."""

    process: Forked
    lines: list[str]

    def memory_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text("ascii"))
        assert found is not None
        return int(found[1]) / 1024

    def check_alive(self) -> None:
        assert self.process.poll() is None, "".join(self.lines)

    def check_log(self) -> None:
        """Check that nothing unexpected was logged."""
        unforeseen = [
            line
            for line in self.lines
            if "Traceback" in line or ('"level": "error"' in line and _BROKEN_CONNECTION not in line)
        ]
        assert not unforeseen, unforeseen


@contextmanager
def program(
    broker: Broker,
    command: str,
    scheme: str,
    environment: Mapping[str, str],
    module: str = "click_count.main",
) -> Iterator[tuple[Program, str]]:
    """Start a service, and say where it listens, without the scheme.

    Args:
        broker: The broker that it uses.
        command: The command of the service; "" for one that has no commands.
        scheme: the beginning of the scheme of the requested address.
        environment: its settings, beyond its usual ones; none comes from this process.
        module: The module of the service.
    """
    with ExitStack() as stack:
        own = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "STREAMTABLE_LOG_FORMAT": "json",
            "STREAMTABLE_INSTANCE_ID": "hostile",
            "STREAMTABLE_STATE_DIR": stack.enter_context(TemporaryDirectory(prefix="streamtable-hostile-")),
        }
        clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        read, write = os.pipe()
        process = prefork_of(module).start(command.split(), {**clean, **own, **environment}, write)
        os.close(write)
        started = Program(process, [])
        reader = Thread(target=_read, args=(started, read))
        reader.start()
        stack.callback(reader.join)
        stack.callback(process.wait, 30)
        stack.callback(process.kill)
        addresses: list[str] = []

        def listening() -> bool:
            matches = (_LISTENING.match(line) for line in started.lines)
            addresses.extend(match[2] for match in matches if match and match[1].startswith(scheme))
            started.check_alive()
            return bool(addresses)

        wait_until(listening, 90)
        yield started, addresses[0]


def _read(started: Program, output: int) -> None:
    with open(output, encoding="utf-8") as lines:
        started.lines.extend(lines)
