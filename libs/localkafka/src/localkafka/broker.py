"""A real Kafka without containers: brokers as Java processes on 127.0.0.1, run from pinned jars.

`python -m localkafka` starts and stops one from the command line.
"""

import shutil
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from localkafka.errors import BrokerFailed, SetupError
from localkafka.formatting import format_folder, kafka_id
from localkafka.jars import KAFKA_VERSION, class_archive, kafka_jars
from localkafka.java import BRIEF, find_java
from localkafka.process import Child, reserve_port
from localkafka.security import LISTENER, Security
from localkafka.waiting import Deadline

READY_LINE = b"Kafka Server started"
LOGGING = files("localkafka") / "log4j2.properties"
SETTINGS = files("localkafka") / "broker.properties"
_PROTOCOLS = "listener.security.protocol.map"
_PLAIN_PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"  # as in broker.properties


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A node that is both broker and controller: its id and its two ports."""

    node_id: int
    port: int
    controller_port: int


@dataclass(frozen=True, slots=True)
class Listener:
    """An additional listener of a broker, in plain text without authentication, that advertises a port other than its
    own.

    Attributes:
        name: The listener's name, in capital letters.
        port: The port of 127.0.0.1 where the broker listens.
        advertised_port: The port of 127.0.0.1 that clients of this listener connect to: a proxy's.
    """

    name: str
    port: int
    advertised_port: int


def server_properties(
    node: BrokerNode,
    quorum: Sequence[BrokerNode],
    data_dir: Path,
    overrides: Mapping[str, str],
    security: Security | None = None,
    more_listeners: Sequence[Listener] = (),
) -> str:
    """The text of `server.properties`: the shared settings, this node's, then the overrides; the last one wins."""
    replicas = str(len(quorum))
    in_sync = str(len(quorum) // 2 + 1)
    listener = LISTENER if security else "PLAINTEXT"
    own = {
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in quorum),
        "listeners": f"{listener}://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": f"{listener}://127.0.0.1:{node.port}",
        "log.dirs": str(data_dir / "logs"),
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        **(security.properties(data_dir) if security else {}),
    }
    for each in more_listeners:
        own["listeners"] += f",{each.name}://127.0.0.1:{each.port}"
        own["advertised.listeners"] += f",{each.name}://127.0.0.1:{each.advertised_port}"
        own[_PROTOCOLS] = f"{own.get(_PROTOCOLS, _PLAIN_PROTOCOLS)},{each.name}:PLAINTEXT"
    return SETTINGS.read_text() + "".join(f"{name}={value}\n" for name, value in {**own, **overrides}.items())


