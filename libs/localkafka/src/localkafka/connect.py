"""Kafka Connect, standalone and without containers: a worker as a Java process, from the broker's own jars.

`python -m localkafka connect --connector postgres.json` runs one until Ctrl-C. Connectors are fetched from Maven Central
once per machine, pinned by hash as Kafka's own jars are.
"""

import argparse
import json
import logging
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.resources import as_file
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from localkafka.broker import LOGGING
from localkafka.cache import PINS
from localkafka.errors import BrokerFailed, LocalKafkaError, SetupError
from localkafka.jars import kafka_jars, maven_jars
from localkafka.java import BRIEF, find_java
from localkafka.process import Child, reserve_port
from localkafka.waiting import Deadline

PLUGINS = {
    "io.debezium.connector.postgresql.PostgresConnector": "debezium-postgres-3.6.0",
    "org.apache.kafka.connect.file.FileStreamSinkConnector": "connect-file-4.3.1",
    "org.apache.kafka.connect.file.FileStreamSourceConnector": "connect-file-4.3.1",
}
"""The connectors that are fetched when a configuration names their class, and the pins of their jars."""
DEFAULT_DATA = Path("build/connect")
TOPIC_DEFAULTS = {
    "topic.creation.default.replication.factor": "-1",
    "topic.creation.default.partitions": "-1",
}
"""Development brokers create no topics by themselves, so Connect does, as the broker's defaults say."""


log = logging.getLogger(__name__)


class Connector:
    """A connector as its JSON file declares it: `{"name": ..., "config": {...}}`.

    Args:
        name: The name of the connector.
        config: Its settings. `topic.creation.default.*` of source connectors may be missing: see `TOPIC_DEFAULTS`.

    Raises:
        SetupError: There is no name or no `connector.class`, or a setting is neither text nor a number.
    """

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        bad = sorted(key for key, value in config.items() if not isinstance(value, str | int | float))
        if not name or "connector.class" not in config or bad:
            reason = f"{', '.join(bad)} must be text" if bad else "it needs a name and a connector.class"
            raise SetupError(f'connector {name!r}: {reason}, as in {{"name": "shop", "config": {{...}}}}')
        self.name = name
        self.config = {key: _text(value) for key, value in config.items()}

    @classmethod
    def read(cls, path: Path) -> "Connector":
        """Read the file of a connector, as `POST /connectors` of Connect's REST interface takes it.

        Raises:
            SetupError: The file is missing, or is not JSON, or not a connector's.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SetupError(f"{path} is not a connector's JSON file: {error}") from error
        if not isinstance(found, dict) or not isinstance(found.get("config"), dict):
            raise SetupError(
                f'{path} is not a connector\'s JSON file: expected {{"name": ..., "config": {{...}}}}'
            )
        return cls(str(found.get("name", "")), found["config"])

    @property
    def plugin(self) -> str:
        """The name of its pins. Raises `SetupError` for a class that is not in `PLUGINS`."""
        found = PLUGINS.get(self.config["connector.class"])
        if found is None:
            raise SetupError(
                f"connector {self.name!r}: no pins for {self.config['connector.class']!r}; "
                f"give one of {', '.join(sorted(PLUGINS))}, or the folder of its jars as a plugin"
            )
        return found

    def declared(self) -> dict[str, Any]:
        """Return its declaration with all defaults, as it is written for the worker."""
        return {"name": self.name, "config": {**TOPIC_DEFAULTS, **self.config, "name": self.name}}


def plugin_folder(name: str) -> Path:
    """Return the folder of a connector's jars, fetched once. Raises `SetupError` if they cannot be, or are not as pinned."""
    with as_file(PINS / f"{name}.pom.xml") as pom:
        return maven_jars(f"connect-{name}", pom, (PINS / f"{name}.sha256").read_text())


