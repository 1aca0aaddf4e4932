"""A single Elasticsearch, from its jars, on Java 21. About 400 MB resident.

The jars are the server's core and its HTTP transport. Parts that Elastic publishes in no repository are missing:
scripts, ingest, update and delete by query, reindex, analyzers for languages.
"""

import shutil
import urllib.request
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from localkafka.cache import cached, run
from localkafka.jars import maven_jars
from localkafka.java import BRIEF, find_java
from localstores.server import Server

ELASTICSEARCH_VERSION = "9.5.3"
OLDEST_JAVA = 21
_TRANSPORT = "transport-netty4"
ROOTS = (
    ("org.elasticsearch", "elasticsearch", ELASTICSEARCH_VERSION),
    ("org.elasticsearch.plugin", _TRANSPORT, ELASTICSEARCH_VERSION),
    (
        "org.eclipse.jdt",
        "ecj",
        "3.42.0",
    ),  # compiles the few lines that start the node: a runtime has no compiler
)
PINS = files("localstores") / "pins" / f"elasticsearch-{ELASTICSEARCH_VERSION}.sha256"
_DESCRIPTOR = {
    "name": _TRANSPORT,
    "description": "HTTP",
    "version": ELASTICSEARCH_VERSION,
    "elasticsearch.version": ELASTICSEARCH_VERSION,
    "java.version": str(OLDEST_JAVA),
    "classname": "org.elasticsearch.transport.netty4.Netty4Plugin",
    "extended.plugins": "",
    "has.native.controller": "false",
}


class ElasticsearchServer(Server):
    """An Elasticsearch of one node, without security.

    Args:
        data_dir: see `Server`.
        heap: The heap size of the JVM.
        brief: Whether it lives for minutes only, as in tests: its JVM then does without what pays later.
        port: The HTTP port; see `Server`.
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

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        home = cached(f"elasticsearch-{ELASTICSEARCH_VERSION}-home", _build)
        temporary = self.data_dir / "tmp"
        temporary.mkdir(exist_ok=True)
        return (
            str(find_java(OLDEST_JAVA)),
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            *((BRIEF, "-XX:+UseSerialGC") if self._brief else ()),
            f"-Djava.io.tmpdir={temporary}",
            "-Dlog4j2.level=WARN",
            "--enable-native-access=ALL-UNNAMED",
            "-cp",
            f"{home}/main:{home}/lib/*",
            "SearchNode",
            str(home),
            str(self.data_dir),
            str(self.port),
        )

    def answers(self) -> bool:
        health = f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s"
        with urllib.request.urlopen(health, timeout=3) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)  # noqa: PLR2004 - OK


def _build(home: Path) -> None:
    """Lay the jars out as a node expects them, and compile what starts it."""
    jars = maven_jars(f"elasticsearch-{ELASTICSEARCH_VERSION}", ROOTS, PINS.read_text())
    module = home / "modules" / _TRANSPORT
    for folder in (home / "lib", module, home / "main"):
        folder.mkdir(parents=True)
    for jar in jars.glob("*.jar"):
        if jar.name.startswith("ecj-"):
            continue
        of_transport = jar.name.startswith(("netty-", _TRANSPORT))
        shutil.copy(jar, module if of_transport else home / "lib")
    text = "".join(f"{name}={value}\n" for name, value in _DESCRIPTOR.items())
    (module / "plugin-descriptor.properties").write_text(text)
    (compiler,) = jars.glob("ecj-*.jar")
    path = ":".join(str(jar) for jar in sorted((home / "lib").iterdir()))
    with as_file(files("localstores") / "SearchNode.java") as source:
        options = [f"-{OLDEST_JAVA}", "-proc:none", "-nowarn", "-cp", path, "-d", str(home / "main")]
        run([str(find_java(OLDEST_JAVA)), "-jar", str(compiler), *options, str(source)])
