"""A single Cassandra, from its jars, on the machine's Java. About 1 GB resident, and 7 s until it answers."""

import socket
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from localkafka.jars import maven_jars
from localkafka.java import BRIEF, find_java
from localstores.server import Server

CASSANDRA_VERSION = "5.0.9"
ROOTS = (("org.apache.cassandra", "cassandra-all", CASSANDRA_VERSION),)
PINS = files("localstores") / "pins" / f"cassandra-{CASSANDRA_VERSION}.sha256"
_OPTIONS_REQUEST = bytes([4, 0, 0, 0, 5, 0, 0, 0, 0])  # of its protocol: "what do you support?"
_SUPPORTED = bytes([0x84, 0, 0, 0, 6])
# What Cassandra reaches into that Java keeps closed; its own start script names the same.
_EXPORTS = (
    "java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.sql/java.sql",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
)  # fmt: skip
_OPENS = (
    "java.base/java.lang", "java.base/java.lang.module", "java.base/java.lang.reflect", "java.base/java.io",
    "java.base/java.math", "java.base/java.net", "java.base/java.nio", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/sun.nio.ch",
    "java.base/jdk.internal.loader", "java.base/jdk.internal.ref", "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math", "java.base/jdk.internal.module", "java.base/jdk.internal.util.jar",
    "java.management/sun.management", "jdk.management/com.sun.management.internal",
    "java.management/com.sun.jmx.mbeanserver",
)  # fmt: skip


class CassandraServer(Server):
    """A Cassandra of one node, with one replica and without authentication.

    Args:
        data_dir: see `Server`.
        heap: The heap size of the JVM.
        brief: Whether it lives for minutes only, as in tests: its JVM then does without what pays later.
        port: The CQL port; see `Server`.
        detached: see `Server`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        heap: str = "512m",
        brief: bool = False,
        port: int = 0,
        detached: bool = False,
    ) -> None:
        super().__init__(data_dir, port=port, detached=detached)
        self._heap, self._brief = heap, brief

    def command(self) -> Sequence[str]:
        jars = maven_jars(f"cassandra-{CASSANDRA_VERSION}", ROOTS, PINS.read_text())
        settings, logging, temporary = (
            self.data_dir / name for name in ("cassandra.yaml", "logback.xml", "tmp")
        )
        settings.write_text(self._settings())
        logging.write_text((files("localstores") / "logback.xml").read_text())
        temporary.mkdir(exist_ok=True)
        (agent,) = jars.glob("jamm-*.jar")
        properties = {
            "cassandra.config": settings.as_uri(),
            "cassandra.storagedir": str(self.data_dir),
            "logback.configurationFile": str(logging),
            # A single node has no other node to wait for.
            "cassandra.ring_delay_ms": "1",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra-foreground": "yes",
            "jdk.attach.allowAttachSelf": "true",
            "java.io.tmpdir": str(temporary),
        }
        return (
            str(find_java()),
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            "-XX:MaxDirectMemorySize=256m",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            *((BRIEF, "-XX:+UseSerialGC") if self._brief else ()),
            f"-javaagent:{agent}",
            *(part for name in _EXPORTS for part in ("--add-exports", f"{name}=ALL-UNNAMED")),
            *(part for name in _OPENS for part in ("--add-opens", f"{name}=ALL-UNNAMED")),
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp",
            f"{jars}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        )

    def answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(_OPTIONS_REQUEST)
            return connection.recv(100).startswith(_SUPPORTED)

    def _settings(self) -> str:
        port, storage_port = self.ports(2)
        folder = self.data_dir
        lines = {
            "cluster_name": "local",
            "num_tokens": 1,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "commitlog_sync": "periodic",
            "commitlog_sync_period": "10000ms",
            "commitlog_segment_size": "8MiB",
            "data_file_directories": f"[{folder}/data]",
            "commitlog_directory": f"{folder}/commitlog",
            "saved_caches_directory": f"{folder}/saved_caches",
            "hints_directory": f"{folder}/hints",
            "cdc_raw_directory": f"{folder}/cdc_raw",
            "endpoint_snitch": "SimpleSnitch",
            "listen_address": "127.0.0.1",
            "storage_port": storage_port,
            "rpc_address": "127.0.0.1",
            "native_transport_port": port,
            "seed_provider": "[{class_name: org.apache.cassandra.locator.SimpleSeedProvider, "
            f'parameters: [{{seeds: "127.0.0.1:{storage_port}"}}]}}]',
        }
        return "".join(f"{name}: {value}\n" for name, value in lines.items())