class Broker:
    """A broker. As a context manager, it is started on entry and stopped on exit; its data stays until `wipe`.

    Args:
        data_dir: The folder of all its files. A broker on the folder of an earlier one continues with its data.
        port: 0 chooses a free port at the first start. The port stays reserved, also while the broker is down, until
            `close`.
        heap: The heap size of the JVM.
        overrides: Broker settings that take precedence over `broker.properties`.
        brief: True for a broker that lives for minutes, as in tests: Java uses only its first compiler (C1), which
            saves a third of the CPU time of the first minute and is slower afterwards, and a garbage collector of one thread.
        node_id: The node id, unique in its cluster.
        detached: True for a broker that outlives this process. Otherwise it is killed with it.
        security: TLS, users and ACLs; None for plain text without authentication. Passwords are written to its folder.
        java_options: Additional options of the JVM.
        listeners: Additional listeners, for clients that connect through a proxy; see `localkafka.wire`.
        version: The version of Kafka: `KAFKA_VERSION` or `KAFKA_3_VERSION` of `localkafka.jars`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        heap: str = "512m",
        overrides: Mapping[str, str] | None = None,
        brief: bool = False,
        node_id: int = 1,
        detached: bool = False,
        security: Security | None = None,
        java_options: Sequence[str] = (),
        listeners: Sequence[Listener] = (),
        version: str = KAFKA_VERSION,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.log_file = self.data_dir / "broker.log"
        self._port = port
        self._heap = heap
        self._overrides = dict(overrides or {})
        self._brief = brief
        self._node_id = node_id
        self._detached = detached
        self._security = security
        self._own_java_options = tuple(java_options)
        self._listeners = tuple(listeners)
        self._version = version
        self._held: list[socket.socket] = []
        self._quorum: Sequence[BrokerNode] = ()
        self._cluster_id = cluster_id(self.data_dir)
        self._child: Child | None = None
        self._log_start = 0

    @property
    def node(self) -> BrokerNode:
        """Its node id and ports; the ports are reserved on first access."""
        if not self._held:
            self._held = [_reserve(self._port), _reserve(0)]
        port, controller_port = (held.getsockname()[1] for held in self._held)
        return BrokerNode(self._node_id, port, controller_port)

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers for clients."""
        return f"127.0.0.1:{self.node.port}"

    def client(self, user: str | None = None) -> dict[str, str]:
        """The librdkafka options that authenticate a user; None: the administrator. Empty without security."""
        if self._security is None:
            return {}
        return self._security.client(user or self._security.administrator, self.data_dir)

    @property
    def pid(self) -> int:
        """The id of the Java process. Raises `BrokerFailed` if it was not started."""
        return self._running().pid

    @property
    def running(self) -> bool:
        """Whether its process exists, even if it is frozen."""
        return self._child is not None and self._child.returncode is None

    def start(self, timeout: float = 90) -> None:
        """Start it, formatting an empty data folder first, and wait until it is ready.

        Raises:
            SetupError: The port is taken, or the jars or a Java to run them are missing.
            BrokerFailed: It ended, or was not ready in `timeout` seconds. The message has the end of its log.
        """
        self.launch(self._quorum or (self.node,), self._cluster_id)
        self.wait_ready(timeout)

    def launch(self, quorum: Sequence[BrokerNode], of_cluster: str) -> None:
        """Start its process as a member of this quorum, and return at once."""
        if self.running:
            return
        self._quorum, self._cluster_id = quorum, of_cluster
        program = find_java()
        options = [
            f"-Xmx{self._heap}",
            *self._java_options(),
            *_class_archive_options(program, self._version),
        ]
        java = [str(program), *options, "-cp", f"{kafka_jars(self._version)}/*"]
        settings = self.data_dir / "server.properties"
        (self.data_dir / "tmp").mkdir(parents=True, exist_ok=True)
        settings.touch(0o600)
        settings.write_text(
            server_properties(
                self.node, quorum, self.data_dir, self._overrides, self._security, self._listeners
            )
        )
        if self._security:
            self._security.write(self.data_dir)
        if not (self.data_dir / "logs" / "meta.properties").exists():
            # Only the first compiler: the tool ends before the second one would pay off.
            tool = [java[0], BRIEF, *java[1:], "kafka.tools.StorageTool"]
            logs = self.data_dir / "logs"
            format_folder(tool, settings, logs, of_cluster, self._node_id, self._version, self._security)
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        command = [*java, *self._own_java_options, "kafka.Kafka", str(settings)]
        self._child = Child(command, self.log_file, detached=self._detached)
        (self.data_dir / "pid").write_text(f"{self._child.pid}\n")

    def wait_ready(self, timeout: float = 90) -> None:
        """Wait until it has logged that it started, and its metadata lists every broker of the cluster."""
        deadline = Deadline(timeout)
        while not (self._has_logged_ready() and self._answers()):
            ended = self._running().returncode
            if ended is not None or deadline.passed():
                self.kill()
                state = f"did not answer in {timeout:.0f} s" if ended is None else f"ended with {ended}"
                log = self.log_file.read_bytes()[self._log_start :]
                raise BrokerFailed(
                    f"the broker on port {self.node.port} {state}:\n{log[-3000:].decode(errors='replace')}"
                )
            time.sleep(0.05)

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

    def restart(self, overrides: Mapping[str, str] | None = None) -> None:
        """Stop and start it on the same port and data, with these settings added to its overrides."""
        self.stop()
        self._overrides |= overrides or {}
        self.start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its connections stay open, and requests are not answered."""
        self._running().pause()

    def resume(self) -> None:
        """Continue a frozen broker (SIGCONT)."""
        self._running().resume()

    def signal_stop(self) -> None:
        """Send SIGTERM and return at once; `stop` waits for it."""
        if self._child:
            self._child.signal_stop()

    def wipe(self) -> None:
        """Delete its data. Raises `BrokerFailed` while it runs."""
        if self.running:
            raise BrokerFailed(
                f"the broker on port {self.node.port} is running: stop it before its data is deleted"
            )
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def close(self) -> None:
        """Stop it and release its ports."""
        self.stop()
        for held in self._held:
            held.close()
        self._held = []

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

    def _running(self) -> Child:
        if self._child is None:
            raise BrokerFailed(f"the broker in {self.data_dir} is not running: start it first")
        return self._child

    def _gone(self) -> None:
        self._child = None
        (self.data_dir / "pid").unlink(missing_ok=True)

    def _java_options(self) -> list[str]:
        return [
            "-XX:+ExitOnOutOfMemoryError",
            # A killed JVM would leave its performance counters and unpacked native libraries in /tmp.
            "-XX:-UsePerfData",
            f"-Djava.io.tmpdir={self.data_dir / 'tmp'}",
            f"-Dlog4j2.configurationFile={LOGGING}",
            *([BRIEF, "-XX:+UseSerialGC"] if self._brief else []),
        ]

    def _has_logged_ready(self) -> bool:
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return READY_LINE in log.read()

    def _answers(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **self.client()})
        try:
            return len(admin.list_topics(timeout=2).brokers) == len(self._quorum)
        except KafkaException:
            return False


class BrokerCluster:
    """A cluster. The replication factor is the number of brokers, and `min.insync.replicas` a majority of them.

    Args:
        data_dir: Each broker has a folder in it, named after its node id.
        count: The number of brokers, which must be odd.
        port: The port of the first broker; the others use the ports after it. 0 chooses free ports.
        heap: The heap size of each broker.
        overrides: Settings of all brokers.
        brief: True for brokers that live for minutes; see `Broker`.
        detached: True for brokers that outlive this process.
        security: TLS, users and ACLs; see `Broker`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        count: int = 3,
        port: int = 0,
        heap: str = "512m",
        overrides: Mapping[str, str] | None = None,
        brief: bool = False,
        detached: bool = False,
        security: Security | None = None,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.brokers = tuple(
            Broker(
                self.data_dir / str(node_id),
                port=port + node_id - 1 if port else 0,
                heap=heap,
                overrides=overrides,
                brief=brief,
                node_id=node_id,
                detached=detached,
                security=security,
            )
            for node_id in range(1, count + 1)
        )

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, separated by commas."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def start(self, timeout: float = 90) -> None:
        """Start the brokers that do not run, and wait until each knows all others. Raises like `Broker.start`."""
        quorum = tuple(broker.node for broker in self.brokers)
        for broker in self.brokers:
            broker.launch(quorum, cluster_id(self.data_dir))
        for broker in self.brokers:
            broker.wait_ready(timeout)

    def stop(self, timeout: float = 30) -> None:
        """Stop all at once: if stopped one by one, the last ones would wait for a majority that is gone."""
        for broker in self.brokers:
            broker.signal_stop()
        for broker in self.brokers:
            broker.stop(timeout)

    def kill(self) -> None:
        """Kill all brokers with SIGKILL."""
        for broker in self.brokers:
            broker.kill()

    def wipe(self) -> None:
        """Delete the data of all brokers. Raises `BrokerFailed` while one of them runs."""
        for broker in self.brokers:
            broker.wipe()

    def close(self) -> None:
        """Stop all brokers and release their ports."""
        self.stop()
        for broker in self.brokers:
            broker.close()

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


def cluster_id(data_dir: Path) -> str:
    """The cluster id of a folder, in Kafka's form. A folder always has the same one."""
    return kafka_id(uuid.uuid5(uuid.NAMESPACE_URL, str(data_dir)))


def _class_archive_options(program: Path, version: str) -> list[str]:
    archive = class_archive(program, version)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def _reserve(port: int) -> socket.socket:
    try:
        return reserve_port(port)
    except OSError as error:
        raise SetupError(
            f"port {port} on 127.0.0.1 cannot be used ({error.strerror}): choose another, with --port"
        ) from error
