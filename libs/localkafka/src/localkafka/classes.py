"""An archive of Kafka's loaded classes (class data sharing), which a broker maps instead of reading its jars again.

It halves the CPU time of a start. `python -m localkafka.classes` makes it, once per machine and Java version. A broker
starts without it if there is none, and Java ignores one that does not fit.
"""

import logging
import sys
import tempfile
from pathlib import Path

from localkafka.broker import Broker
from localkafka.cache import cached
from localkafka.errors import BrokerFailed, SetupError
from localkafka.jars import class_archive
from localkafka.java import find_java

log = logging.getLogger(__name__)


def make(archive: Path) -> None:
    """Run a broker for a moment, and have its JVM write the archive when it exits. A JVM that cannot leaves no file.

    Raises:
        SetupError: The jars or Java are missing.
        BrokerFailed: The broker does not start.
    """

    def build(target: Path) -> None:
        options = [f"-XX:ArchiveClassesAtExit={target / archive.name}"]
        with (
            tempfile.TemporaryDirectory(prefix="streamtable-kafka-") as folder,
            Broker(Path(folder), brief=True, java_options=options) as broker,
        ):
            broker.stop(timeout=120)  # the archive is written at exit

    cached(archive.parent.name, build)


def main() -> None:
    """Make the archive unless it exists, and print its folder. A broker that does not start is only a warning."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        archive = class_archive(find_java())
        make(archive)
    except SetupError as error:
        sys.exit(str(error))
    except BrokerFailed as error:
        log.warning("Kafka's classes are not archived, as no broker starts on this machine: %s", error)
    else:
        print(archive.parent)  # noqa: T201 - the output of this command


if __name__ == "__main__":
    main()
