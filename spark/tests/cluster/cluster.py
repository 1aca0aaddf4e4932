"""A Spark cluster of processes on this machine, and an object store beside it: nothing that a job uses is on its own disk."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from localkafka.cache import cached, install_wheels
from localkafka.jars import maven_jars
from localkafka.process import reserve_port
from localkafka.waiting import wait_until
from streamtable_spark.session import jars_folder

HERE = Path(__file__).parent
SCRIPTS = Path(sys.executable).parent
BUCKET = "lake"
LOCAL = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
"""The address of all processes, also of drivers that start on a worker: Spark passes no address setting on to them."""
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
START_S = 120.0


class S3:
    """moto's server: S3 in memory."""

    def __init__(self, log: Path) -> None:
        pins = HERE / "moto.txt"
        packages = cached("moto-5.2.5", lambda target: install_wheels(pins, target))
        self._port = reserve_port()
        self.url = f"http://127.0.0.1:{_number_of(self._port)}"
        self._child = _start(
            [sys.executable, "-m", "moto.server", "-p", self.url.rpartition(":")[2]],
            log,
            {"PYTHONPATH": str(packages)},
        )

    def make_bucket(self) -> None:
        request = urllib.request.Request(f"{self.url}/{BUCKET}", method="PUT")
        wait_until(lambda: _answers(request), START_S)

    def close(self) -> None:
        _kill(self._child)
        self._port.close()

    @property
    def settings(self) -> dict[str, str]:
        """Spark's settings for this store."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.access.key": "any",
            "spark.hadoop.fs.s3a.secret.key": "any",
        }


class Workers:
    """A master and its workers, of one core each, that can be killed and replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = reserve_port(), reserve_port()
        port, page = map(_number_of, self._ports)
        self.master = f"spark://127.0.0.1:{port}"
        self._page = f"http://127.0.0.1:{page}/json/"
        self._master = self._daemon(
            "master", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", self.master.rpartition(":")[2], "--webui-port", str(page),
        )  # fmt: skip
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._started = 0

    def ensure(self, count: int) -> None:
        """Start workers until the master knows this many live ones."""
        while len(self._workers) < count:
            self._started += 1
            self._workers[self._started] = self._daemon(
                f"worker-{self._started}", "org.apache.spark.deploy.worker.Worker",
                "--host", "127.0.0.1", "--cores", "2", "--memory", "2g", "--webui-port", "0",
                "--work-dir", str(self._work(self._started)), self.master,
            )  # fmt: skip
        wait_until(lambda: self.alive() >= count, START_S)

    def alive(self) -> int:
        return sum(worker["state"] == "ALIVE" for worker in self._state().get("workers", ()))

    def drivers(self) -> list[str]:
        """The states of all drivers that were started on a worker."""
        state = self._state()
        return [
            each["state"] for each in (*state.get("activedrivers", ()), *state.get("completeddrivers", ()))
        ]

    def busy(self) -> list[int]:
        """The workers that have run a task of an application that has not ended."""
        running = {each["id"] for each in self._state().get("activeapps", ())}
        return [
            number
            for number in self._workers
            if any(
                file.parts[-3] in running and "Running task" in file.read_text(errors="replace")
                for file in self._work(number).glob("app-*/*/stderr")
            )
        ]

    def kill(self, number: int) -> None:
        """Kill a worker with its executors, without any cleanup."""
        _kill(self._workers.pop(number))

    def logs(self) -> str:
        """Return the ends of the logs of executors and drivers, for a failed test."""
        files = [
            *self._folder.glob("work-*/driver-*/std*"),
            *self._folder.glob("work-*/app-*/*/stderr"),
        ]
        return "\n".join(f"{file}:\n{file.read_text(errors='replace')[-1500:]}" for file in files)

    def close(self) -> None:
        for child in (*self._workers.values(), self._master):
            _kill(child)
        for port in self._ports:
            port.close()

    def _work(self, number: int) -> Path:
        return self._folder / f"work-{number}"

    def _daemon(self, name: str, *command: str) -> "subprocess.Popen[bytes]":
        environment = {
            **LOCAL,
            "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": BRIEF,
            "SPARK_LOCAL_DIRS": str(self._folder / "spill"),
        }
        return _start([str(SCRIPTS / "spark-class"), *command], self._folder / f"{name}.log", environment)

    def _state(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(self._page, timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (URLError, OSError):
            return {}


class SparkCluster:
    """The cluster, its object store, and the submission of jobs."""

    def __init__(self, workers: Workers, s3: S3, archive: Path, broker: str, folder: Path) -> None:
        self.workers, self.s3, self._archive, self._broker, self._folder = (
            workers,
            s3,
            archive,
            broker,
            folder,
        )

    @contextmanager
    def submitted(
        self, name: str, *arguments: str, on_worker: bool = False
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """A job that spark-submit has started: its driver here (client mode), or on a worker (cluster mode)."""
        program, archive = self._archive / "streamtable-spark.py", self._archive / "streamtable-spark.zip"
        jars = [*jars_folder(os.environ).glob("*.jar"), *s3_jars().glob("*.jar")]
        settings = {
            **self.s3.settings,
            "spark.ui.enabled": "false",
            "spark.executor.memory": "640m",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.executor.extraJavaOptions": BRIEF,
            "spark.driver.extraJavaOptions": BRIEF,
            "spark.network.timeout": "60s",
            "spark.pyspark.python": sys.executable,
        }
        words = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
        command = [
            str(SCRIPTS / "spark-submit"), "--master", self.workers.master, "--driver-memory", "768m",
            "--jars", ",".join(map(str, jars)), "--py-files", str(archive), *words,
        ]  # fmt: skip
        if on_worker:
            # A standalone cluster starts Java on a worker, and no Python: Spark's own class for Python programs is that Java.
            command += ["--deploy-mode", "cluster", "--class", "org.apache.spark.deploy.PythonRunner"]
            command += [f"file://{jars[0]}", str(program), str(archive), *arguments]
        else:
            command += [str(program), *arguments]
        environment = {
            "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
            "STREAMTABLE_BOOTSTRAP_SERVERS": self._broker,
            **LOCAL,
        }
        log = self._folder / f"{name}.log"
        child = _start(command, log, environment)
        try:
            yield child
        finally:
            _kill(child)

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def run(self, name: str, *arguments: str, seconds: float = 900.0, status: int = 0) -> str:
        """Submit a job, kill a worker while it runs, and check that it ends. Returns its output."""
        self.workers.ensure(2)
        with self.submitted(name, *arguments) as child:
            wait_until(lambda: bool(self.workers.busy()) or child.poll() is not None, seconds)
            assert child.poll() is None, self.said(name)[-3000:]
            self.workers.kill(self.workers.busy()[0])
            wait_until(lambda: child.poll() is not None, seconds)
            assert child.poll() == status, f"{self.said(name)[-3000:]}\n{self.workers.logs()[-6000:]}"
        return self.said(name)


@contextmanager
def cluster(folder: Path, archive: Path, broker: str) -> Iterator[SparkCluster]:
    """A cluster with two workers and an empty bucket."""
    with ExitStack() as stack:
        s3 = S3(folder / "s3.log")
        stack.callback(s3.close)
        workers = Workers(folder)
        stack.callback(workers.close)
        s3.make_bucket()
        yield SparkCluster(workers, s3, archive, broker, folder)


def s3_jars() -> Path:
    """Hadoop's file system for S3, fetched once."""
    pinned = (HERE / "s3-jars.sha256").read_text()
    return maven_jars("spark-s3-jars-3.4.2", HERE / "s3-pom.xml", pinned)


def _start(command: list[str], log: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    with log.open("ab") as out:
        out.write(f"{shlex.join(command)}\n".encode())
        return subprocess.Popen(
            command, env={**os.environ, **environment}, start_new_session=True, stdout=out, stderr=out
        )


def _kill(child: "subprocess.Popen[bytes]") -> None:
    """Kill a process with all its children, which are in the same process group."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(60)


def _answers(request: urllib.request.Request) -> bool:
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _number_of(reserved: socket.socket) -> int:
    port: int = reserved.getsockname()[1]
    return port