class ConnectWorker:
    """A standalone worker. As a context manager, it is started on entry and stopped on exit; its files stay.

    Args:
        data_dir: The folder of its files, among them the positions of its source connectors.
        bootstrap_servers: Kafka.
        connectors: The connectors that it runs.
        port: The port of its REST interface; 0 chooses a free port, which stays reserved until `close`.
        plugins: Folders of jars of further plugins, beside those in `PLUGINS`.
        settings: Settings of the worker that take precedence, such as its converters. By default keys and values are JSON
            without schemas.
        heap: The heap size of the JVM.
        brief: True for a worker that lives for minutes, as in tests: see `Broker`.
        detached: True for a worker that outlives this process. Otherwise it is killed with it.
    """

    def __init__(
        self,
        data_dir: Path,
        bootstrap_servers: str,
        connectors: Sequence[Connector],
        *,
        port: int = 0,
        plugins: Sequence[Path] = (),
        settings: Mapping[str, str] | None = None,
        heap: str = "384m",
        brief: bool = False,
        detached: bool = False,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.log_file = self.data_dir / "connect.log"
        self.bootstrap_servers = bootstrap_servers
        self.connectors = tuple(connectors)
        self._requested_port = port
        self._plugins = tuple(plugins)
        self._settings = dict(settings or {})
        self._heap, self._brief, self._detached = heap, brief, detached
        self._held = ExitStack()
        self._port = 0
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """The address of its REST interface."""
        if not self._port:
            try:
                held = self._held.enter_context(reserve_port(self._requested_port))
            except OSError as error:
                raise SetupError(f"port {self._requested_port} is taken: choose another") from error
            self._port = held.getsockname()[1]
        return f"http://127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Whether its process exists."""
        return self._child is not None and self._child.returncode is None

    def start(self, timeout: float = 120) -> None:
        """Start it and wait until all connectors and their tasks run.

        Raises:
            SetupError: The port is taken, or jars or Java are missing.
            BrokerFailed: It ended, or a connector failed, or does not run in `timeout` seconds. The message says why.
        """
        self.launch()
        self.wait_running(timeout)

    def launch(self) -> None:
        """Start its process and return at once."""
        if self.running:
            return
        files = self._write_files()
        java = [
            str(find_java()),
            f"-Xmx{self._heap}",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            f"-Djava.io.tmpdir={self.data_dir / 'tmp'}",
            f"-Dlog4j2.configurationFile={LOGGING}",
            *([BRIEF] if self._brief else []),
        ]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = [*java, "-cp", f"{kafka_jars()}/*", main, *map(str, files)]
        self._child = Child(command, self.log_file, detached=self._detached)
        (self.data_dir / "pid").write_text(f"{self._child.pid}\n")

    def wait_running(self, timeout: float = 120) -> None:
        """Wait until all connectors and their tasks run. Raises as `start`."""
        deadline = Deadline(timeout)
        while not all(self._runs(each.name) for each in self.connectors):
            ended = None if self._child is None else self._child.returncode
            if ended is not None or deadline.passed():
                self.kill()
                state = f"ended with {ended}" if ended is not None else f"did not run in {timeout:.0f} s"
                text = self.log_file.read_bytes()[-3000:].decode(errors="replace")
                raise BrokerFailed(f"Kafka Connect on {self.url} {state}:\n{text}")
            time.sleep(0.1)

    def status(self, connector: str) -> dict[str, Any]:
        """Return the state of a connector and of its tasks, as Connect answers. Raises `OSError` if it does not."""
        # The address is made here, of http and 127.0.0.1.
        with urllib.request.urlopen(f"{self.url}/connectors/{connector}/status", timeout=5) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
        return found

    def stop(self, timeout: float = 30) -> None:
        """Stop it with SIGTERM; kill it if it takes longer than `timeout` seconds."""
        if self._child:
            self._child.stop(timeout)
            self._gone()

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self._child:
            self._child.kill()
            self._gone()

    def close(self) -> None:
        """Stop it and release its port."""
        self.stop()
        self._held.close()
        self._port = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _gone(self) -> None:
        self._child = None
        (self.data_dir / "pid").unlink(missing_ok=True)

    def _runs(self, connector: str) -> bool:
        """Whether the connector and its tasks run. Raises `BrokerFailed` with Connect's reason if one of them failed."""
        try:
            found = self.status(connector)
        except (OSError, ValueError):  # it is starting
            return False
        states = [found["connector"], *found["tasks"]]
        for each in states:
            if each["state"] == "FAILED":
                self.kill()
                raise BrokerFailed(f"connector {connector!r} failed:\n{each.get('trace', '')[:3000]}")
        return len(states) > 1 and all(each["state"] == "RUNNING" for each in states)

    def _write_files(self) -> list[Path]:
        """Write the worker's settings and its connectors. Returns their paths, as the program takes them."""
        plugins = self.data_dir / "plugins"
        shutil.rmtree(plugins, ignore_errors=True)
        for folder in (self.data_dir / "tmp", plugins):
            folder.mkdir(parents=True, exist_ok=True)
        pinned = {each.plugin for each in self.connectors if not self._plugins}
        for folder in (*self._plugins, *map(plugin_folder, sorted(pinned))):
            (plugins / folder.name).symlink_to(folder.resolve())
        converter = "org.apache.kafka.connect.json.JsonConverter"
        settings = {
            "bootstrap.servers": self.bootstrap_servers,
            "key.converter": converter,
            "value.converter": converter,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(self.data_dir / "offsets"),
            "offset.flush.interval.ms": "1000",
            "listeners": self.url,
            "plugin.path": str(plugins),
            "plugin.discovery": "service_load",
            **self._settings,
        }
        worker = self.data_dir / "worker.properties"
        worker.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        files = [worker]
        for each in self.connectors:
            path = self.data_dir / f"{each.name}.json"
            path.touch(0o600)  # it holds the password of the database
            path.write_text(json.dumps(each.declared(), indent=2))
            files.append(path)
        return files


def run(worker: ConnectWorker) -> None:
    """Run a worker until Ctrl-C or SIGTERM. Raises `BrokerFailed` if it ends by itself."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with worker:
            names = ", ".join(each.name for each in worker.connectors)
            say(
                f"Kafka Connect runs {names}; its REST interface is {worker.url}, its files are in {worker.data_dir}"
            )
            while worker.running:
                time.sleep(0.2)
            raise BrokerFailed(f"Kafka Connect ended by itself; its log is {worker.log_file}")
    except KeyboardInterrupt:
        say("stopped")


def worker_of(
    data: Path,
    kafka: str,
    connectors: Sequence[Path],
    port: int,
    plugins: Sequence[Path],
    settings: Sequence[str],
) -> ConnectWorker:
    """Return the worker that the arguments of a command describe.

    Args:
        data: See `ConnectWorker`.
        kafka: `host:port` of Kafka.
        connectors: Files as `Connector.read` takes them.
        port: The port of the REST interface.
        plugins: See `ConnectWorker`.
        settings: `NAME=VALUE` each.

    Raises:
        LocalKafkaError: A file or a setting is malformed.
    """
    if bad := [each for each in settings if "=" not in each]:
        raise SetupError(f"--setting {bad[0]}: expected NAME=VALUE")
    return ConnectWorker(
        data,
        kafka,
        [Connector.read(path) for path in connectors],
        port=port,
        plugins=plugins,
        settings=dict(each.split("=", 1) for each in settings),
    )


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)  # noqa: T201 - the output of this command


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Parse the command line and run the worker."""
    parser = argparse.ArgumentParser(
        prog="python -m localkafka connect",
        description="Kafka Connect, standalone, for development and tests: runs connectors until Ctrl-C.",
    )
    parser.add_argument(
        "--connector",
        type=Path,
        action="append",
        required=True,
        metavar="FILE.json",
        help="a connector, as POST /connectors takes it; may be repeated",
    )
    parser.add_argument("--kafka", default="127.0.0.1:9092", metavar="HOST:PORT", help="Kafka (%(default)s)")
    parser.add_argument(
        "--data", type=Path, default=DEFAULT_DATA, help="folder for positions and logs (%(default)s)"
    )
    parser.add_argument("--port", type=int, default=8083, help="port of the REST interface (%(default)s)")
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the worker, such as value.converter.schemas.enable=true; may be repeated",
    )
    parser.add_argument(
        "--plugin",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder with the jars of a connector that has no pins here; may be repeated",
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        run(worker_of(given.data, given.kafka, given.connector, given.port, given.plugin, given.setting))
    except LocalKafkaError as error:
        sys.exit(f"error: {error}")
    sys.exit(0)


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
