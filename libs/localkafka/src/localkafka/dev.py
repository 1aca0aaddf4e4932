"""`streamtable dev`: a real Kafka on this machine, for development.

The command line loads this as its entry point `dev` in the group `streamtable.commands`.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Annotated

import typer

from localkafka import connect
from localkafka.__main__ import addresses, down, status, up, wipe
from localkafka.cache import cache_folder
from localkafka.errors import LocalKafkaError

_FAILED = 1
_INTERRUPTED = 130
_SHOW_SECONDS = 5.0
_MEGABYTE = 1_000_000

app = typer.Typer(
    no_args_is_help=True,
    help="A real Kafka on this machine, for development: one broker on 127.0.0.1, without passwords.",
)


def data_folder() -> Path:
    """Return the user's folder of Kafka's data, whatever folder the command is typed in."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "streamtable" / "kafka"


Data = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Its data and logs. Default: ~/.local/share/streamtable/kafka."),
]


@app.command(
    "up",
    epilog="Exit codes: 0 it runs; 1 it cannot be fetched or started, the port is taken, or it runs on another port; 130 interrupted.",
)
def up_command(
    port: Annotated[int, typer.Option(min=1, max=65_534, help="The port of 127.0.0.1.")] = 9092,
    data: Data = None,
) -> None:
    """Start Kafka and leave it running. If it runs already, only say where.

    The first start fetches Kafka (55 MB) into ~/.cache/streamtable and verifies it. Kafka needs Java 17 or newer, from
    JAVA_HOME or the PATH; if there is none, a Java 21 is fetched too (100 MB), for this command alone.
    """
    folder = data or data_folder()
    with _errors():
        found = addresses(folder)
        if found and not found[0].endswith(f":{port}"):
            raise LocalKafkaError(
                f"Kafka runs on {found[0]} already, not on port {port}: stop it first, {_stop(data)}"
            )
        if found:
            typer.echo(f"Kafka runs already on {found[0]}; data and logs in {folder}")
        else:
            with _progress():
                up(folder, port, 1, foreground=False)
            if not addresses(folder):
                raise typer.Exit(_INTERRUPTED)
    typer.echo(f"Stop it: {_stop(data)}. Its data stays until `{_stop(data)} --wipe`.")


@app.command(
    "down", epilog="Exit codes: 0 it does not run any more, or did not; 1 its data cannot be deleted."
)
def down_command(
    *,
    data: Data = None,
    wipe_data: Annotated[
        bool, typer.Option("--wipe", help="Delete its data: all topics, groups and offsets.")
    ] = False,
) -> None:
    """Stop Kafka. Its data stays for the next start."""
    with _errors():
        (wipe if wipe_data else down)(data or data_folder())


@app.command("status", epilog="Exit codes: 0 it runs; 1 it does not.")
def status_command(data: Data = None) -> None:
    """Say whether Kafka runs, and where."""
    with _errors():
        raise typer.Exit(status(data or data_folder()))


@app.command(
    "connect",
    epilog="Exit codes: 0 stopped; 1 a file is malformed, the jars cannot be fetched, or the worker ended by itself.",
)
def connect_command(
    *,
    connector: Annotated[
        list[Path],
        typer.Option(metavar="FILE.json", help="A connector, as POST /connectors takes it; may be repeated."),
    ],
    kafka: Annotated[str, typer.Option(metavar="HOST:PORT", help="Kafka.")] = "127.0.0.1:9092",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port of the REST interface; 0: a free one.")
    ] = 8083,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Positions and logs. Default: ~/.local/share/streamtable/connect."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of the worker; may be repeated.")
    ] = None,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER", help="The jars of a connector that has no pins here; may be repeated."
        ),
    ] = None,
) -> None:
    """Run Kafka Connect with connectors until Ctrl-C, such as Debezium's for PostgreSQL.

    The first start fetches the jars of Kafka (55 MB) and of Debezium (7 MB) into ~/.cache/streamtable and verifies them.
    """
    folder = data or data_folder().parent / "connect"
    with _errors(), _progress():
        connect.run(connect.worker_of(folder, kafka, connector, port, plugin or [], setting or []))


def _stop(data: Path | None) -> str:
    return "streamtable dev down" + (f" --data {data}" if data else "")


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (LocalKafkaError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(_FAILED) from error


@contextmanager
def _progress() -> Iterator[None]:
    """Show the names of downloads, and every few seconds how much has arrived."""
    log = logging.getLogger("localkafka")
    shown = logging.StreamHandler(sys.stderr)
    level, ended = log.level, Event()
    log.addHandler(shown)
    log.setLevel(logging.INFO)
    before = time.time()

    def show() -> None:
        last = 0
        while not ended.wait(_SHOW_SECONDS):
            arrived = _arriving(before)
            if arrived > last:
                log.info("  %d MB have arrived", arrived // _MEGABYTE)
                last = arrived

    thread = Thread(target=show, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        log.setLevel(level)
        log.removeHandler(shown)


def _arriving(since: float) -> int:
    """Return the bytes in the folders that the cache is filling now: what ended or was given up before is not counted."""
    total = 0
    for folder in cache_folder().glob(".*"):
        with suppress(OSError):  # it is renamed when it is complete
            if folder.stat().st_mtime >= since:
                total += sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return total
