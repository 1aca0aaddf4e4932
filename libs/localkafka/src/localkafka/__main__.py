"""`python -m localkafka`: run a broker until it is stopped."""

import argparse
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from localkafka import connect
from localkafka.broker import BrokerCluster
from localkafka.errors import LocalKafkaError, SetupError

DEFAULT_DATA = Path("build/kafka")
STOP_TIMEOUT_S = 30
_PROC = Path("/proc")


def running(data_dir: Path) -> dict[Path, int]:
    """The running brokers of a data folder, as broker folder -> process id. Raises `SetupError` on Windows."""
    if sys.platform == "win32":
        raise SetupError(
            "localkafka needs signals that Windows lacks: use it in WSL, or a Kafka in a container"
        )
    found = {}
    for pid_file in sorted(data_dir.glob("*/pid")):
        text = pid_file.read_text().strip()
        pid = int(text) if text.isdecimal() else 0  # empty if the disk was full when it was written
        # The process id may have been reused by another program.
        if pid and str(pid_file.parent.resolve() / "server.properties") in _command_line(pid):
            found[pid_file.parent] = pid
    return found


def _command_line(pid: int) -> str:
    """Return the command line of a process; empty if there is none. Small images of Linux have no `ps`."""
    if (_PROC / "self").exists():
        with suppress(OSError):
            return (_PROC / str(pid) / "cmdline").read_text(errors="replace")
        return ""
    command = ["/bin/ps", "-ww", "-o", "args=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - a constant command


def up(data_dir: Path, port: int, count: int, *, foreground: bool) -> None:
    """Start brokers and leave them running; with `foreground`, wait for Ctrl-C and stop them."""
    if found := running(data_dir):
        raise SetupError(f"already running on {data_dir} (process {', '.join(map(str, found.values()))})")
    formatted = len(list(data_dir.glob("*/logs/meta.properties")))
    if formatted not in (0, count):
        raise SetupError(f"{data_dir} holds the data of {formatted} brokers, not {count}: wipe it first")
    cluster = BrokerCluster(data_dir, count=count, port=port, detached=not foreground)
    signal.signal(signal.SIGTERM, _interrupt)
    stays = False
    try:
        cluster.start()
        pids = ", ".join(str(broker.pid) for broker in cluster.brokers)
        where = f"process {pids}; data and logs in {data_dir}"
        print(f"Kafka answers on {cluster.bootstrap_servers} ({where})", flush=True)
        stays = not foreground
        while foreground and all(broker.running for broker in cluster.brokers):
            time.sleep(0.2)
    except KeyboardInterrupt:
        print("stopping")
    finally:
        if not stays:
            cluster.close()


def down(data_dir: Path) -> None:
    """Stop the brokers of a folder; kill those that take too long."""
    found = running(data_dir)
    for pid in found.values():
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while left := running(data_dir):
        if time.monotonic() > deadline:
            for pid in left.values():
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    for folder in found:
        (folder / "pid").unlink(missing_ok=True)
    print(f"stopped {len(found)} broker(s)" if found else f"no broker is running on {data_dir}")


def addresses(data_dir: Path) -> list[str]:
    """The addresses of the running brokers of a folder."""
    return [_address(folder) for folder in running(data_dir)]


def _address(folder: Path) -> str:
    settings = (folder / "server.properties").read_text().splitlines()
    return next(line.partition("//")[2] for line in settings if line.startswith("advertised.listeners="))


def status(data_dir: Path) -> int:
    """Print the running brokers. Returns the exit code: 0 if at least one runs."""
    found = running(data_dir)
    for folder, pid in found.items():
        print(f"{_address(folder)} is running (process {pid}; data in {folder})")
    if not found:
        print(f"no broker is running on {data_dir}")
    return 0 if found else 1


def wipe(data_dir: Path) -> None:
    """Stop the brokers of a folder and delete their files; other files stay."""
    down(data_dir)
    for settings in data_dir.glob("*/server.properties"):
        shutil.rmtree(settings.parent)
    if data_dir.exists() and not any(data_dir.iterdir()):
        data_dir.rmdir()


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Parse the command line and run the command."""
    given_arguments = list(sys.argv[1:] if arguments is None else arguments)
    if given_arguments[:1] == ["connect"]:
        connect.main(given_arguments[1:])
    parser = argparse.ArgumentParser(
        prog="python -m localkafka",
        description="A real Kafka on this machine, without containers; 'connect --help' is about Kafka Connect.",
    )
    parser.add_argument("verb", choices=("up", "down", "status", "wipe"))
    parser.add_argument(
        "--data", type=Path, default=DEFAULT_DATA, help="folder for data and logs (%(default)s)"
    )
    parser.add_argument("--port", type=int, default=9092, help="port of the first broker (%(default)s)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="how many (%(default)s)")
    parser.add_argument(
        "--foreground", action="store_true", help="up: stay in the foreground, and stop Kafka on Ctrl-C"
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        if given.verb == "up":
            up(given.data, given.port, given.brokers, foreground=given.foreground)
        elif given.verb == "status":
            sys.exit(status(given.data))
        else:
            {"down": down, "wipe": wipe}[given.verb](given.data)
    except LocalKafkaError as error:
        sys.exit(f"error: {error}")
    sys.exit(0)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
